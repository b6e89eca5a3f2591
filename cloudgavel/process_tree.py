"""Which processes of this machine belong together, read from ``/proc``; Linux only.

A process that clears its environment and makes a session of its own can no longer be known by
either. It is still a descendant of what started it, in a session that a descendant made, or it
writes where its starter told it to write.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_GONE = frozenset("ZXx")


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """One line of the table."""

    pid: int
    parent: int
    session: int
    started: str
    """Start time in ticks: with the pid it names one process for good."""
    gone: bool
    """Ended and not reaped yet."""


def process_table() -> Mapping[int, Process]:
    """Return every process that can be seen; empty without ``/proc``."""
    try:
        names = os.listdir(_PROC)
    except OSError:
        return {}
    table = {}
    for name in names:
        if name.isdigit():
            process = _read(int(name))
            if process is not None:
                table[process.pid] = process
    return table


def descendants(table: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """Return the pids of everything that the ``roots`` started and its parents still live."""
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid not in found:
                found.add(pid)
                waiting.append(pid)
    return found


def writers_below(table: Mapping[int, Process], directory: Path) -> set[int]:
    """Return the pids whose standard output or error is a file below ``directory``."""
    below = f"{directory}/"
    found = set()
    for pid in table:
        for descriptor in (1, 2):
            try:
                if os.readlink(_PROC / str(pid) / "fd" / str(descriptor)).startswith(below):
                    found.add(pid)
            except OSError:
                continue
    return found


class Family:
    """Processes that were once seen below some roots, and what came of them since.

    Remembered by pid and start time, and by the sessions that they made: who is orphaned later, or
    was started in between, is found again. This process itself is never a member.
    """

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._sessions: set[int] = set()

    def living(self, table: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
        """Add ``roots`` with all below them; return the pids of every member that lives."""
        fresh = {pid for pid in roots if pid in table}
        while fresh:
            fresh |= descendants(table, fresh)
            for pid in fresh:
                self._known[pid] = table[pid].started
            # Only sessions that a member made: never the one that it was started in.
            self._sessions |= {table[pid].session for pid in fresh} & set(self._known)
            fresh = {
                process.pid
                for process in table.values()
                if process.session in self._sessions and process.pid not in self._known
            }
        return {
            pid
            for pid, started in self._known.items()
            if pid != os.getpid()
            and pid in table
            and table[pid].started == started
            and not table[pid].gone
        } | {
            process.pid
            for process in table.values()
            if process.session in self._sessions and not process.gone and process.pid != os.getpid()
        }


def _read(pid: int) -> Process | None:
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return Process(
            pid=pid,
            parent=int(fields[1]),
            session=int(fields[3]),
            started=fields[19],
            gone=fields[0] in _GONE,
        )
    except (OSError, IndexError, ValueError):
        return None
