"""The planning LP of a rented fleet (Lawler and Labetoulle 1978, with prices, quotas and money).

Hours y_jri that job j runs on pool r within interval i:

    min   sum (p_r (k/g) + t_jr) y_jri                        [cost]   t: checkpoints on their way
    s.t.  sum_ri y_jri / H_jr + short_j >= 1                  [work]   every job is done
          sum_r  y_jri <= L_ji                                [time]   one pool at a time
          sum_jr a_qr (k/g) y_jri <= Q_q L_i                  [quota]
          sum_jr p_r (k/g) y_jri <= rate L_i                  [spend rate]
          sum_ri p_r (k/g) y_jri <= M_j                       [max_cost of a job]
          y_jri <= availability_r L_ji                        plans, spot

L_ji is the part of interval i inside the job's window. Every row is divided by its limit and every
column by the hours that make sense in it, so that coefficients stay near 1 whatever the units.
For preemptible one-accelerator jobs the optimum is exact; for gangs it is a lower bound.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sparse

from cloudgavel.policies.intervals import (
    Segments,
    Windows,
    chain_windows,
    interval_bounds,
    rounded_down,
    segments,
)
from cloudgavel.policies.pair_terms import S_PER_H, PairTerms, Purpose
from cloudgavel.policies.problem import AllocationProblem, BoolArray, FloatArray, IntArray
from cloudgavel.policies.solve import LinearProgram

INTERVAL_COUNT = 8


@dataclass(frozen=True, kw_only=True)
class PlanningRows:
    """Where each kind of row begins; -1 in an index array: there is no such row."""

    work: IntArray
    """(m,) row of each job's work."""
    kept: IntArray
    """(m,) row of the work inside the deadline (only in models with late hours)."""
    time: IntArray
    """(segments,)."""
    quota: IntArray
    """(quotas, I)."""
    rate: IntArray
    """(I,)."""
    job_cost: IntArray
    """(m,)."""
    cost: int
    """Total cost over ``cost_scale_usd``: free until a budget or a second stage bounds it."""


@dataclass(frozen=True, kw_only=True)
class PlanningModel:
    """The LP with labels. Columns: n cells (job, pool, segment), then m shortfalls, then, in
    models with late hours, m lateness choices.
    """

    program: LinearProgram
    rows: PlanningRows
    terms: PairTerms
    windows: Windows
    bounds_s: FloatArray
    segments: Segments
    cell_job: IntArray
    cell_pool: IntArray
    cell_segment: IntArray
    cell_hours: FloatArray
    """Hours per unit of each cell's column."""
    cell_usd: FloatArray
    """USD per unit of each cell's column."""
    active: BoolArray
    """(m,): has work left and a usable pool."""
    cost_scale_usd: float

    @property
    def cell_count(self) -> int:
        """Number of cells."""
        return int(self.cell_job.size)

    @property
    def shortfall_columns(self) -> IntArray:
        """Columns of the undone share of each job."""
        return self.cell_count + np.arange(self.active.size)

    @property
    def late_columns(self) -> IntArray:
        """Columns of the choice to let a deadline go (models with late hours)."""
        return self.cell_count + self.active.size + np.arange(self.active.size)

    @property
    def pair(self) -> IntArray:
        """(cells,) number of the (job, pool) pair, job * R + pool."""
        pair: IntArray = self.cell_job * self.terms.usable.shape[1] + self.cell_pool
        return pair

    def hours(self, values: FloatArray) -> FloatArray:
        """(m, R, I) hours of an answer; exact zeros where nothing runs."""
        jobs, pools = self.terms.usable.shape
        hours = np.zeros((jobs, pools, self.bounds_s.size - 1))
        y = values[: self.cell_count] * self.cell_hours
        interval = self.segments.interval[self.cell_segment]
        np.add.at(hours, (self.cell_job, self.cell_pool, interval), y)
        length_h = np.diff(self.bounds_s)[None, None, :] / S_PER_H
        hours[hours < 1e-7 * np.minimum(length_h, self._shortest_h())] = 0.0
        return np.minimum(hours, length_h)

    def _shortest_h(self) -> FloatArray:
        """(m, 1, 1) hours the job needs at the least: what is "nothing" depends on the job."""
        fastest = self.terms.fastest_h
        return np.where(np.isfinite(fastest), fastest, 0.0)[:, None, None]

    def cost_usd(self, values: FloatArray) -> float:
        """Cost of an answer."""
        return float(values[: self.cell_count] @ self.cell_usd)


