"""Earliest end of everything on a rented fleet, under a budget."""

from dataclasses import dataclass

from cloudgavel.policies.allocation import Allocation
from cloudgavel.policies.due_times import makespan_due
from cloudgavel.policies.least_level import plan_at_least_level
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.policies.rented_plan import EXPLAINED_COUNT


@dataclass(frozen=True, kw_only=True)
class MinMakespan:
    """Finish all jobs as early as the budget, the quotas and the deadlines allow.

    ``min F`` subject to the planning LP with everything due at F; then the cheapest plan that ends
    by F.
    """

    explained_count: int = EXPLAINED_COUNT
    name = "min_makespan"
    summary = "earliest end of all jobs that the budget pays for"
    source = (
        "min F s.t. sum y/H >= 1, time and quota rows <= F, cost <= budget: "
        "Lawler and Labetoulle 1978"
    )
    spends_budget = True

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Plan the earliest end (see ``plan_at_least_level``); the objective is F in seconds."""
        return plan_at_least_level(
            problem, makespan_due, unit="s", explained_count=self.explained_count
        )
