"""Least cost on a rented fleet: every deadline kept, for as little money as possible."""

from dataclasses import dataclass

from cloudgavel.policies.allocation import Allocation
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.policies.rented_plan import EXPLAINED_COUNT, cheapest_plan


@dataclass(frozen=True, kw_only=True)
class MinCost:
    """The planning LP of ``planning_lp`` with its second stage.

    ``explained_count`` binding limits get shadow prices; 0 saves their time. ``with_bound``: work
    out the lower bound, which changes no decision.
    """

    explained_count: int = EXPLAINED_COUNT
    with_bound: bool = True
    name = "min_cost"
    summary = "least cost that keeps every deadline, budget and quota"
    source = (
        "min sum p (k/g) y s.t. work, time, quotas, budget: Lawler and Labetoulle 1978, with prices"
    )

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Plan at least cost (see ``cheapest_plan`` for the statuses)."""
        return cheapest_plan(
            problem, explained_count=self.explained_count, with_bound=self.with_bound
        )
