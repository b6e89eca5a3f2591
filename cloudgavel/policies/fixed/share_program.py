"""One linear program for the whole family: levels, gains, floors, prices and ratios of shares.

With x the amounts of combinations (``Columns``), thr_g their rates summed by group and z a level::

    maximise   level_gain z + sum_g gain_g thr_g - sum pool_cost x
    subject to thr_g >= demand_g z + floor_g      for every group with a demand or a floor
               time_g <= members_g                for every group
               sum coefficient_lr x <= size_l     for every limit

| policy | demand | gain |
|---|---|---|
| max-min fairness | w_j n_j / k_j | - |
| makespan (z = 1 / makespan) | S_j | - |
| FIFO, shortest remaining, total throughput | - | rank or k_j over the best rate |
| water filling | current weights, floors at the levels reached | - |
| throughput per USD (``ratio``) | - | w_j / n_j |

``ratio``: z is the Charnes-Cooper scale: every right-hand side is multiplied by it, and the cost of
the scaled shares is 1. (Charnes and Cooper 1962.)

Numbers are scaled before solving, so that throughputs over nine orders of magnitude and shares of
a thousandth of a percent keep their digits: rates by the group's best, demands by their largest,
shares by how crowded the cluster is.
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sparse

from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.columns import Columns, classes_of, single_columns
from cloudgavel.policies.problem import FloatArray, IntArray
from cloudgavel.policies.solve import LinearAnswer, LinearProgram, SolveStatus
from cloudgavel.policies.solve_interior import solve_paired, solve_share_program

SMALLEST_CROWD = 1e-6
NOISE = 1e-9
"""Scaled shares below this are the solver's tolerance, not its answer."""


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What to maximise, by job (m,) or by group (G,); 0 = no part of it."""

    demand: FloatArray
    floor: FloatArray
    gain: FloatArray
    level_gain: float = 0.0
    pool_cost: FloatArray | None = None
    """(R,) cost of a full share."""
    ratio: bool = False
    centred: bool = False
    """Of several optima take the centre, not a corner: alike jobs and alike types share alike."""

    def of(self, rows: IntArray) -> "Goal":
        """Return the goal of some jobs."""
        return replace(self, demand=self.demand[rows], floor=self.floor[rows], gain=self.gain[rows])


def goal(
    count: int,
    *,
    demand: FloatArray | None = None,
    floor: FloatArray | None = None,
    gain: FloatArray | None = None,
    pool_cost: FloatArray | None = None,
    ratio: bool = False,
) -> Goal:
    """Make a goal; what is not given is 0. A demand means that the level is maximised."""
    nothing = np.zeros(count)
    return Goal(
        demand=nothing if demand is None else demand,
        floor=nothing if floor is None else floor,
        gain=nothing if gain is None else gain,
        level_gain=0.0 if demand is None else 1.0,
        pool_cost=pool_cost,
        ratio=ratio,
    )


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The jobs of a cluster collapsed to groups whose members are interchangeable."""

    group_of_job: IntArray
    """(m,); -1 = cannot run anywhere."""
    members: FloatArray
    """(G,)."""
    example: IntArray
    """(G,) a job of each group."""
    rate: FloatArray
    """(G, R)."""
    kind: IntArray | None
    """(G,) space-sharing kind; ``None`` = accelerators are not shared."""

    @property
    def count(self) -> int:
        """G."""
        return int(self.members.size)


def groups_of(cluster: Cluster, wanted: Goal, *, space_sharing: bool) -> Groups:
    """Collapse jobs with equal rates, demand, floor, gain and sharing kind.

    Valid for every goal of this module: averaging an optimum over the members of a group is an
    optimum again.
    """
    able = np.flatnonzero(cluster.able)
    sharing = cluster.problem.sharing if space_sharing else None
    keys = [cluster.rate[able], wanted.demand[able, None], wanted.floor[able, None]]
    keys.append(wanted.gain[able, None])
    if sharing is not None:
        keys.append(sharing.kind_of_job[able, None].astype(np.float64))
    of, first, sizes = classes_of(np.concatenate(keys, axis=1))
    group_of_job = np.full(cluster.able.size, -1, dtype=np.int64)
    group_of_job[able] = of
    example = able[first].astype(np.int64)
    return Groups(
        group_of_job=group_of_job,
        members=sizes.astype(np.float64),
        example=example,
        rate=cluster.rate[example],
        kind=None if sharing is None else sharing.kind_of_job[example],
    )


