"""Deadlines on a fixed cluster: which are kept, and by how much the others are missed.

A deadline D_j is a rate: ``thr_j >= S_j / D_j``. When not all fit, a small integer program chooses
which go (least weight), or a plan over time keeps more of them one after the other; a linear
program then keeps the missed ones as early as can be (the worst of them first), and nothing is
dropped in silence: each is returned with its lateness, the earliest time it could have with the
others kept, and the common stretch of all deadlines that would fit. A deadline that has passed is a
missed promise, not one that no longer counts.
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sparse

from cloudgavel.policies.allocation import AllocationStatus, RelaxedPromise
from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.least_cost_deadlines import LeastCostWithDeadlines
from cloudgavel.policies.fixed.share_program import (
    goal,
    one_each,
    share_program,
    solve_shares,
)
from cloudgavel.policies.problem import BoolArray, FloatArray, IntArray
from cloudgavel.policies.solve import LinearProgram, solve_integer

KEPT_SHARE = 1 - 1e-9
ROUNDING = 1e-5
"""Of the shares of a plan, which are rounded."""
EARLIEST_FOR_AT_MOST = 20
"""Missed jobs for which the earliest time is computed, heaviest first."""


@dataclass(frozen=True, kw_only=True)
class Promises:
    """What every job is to get at the least."""

    floor: FloatArray
    """(m,) steps/s."""
    share_kept: float
    """Part of everybody's share that fits beside the kept deadlines."""
    missed: IntArray
    """Rows of the jobs whose deadline goes."""
    stretch: float | None
    """All deadlines fit if all spans are this many times longer; ``None`` if one has passed."""
    earliest_s: dict[int, float]
    """By missed row: when it could end with all kept deadlines kept."""
    planned_late_s: dict[int, float]
    """By missed row: how late it is in a plan over time, where there is one."""

    def relaxed(self, cluster: Cluster, throughput: FloatArray) -> tuple[RelaxedPromise, ...]:
        """Name the missed deadlines with their lateness at the throughputs given."""
        found = []
        for row in self.missed.tolist():
            job = cluster.problem.jobs[row]
            assert job.deadline_s is not None
            late = self.planned_late_s.get(row)
            if late is None and throughput[row] > 0:
                late = max(cluster.steps[row] / throughput[row] - job.deadline_s, 0.0)
            reason = "the deadline has passed" if job.deadline_s <= 0 else "not all deadlines fit"
            if row in self.earliest_s:
                reason += f"; {self.earliest_s[row]:.0f} s from now at the earliest"
            if self.stretch is not None:
                reason += f"; all would fit at {self.stretch:.3g} times the time"
            found.append(RelaxedPromise(job=job.name, promise="deadline", by_s=late, reason=reason))
        return tuple(found)


