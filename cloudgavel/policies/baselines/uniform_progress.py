"""Uniform progress: Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under Deadlines",
NSDI 2024, section 4.

The rules, in the paper's names. *Thrifty*: nothing is rented when nothing is left to do. *Safety
net*: on-demand when nothing else keeps the deadline; a spot machine past its change-over is kept
until it is lost. *Exploitation*: a spot machine that lives is kept. *Taking risk*: spot is taken
when it is there, from on-demand as well. *Uniform progress*: without spot, on-demand when progress
is behind the straight line from start to deadline. *Hysteresis*: on-demand, once started, is kept
until spot is there and progress is ahead of the line as it will be two change-overs later.

The authors' published simulator also has a variant without the hysteresis (on-demand is left as
soon as spot is there); it costs less on tight deadlines and is offered as ``hysteresis=False``.

The paper's spot is as fast as on-demand. A slower machine falls behind while it runs, so the safety
net does not let it stay.
"""

import numpy as np

from cloudgavel.policies.baselines.greedy_spot import keep_or_cheapest
from cloudgavel.policies.spot.view import ON_DEMAND, WAIT, Floats, Ints, SpotTerms, SpotView

_ROUNDING_S = 1e-6


class UniformProgress:
    """The paper's policy; with several offers it takes the cheapest that is available."""

    def __init__(self, terms: SpotTerms, *, hysteresis: bool = True) -> None:
        self._terms = terms
        self._hysteresis = hysteresis

    def decide(self, view: SpotView) -> Ints:
        """Return (J,) answers."""
        terms = self._terms
        pace = terms.work_s / terms.deadline_s
        done_s = terms.work_s - view.work_left_s
        behind = done_s < view.elapsed_s * pace - _ROUNDING_S
        spot = view.available.any(axis=1)
        choice = np.where(spot, keep_or_cheapest(terms, view), np.where(behind, ON_DEMAND, WAIT))
        leave = spot
        if self._hysteresis:
            leave = spot & (done_s > (view.elapsed_s + 2 * terms.changeover_s) * pace)
        choice = np.where((view.held == ON_DEMAND) & ~leave, ON_DEMAND, choice)
        left_s = _whole_ticks(terms.deadline_s - view.elapsed_s, terms.tick_s, np.floor)
        idle_or_on_demand = view.held < 0
        tight = idle_or_on_demand & (self._needed_s(view, 2) >= left_s)
        runs = (view.held >= 0) & (view.pending_s < _ROUNDING_S)
        runs &= terms.rate_of(view.held) >= 1.0
        tight |= ~runs & (self._needed_s(view, 1) >= left_s)
        # On a grid finer than the change-over two of them may be too late: keep the plain net too.
        slack = terms.deadline_s - view.elapsed_s - view.work_left_s
        tight |= ~runs & (slack < terms.tick_s + terms.changeover_s - _ROUNDING_S)
        stay = (view.held >= 0) & (choice == view.held) & runs
        return np.where(tight & ~stay, ON_DEMAND, choice)

    def _needed_s(self, view: SpotView, changeovers: int) -> Floats:
        needed = view.work_left_s + changeovers * self._terms.changeover_s
        return _whole_ticks(needed, self._terms.tick_s, np.ceil)


def _whole_ticks(seconds: Floats, tick_s: float, rounding: np.ufunc) -> Floats:
    nudge = 1e-9 if rounding is np.floor else -1e-9
    ticks: Floats = rounding(seconds / tick_s + nudge)
    return ticks * tick_s
