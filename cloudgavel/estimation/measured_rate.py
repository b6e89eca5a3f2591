"""Steps per second from a job's own progress, robust against noise, saves and wrong reports."""

import statistics
from dataclasses import dataclass, replace
from typing import Final

WINDOW_S: Final = 120.0
"""One window is at least so long: many times the lag of a report."""
KEPT_WINDOWS: Final = 15
"""Half an hour of them: a job that changes its pace is believed soon."""
FEWEST_WINDOWS: Final = 3
"""Before that nothing counts as measured: warm-up, or a single wild report."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RateWindows:
    """Rates of successive windows of one job on one gang, and the window that is open."""

    rates_steps_per_s: tuple[float, ...] = ()
    """Newest last, at most ``KEPT_WINDOWS``."""
    open_at_s: float | None = None
    """When the open window began; ``None`` = none is open."""
    open_step: int = 0

    def begun(self, at_s: float, step: int) -> "RateWindows":
        """Open a window here, instead of the one that was open."""
        return replace(self, open_at_s=at_s, open_step=step)

    def paused(self) -> "RateWindows":
        """Close the open window without a rate: what follows is no progress of this kind."""
        return replace(self, open_at_s=None)

    def progressed(self, at_s: float, step: int) -> "RateWindows":
        """Take in that ``step`` was reached at ``at_s``.

        A window ends when it is long enough and a step was made. Time or steps that run backwards
        say nothing: a new window begins there.
        """
        if self.open_at_s is None or at_s < self.open_at_s or step < self.open_step:
            return self.begun(at_s, step)
        span_s = at_s - self.open_at_s
        if span_s < WINDOW_S or step == self.open_step:
            return self
        rates = (*self.rates_steps_per_s, (step - self.open_step) / span_s)
        return RateWindows(rates_steps_per_s=rates[-KEPT_WINDOWS:], open_at_s=at_s, open_step=step)

    @property
    def steps_per_s(self) -> float | None:
        """Median of the windows: up to half of them may be wrong. ``None`` = not measured yet."""
        if len(self.rates_steps_per_s) < FEWEST_WINDOWS:
            return None
        return statistics.median(self.rates_steps_per_s)
