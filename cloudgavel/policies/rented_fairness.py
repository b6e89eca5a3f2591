"""Fairness on a rented fleet: who gets how much of the money, the quotas and the spend rate."""

from dataclasses import dataclass

from cloudgavel.policies.allocation import Allocation
from cloudgavel.policies.due_times import finish_time_due, slowdown_due
from cloudgavel.policies.least_level import plan_at_least_level
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.policies.rented_plan import EXPLAINED_COUNT


@dataclass(frozen=True, kw_only=True)
class RentedMaxMinFairness:
    """Maximise the least share of top speed, ``min_j thr_j / (w_j n_j)``.

    thr_j is the job's mean rate until it ends, n_j its rate on its fastest pool (overheads
    counted in both), w_j its claim (``due_times.claims``: weights, divided inside an entity).
    """

    explained_count: int = EXPLAINED_COUNT
    name = "max_min_fairness"
    summary = "the job that is slowed down most is slowed down least"
    source = (
        "max min_j thr_j / (w_j n_j) s.t. the planning LP: Narayanan et al., OSDI 2020, section "
        "4.1, over hours instead of shares"
    )
    spends_budget = True

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Plan the fairest hours (see ``plan_at_least_level``)."""
        return plan_at_least_level(
            problem,
            slowdown_due,
            unit="share of top speed of the least-served job",
            value_of=lambda level: 1.0 / level,
            explained_count=self.explained_count,
        )


@dataclass(frozen=True, kw_only=True)
class RentedFinishTimeFairness:
    """Minimise ``rho = max_j (elapsed_j + time to the end) / iso_j`` (Themis).

    iso_j is the job's time from arrival to end with its own part of the budget, the quotas and
    the spend rate (``due_times.isolated_s``).
    """

    explained_count: int = EXPLAINED_COUNT
    name = "finish_time_fairness"
    summary = "no job ends much later than with its own part of the money and the quotas"
    source = "min max_j finish_j / iso_j s.t. the planning LP: Mahajan et al., Themis, NSDI 2020"
    spends_budget = True

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Plan the fairest ends (see ``plan_at_least_level``)."""
        return plan_at_least_level(
            problem,
            finish_time_due,
            unit="worst finish time over isolated finish time",
            explained_count=self.explained_count,
        )
