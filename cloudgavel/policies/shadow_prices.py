"""What one more or one less of each limit is worth, in USD: why the plan costs what it costs.

The least cost is convex and piecewise linear in the limits, so at a kink "one less" and "one more"
have different prices. Small problems: both sides are found by solving with the limit moved by a
thousandth. Larger ones: the solver's dual stands for both, and says so (``exact=False``).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cloudgavel.policies.allocation import ShadowPrice
from cloudgavel.policies.least_cost import LeastCost, least_cost
from cloudgavel.policies.pair_terms import S_PER_H, Purpose, pair_terms
from cloudgavel.policies.planning_lp import build_planning_model
from cloudgavel.policies.problem import AllocationProblem, FloatArray

STEP_SHARE = 1e-3
"""Share of a limit by which it is moved."""
WORTH_SHOWING_SHARE = 1e-6
"""Of the cost: a limit whose dual times its size is below this does not bind."""
EVENT_COUNT_LIMIT = 64


@dataclass(frozen=True, kw_only=True)
class _Limit:
    """One limit that binds: how to move it, and what the dual says."""

    name: str
    unit: str
    size: float
    importance_usd: float
    dual_usd_per_unit: float
    moved: Callable[[float], AllocationProblem]


def least_cost_usd(problem: AllocationProblem, *, on_demand_only: bool = False) -> float | None:
    """Least cost of the plan's LP with every promise kept (``None``: it cannot be)."""
    terms = pair_terms(problem, Purpose.PLAN, on_demand_only=on_demand_only)
    model = build_planning_model(
        problem, terms, Purpose.PLAN, interval_count=EVENT_COUNT_LIMIT, fill_intervals=False
    )
    found = least_cost(model)
    return found.cost_usd


def shadow_prices(
    problem: AllocationProblem,
    found: LeastCost,
    *,
    on_demand_only: bool = False,
    exact: bool = True,
    count: int = 8,
) -> tuple[ShadowPrice, ...]:
    """Price the ``count`` limits that matter most: deadlines, quotas, spend rate, max_cost.

    ``usd_per_unit_down`` is ``None`` where the promises can no longer be kept with less.
    """
    if found.row_duals is None or found.values is None or found.cost_usd is None:
        return ()
    limits = _binding_limits(problem, found, all_deadlines=exact)
    limits.sort(key=lambda limit: (-limit.importance_usd, limit.name))
    base = least_cost_usd(problem, on_demand_only=on_demand_only) if exact and limits else None
    prices = []
    for limit in limits[:count]:
        down: float | None = limit.dual_usd_per_unit
        up: float | None = limit.dual_usd_per_unit
        if base is not None:
            step = STEP_SHARE * limit.size
            less = least_cost_usd(limit.moved(-step), on_demand_only=on_demand_only)
            more = least_cost_usd(limit.moved(step), on_demand_only=on_demand_only)
            down = None if less is None else max(less - base, 0.0) / step
            up = None if more is None else max(base - more, 0.0) / step
            if down is not None and max(down, up or 0.0) * limit.size <= base * 1e-6:
                continue
        prices.append(
            ShadowPrice(
                constraint=limit.name,
                unit=limit.unit,
                usd_per_unit_down=down,
                usd_per_unit_up=up,
                exact=base is not None,
            )
        )
    return tuple(prices)


def value_usd_per_step(problem: AllocationProblem, found: LeastCost) -> FloatArray:
    """(m,) marginal cost of one more step of each job (0 for jobs without work or pool)."""
    value = np.zeros(len(problem.jobs))
    if found.row_duals is None:
        return value
    model = found.lp.model
    steps = np.array([job.steps_left for job in problem.jobs], dtype=np.float64)
    rows = np.flatnonzero(model.active)
    value[rows] = np.maximum(found.row_duals[model.rows.work[rows]], 0.0) / steps[rows]
    return value


def extra_usd_per_hour(problem: AllocationProblem, found: LeastCost) -> FloatArray:
    """(R,) what an hour of one job in each pool costs the others in the first interval.

    The duals of the quotas it counts against and of the spend rate, in USD per hour; 0 where
    nothing binds.
    """
    extra = np.zeros(len(problem.pools))
    if found.row_duals is None:
        return extra
    model, duals = found.lp.model, found.row_duals
    length_h = float(model.bounds_s[1] - model.bounds_s[0]) / S_PER_H
    for number, quota in enumerate(problem.quotas):
        row = model.rows.quota[number][0]
        if row >= 0 and quota.limit > 0:
            used = np.array(quota.coefficients, dtype=np.float64) * model.terms.instances
            extra += max(-duals[row], 0.0) * used / (quota.limit * length_h)
    row = model.rows.rate[0]
    if row >= 0 and problem.max_usd_per_hour:
        spent = model.terms.usd_per_hour / (problem.max_usd_per_hour * length_h)
        extra += max(-duals[row], 0.0) * spent
    return extra