def keep_promises(cluster: Cluster, share: FloatArray, *, space_sharing: bool) -> Promises:
    """Choose which deadlines are kept, then keep as much as fits of a ``share`` (m,) of steps/s.

    In this order: the kept deadlines, an equal part of everybody's share (all of it if it fits),
    and the missed deadlines as early as what is left allows.
    """
    jobs = cluster.problem.jobs
    due_s = np.array(
        [np.nan if job.deadline_s is None else job.deadline_s for job in jobs], dtype=np.float64
    )
    promised = cluster.able & ~np.isnan(due_s)
    passed = promised & ~(due_s > 0)
    needed = np.zeros(due_s.size)
    # A deadline in no time at all asks for no number: a trillion times the best rate says enough.
    at_least_s = np.maximum(due_s, cluster.steps / np.maximum(cluster.best_rate, 1e-300) * 1e-12)
    np.divide(cluster.steps, at_least_s, out=needed, where=promised & ~passed & np.isfinite(due_s))
    hopeless: BoolArray = passed | (needed > cluster.best_rate * (1 + 1e-9))
    kept = np.where(hopeless, 0.0, needed)
    missed = np.flatnonzero(hopeless)
    in_turn: dict[int, float] = {}
    if kept.any():
        kept, given_up, in_turn = _rates_now(cluster, kept, promised, space_sharing)
        missed = np.union1d(missed, given_up)
    kept = kept * KEPT_SHARE
    share_kept = min(_level_above(cluster, share, kept, space_sharing), 1.0)
    base = np.maximum(kept, share * share_kept) * KEPT_SHARE
    if not missed.size:
        return Promises(
            floor=base,
            share_kept=share_kept,
            missed=missed,
            stretch=None,
            earliest_s={},
            planned_late_s={},
        )

    late_demand = np.zeros(due_s.size)
    late_demand[missed] = cluster.best_rate[missed]
    not_passed = missed[needed[missed] > 0]
    late_demand[not_passed] = np.minimum(needed[not_passed], cluster.best_rate[not_passed])
    early = _level_above(cluster, late_demand, base, space_sharing)
    raised = np.maximum(base, late_demand * early * KEPT_SHARE)
    stretch = None
    if not passed.any():
        spans = solve_shares(cluster, goal(due_s.size, demand=needed), space_sharing=space_sharing)
        if spans.is_usable and spans.level > 0:
            stretch = max(1 / spans.level, 1.0)
    return Promises(
        floor=raised,
        share_kept=share_kept,
        missed=missed,
        stretch=stretch,
        earliest_s=_earliest(cluster, kept, missed, space_sharing),
        planned_late_s=in_turn,
    )


def _rates_now(
    cluster: Cluster, needed: FloatArray, promised: BoolArray, space_sharing: bool
) -> tuple[FloatArray, IntArray, dict[int, float]]:
    """Rates (m,) that are owed now, the rows given up, and how late they are if planned over time.

    ``needed`` (0 where nothing can keep the deadline) as it is if that fits. Else the lightest set
    is given up; but deadlines that do not fit as constant rates from now on may fit in turn, the
    near ones first, and where a plan over time gives up less, its rates of now are owed.
    """
    together = solve_shares(cluster, goal(needed.size, demand=needed), space_sharing=space_sharing)
    if not together.is_usable or together.level >= KEPT_SHARE:
        return needed, np.zeros(0, dtype=np.int64), {}
    given_up = _fewest_missed(cluster, needed, space_sharing)
    in_turn = _one_after_the_other(cluster, promised)
    if in_turn is not None:
        rates, late_s = in_turn
        late = np.array(sorted(late_s), dtype=np.int64)
        now = solve_shares(cluster, goal(rates.size, demand=rates))
        hopeless = np.flatnonzero(promised & ~(needed > 0))
        all_given_up = np.union1d(given_up, hopeless)
        lighter = cluster.weight[late].sum() < cluster.weight[all_given_up].sum()
        if lighter and now.is_usable and now.level >= 1 - ROUNDING:
            return rates * (1 - ROUNDING), late, late_s
    rates = needed.copy()
    rates[given_up] = 0.0
    return rates, given_up, {}


def _one_after_the_other(
    cluster: Cluster, wanted: BoolArray
) -> tuple[FloatArray, dict[int, float]] | None:
    """Rates (m,) of now in a plan that keeps the ``wanted`` (m,) deadlines, and who is how late."""
    problem = cluster.problem
    jobs = tuple(
        replace(job, deadline_s=job.deadline_s if is_wanted else None)
        for job, is_wanted in zip(problem.jobs, wanted.tolist(), strict=True)
    )
    plan = LeastCostWithDeadlines().allocate(
        replace(
            problem,
            jobs=jobs,
            throughput_steps_per_s=cluster.rate,
            feasible=cluster.usable,
            sharing=None,
        )
    )
    if plan.status not in (AllocationStatus.OPTIMAL, AllocationStatus.RELAXED):
        return None
    row_of = {job.name: row for row, job in enumerate(jobs)}
    late_s = {
        row_of[gone.job]: gone.by_s
        for gone in plan.relaxed
        if gone.promise == "deadline" and gone.by_s is not None
    }
    return np.where(wanted, (plan.shares * cluster.rate).sum(axis=1), 0.0), late_s


