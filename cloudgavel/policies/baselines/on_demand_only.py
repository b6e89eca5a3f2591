"""On-demand from the first second: the cost everything else is relative to."""

import numpy as np

from cloudgavel.policies.spot.view import ON_DEMAND, Ints, SpotTerms, SpotView


class OnDemandOnly:
    """Rent on-demand at once and keep it."""

    def __init__(self, terms: SpotTerms) -> None:
        self._jobs = len(terms.work_s)

    def decide(self, view: SpotView) -> Ints:
        """Return ``ON_DEMAND`` for every job."""
        return np.full(self._jobs, ON_DEMAND)