def _binding_limits(
    problem: AllocationProblem, found: LeastCost, *, all_deadlines: bool
) -> list[_Limit]:
    """Limits with a dual worth showing.

    A deadline can also be felt through the intervals' quotas, spend rate or share of spot, which no
    single dual shows; with ``all_deadlines``, jobs that pay more than their least, or that share
    such a limit, are tried as well, after the others.
    """
    assert found.row_duals is not None and found.cost_usd is not None
    assert found.values is not None
    model, duals = found.lp.model, found.row_duals
    least = WORTH_SHOWING_SHARE * max(found.cost_usd, 1e-12)
    limits: list[_Limit] = []

    shared = np.concatenate([model.rows.quota.ravel(), model.rows.rate])
    through_others = all_deadlines and bool((-duals[shared[shared >= 0]] > least).any())

    paid = np.zeros(len(problem.jobs))
    np.add.at(paid, model.cell_job, found.values[: model.cell_count] * model.cell_usd)
    cheapest = model.terms.usd_to_finish.min(axis=1, initial=np.inf)

    # A deadline is felt in the last segment of the job's window.
    for row, job in enumerate(problem.jobs):
        if job.deadline_s is None or not model.active[row] or job.deadline_s <= 0:
            continue
        own = np.flatnonzero((model.segments.job == row) & ~model.segments.late)
        if not own.size:
            continue
        felt = -duals[model.rows.time[own]]
        pays_more = all_deadlines and paid[row] > cheapest[row] * (1 + 1e-6)
        if felt.max() <= least and not (through_others or pays_more):
            continue
        last = own[-1]
        hours = model.segments.length_s[last] / S_PER_H
        limits.append(
            _Limit(
                name=f"deadline of {job.name}",
                unit="USD/h",
                size=job.deadline_s / S_PER_H,
                importance_usd=float(felt.max()),
                dual_usd_per_unit=float(max(-duals[model.rows.time[last]], 0.0) / hours),
                moved=_move_deadline(problem, row),
            )
        )
    length_h = np.diff(model.bounds_s) / S_PER_H
    for number, quota in enumerate(problem.quotas):
        rows = model.rows.quota[number]
        worth = float(-duals[rows[rows >= 0]].sum()) if (rows >= 0).any() else 0.0
        if worth > least and quota.limit > 0:
            limits.append(
                _Limit(
                    name=f"quota {quota.name}",
                    unit="USD per unit of quota",
                    size=quota.limit,
                    importance_usd=worth,
                    dual_usd_per_unit=worth / quota.limit,
                    moved=_move_quota(problem, number),
                )
            )
    rows = model.rows.rate
    if problem.max_usd_per_hour and (rows >= 0).all() and length_h.size:
        worth = float(-duals[rows].sum())
        if worth > least:
            limits.append(
                _Limit(
                    name="max_usd_per_hour",
                    unit="USD per USD/h",
                    size=problem.max_usd_per_hour,
                    importance_usd=worth,
                    dual_usd_per_unit=worth / problem.max_usd_per_hour,
                    moved=lambda by: replace(
                        problem, max_usd_per_hour=(problem.max_usd_per_hour or 0.0) + by
                    ),
                )
            )
    for row, job in enumerate(problem.jobs):
        at = model.rows.job_cost[row]
        if at < 0 or not job.max_cost_left_usd or job.max_cost_left_usd <= 0:
            continue
        worth = float(-duals[at]) * float(model.program.row_upper[at])
        if worth > least:
            limits.append(
                _Limit(
                    name=f"max_cost of {job.name}",
                    unit="USD per USD",
                    size=job.max_cost_left_usd,
                    importance_usd=worth,
                    dual_usd_per_unit=worth / job.max_cost_left_usd,
                    moved=_move_max_cost(problem, row),
                )
            )
    return limits


def _move_deadline(problem: AllocationProblem, row: int) -> Callable[[float], AllocationProblem]:
    def moved(by_h: float) -> AllocationProblem:
        job = problem.jobs[row]
        later = replace(job, deadline_s=(job.deadline_s or 0.0) + by_h * S_PER_H)
        return replace(problem, jobs=(*problem.jobs[:row], later, *problem.jobs[row + 1 :]))

    return moved


def _move_max_cost(problem: AllocationProblem, row: int) -> Callable[[float], AllocationProblem]:
    def moved(by_usd: float) -> AllocationProblem:
        job = problem.jobs[row]
        other = replace(job, max_cost_left_usd=(job.max_cost_left_usd or 0.0) + by_usd)
        return replace(problem, jobs=(*problem.jobs[:row], other, *problem.jobs[row + 1 :]))

    return moved


def _move_quota(problem: AllocationProblem, number: int) -> Callable[[float], AllocationProblem]:
    def moved(by: float) -> AllocationProblem:
        quota = problem.quotas[number]
        other = replace(quota, limit=quota.limit + by)
        quotas = (*problem.quotas[:number], other, *problem.quotas[number + 1 :])
        return replace(problem, quotas=quotas)

    return moved
