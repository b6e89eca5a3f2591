"""The log of events as a protocol, and one that lives in memory (plans and simulations)."""

from collections.abc import Sequence
from typing import Protocol

from cloudgavel.store.events import Event


class EventLog(Protocol):
    """An append-only log; all events of one call are written or none."""

    def append(self, events: Sequence[Event]) -> None:
        """Write events in order, in one transaction."""
        ...

    def read(self, after: int = 0) -> Sequence[tuple[int, Event]]:
        """Return ``(sequence, event)`` of everything after a sequence number, in order."""
        ...


class MemoryLog:
    """A log for a run in virtual time: nothing is written anywhere."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def append(self, events: Sequence[Event]) -> None:
        """Keep the events."""
        self._events.extend(events)

    def read(self, after: int = 0) -> Sequence[tuple[int, Event]]:
        """Return everything after a sequence number (the first event has 1)."""
        return list(enumerate(self._events[after:], start=after + 1))
