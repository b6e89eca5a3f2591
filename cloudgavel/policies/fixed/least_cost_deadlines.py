"""Least cost with deadlines on a fixed cluster, looking ahead: short jobs leave room for long ones.

``throughput_per_usd_deadlines`` asks for every deadline as a constant rate from now on, and comes
here for the rates of now only if those do not fit together. Here time is cut into intervals (at
the deadlines) and work may be put off: the planning LP of ``planning_lp``, with the accelerators
of each type as its limits.
"""

from dataclasses import replace

import numpy as np

from cloudgavel.policies.allocation import Allocation, AllocationStatus, RelaxedPromise
from cloudgavel.policies.column_generation import ColumnGeneration
from cloudgavel.policies.fixed.answer import without_a_pool
from cloudgavel.policies.fixed.cluster import Cluster, cluster_of
from cloudgavel.policies.least_cost import UNDONE_SHARE, least_cost, without_delay
from cloudgavel.policies.pair_terms import S_PER_H, Purpose, pair_terms
from cloudgavel.policies.planning_lp import PlanningModel, build_planning_model
from cloudgavel.policies.problem import AllocationProblem, FloatArray, QuotaGroup
from cloudgavel.policies.rented_plan import cheapest_plan, first_shares

INTERVAL_COUNT = 10
SOON = 1.02
"""A deadline that nothing can keep becomes so many times the least time from now."""
FIRST_STRETCH = 0.02
"""By how much the spans of deadlines that do not fit together are stretched first; then doubled."""
STRETCH_STEPS = 10


class LeastCostWithDeadlines:
    """Minimise ``sum p_r (k/g) y_jri`` so that every job is done by its deadline.

    y_jri are hours in interval i; jobs without a deadline are done in the end, as early as the
    least cost allows. Where not all deadlines fit, those that the LP with the least undone work
    leaves short are stretched until the rest fits, and named, as are jobs that can run nowhere. A
    pool without a price is not used.
    """

    name = "least_cost_deadlines"
    summary = "least cost that keeps every deadline, planned over time, on a fixed cluster"
    plans_for = "fixed cluster"
    source = "Lawler and Labetoulle 1978 with prices; Narayanan et al., OSDI 2020, section 4.2"

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Plan, and return the shares of the first interval with the whole plan."""
        cluster = cluster_of(problem, with_steps=True)
        jobs = tuple(
            replace(job, steps_left=float(steps))
            for job, steps in zip(problem.jobs, cluster.steps, strict=True)
        )
        limited = _with_type_limits(replace(problem, jobs=jobs, feasible=cluster.usable))
        terms = pair_terms(limited, Purpose.PLAN)
        fastest_s = terms.fastest_h * S_PER_H
        active = np.isfinite(fastest_s)
        if not active.any():
            return cheapest_plan(limited, explained_count=0)
        asked_s = np.array(
            [np.inf if job.deadline_s is None else job.deadline_s for job in problem.jobs]
        )
        due_s = np.where(active, np.maximum(asked_s, SOON * fastest_s), np.inf)
        due_s = np.where(asked_s >= fastest_s * (1 + 1e-6), asked_s, due_s)
        for step in range(STRETCH_STEPS):
            planned = _with_deadlines(limited, due_s)
            model = build_planning_model(
                planned, terms, Purpose.PLAN, interval_count=INTERVAL_COUNT
            )
            undone = _undone(model)
            if undone is None:
                break
            short = undone > UNDONE_SHARE
            if not short.any():
                found = least_cost(model)
                if found.values is None:
                    break
                values = without_delay(planned, found)
                return self._answer(cluster, model, values, due_s)
            due_s = np.where(short, due_s * (1 + FIRST_STRETCH * 2**step), due_s)
        return cheapest_plan(limited, explained_count=0)

    def _answer(
        self,
        cluster: Cluster,
        model: PlanningModel,
        values: FloatArray,
        due_s: FloatArray,
    ) -> Allocation:
        homeless = without_a_pool(cluster)
        hours = model.hours(values)
        late = tuple(
            RelaxedPromise(
                job=job.name,
                promise="deadline",
                by_s=float(due) - job.deadline_s,
                reason="the deadline has passed"
                if job.deadline_s <= 0
                else "not all deadlines fit",
            )
            for job, due in zip(cluster.problem.jobs, due_s, strict=True)
            if job.deadline_s is not None and due > job.deadline_s and np.isfinite(due)
        )
        cost = model.cost_usd(values)
        return Allocation(
            status=AllocationStatus.RELAXED if late or homeless else AllocationStatus.OPTIMAL,
            shares=_within_limits(cluster, first_shares(hours, model.bounds_s)),
            hours=hours,
            interval_bounds_s=model.bounds_s,
            objective_value=cost,
            objective_unit="USD",
            cost_usd=cost,
            relaxed=(*homeless, *late),
        )


def _within_limits(cluster: Cluster, shares: FloatArray) -> FloatArray:
    """Take back what rounding added: shares keep every limit exactly."""
    for limit in cluster.limits:
        used = float((shares @ limit.coefficients).sum())
        if used > limit.size:
            shares = np.where(limit.coefficients > 0, shares * (limit.size / used), shares)
    return shares


def _undone(model: PlanningModel) -> FloatArray | None:
    """(m,) share of each job that does not fit in its window; ``None`` = it failed."""
    lp = ColumnGeneration(model)
    shortfall = model.shortfall_columns
    lp.set_upper(shortfall, np.where(model.active, 1.0, 0.0))
    cost = np.zeros(model.program.cost.size)
    cost[shortfall] = 1.0
    answer = lp.minimise(cost)
    return None if answer.values is None else np.asarray(answer.values[shortfall])


def _with_deadlines(problem: AllocationProblem, due_s: FloatArray) -> AllocationProblem:
    jobs = tuple(
        replace(job, deadline_s=float(due) if np.isfinite(due) else None)
        for job, due in zip(problem.jobs, due_s, strict=True)
    )
    return replace(problem, jobs=jobs)


def _with_type_limits(problem: AllocationProblem) -> AllocationProblem:
    """State the accelerators of each type as quotas, which the planning LP knows."""
    if problem.cluster_accelerators is None:
        return problem
    quotas = []
    for kind in dict.fromkeys(pool.offer_id for pool in problem.pools):
        own = [pool.offer_id == kind for pool in problem.pools]
        counts = [
            count for count, is_own in zip(problem.cluster_accelerators, own, strict=True) if is_own
        ]
        each = tuple(
            float(pool.accelerators_per_instance if is_own else 0)
            for pool, is_own in zip(problem.pools, own, strict=True)
        )
        quotas.append(
            QuotaGroup(name=f"accelerators {kind}", coefficients=each, limit=float(max(counts)))
        )
    return replace(problem, quotas=(*problem.quotas, *quotas))
