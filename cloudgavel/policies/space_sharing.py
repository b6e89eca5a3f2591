"""Space sharing without building all pairs: classes of jobs, and column generation.

Jobs with equal rates, kind and goal are one group (``groups_of``), so with k kinds there are about
k^2 R / 2 combinations whatever the number of jobs is: then all of them that are worth something
are stated at once. When jobs differ by rank, steps or history, the program starts from every job
alone and each job's best partner, and the duals price all missing pairs (vectorised, a pool at a
time): the best of each job enter until no missing pair can improve the objective by more than
``GAP_SHARE``. Nothing of size m^2 is kept between rounds.

A pair whose retained shares add to 1 or less is dominated by giving its accelerators to one job
and then to the other, and never enters.
"""

import numpy as np

from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.columns import Columns, joined
from cloudgavel.policies.fixed.share_program import Rows, ShareProgram
from cloudgavel.policies.problem import BoolArray, FloatArray, IntArray
from cloudgavel.policies.sharing import PairSharing
from cloudgavel.policies.solve import LinearAnswer, LinearProgram
from cloudgavel.policies.solve_interior import solve_paired

ALL_PAIRS_UP_TO = 4_000
"""Undominated pairs of groups that are stated at once."""
GAP_SHARE = 1e-6
"""Of the objective: what missing pairs may be worth together when pricing stops."""
ROUND_LIMIT = 60
PRUNE_FROM_SHARE = 0.1
"""Of the objective: once the gap is below this, prices say which pairs are hopeless."""
HOPELESS_SHARE = 0.1
"""Of the largest loss a pair would bring."""
BLOCK_CELLS = 1 << 22


def solve_with_pairs(
    cluster: Cluster, program: ShareProgram
) -> tuple[Columns, LinearAnswer, Rows, int]:
    """Solve a share program over single jobs and pairs.

    Returns the columns (scaled rates), the answer over them, where its rows are, and the rounds.
    """
    sharing = cluster.problem.sharing
    columns = program.singles
    if sharing is None or program.groups.kind is None:
        built, rows = program.build(columns)
        return columns, solve_paired(built), rows, 1
    pricer = _Pricer(program, sharing)
    few = pricer.all_pairs(ALL_PAIRS_UP_TO)
    if few is not None:
        columns = joined(columns, few)
        built, rows = program.build(columns)
        return columns, solve_paired(built), rows, 1

    columns = joined(columns, pricer.best_partners())
    rounds, pruned = 0, False
    while True:
        rounds += 1
        built, rows = program.build(columns)
        answer = solve_paired(built)
        if not answer.is_usable or answer.row_duals is None or rounds >= ROUND_LIMIT:
            return columns, answer, rows, rounds
        new, gap = pricer.price(answer, rows, columns)
        relative = gap / max(abs(answer.objective or 0.0), 1e-9)
        if not new.count or relative <= GAP_SHARE:
            return columns, answer, rows, rounds
        if not pruned and relative < PRUNE_FROM_SHARE:
            columns, pruned = _promising(columns, built, answer), True
        columns = joined(columns, new)


def _promising(columns: Columns, built: LinearProgram, answer: LinearAnswer) -> Columns:
    """Drop pairs that the prices make hopeless; one that is needed again is priced in again.

    Done once, so that nothing can go round in circles.
    """
    assert answer.row_duals is not None and answer.values is not None
    loss = built.cost[:-1] - (built.matrix.T @ answer.row_duals)[:-1]
    most = float(np.abs(loss[columns.paired]).max(initial=0.0))
    hopeless = (columns.second >= 0) & (loss > HOPELESS_SHARE * most)
    hopeless &= answer.values[:-1] < 1e-4
    return columns.at(np.flatnonzero(~hopeless))


def worthwhile_pairs(cluster: Cluster, program: ShareProgram, limit: int) -> Columns:
    """Every undominated pair (scaled rates), or each job's best partners if there are too many."""
    sharing = cluster.problem.sharing
    if sharing is None or program.groups.kind is None:
        return _all([])
    pricer = _Pricer(program, sharing)
    found = pricer.all_pairs(limit)
    return pricer.best_partners() if found is None else found


