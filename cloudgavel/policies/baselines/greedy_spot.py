"""Greedy spot with a latch: spot whenever it is there, else wait, until only on-demand is safe."""

import numpy as np

from cloudgavel.policies.spot.safety import must_be_on_demand
from cloudgavel.policies.spot.view import ON_DEMAND, WAIT, Ints, SpotTerms, SpotView


class GreedySpot:
    """Cheapest available spot offer (the held one if it is still there), else wait.

    Once the safety net calls for on-demand the job stays there to its end (the latch).
    """

    def __init__(self, terms: SpotTerms) -> None:
        self._terms = terms
        self._latched = np.zeros(len(terms.work_s), dtype=bool)

    def decide(self, view: SpotView) -> Ints:
        """Return (J,) answers."""
        self._latched |= must_be_on_demand(self._terms, view)
        choice = np.where(view.available.any(axis=1), keep_or_cheapest(self._terms, view), WAIT)
        return np.where(self._latched, ON_DEMAND, choice)


def keep_or_cheapest(terms: SpotTerms, view: SpotView) -> Ints:
    """(J,) the offer held if it is available, else the available one of least price per work."""
    per_work = np.where(view.available, view.spot_usd_per_hour / terms.work_rate, np.inf)
    cheapest = per_work.argmin(axis=1)
    rows = np.arange(len(view.held))
    keeps = (view.held >= 0) & view.available[rows, np.maximum(view.held, 0)]
    return np.where(keeps, view.held, cheapest)
