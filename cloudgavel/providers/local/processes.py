"""Which processes belong to a rehearsed machine, found without having been told their ids.

An agent is known by its scratch directory, the last word of its command line; its jobs' processes
by the variable that agents put into their environment, by descent, and by where their output goes.
So a restarted controller finds them all.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cloudgavel.process_tree import Family, process_table, writers_below

# Agents mark every process of a job with it; its value is a directory below the scratch directory.
_ATTEMPT_VARIABLE = "CLOUDGAVEL_ATTEMPT_DIR"
_PROC = Path("/proc")
_GONE_WITHIN_S = 10.0


def start_agent(
    command: Sequence[str], scratch: Path, environment: dict[str, str] | None
) -> "subprocess.Popen[bytes]":
    """Start an agent in a session of its own, so that it outlives the controller.

    ``--scratch`` and the directory are appended to ``command``; what it says goes to ``agent.log``
    there. ``environment`` ``None`` = this process's.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    with (scratch / "agent.log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--scratch", str(scratch)],
            cwd=scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def agents_of(scratch: Path) -> list[int]:
    """Return the pids of living agents that serve this scratch directory."""
    if _PROC.is_dir():
        end = f"--scratch\0{scratch}".encode()
        return _in_proc("cmdline", lambda text: text.rstrip(b"\0").endswith(end))
    end = f"--scratch {scratch}".encode()
    return _in_ps(("-A", "-ww", "-o", "pid=,command="), lambda line: line.rstrip().endswith(end))


def is_agent_of(pid: int, scratch: Path) -> bool:
    """Whether ``pid`` is (still, or again) a living agent of this scratch directory."""
    if not _PROC.is_dir():
        return pid in agents_of(scratch)
    try:
        text = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False
    return text.rstrip(b"\0").endswith(f"--scratch\0{scratch}".encode())


def job_processes_of(scratch: Path) -> list[int]:
    """Return the pids of all processes of jobs that agents of this scratch directory started.

    Known by the mark in their environment, or by output that goes to a job's log.
    """
    mark = f"{_ATTEMPT_VARIABLE}={scratch}/".encode()
    if _PROC.is_dir():
        marked = _in_proc(
            "environ", lambda text: any(item.startswith(mark) for item in text.split(b"\0"))
        )
        table = process_table()
        writers = writers_below(table, scratch / "jobs") - {os.getpid()}
        return sorted({*marked, *(pid for pid in writers if not table[pid].gone)})
    return _in_ps(("-A", "-E", "-ww", "-o", "pid=,command="), lambda line: mark in line)


def end_processes_of(scratch: Path, child: "subprocess.Popen[bytes] | None" = None) -> None:
    """Kill a machine's agent and everything its jobs started; returns when they are gone.

    ``child`` is the agent where this process started it, and is reaped. Raises ``TimeoutError``
    where something cannot be killed.
    """
    give_up_at_s = time.monotonic() + _GONE_WITHIN_S
    family = Family()
    while True:
        # Whoever descends from them is remembered before its parents end.
        agents, jobs = agents_of(scratch), job_processes_of(scratch)
        below = family.living(process_table(), [*agents, *jobs])
        # Agents first: nothing new is started once they are gone.
        found = agents or sorted({*jobs, *below})
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=1.0 if found else 0.0)
        if not found:
            return
        if time.monotonic() > give_up_at_s:
            raise TimeoutError(f"processes {found} of {scratch} cannot be ended")
        time.sleep(0.001)


def _in_proc(name: str, wanted: Callable[[bytes], bool]) -> list[int]:
    found = []
    own = os.getpid()
    for entry in os.listdir(_PROC):
        if not entry.isdigit() or int(entry) == own:
            continue
        with contextlib.suppress(OSError):
            # A zombie has neither a command line nor an environment: it is gone already.
            if wanted((_PROC / entry / name).read_bytes()):
                found.append(int(entry))
    return sorted(found)


def _in_ps(options: Sequence[str], wanted: Callable[[bytes], bool]) -> list[int]:
    listing = subprocess.run(["ps", *options], capture_output=True, check=False).stdout
    found = []
    for line in listing.splitlines():
        pid, _, rest = line.strip().partition(b" ")
        if pid.isdigit() and int(pid) != os.getpid() and wanted(rest):
            found.append(int(pid))
    return sorted(found)