@dataclass(frozen=True, kw_only=True)
class Scale:
    """True value = scaled value x factor."""

    rate: FloatArray
    """(G,) each group's best rate."""
    share: float
    """Of amounts and of the sizes of limits."""
    level: float
    gain: float
    """Of the objective."""
    cost: float


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Where the rows of each kind are; -1 = no such row."""

    level: IntArray
    """(G,)."""
    time: IntArray
    """(G,)."""
    limit: IntArray
    """(limits,)."""
    cost: int


@dataclass(frozen=True, kw_only=True)
class ShareProgram:
    """A goal over groups in scaled numbers, ready to be built over any set of columns."""

    groups: Groups
    wanted: Goal
    """Scaled."""
    limit_matrix: FloatArray
    limit_sizes: FloatArray
    """Scaled."""
    members: FloatArray
    """Scaled."""
    scale: Scale

    @property
    def singles(self) -> Columns:
        """Every group alone in every pool where it can run, at scaled rates."""
        return single_columns(self.groups.rate / self.scale.rate[:, None])

    def build(self, columns: Columns) -> tuple[LinearProgram, Rows]:
        """State the program over ``columns`` (scaled rates) as matrices; z is the last column."""
        wanted, count, groups = self.wanted, columns.count, self.groups.count
        at = columns.paired
        level = np.full(groups, -1, dtype=np.int64)
        needed = np.flatnonzero((wanted.demand > 0) | (wanted.floor > 0))
        level[needed] = np.arange(needed.size)
        time = needed.size + np.arange(groups)
        limit_count = self.limit_sizes.size
        limit = needed.size + groups + np.arange(limit_count)
        with_cost = wanted.ratio
        row_count = needed.size + groups + limit_count + int(with_cost)
        rows_of = Rows(
            level=level,
            time=time,
            limit=limit,
            cost=row_count - 1 if with_cost else -1,
        )

        parts: list[tuple[IntArray, IntArray, FloatArray]] = []
        position = np.arange(count)
        for group, rate, where in (
            (columns.first, columns.rate_first, position),
            (columns.second[at], columns.rate_second[at], at),
        ):
            own = level[group] >= 0
            parts.append((level[group[own]], where[own], rate[own]))
            parts.append((time[group], where, np.ones(where.size)))
        for number in range(limit_count):
            coefficient = self.limit_matrix[number, columns.pool]
            used = np.flatnonzero(coefficient)
            parts.append((np.full(used.size, limit[number]), used, coefficient[used]))
        pool_cost = np.zeros(count) if wanted.pool_cost is None else wanted.pool_cost[columns.pool]
        size = self.members * 1.0
        z = np.full(1, count)
        demand = (wanted.demand * self.groups.members)[needed]
        floor = (wanted.floor * self.groups.members)[needed]
        lower = np.full(row_count, -np.inf)
        upper = np.full(row_count, np.inf)
        if with_cost:
            parts.append((np.full(count, row_count - 1), position, pool_cost))
            parts.append((level[needed], z.repeat(needed.size), -floor))
            parts.append((time, z.repeat(groups), -size))
            parts.append((limit, z.repeat(limit_count), -self.limit_sizes))
            lower[: needed.size] = 0.0
            upper[time] = 0.0
            upper[limit] = 0.0
            lower[-1] = upper[-1] = 1.0
            objective = -columns.gain(wanted.gain)
        else:
            parts.append((level[needed], z.repeat(needed.size), -demand))
            lower[: needed.size] = floor
            upper[time] = size
            upper[limit] = self.limit_sizes
            objective = pool_cost - columns.gain(wanted.gain)
        matrix = sparse.csc_matrix(
            (
                np.concatenate([value for _, _, value in parts]),
                (
                    np.concatenate([row for row, _, _ in parts]),
                    np.concatenate([column for _, column, _ in parts]),
                ),
            ),
            shape=(row_count, count + 1),
        )
        has_level = wanted.level_gain > 0 or with_cost
        program = LinearProgram(
            cost=np.append(objective, -wanted.level_gain),
            matrix=matrix,
            row_lower=lower,
            row_upper=upper,
            lower=np.zeros(count + 1),
            upper=np.append(np.full(count, np.inf), np.inf if has_level else 0.0),
        )
        return program, rows_of


def share_program(cluster: Cluster, wanted: Goal, groups: Groups) -> ShareProgram:
    """Scale a goal (by job, true units) over the groups of a cluster."""
    mine = wanted.of(groups.example)
    best = groups.rate.max(axis=1, initial=0.0)
    best = np.where(best > 0, best, 1.0)
    room = float(cluster.limit_sizes.sum()) if cluster.problem.cluster_accelerators else 0.0
    asked = float(cluster.smallest_gang.sum())
    crowd = min(max(room / asked, SMALLEST_CROWD), 1.0) if room > 0 and asked > 0 else 1.0
    demand = mine.demand / best
    level = float(demand.max(initial=0.0)) or 1.0
    gain = mine.gain * best
    most = float(np.abs(gain).max(initial=0.0)) or 1.0
    if wanted.level_gain > 0:
        most = 1.0
    cost = 1.0
    pool_cost = wanted.pool_cost
    if pool_cost is not None:
        cost = float(np.abs(pool_cost).max(initial=0.0)) or 1.0
        # In a sum with gains both must be scaled alike; in a ratio each has its own scale.
        pool_cost = pool_cost / (cost if wanted.ratio else most)
    scaled = Goal(
        demand=demand / level,
        floor=mine.floor / best / crowd,
        gain=gain / most,
        level_gain=wanted.level_gain,
        pool_cost=pool_cost,
        ratio=wanted.ratio,
        centred=wanted.centred,
    )
    return ShareProgram(
        groups=groups,
        wanted=scaled,
        limit_matrix=cluster.limit_matrix,
        limit_sizes=cluster.limit_sizes / crowd,
        members=groups.members / crowd,
        scale=Scale(rate=best, share=crowd, level=crowd / level, gain=most, cost=cost),
    )


@dataclass(frozen=True, kw_only=True)
class Shares:
    """The answer to a share program, in true units."""

    status: SolveStatus
    groups: Groups
    columns: Columns
    """True rates."""
    amounts: FloatArray
    """(C,) summed over the members of each group."""
    level: float = 0.0
    level_duals: FloatArray | None = None
    """(G,) what a unit of demanded throughput of the whole group costs in the objective."""
    limit_duals: FloatArray | None = None
    """(limits,) objective per unit of each limit."""
    message: str = ""
    iterations: int = 1
    """Rounds of column generation."""

    @property
    def is_usable(self) -> bool:
        """An answer that keeps the constraints is there."""
        return self.status in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE)

    def throughput(self) -> FloatArray:
        """(m,) effective steps/s of every job."""
        total = self.columns.per_group(
            self.amounts * self.columns.rate_first,
            self.amounts * self.columns.rate_second,
            self.groups.count,
        )
        each = np.append(total / np.maximum(self.groups.members, 1.0), 0.0)
        return each[self.groups.group_of_job]


def solve_shares(
    cluster: Cluster, wanted: Goal, *, space_sharing: bool = False, collapse: bool = True
) -> Shares:
    """Solve a goal over a cluster, with pairs priced in by column generation if asked."""
    groups = groups_of(cluster, wanted, space_sharing=space_sharing)
    if not collapse:
        groups = one_each(cluster, space_sharing=space_sharing)
    program = share_program(cluster, wanted, groups)
    columns = program.singles
    if groups.kind is not None:
        from cloudgavel.policies.space_sharing import solve_with_pairs

        columns, answer, rows, iterations = solve_with_pairs(cluster, program)
    else:
        built, rows = program.build(columns)
        answer = solve_share_program(built, centred=wanted.centred)
        iterations = 1
    return read_back(cluster, program, columns, answer, rows, iterations)


def refill(cluster: Cluster, found: Shares, wanted: Goal) -> Shares:
    """Solve another goal over the groups and combinations of an answer (no new pairs).

    The goal must treat the members of each group alike.
    """
    program = share_program(cluster, wanted, found.groups)
    unit = program.scale.rate
    second = np.where(found.columns.second >= 0, unit[found.columns.second], 1.0)
    columns = replace(
        found.columns,
        rate_first=found.columns.rate_first / unit[found.columns.first],
        rate_second=found.columns.rate_second / second,
    )
    built, rows = program.build(columns)
    if columns.paired.size:
        answer = solve_paired(built)
    else:
        answer = solve_share_program(built, centred=wanted.centred)
    return read_back(cluster, program, columns, answer, rows, 1)


def one_each(cluster: Cluster, *, space_sharing: bool) -> Groups:
    """Every able job as a group of its own (what the collapse is tested against)."""
    able = np.flatnonzero(cluster.able).astype(np.int64)
    group_of_job = np.full(cluster.able.size, -1, dtype=np.int64)
    group_of_job[able] = np.arange(able.size)
    sharing = cluster.problem.sharing if space_sharing else None
    return Groups(
        group_of_job=group_of_job,
        members=np.ones(able.size),
        example=able,
        rate=cluster.rate[able],
        kind=None if sharing is None else sharing.kind_of_job[able],
    )


def read_back(
    cluster: Cluster,
    program: ShareProgram,
    columns: Columns,
    answer: LinearAnswer,
    rows: Rows,
    iterations: int,
) -> Shares:
    """Undo the scaling and repair what tolerances broke: the result keeps every row exactly."""
    scale, groups = program.scale, program.groups
    true = replace(
        columns,
        rate_first=columns.rate_first * scale.rate[columns.first],
        rate_second=np.where(
            columns.second >= 0, columns.rate_second * scale.rate[columns.second], 0.0
        ),
    )
    if not answer.is_usable or answer.values is None:
        return Shares(
            status=answer.status,
            groups=groups,
            columns=true,
            amounts=np.zeros(true.count),
            message=answer.message,
            iterations=iterations,
        )
    x, z = np.maximum(answer.values[:-1], 0.0), float(answer.values[-1])
    if program.wanted.ratio:
        x = x / z if z > 0 else x * 0.0
    else:
        need = (program.wanted.demand * max(z, 0.0) + program.wanted.floor) * groups.members
        x[x < NOISE] = 0.0
        x = _lifted(columns, x, need)
    x = x * scale.share
    over = 1.0
    time = true.per_group(x, x, groups.count)
    if groups.count:
        over = max(over, float((time / groups.members).max()))
    used = cluster.limit_matrix[:, true.pool] @ x if cluster.limits else np.zeros(0)
    for amount, size in zip(used, cluster.limit_sizes, strict=True):
        if size > 0:
            over = max(over, float(amount / size))
    duals = answer.row_duals
    level_duals = limit_duals = None
    if duals is not None:
        objective = scale.level if program.wanted.level_gain > 0 else scale.gain * scale.share
        if program.wanted.ratio:
            objective = scale.gain / scale.cost * max(z, 0.0)
        per_rate = objective / (scale.rate * scale.share)
        level_duals = np.where(rows.level >= 0, np.abs(duals[rows.level]), 0.0) * per_rate
        limit_duals = np.abs(duals[rows.limit]) * objective / scale.share
    return Shares(
        status=answer.status,
        groups=groups,
        columns=true,
        amounts=x / over,
        level=z * scale.level,
        level_duals=level_duals,
        limit_duals=limit_duals,
        message=answer.message,
        iterations=iterations,
    )


def _lifted(columns: Columns, x: FloatArray, need: FloatArray) -> FloatArray:
    """Add what solver tolerance left short, on each group's best own column."""
    count = need.size
    got = columns.per_group(x * columns.rate_first, x * columns.rate_second, count)
    short = np.maximum(need - got, 0.0)
    if not (short > 0).any():
        return x
    alone = np.flatnonzero(columns.second < 0)
    order = alone[np.argsort(columns.rate_first[alone], kind="stable")]
    best = np.full(count, -1, dtype=np.int64)
    best[columns.first[order]] = order
    x = x.copy()
    groups = np.flatnonzero((short > 0) & (best >= 0))
    x[best[groups]] += short[groups] / columns.rate_first[best[groups]]
    return x
