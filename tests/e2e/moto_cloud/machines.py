"""Machines of the mocked cloud: each launched instance really runs its user data on this machine.

What would end this machine (``shutdown``, ``systemd-run``) is stubbed, and so is the AWS command
line, which is no part of the environment. Metadata come from a server of the machine's own.
"""

import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

from cloudgavel.agent.process import end_leftovers
from cloudgavel.providers.gcp.mocked.server import serve
from tests.e2e.moto_cloud.server import MotoCloud
from tests.fakes.gcp.machines import PYTHONS
from tests.fakes.imds import FakeImds

AWS_S3_CP = """\
import sys, boto3
bucket, _, key = sys.argv[4].removeprefix("s3://").partition("/")
boto3.client("s3").download_file(bucket, key, sys.argv[5])
"""


class Machines:
    """Boots what the cloud launches and kills what it takes; ``kill_all`` at the end."""

    def __init__(self, cloud: MotoCloud, directory: Path) -> None:
        self._cloud = cloud
        self._directory = directory
        self._servers = ExitStack()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._followers: list[threading.Thread] = []
        self._lock = threading.Lock()
        cloud.layer.on_launch = self.start
        cloud.layer.on_end = self.kill

    def start(self, instance_id: str, region: str, user_data: str) -> None:
        """Boot a machine; called by the cloud."""
        with self._lock:
            if instance_id in self._running:
                return  # A launch that was repeated with its token.
            home = self._directory / instance_id
            commands = home / "bin"
            commands.mkdir(parents=True)
            for name in ("shutdown", "systemd-run", "dnf", "apt-get", "sleep"):
                self._command(commands / name, "exit 0")
            self._command(commands / "tee", "cat")
            for name in PYTHONS:
                self._command(commands / name, f'exec "{sys.executable}" "$@"')
            (home / "aws.py").write_text(AWS_S3_CP)
            self._command(commands / "aws", f'exec "{sys.executable}" "{home}/aws.py" "$@"')
            metadata = FakeImds(instance_id=instance_id, region=region)
            with (home / "console.log").open("wb") as console:
                process = subprocess.Popen(
                    ["bash", "-c", user_data],
                    env={
                        "PATH": f"{commands}:/usr/bin:/bin",
                        "CLOUDGAVEL_SCRATCH": str(home / "scratch"),
                        "AWS_EC2_METADATA_SERVICE_ENDPOINT": self._servers.enter_context(
                            serve(metadata.handle)
                        ),
                        "AWS_ENDPOINT_URL": self._cloud.url,
                    },
                    cwd=home,
                    stdout=console,
                    stderr=console,
                    start_new_session=True,
                )
            follower = threading.Thread(
                target=self._follow, args=(instance_id, process), daemon=True
            )
            self._running[instance_id] = process
            self._followers.append(follower)
        follower.start()

    def kill(self, instance_id: str) -> None:
        """The machine is gone: no process of it gets another instant."""
        with self._lock:
            process = self._running.get(instance_id)
        if process is None:
            return
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        scratch = self._directory / instance_id / "scratch" / "work"
        if scratch.is_dir():
            end_leftovers(scratch)

    def alive(self) -> list[str]:
        """Return the machines that still run something."""
        with self._lock:
            return [each for each, process in self._running.items() if process.poll() is None]

    def kill_all(self) -> None:
        """End every machine and its followers."""
        for instance_id in list(self._running):
            self.kill(instance_id)
        for follower in self._followers:
            follower.join()
        self._servers.close()

    def logs(self) -> str:
        """Return what the machines and their agents said, for a test that failed."""
        return "\n".join(
            f"--- {path}\n{path.read_text(errors='replace')}"
            for path in sorted(self._directory.glob("*/**/*.log"))
            if path.is_file() and path.stat().st_size < 100_000
        )

    def _follow(self, instance_id: str, process: "subprocess.Popen[bytes]") -> None:
        """A machine whose script has ended has switched itself off."""
        process.wait()
        self._cloud.layer.shut_down_from_inside(instance_id)

    @staticmethod
    def _command(path: Path, script: str) -> None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