class _Pricer:
    """Finds the pairs that a program lacks; holds nothing larger than a block of pairs."""

    def __init__(self, program: ShareProgram, sharing: PairSharing) -> None:
        assert program.groups.kind is not None
        self._program = program
        self._sharing = sharing
        self._kind: IntArray = program.groups.kind
        self._rate = program.groups.rate / program.scale.rate[:, None]
        self._alone: BoolArray = program.groups.members < 2
        self._pool_count = int(self._rate.shape[1])

    def _members(self, pool: int) -> IntArray:
        """Groups that may share in a pool."""
        found = np.flatnonzero((self._rate[:, pool] > 0) & (self._kind >= 0))
        return np.asarray(found, dtype=np.int64)

    def _retained(self, one: IntArray, other: IntArray, pool: int) -> FloatArray:
        """(a, b) what groups ``one`` keep beside groups ``other``; NaN = cannot share."""
        kinds = self._sharing.retained_share[:, :, pool]
        return np.asarray(kinds[self._kind[one][:, None], self._kind[other][None, :]])

    def _blocks(self, members: IntArray) -> list[IntArray]:
        size = max(1, BLOCK_CELLS // max(1, members.size))
        return [members[at : at + size] for at in range(0, members.size, size)]

    def _pairs(self, first: IntArray, second: IntArray, pool: int) -> Columns:
        kinds = self._sharing.retained_share[:, :, pool]
        one, other = self._kind[first], self._kind[second]
        return Columns(
            first=first,
            second=second,
            pool=np.full(first.size, pool, dtype=np.int64),
            rate_first=self._rate[first, pool] * kinds[one, other],
            rate_second=self._rate[second, pool] * kinds[other, one],
        )

    def _worth_having(self, block: IntArray, members: IntArray, pool: int) -> BoolArray:
        """(a, b) pairs that exist, in one order, and are not dominated by taking turns."""
        together = self._retained(block, members, pool) + self._retained(members, block, pool).T
        known = np.nan_to_num(together, nan=0.0) > 1.0
        known &= block[:, None] <= members[None, :]
        known &= (block[:, None] != members[None, :]) | ~self._alone[block][:, None]
        return np.asarray(known, dtype=bool)

    def all_pairs(self, limit: int) -> Columns | None:
        """Every undominated pair, or ``None`` if there are more than ``limit``."""
        found: list[Columns] = []
        total = 0
        for pool in range(self._pool_count):
            members = self._members(pool)
            for block in self._blocks(members):
                one, other = np.nonzero(self._worth_having(block, members, pool))
                total += one.size
                if total > limit:
                    return None
                found.append(self._pairs(block[one], members[other], pool))
        return _all(found)

    def best_partners(self) -> Columns:
        """Each group's partner and pool with which both keep most."""
        found: list[Columns] = []
        best = np.zeros(self._rate.shape[0])
        scores: list[FloatArray] = []
        for pool in range(self._pool_count):
            members = self._members(pool)
            for block in self._blocks(members):
                worth = self._worth_having(block, members, pool)
                together = (
                    self._retained(block, members, pool) + self._retained(members, block, pool).T
                )
                score = np.where(worth, together, -np.inf)
                if score.size:
                    best[block] = np.maximum(best[block], score.max(axis=1))
                    best[members] = np.maximum(best[members], score.max(axis=0))
                    found.append(self._best_of_rows(score, block, members, pool, 0.0))
                    scores.append(self._profit_of(found[-1], score, block, members))
        return _best_of_a_group(_all(found), np.concatenate([np.zeros(0), *scores]), best)

    def price(self, answer: LinearAnswer, rows: Rows, present: Columns) -> tuple[Columns, float]:
        """The most profitable missing pairs, and a bound on what all missing pairs can bring.

        A pair takes time of two groups, so together they bring at most half the sum over groups
        of (time a group has) x (its best pair's profit), and at most (pairs that run at a time) x
        (the best profit).
        """
        duals = answer.row_duals
        assert duals is not None
        wanted = self._program.wanted
        level = np.where(rows.level >= 0, duals[rows.level], 0.0)
        per_rate = wanted.gain + np.maximum(level, 0.0)
        time = np.minimum(duals[rows.time], 0.0)
        per_pool = self._program.limit_matrix.T @ np.minimum(duals[rows.limit], 0.0)
        if wanted.pool_cost is not None:
            per_pool += wanted.pool_cost * (duals[rows.cost] if rows.cost >= 0 else -1.0)
        found: list[Columns] = []
        best = np.zeros(self._rate.shape[0])
        scores: list[FloatArray] = []
        for pool in range(self._pool_count):
            members = self._members(pool)
            worth = per_rate * self._rate[:, pool]
            for block in self._blocks(members):
                profit = self._retained(block, members, pool) * worth[block][:, None]
                profit += self._retained(members, block, pool).T * worth[members][None, :]
                profit += time[block][:, None]
                profit += (time[members] + per_pool[pool])[None, :]
                out = np.isnan(profit) | (block[:, None] > members[None, :])
                out |= (block[:, None] == members[None, :]) & self._alone[block][:, None]
                profit[out] = -np.inf
                if profit.size:
                    best[block] = np.maximum(best[block], profit.max(axis=1))
                    best[members] = np.maximum(best[members], profit.max(axis=0))
                    found.append(self._best_of_rows(profit, block, members, pool, 1e-12))
                    scores.append(self._profit_of(found[-1], profit, block, members))
        every = _all(found)
        score = np.concatenate([np.zeros(0), *scores])
        # A pair enters if it is the best, over all pools, of one of its two groups.
        chosen = _best_of_a_group(every, score, best)
        fresh = _without(chosen, present, self._program.groups.count, self._pool_count)
        by_time = float(best @ self._program.members) / 2 * self._ratio_scale(answer)
        by_room = float(best.max(initial=0.0)) * self.pairs_at_a_time(answer)
        return fresh, min(by_time, by_room)

    def _profit_of(
        self, pairs: Columns, profit: FloatArray, block: IntArray, members: IntArray
    ) -> FloatArray:
        """(C,) profits of pairs found in a block."""
        row = np.searchsorted(block, pairs.first)
        column = np.searchsorted(members, pairs.second)
        return np.asarray(profit[row, column], dtype=np.float64)

    def _ratio_scale(self, answer: LinearAnswer) -> float:
        """In a ratio, amounts are scaled by the last variable."""
        if self._program.wanted.ratio and answer.values is not None:
            return max(float(answer.values[-1]), 0.0)
        return 1.0

    def pairs_at_a_time(self, answer: LinearAnswer) -> float:
        """An upper bound on how many pairs run at once (scaled)."""
        room = float(self._program.members.sum()) / 2
        sizes, matrix = self._program.limit_sizes, self._program.limit_matrix
        if sizes.size and (matrix.sum(axis=0) > 0).all():
            least = np.array([row[row > 0].min() if (row > 0).any() else np.inf for row in matrix])
            room = min(room, float((sizes / least).sum()))
        return room * self._ratio_scale(answer)

    def _best_of_rows(
        self, score: FloatArray, block: IntArray, members: IntArray, pool: int, least: float
    ) -> Columns:
        """The best partner of every row and of every column with a score above ``least``."""
        if not score.size:
            nothing = np.zeros(0, dtype=np.int64)
            return self._pairs(nothing, nothing, pool)
        across, down = score.argmax(axis=1), score.argmax(axis=0)
        one = np.concatenate([np.arange(block.size), down])
        other = np.concatenate([across, np.arange(members.size)])
        good = score[one, other] > least
        cell = np.unique(one[good] * members.size + other[good])
        return self._pairs(block[cell // members.size], members[cell % members.size], pool)


def _best_of_a_group(pairs: Columns, score: FloatArray, best: FloatArray) -> Columns:
    """The pairs that are the best, over all pools, of one of their two groups."""
    of_first = score >= best[pairs.first] * (1 - 1e-9)
    of_second = score >= best[pairs.second] * (1 - 1e-9)
    return pairs.at(np.flatnonzero(of_first | of_second))


def _all(parts: list[Columns]) -> Columns:
    names = ("first", "second", "pool", "rate_first", "rate_second")
    kinds = (np.int64, np.int64, np.int64, np.float64, np.float64)
    joined_parts = {
        name: np.concatenate([np.zeros(0, dtype=kind), *(getattr(part, name) for part in parts)])
        for name, kind in zip(names, kinds, strict=True)
    }
    return Columns(**joined_parts)


def _without(new: Columns, present: Columns, group_count: int, pool_count: int) -> Columns:
    """The new columns that are not there yet."""

    def key(columns: Columns) -> IntArray:
        pair = columns.first * (group_count + 1) + columns.second + 1
        return np.asarray(pair * pool_count + columns.pool, dtype=np.int64)

    return new.at(np.flatnonzero(~np.isin(key(new), key(present))))