def _level_above(
    cluster: Cluster, share: FloatArray, kept: FloatArray, space_sharing: bool
) -> float:
    """``max z`` with ``thr_j >= max(kept_j, share_j z)``; 0 if there is none.

    A job whose kept rate turns out to be above its share's level is held at the kept rate, and the
    level is found again; each program is a relaxation of the whole, and the last one is exact.
    """
    held = kept >= share
    while True:
        wanted = goal(kept.size, demand=np.where(held, 0.0, share), floor=np.where(held, kept, 0.0))
        if not wanted.demand.any():
            return 1.0
        found = solve_shares(cluster, wanted, space_sharing=space_sharing)
        if not found.is_usable:
            return 0.0
        level = max(found.level, 0.0)
        above = ~held & (share * level < kept * KEPT_SHARE)
        if not above.any():
            return level
        held |= above


def _earliest(
    cluster: Cluster, kept: FloatArray, missed: IntArray, space_sharing: bool
) -> dict[int, float]:
    """When each missed job could end with the floors of all others kept."""
    heaviest = missed[np.argsort(-cluster.weight[missed], kind="stable")][:EARLIEST_FOR_AT_MOST]
    found: dict[int, float] = {}
    for row in heaviest.tolist():
        gain = np.zeros(kept.size)
        gain[row] = 1 / cluster.best_rate[row]
        best = solve_shares(
            cluster, goal(kept.size, floor=kept, gain=gain), space_sharing=space_sharing
        )
        if best.is_usable and (rate := float(best.throughput()[row])) > 0:
            found[row] = float(cluster.steps[row]) / rate
    return found


def _fewest_missed(cluster: Cluster, needed: FloatArray, space_sharing: bool) -> IntArray:
    """Rows to give up: ``min sum w_j late_j`` subject to ``thr_j >= needed_j (1 - late_j)``.

    Over the combinations that the level program found useful; stops at a node limit, and then the
    choice is the best one found.
    """
    start = goal(needed.size, demand=needed)
    groups = one_each(cluster, space_sharing=space_sharing)
    program = share_program(cluster, start, groups)
    columns = program.singles
    if space_sharing and groups.kind is not None:
        from cloudgavel.policies.space_sharing import solve_with_pairs

        columns, _, _, _ = solve_with_pairs(cluster, program)
    built, rows = program.build(columns)
    rows_of = groups.example
    unit = program.scale.rate * program.scale.share
    level = np.flatnonzero(rows.level >= 0)
    lower = built.row_lower.copy()
    lower[rows.level[level]] = needed[rows_of[level]] / unit[level]
    choosing = np.flatnonzero(needed[rows_of] > 0)
    count = columns.count
    chosen = sparse.csc_matrix(
        (
            needed[rows_of[choosing]] / unit[choosing],
            (rows.level[choosing], np.arange(choosing.size)),
        ),
        shape=(built.matrix.shape[0], choosing.size),
    )
    weight = cluster.weight[rows_of[choosing]]
    integer = LinearProgram(
        cost=np.concatenate([np.zeros(count), weight / weight.max()]),
        matrix=sparse.hstack([built.matrix[:, :count], chosen], format="csc"),
        row_lower=lower * (1 - 1e-9),
        row_upper=built.row_upper,
        lower=np.zeros(count + choosing.size),
        upper=np.concatenate([np.full(count, np.inf), np.ones(choosing.size)]),
        integer=np.concatenate([np.zeros(count, dtype=bool), np.ones(choosing.size, dtype=bool)]),
    )
    answer = solve_integer(integer)
    if not answer.is_usable or answer.values is None:
        return np.asarray(rows_of[choosing], dtype=np.int64)
    late = answer.values[count:] > 0.5
    return np.asarray(rows_of[choosing[late]], dtype=np.int64)