def far_horizon_s(terms: PairTerms, windows: Windows) -> float:
    """An end by which everything that fits one after the other is done on its cheapest pool.

    Pools more than a thousand times slower than a job's fastest are not waited for.
    """
    known = [w[np.isfinite(w)] for w in (windows.release_s, windows.deadline_s)]
    base = max([0.0, *(float(w.max()) for w in known if w.size)])
    fastest = terms.fastest_h
    total_h = 0.0
    cost = terms.usd_to_finish
    for row in np.flatnonzero(np.isfinite(fastest)):
        waited_h = terms.hours_to_finish[row] / terms.available_share
        candidates = terms.hours_to_finish[row] <= 1000 * fastest[row]
        best = int(np.argmin(np.where(candidates, cost[row], np.inf)))
        total_h += float(waited_h[best])
    return base + 1.01 * total_h * S_PER_H


def build_planning_model(
    problem: AllocationProblem,
    terms: PairTerms,
    purpose: Purpose,
    *,
    with_late: bool = False,
    free_deadlines: BoolArray | None = None,
    interval_count: int = INTERVAL_COUNT,
    fill_intervals: bool = True,
) -> PlanningModel:
    """Write the LP of ``problem`` down.

    ``free_deadlines`` (m,) marks deadlines that are left out. ``with_late`` gives every job the
    time after its deadline too (in cells of their own) and a column that says its deadline goes.
    ``fill_intervals``: split long intervals until there are
    ``interval_count`` (it changes when things are done, not what they cost).
    """
    jobs = problem.jobs
    fastest_s = terms.fastest_h * S_PER_H
    windows = chain_windows(jobs, fastest_s, milestones=purpose is Purpose.PLAN)
    deadline = windows.deadline_s
    if free_deadlines is not None:
        deadline = np.where(free_deadlines, np.inf, deadline)
        windows = Windows(release_s=windows.release_s, deadline_s=deadline)
    active = np.isfinite(fastest_s)
    last = float(deadline[active].max()) if active.any() else 0.0
    is_open = with_late or not np.isfinite(last)
    end = far_horizon_s(terms, windows) if is_open else last
    if not end > 0:
        end = S_PER_H
    instants = np.concatenate([windows.release_s[active], deadline[active]])
    bounds = interval_bounds(
        instants[np.isfinite(instants)], end, count=interval_count, fill=fill_intervals
    )
    used = windows
    if purpose is Purpose.PLAN:
        used = rounded_down(windows, bounds, np.where(active, fastest_s, np.inf))
    parts = segments(used, bounds, with_late=with_late)
    return _assemble(problem, terms, windows, bounds, parts, active, with_late=with_late)


