"""From solved shares to an ``Allocation``: status, what could not be served, what binds."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cloudgavel.policies.allocation import (
    Allocation,
    AllocationStatus,
    LimitPrice,
    RelaxedPromise,
)
from cloudgavel.policies.fixed.cluster import Cluster, Limit
from cloudgavel.policies.fixed.share_program import Shares
from cloudgavel.policies.problem import FloatArray
from cloudgavel.policies.sharing import ClassRows
from cloudgavel.policies.solve import SolveStatus

EXACT_PRICES_UP_TO = 40
"""Jobs: below this both one-sided prices of a limit are found by solving again."""
PRICE_STEP_SHARE = 1e-3
WORTH_SHOWING_SHARE = 1e-7
WORTH_MOVING_SHARE = 1e-3
"""The least elasticity that is told from the solver's tolerance when a limit is moved."""


def nothing(cluster: Cluster, status: AllocationStatus, message: str, unit: str = "") -> Allocation:
    """Allocate nothing, for a reason."""
    return Allocation(
        status=status,
        shares=np.zeros(cluster.rate.shape),
        objective_unit=unit,
        relaxed=without_a_pool(cluster),
        message=message,
    )


def without_a_pool(cluster: Cluster) -> tuple[RelaxedPromise, ...]:
    """Name the jobs with work left that can run nowhere."""
    found = []
    for job, able in zip(cluster.problem.jobs, cluster.able.tolist(), strict=True):
        if able or not job.steps_left > 0:
            continue
        if not (np.isfinite(job.weight) and job.weight > 0):
            reason = f"its weight {job.weight:g} is not a positive number"
        elif not np.isfinite(job.steps_left):
            reason = "its steps left are not a finite number"
        else:
            reason = "no pool can run it: infeasible, unmeasured, or the gang does not fit"
        found.append(RelaxedPromise(job=job.name, promise="share", reason=reason))
    return tuple(found)


def class_rows(shares: Shares) -> ClassRows:
    """Keep the combinations with something in them."""
    used = np.flatnonzero(shares.amounts > 0)
    return ClassRows(
        class_of_job=shares.groups.group_of_job,
        first=shares.columns.first[used],
        second=shares.columns.second[used],
        pool=shares.columns.pool[used],
        amount=shares.amounts[used],
    )


def allocation_of(
    cluster: Cluster,
    shares: Shares,
    *,
    value: float | None,
    unit: str,
    relaxed: tuple[RelaxedPromise, ...] = (),
    limit_prices: tuple[LimitPrice, ...] = (),
    message: str = "",
) -> Allocation:
    """Wrap a usable answer; RELAXED if a promise went or a job can run nowhere."""
    rows = class_rows(shares)
    gone = (*without_a_pool(cluster), *relaxed)
    return Allocation(
        status=AllocationStatus.RELAXED if gone else AllocationStatus.OPTIMAL,
        shares=np.minimum(rows.shares(cluster.gang.size), 1.0),
        objective_value=value,
        objective_unit=unit,
        relaxed=gone,
        limit_prices=limit_prices,
        class_rows=rows if shares.groups.kind is not None else None,
        message=message,
    )


def isolated_fallback(cluster: Cluster, said: SolveStatus, detail: str, unit: str) -> Allocation:
    """Answer with isolated shares when a solver gave nothing usable."""
    return Allocation(
        status=AllocationStatus.FALLBACK,
        shares=cluster.isolated_shares(),
        objective_unit=unit,
        relaxed=without_a_pool(cluster),
        message=f"the solver said {said.value} ({detail}); every job gets its isolated share",
    )


def prices_of_limits(
    cluster: Cluster,
    duals: FloatArray | None,
    value: float,
    value_with: Callable[[Cluster], float | None],
    *,
    larger_is_better: bool = True,
) -> tuple[LimitPrice, ...]:
    """Price the limits that bind.

    ``duals`` (limits,) in the objective's unit per unit of limit, positive. ``value_with`` solves
    the same goal with a limit moved (normalisers held fixed); used for small problems, where the
    two one-sided prices are found by moving the limit by a thousandth.
    """
    if duals is None or not cluster.problem.wants_prices:
        return ()
    prices = []
    exact = int(cluster.able.sum()) <= EXACT_PRICES_UP_TO
    for number, limit in enumerate(cluster.limits):
        dual = float(duals[number])
        if not (np.isfinite(dual) and dual * limit.size > WORTH_SHOWING_SHARE * abs(value)):
            continue
        down: float | None = dual
        up: float | None = dual
        if exact:
            down, up = _one_sided(cluster, number, value, value_with, larger_is_better)
        prices.append(
            LimitPrice(
                constraint=limit.name,
                unit=limit.unit,
                per_unit_down=down,
                per_unit_up=up,
                exact=exact,
            )
        )
    return tuple(prices)


def prices_by_moving(
    cluster: Cluster, value: float, value_with: Callable[[Cluster], float | None]
) -> tuple[LimitPrice, ...]:
    """Price every limit without a dual, of a value of which more is better.

    Shown are those by which a thousandth of the limit changes the value by a millionth or more.
    """
    prices = []
    for number, limit in enumerate(cluster.limits):
        if not limit.size > 0:
            continue
        down, up = _one_sided(cluster, number, value, value_with, larger_is_better=True)
        worth = max(abs(each) for each in (down, up, 0.0) if each is not None)
        if worth * limit.size > WORTH_MOVING_SHARE * abs(value) > 0:
            prices.append(
                LimitPrice(
                    constraint=limit.name, unit=limit.unit, per_unit_down=down, per_unit_up=up
                )
            )
    return tuple(prices)


def _one_sided(
    cluster: Cluster,
    number: int,
    value: float,
    value_with: Callable[[Cluster], float | None],
    larger_is_better: bool,
) -> tuple[float | None, float | None]:
    """What less of a limit costs and what more brings, per unit."""
    size = cluster.limits[number].size
    step = PRICE_STEP_SHARE * size
    sign = 1.0 if larger_is_better else -1.0
    less = value_with(with_limit(cluster, number, size - step))
    more = value_with(with_limit(cluster, number, size + step))
    down = None if less is None else sign * (value - less) / step
    up = None if more is None else sign * (more - value) / step
    return down, up


def with_limit(cluster: Cluster, number: int, size: float) -> Cluster:
    """Return the cluster with one limit moved; who can run where and the mix stay as they are."""
    moved: Limit = replace(cluster.limits[number], size=size)
    limits = (*cluster.limits[:number], moved, *cluster.limits[number + 1 :])
    return replace(cluster, limits=limits)
