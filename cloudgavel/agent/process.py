"""One job's processes: a session of their own, signalled and ended as a whole."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from cloudgavel.process_tree import Family, descendants, process_table, writers_below

ATTEMPT_VARIABLE = "CLOUDGAVEL_ATTEMPT_DIR"
"""Marks every process of an attempt, also those that leave its process group."""

_PASSES = 3
"""Looks at the process table: what was started while its parent ended is seen at the second."""

_running: set[int] = set()
"""Leaders of groups that were not ended yet."""
_starting = threading.Lock()
_adopting = False
"""Whether orphans are handed to this process, and all its children are jobs'."""


class ProcessGroup:
    """A shell command in a new session; its process group is signalled as one.

    Output (both streams) is appended to ``log_path`` by the kernel, so it never blocks the job
    and outlives the agent.
    """

    def __init__(self, command: str, *, cwd: Path, env: Mapping[str, str], log_path: Path) -> None:
        with log_path.open("ab") as log, _starting:
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
            _running.add(self.pid)
        self._family = Family()
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
        if number == signal.SIGTERM:
            # Whoever outlives its parent is known afterwards all the same.
            self._family.living(process_table(), self._roots())
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
        """SIGKILL the group and every descendant that left it; then reap what fell to us.

        Also one that left the group, its session and its environment behind: found by descent, or
        by output that goes into the attempt's directory.
        """
        for _ in range(_PASSES):
            # Who descends from whom is to be seen before the parents end.
            with _starting:
                table = process_table()
                others = [pid for pid in _running if pid in table and not table[pid].gone]
            alone = all(pid == self.pid for pid in others)
            roots = self._roots()
            if self._attempt_dir is not None:
                roots |= set(processes_with(ATTEMPT_VARIABLE, self._attempt_dir))
                roots |= writers_below(table, Path(self._attempt_dir)) - {os.getpid()}
            if _adopting and alone:
                # Nothing else runs here: whoever was handed to us was this job's.
                roots |= descendants(table, [os.getpid()])
            members = self._family.living(table, roots)
            self.signal(signal.SIGKILL)
            for pid in members | (roots - {self.pid}):
                _kill(pid)
            self._reap_group()
            if not members:
                break
        if self._leader.poll() is not None:
            _running.discard(self.pid)

    def _roots(self) -> set[int]:
        """The leader, for as long as the number is surely its own."""
        return {self.pid} if self._leader.returncode is None else set()

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
    table = process_table()
    roots = set(processes_with(ATTEMPT_VARIABLE, f"{scratch}/"))
    roots |= writers_below(table, scratch / "jobs") - {os.getpid()}
    found = Family().living(table, roots) | roots
    for pid in found:
        _kill(pid)
    return len(found)


def end_descendants() -> None:
    """SIGKILL everything that this process, a subreaper, started or was handed."""
    family = Family()
    for _ in range(_PASSES):
        table = process_table()
        found = family.living(table, descendants(table, [os.getpid()]))
        for pid in found:
            _kill(pid)
        if not found:
            return


def become_subreaper() -> None:
    """Have orphaned grandchildren handed to this process (Linux), so that none is left behind."""
    global _adopting
    try:
        import ctypes

        pr_set_child_subreaper = 36
        done = ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return
    _adopting = done == 0


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
