"""Machines of the fake Google Cloud: each one really runs its start-up script on this machine.

What would end this machine (``shutdown``, ``systemd-run``) is stubbed; metadata come from a server
of its own. A machine that the cloud takes is killed with everything that it runs; one that shuts
itself down is stopped in the cloud.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from cloudgavel.agent.process import end_leftovers
from cloudgavel.providers.gcp.mocked.cloud import FakeGcp, Started
from cloudgavel.providers.gcp.mocked.server import serve_metadata

LOOK_EVERY_S = 0.05
PYTHONS = ("python3.14", "python3.13", "python3.12", "python3.11", "python3")
"""All that a start-up script looks for: the tests' own, with what jobs need."""


class Machines:
    """Starts what ``cloud`` launches, and kills what it takes; ``kill_all`` at the end.

    ``environment``: more of what their processes find there (the address of another cloud).
    """

    def __init__(
        self, cloud: FakeGcp, directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._cloud = cloud
        self._environment = dict(environment or {})
        self._directory = directory
        self._servers = ExitStack()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._followers: list[threading.Thread] = []
        self._over = threading.Event()
        self._lock = threading.Lock()
        cloud.on_start = self.start

    def start(self, started: Started) -> None:
        """Boot a machine; called by the cloud."""
        home = self._directory / started.name
        commands = home / "bin"
        commands.mkdir(parents=True)
        for name in ("shutdown", "systemd-run", "apt-get"):
            self._command(commands / name, "exit 0")
        for name in PYTHONS:
            self._command(commands / name, f'exec "{sys.executable}" "$@"')
        host = self._servers.enter_context(serve_metadata(self._cloud, started.name))
        with (home / "console.log").open("wb") as console:
            process = subprocess.Popen(
                ["bash", "-c", started.start_script],
                env={
                    **self._environment,
                    "PATH": f"{commands}:/usr/bin:/bin",
                    "HOME": str(home),
                    "CLOUDGAVEL_SCRATCH": str(home / "scratch"),
                    "GCE_METADATA_HOST": host,
                },
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        follower = threading.Thread(target=self._follow, args=(started.name, process), daemon=True)
        with self._lock:
            self._running[started.name] = process
            self._followers.append(follower)
        follower.start()

    def alive(self) -> list[str]:
        """Return the machines that still run something."""
        with self._lock:
            return [name for name, process in self._running.items() if process.poll() is None]

    def kill_all(self) -> None:
        """End every machine and its followers."""
        self._over.set()
        for name in list(self._running):
            self._kill(name)
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

    def _follow(self, name: str, process: "subprocess.Popen[bytes]") -> None:
        """Keep the machine and the cloud's idea of it the same."""
        while not self._over.wait(LOOK_EVERY_S):
            if process.poll() is not None:
                self._cloud.power_off(name)
                return
            if self._cloud.status(name) in (None, "TERMINATED", "PREEMPTED"):
                self._kill(name)
                return

    def _kill(self, name: str) -> None:
        process = self._running[name]
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        scratch = self._directory / name / "scratch" / "work"
        if scratch.is_dir():
            end_leftovers(scratch)

    @staticmethod
    def _command(path: Path, script: str) -> None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
