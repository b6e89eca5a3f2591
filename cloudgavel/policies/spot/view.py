"""What a spot controller is told at a step, and what it may answer.

Everything is an array over jobs, so that one thousand jobs are decided at once; a single job is a
batch of one (``SpotController`` of ``controller.py`` is that wrapper).
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

WAIT = -2
"""Hold nothing."""
ON_DEMAND = -1
"""Hold the on-demand fall-back; answers of 0 and above are the index of a spot offer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpotTerms:
    """What stays the same over the life of a batch of jobs. J jobs, O spot offers.

    Work is measured in seconds on the on-demand fall-back; ``work_rate`` says how many of those
    one second on each spot offer is worth (1 for the same accelerator).
    """

    tick_s: float
    """Seconds between two decisions."""
    changeover_s: float
    """Seconds paid without progress after a start (boot, restore); fractions of a tick allowed."""
    work_s: Floats
    """(J,) seconds of work of each whole job."""
    deadline_s: Floats
    """(J,) seconds from the start of each job to its deadline."""
    work_rate: Floats
    """(O,) or (J, O) seconds of work done per second on each spot offer."""
    lost_work_s: float = 0.0
    """Largest amount of unsaved work an interruption can cost (the save interval)."""
    holds_for_tick: bool = False
    """What can be had when a tick begins stays to its end, as in a replay; else a machine may
    vanish at any moment of the tick."""

    def __post_init__(self) -> None:
        if not self.tick_s > 0 or not self.changeover_s >= 0 or not self.lost_work_s >= 0:
            raise ValueError("tick_s must be positive, changeover_s and lost_work_s not negative")

    def rate_of(self, held: Ints) -> Floats:
        """(J,) pace of what each job holds; 1 for on-demand and for nothing."""
        offer = np.maximum(held, 0)
        rates = self.work_rate
        pace = rates[offer] if rates.ndim == 1 else rates[np.arange(len(held)), offer]
        result: Floats = np.where(held >= 0, pace, 1.0)
        return result


@dataclass(frozen=True, kw_only=True, slots=True)
class SpotView:
    """The present, as far as it can be seen. A job that is done has ``work_left_s`` 0."""

    elapsed_s: float
    """Seconds since the jobs started."""
    work_left_s: Floats
    """(J,) seconds of work not yet done."""
    available: Bools
    """(J, O) whether each spot offer can be had (or kept) in the step that begins now."""
    spot_usd_per_hour: Floats
    """(J, O) what each spot offer costs in this step."""
    on_demand_usd_per_hour: Floats
    """(J,) what the fall-back costs in this step."""
    held: Ints
    """(J,) ``WAIT``, ``ON_DEMAND`` or the index of the offer held; one just lost is not held."""
    pending_s: Floats
    """(J,) seconds of change-over that the held machine still has to go through."""
    spent_usd: Floats
    """(J,) money spent so far."""
    extra_spot_usd_per_hour: Floats | None = None
    """(J, O) shadow prices on top (quota duals, the budget's multiplier): they steer choices and
    are never paid."""
    extra_on_demand_usd_per_hour: Floats | None = None
    """(J,) the same for the fall-back."""


class SpotPolicy(Protocol):
    """A policy over a batch of jobs. May keep its own memory (what it has seen), does no IO."""

    def decide(self, view: SpotView) -> Ints:
        """Return (J,) answers: ``WAIT``, ``ON_DEMAND`` or the index of an *available* offer."""
        ...


def slack_s(terms: SpotTerms, view: SpotView) -> Floats:
    """(J,) seconds to the deadline beyond the work left, before any change-over."""
    return terms.deadline_s - view.elapsed_s - view.work_left_s
