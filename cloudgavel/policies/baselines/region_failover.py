"""Next-region fail-over, as brokers do it: an ordered list of places, walked on every loss.

The rule of managed spot jobs in multi-cloud brokers: relaunch where the job ran; if there is none,
walk the list of places (cheapest first) and take the first that has capacity; if none has, wait a
little and walk again. No view of the future; the deadline is kept by the same latch as greedy's.
"""

import numpy as np

from cloudgavel.policies.spot.safety import must_be_on_demand
from cloudgavel.policies.spot.view import ON_DEMAND, WAIT, Ints, SpotTerms, SpotView


class RegionFailover:
    """Keep the place; on a loss try the next ones in the order of their first price, cyclically."""

    def __init__(self, terms: SpotTerms) -> None:
        self._terms = terms
        jobs = len(terms.work_s)
        self._latched = np.zeros(jobs, dtype=bool)
        self._place = np.zeros(jobs, dtype=np.int64)
        self._order: Ints | None = None

    def decide(self, view: SpotView) -> Ints:
        """Return (J,) answers."""
        self._latched |= must_be_on_demand(self._terms, view)
        if self._order is None:
            per_work = (view.spot_usd_per_hour / self._terms.work_rate)[0]
            self._order = np.argsort(per_work, kind="stable")
        ordered = view.available[:, self._order]
        jobs, offers = ordered.shape
        rows = np.arange(jobs)
        turn = (self._place[:, None] + np.arange(offers)) % offers
        first = ordered[rows[:, None], turn].argmax(axis=1)
        place = turn[rows, first]
        found = ordered.any(axis=1)
        self._place = np.where(found, place, self._place)
        choice = np.where(found, self._order[place], WAIT)
        return np.where(self._latched, ON_DEMAND, choice)
