"""Time as an argument: the protocol, and a clock that moves only when told."""

from typing import Protocol


class Clock(Protocol):
    """Anything that knows what time it is, in UNIX seconds, UTC."""

    def now_s(self) -> float:
        """Return the present instant."""
        ...


class VirtualClock:
    """A clock for simulation and rehearsal: it stands still until ``advance_to``."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s

    def now_s(self) -> float:
        """Return the present virtual instant."""
        return self._now_s

    def advance_to(self, at_s: float) -> None:
        """Move forward to ``at_s``; a clock never goes back (``ValueError``)."""
        if at_s < self._now_s:
            raise ValueError(f"time went back from {self._now_s} to {at_s}")
        self._now_s = at_s
