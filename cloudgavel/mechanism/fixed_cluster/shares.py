"""From a policy's answer to units that take turns: whole jobs, or two jobs side by side."""

import numpy as np

from cloudgavel.mechanism.fixed_cluster.state import ClusterJob, FixedClusterState, Standing
from cloudgavel.policies.allocation import Allocation
from cloudgavel.policies.base import Policy
from cloudgavel.policies.problem import AllocationProblem, FloatArray, IntArray, JobRow
from cloudgavel.policies.sharing import ClassRows

DEADLINE_MARGIN_SHARE = 0.05
"""Of the time left, taken off deadlines: a plan that ends on the dot is late by the first lag."""
MOST_MARGIN_SHARE = 0.08
"""Of the span from arrival to deadline, the most that is taken off."""
SMALLEST_SHARE = 1e-6
"""Shares are rounded to this before anything is ranked by them."""


def problem_of(state: FixedClusterState) -> AllocationProblem:
    """Put a snapshot into the form every policy takes."""
    held = state.leases.pool.tolist()
    rows = tuple(
        JobRow(
            name=job.name,
            steps_left=steps,
            deadline_s=_due_s(state, job),
            weight=job.weight,
            entity=job.entity,
            held_pool=pool if pool >= 0 else None,
            elapsed_s=state.now_s - job.arrives_s,
        )
        for job, steps, pool in zip(state.jobs, state.steps_left.tolist(), held, strict=True)
    )
    feasible = state.rate > 0
    return AllocationProblem(
        jobs=rows,
        pools=state.cluster.pools,
        throughput_steps_per_s=np.where(feasible, state.rate, np.nan),
        feasible=feasible,
        change_over_s=np.zeros(state.rate.shape),
        cluster_accelerators=state.cluster.counts,
        sharing=state.sharing,
        wants_prices=False,
        extra={"attained_service": state.attained_service.copy()},
    )


def _due_s(state: FixedClusterState, job: ClusterJob) -> float | None:
    """Seconds to the deadline, less a margin: turns lag behind shares by a few rounds.

    The margin is at most a small part of the whole span, which may be tight.
    """
    if job.deadline_s is None:
        return None
    left_s = job.deadline_s - state.now_s
    margin_s = max(state.deadline_margin_rounds * state.round_s, DEADLINE_MARGIN_SHARE * left_s)
    return left_s - min(margin_s, MOST_MARGIN_SHARE * (job.deadline_s - job.arrives_s))


def standing_of(state: FixedClusterState, policy: Policy) -> Standing:
    """Ask the policy, and turn its shares into units."""
    allocation = policy.allocate(problem_of(state))
    rows = allocation.class_rows
    if rows is None or not (rows.second >= 0).any():
        first, pool = np.nonzero(allocation.shares > SMALLEST_SHARE)
        second = np.full(first.size, -1, dtype=np.int64)
        share = allocation.shares[first, pool]
    else:
        first, second, pool, share = _units_of_classes(rows)
    share = np.minimum(np.round(share / SMALLEST_SHARE) * SMALLEST_SHARE, 1.0)
    time_share = np.zeros(state.rate.shape)
    np.add.at(time_share, (first, pool), share)
    paired = second >= 0
    np.add.at(time_share, (second[paired], pool[paired]), share[paired])
    return Standing(
        first=first.astype(np.int64),
        second=second,
        pool=pool.astype(np.int64),
        share=share,
        time_share=time_share,
        fills_idle=_fills_idle(allocation),
        blind=bool(getattr(policy, "agnostic", False)),
        valid_until_s=_valid_until_s(state, allocation),
        objective_value=allocation.objective_value,
        objective_unit=allocation.objective_unit,
        message=allocation.message,
        relaxed=allocation.relaxed,
    )


def _valid_until_s(state: FixedClusterState, allocation: Allocation) -> float | None:
    bounds = allocation.interval_bounds_s
    if bounds is None or bounds.size < 3:
        return None
    return state.now_s + max(float(bounds[1]), state.round_s)


def _fills_idle(allocation: Allocation) -> bool:
    """Whether idle accelerators are to be used: not where an hour of use is what is saved.

    An answer that serves nobody is no thrift but a failure: then they are.
    """
    return "USD" not in allocation.objective_unit or not (allocation.shares > 0).any()


def _units_of_classes(rows: ClassRows) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """Spread class rows over the jobs of the classes: every member gets an equal part.

    A row over classes of a and b members becomes at most a + b - 1 pairs of jobs (the corners of
    two subdivisions of the same amount), not a times b.
    """
    class_count = int(rows.class_of_job.max(initial=-1)) + 1
    members = [
        np.flatnonzero(rows.class_of_job == number).tolist() for number in range(class_count)
    ]
    found: dict[tuple[int, int, int], float] = {}

    def add(one: int, other: int, pool: int, amount: float) -> None:
        key = (min(one, other), max(one, other), pool) if other >= 0 else (one, -1, pool)
        found[key] = found.get(key, 0.0) + amount

    for a, b, pool, amount in zip(
        rows.first.tolist(),
        rows.second.tolist(),
        rows.pool.tolist(),
        rows.amount.tolist(),
        strict=True,
    ):
        mine = members[a]
        if not mine or amount <= SMALLEST_SHARE:
            continue
        if b < 0:
            for row in mine:
                add(row, -1, pool, amount / len(mine))
        elif a == b:
            if len(mine) > 1:
                for place, row in enumerate(mine):
                    add(row, mine[(place + 1) % len(mine)], pool, amount / len(mine))
        else:
            theirs = members[b]
            i = j = 0
            left_i, left_j = amount / len(mine), amount / len(theirs)
            while i < len(mine) and j < len(theirs):
                part = min(left_i, left_j)
                add(mine[i], theirs[j], pool, part)
                left_i -= part
                left_j -= part
                if left_i <= 1e-12:
                    i, left_i = i + 1, amount / len(mine)
                if left_j <= 1e-12:
                    j, left_j = j + 1, amount / len(theirs)
    kept = [(key, share) for key, share in sorted(found.items()) if share > SMALLEST_SHARE]
    return (
        np.array([key[0] for key, _ in kept], dtype=np.int64),
        np.array([key[1] for key, _ in kept], dtype=np.int64),
        np.array([key[2] for key, _ in kept], dtype=np.int64),
        np.array([share for _, share in kept], dtype=np.float64),
    )