def _assemble(
    problem: AllocationProblem,
    terms: PairTerms,
    windows: Windows,
    bounds: FloatArray,
    parts: Segments,
    active: BoolArray,
    *,
    with_late: bool,
) -> PlanningModel:
    """Lay out cells and rows."""
    job_count, pool_count = terms.usable.shape
    interval_count = bounds.size - 1
    length_h = np.diff(bounds) / S_PER_H
    cap_h = parts.length_s / S_PER_H

    # Cells: every usable pool of a job in every segment of its window that is worth a coefficient.
    usable = terms.usable[parts.job]
    share = np.zeros(usable.shape)
    np.divide(cap_h[:, None], terms.hours_to_finish[parts.job], out=share, where=usable)
    cell_segment, cell_pool = np.nonzero(usable & (share > 1e-8))
    cell_job = parts.job[cell_segment]
    cell_hours_full = terms.hours_to_finish[cell_job, cell_pool]
    cell_cap = cap_h[cell_segment]
    cell_hours = np.minimum(cell_cap, cell_hours_full)
    cell_interval = parts.interval[cell_segment]
    cell_usd = terms.cost_usd_per_hour[cell_job, cell_pool] * cell_hours
    cells = cell_job.size

    cheapest = terms.usd_to_finish.min(axis=1) if pool_count else np.full(job_count, np.inf)
    known = cheapest[np.isfinite(cheapest) & (cheapest > 0)]
    scale = float(known.mean()) if known.size else 1.0

    triples: list[tuple[IntArray, IntArray, FloatArray]] = []
    lower: list[FloatArray] = []
    upper: list[FloatArray] = []
    every = np.arange(cells)
    count = 0

    def add_rows(low: FloatArray, high: FloatArray) -> IntArray:
        nonlocal count
        lower.append(low)
        upper.append(high)
        rows = np.arange(count, count + low.size)
        count += low.size
        return rows

    nowhere = np.full(job_count, -1, dtype=np.int64)
    shortfall = cells + np.arange(job_count)
    work = add_rows(np.where(active, 1.0, 0.0), np.full(job_count, np.inf))
    done_share = cell_hours / cell_hours_full
    triples.append((work[cell_job], every, done_share))
    triples.append((work, shortfall, np.ones(job_count)))

    kept = nowhere
    promised = active & np.isfinite(windows.deadline_s)
    if with_late:
        kept = nowhere.copy()
        kept[promised] = add_rows(
            np.ones(int(promised.sum())), np.full(int(promised.sum()), np.inf)
        )
        early = ~parts.late[cell_segment] & promised[cell_job]
        triples.append((kept[cell_job[early]], every[early], done_share[early]))
        late_column = cells + job_count + np.flatnonzero(promised)
        triples.append((kept[promised], late_column, np.ones(late_column.size)))

    time = add_rows(np.full(cap_h.size, -np.inf), np.ones(cap_h.size))
    triples.append((time[cell_segment], every, cell_hours / cell_cap))

    quota_rows = np.full((len(problem.quotas), interval_count), -1, dtype=np.int64)
    for number, quota in enumerate(problem.quotas):
        per_hour = np.array(quota.coefficients, dtype=np.float64)[cell_pool]
        counted = np.flatnonzero(per_hour > 0)
        if not counted.size or not np.isfinite(quota.limit):
            continue
        used = per_hour[counted] * terms.instances[cell_pool[counted]] * cell_hours[counted]
        limit = quota.limit * length_h[cell_interval[counted]]
        quota_rows[number] = add_rows(np.full(interval_count, -np.inf), np.ones(interval_count))
        triples.append((quota_rows[number][cell_interval[counted]], counted, used / limit))

    rate = np.full(interval_count, -1, dtype=np.int64)
    if problem.max_usd_per_hour is not None and problem.max_usd_per_hour > 0:
        rate = add_rows(np.full(interval_count, -np.inf), np.ones(interval_count))
        limit = problem.max_usd_per_hour * length_h[cell_interval]
        cell_rent = terms.usd_per_hour[cell_pool] * cell_hours
        triples.append((rate[cell_interval], every, cell_rent / limit))

    job_cost = nowhere.copy()
    for row, job in enumerate(problem.jobs):
        if job.max_cost_left_usd is not None and active[row]:
            own = np.flatnonzero(cell_job == row)
            money = float(cheapest[row]) if 0 < cheapest[row] < np.inf else scale
            job_cost[row] = add_rows(
                np.array([-np.inf]), np.array([max(job.max_cost_left_usd, 0.0) / money])
            )[0]
            triples.append((np.full(own.size, job_cost[row]), own, cell_usd[own] / money))

    cost = int(add_rows(np.array([-np.inf]), np.array([np.inf]))[0])
    triples.append((np.full(cells, cost), every, cell_usd / scale))

    columns = cells + job_count * (2 if with_late else 1)
    matrix = sparse.coo_matrix(
        (
            np.concatenate([v for _, _, v in triples]),
            (
                np.concatenate([r for r, _, _ in triples]),
                np.concatenate([c for _, c, _ in triples]),
            ),
        ),
        shape=(count, columns),
    ).tocsc()
    objective = np.zeros(columns)
    objective[:cells] = cell_usd / scale
    share_cap = terms.available_share[cell_pool]
    limits = np.zeros(columns)
    limits[:cells] = np.where(share_cap < 1.0, share_cap * cell_cap / cell_hours, np.inf)
    program = LinearProgram(
        cost=objective,
        matrix=matrix,
        row_lower=np.concatenate(lower),
        row_upper=np.concatenate(upper),
        lower=np.zeros(columns),
        upper=limits,
    )
    return PlanningModel(
        program=program,
        rows=PlanningRows(
            work=work,
            kept=kept,
            time=time,
            quota=quota_rows,
            rate=rate,
            job_cost=job_cost,
            cost=cost,
        ),
        terms=terms,
        windows=windows,
        bounds_s=bounds,
        segments=parts,
        cell_job=cell_job,
        cell_pool=cell_pool,
        cell_segment=cell_segment,
        cell_hours=cell_hours,
        cell_usd=cell_usd,
        active=active,
        cost_scale_usd=scale,
    )
