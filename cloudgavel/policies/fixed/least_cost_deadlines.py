"""Least cost with deadlines on a fixed cluster, looking ahead: short jobs leave room for long ones.

``throughput_per_usd_deadlines`` asks for every deadline as a constant rate from now on, and so
gives up deadlines that fit one after the other. Here time is cut into intervals (at the deadlines)
and work may be put off: the planning LP of ``planning_lp``, with the accelerators of each type as
its limits.
"""

from dataclasses import replace

from cloudgavel.policies.allocation import Allocation, AllocationStatus
from cloudgavel.policies.problem import AllocationProblem, QuotaGroup
from cloudgavel.policies.rented_plan import cheapest_plan


class LeastCostWithDeadlines:
    """Minimise ``sum p_r (k/g) y_jri`` so that every job is done by its deadline.

    y_jri are hours in interval i; jobs without a deadline are done in the end, as early as the
    least cost allows. Deadlines that do not fit are released by weight and named. A pool without a
    price is not used.
    """

    name = "least_cost_deadlines"
    summary = "least cost that keeps every deadline, planned over time, on a fixed cluster"
    source = (
        "Lawler and Labetoulle 1978 with prices; Narayanan et al., OSDI 2020, section 4.2 (SLOs)"
    )

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Plan, and return the shares of the first interval."""
        if problem.cluster_accelerators is None:
            return cheapest_plan(problem, explained_count=0)
        kinds = dict.fromkeys(pool.offer_id for pool in problem.pools)
        quotas = []
        for kind in kinds:
            own = [pool.offer_id == kind for pool in problem.pools]
            size = max(
                count
                for count, counts in zip(problem.cluster_accelerators, own, strict=True)
                if counts
            )
            quotas.append(
                QuotaGroup(
                    name=f"accelerators {kind}",
                    coefficients=tuple(float(counts) for counts in own),
                    limit=float(size),
                )
            )
        planned = cheapest_plan(
            replace(problem, quotas=(*problem.quotas, *quotas)), explained_count=0
        )
        if planned.status is AllocationStatus.INFEASIBLE:
            return planned
        return planned
