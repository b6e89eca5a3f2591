"""One job's processes: a session of their own, signalled and ended as a whole."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

ATTEMPT_VARIABLE = "CLOUDGAVEL_ATTEMPT_DIR"
"""Marks every process of an attempt, also those that leave its process group."""


class ProcessGroup:
    """A shell command in a new session; its process group is signalled as one.

    Output (both streams) is appended to ``log_path`` by the kernel, so it never blocks the job
    and outlives the agent.
    """

    def __init__(self, command: str, *, cwd: Path, env: Mapping[str, str], log_path: Path) -> None:
        with log_path.open("ab") as log:
            self._leader = subprocess.Popen(
                ["/bin/sh", "-c", command],
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._leader.pid
        self._attempt_dir = env.get(ATTEMPT_VARIABLE)
        self._stopped = False

    def exit_code(self) -> int | None:
        """Return the leader's exit code (negative = its signal); ``None`` while it runs."""
        return self._leader.poll()

    def group_lives(self) -> bool:
        """Whether any process of the group is left, also after its leader ended.

        A shell ends at SIGTERM at once while the script that it started is still saving.
        """
        self._reap_group()
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def signal(self, number: int) -> None:
        """Signal the whole group; a group that is gone is fine."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def suspend(self) -> None:
        """Hold every process of the group (SIGSTOP); once is enough."""
        if not self._stopped:
            self._stopped = True
            self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a held group go on (SIGCONT)."""
        if self._stopped:
            self._stopped = False
            self.signal(signal.SIGCONT)

    @property
    def suspended(self) -> bool:
        """Whether ``suspend`` holds the group."""
        return self._stopped

    def ask_to_end(self) -> None:
        """SIGTERM, delivered even to a held group."""
        self.signal(signal.SIGTERM)
        self.resume()

    def kill_all(self) -> None:
        """SIGKILL the group and every descendant that left it; then reap what fell to us."""
        self.signal(signal.SIGKILL)
        if self._attempt_dir is not None:
            for pid in processes_with(ATTEMPT_VARIABLE, self._attempt_dir):
                _kill(pid)
        self._reap_group()

    def _reap_group(self) -> None:
        """Collect orphans of the group that were handed to this process (a subreaper)."""
        with contextlib.suppress(ChildProcessError, AttributeError):
            while self._leader.poll() is not None and os.waitid(
                os.P_PGID, self.pid, os.WEXITED | os.WNOHANG
            ):
                pass


def processes_with(variable: str, prefix: str) -> Iterator[int]:
    """Pids of our processes whose environment has ``variable`` beginning with ``prefix``.

    Linux only (``/proc``); elsewhere nothing is found.
    """
    wanted = f"{variable}={prefix}".encode()
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as environment:
                if any(item.startswith(wanted) for item in environment.read().split(b"\0")):
                    yield int(name)


def end_leftovers(scratch: Path) -> int:
    """SIGKILL every job process that an earlier agent of this scratch left; return how many."""
    count = 0
    for pid in processes_with(ATTEMPT_VARIABLE, f"{scratch}/"):
        _kill(pid)
        count += 1
    return count


def become_subreaper() -> None:
    """Have orphaned grandchildren handed to this process (Linux), so that none is left behind."""
    try:
        import ctypes

        pr_set_child_subreaper = 36
        ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
