"""Earliest end of everything on a rented fleet, under a budget."""

from dataclasses import dataclass, replace

from cloudgavel.policies.allocation import Allocation
from cloudgavel.policies.due_times import makespan_due
from cloudgavel.policies.least_level import LARGE_TOLERANCE_SHARE, LevelSearch, plan_at_least_level
from cloudgavel.policies.pair_terms import Purpose, pair_terms
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.policies.rented_plan import EXPLAINED_COUNT

BOUND_SLACK_SHARE = LARGE_TOLERANCE_SHARE
"""Taken off the level found: it is exact to this share at the worst."""


def makespan_lower_bound_s(problem: AllocationProblem) -> float | None:
    """Seconds from now before which no schedule within the budget ends, deadlines or not.

    The planning LP without overheads and with spot always to be had; ``None`` if even so some
    work cannot be done, or nothing is left to do.
    """
    jobs = tuple(replace(job, deadline_s=None) for job in problem.jobs)
    free = replace(problem, jobs=jobs)
    terms = pair_terms(free, Purpose.BOUND)
    if not terms.usable.any():
        return None
    due = makespan_due(free, terms)
    found = LevelSearch(problem=free, terms=terms, due=due, purpose=Purpose.BOUND).least()
    return None if found is None else found.level * (1 - BOUND_SLACK_SHARE)


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
