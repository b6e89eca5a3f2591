"""Machines of the mocked cloud: each launched instance is a real agent process on this machine."""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.e2e.moto_cloud.server import ENVIRONMENT, MotoCloud

_SETTING = re.compile(r"^([A-Z_0-9]+)=(.*)$", re.MULTILINE)


def script_settings(user_data: str) -> dict[str, str]:
    """The variables that a start-up script sets at its beginning, as the shell reads them."""
    return {
        name: "".join(shlex.split(value))
        for name, value in _SETTING.findall(user_data.partition("\nHOME=")[0])
    }


class Machines:
    """Starts the agent that a machine's start-up script would start; kills it with the machine."""

    def __init__(self, cloud: MotoCloud, directory: Path) -> None:
        self._cloud = cloud
        self._directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        cloud.layer.on_launch = self.start
        cloud.layer.on_end = self.kill

    def start(self, instance_id: str, region: str, user_data: str) -> None:
        with self._lock:
            if instance_id in self._running:
                return  # A launch that was repeated with its token.
            told = script_settings(user_data)
            home = self._directory / instance_id
            home.mkdir(parents=True)
            log = (home / "agent.log").open("wb")
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "cloudgavel.agent"),
                    *("--store", told["STORE_URL"]),
                    *("--run", told["RUN_ID"]),
                    *("--instance", instance_id),
                    *("--scratch", str(home / "work")),
                ],
                env={
                    **os.environ,
                    **ENVIRONMENT,
                    "AWS_ENDPOINT_URL": self._cloud.url,
                    "AWS_DEFAULT_REGION": region,
                },
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            log.close()
            self._running[instance_id] = process
        threading.Thread(target=self._follow, args=(instance_id, process), daemon=True).start()

    def kill(self, instance_id: str) -> None:
        """The machine is gone: no process of it gets another instant."""
        with self._lock:
            process = self._running.get(instance_id)
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def alive(self) -> list[str]:
        with self._lock:
            return [each for each, process in self._running.items() if process.poll() is None]

    def kill_all(self) -> None:
        for instance_id in list(self._running):
            self.kill(instance_id)

    def _follow(self, instance_id: str, process: "subprocess.Popen[bytes]") -> None:
        """An agent that ends switches its machine off."""
        process.wait()
        self._cloud.layer.shut_down_from_inside(instance_id)
