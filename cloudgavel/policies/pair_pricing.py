"""Which pairs of jobs a share program lacks: priced tile by tile, nothing of size m^2 is kept.

The one table of that size is the problem's own, copied once so that each pool's part lies together
in memory: pricing reads all of it every round.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cloudgavel.policies.fixed.columns import Columns
from cloudgavel.policies.fixed.share_program import Rows, ShareProgram
from cloudgavel.policies.problem import BoolArray, FloatArray, IntArray
from cloudgavel.policies.sharing import PairSharing
from cloudgavel.policies.solve import LinearAnswer

PARTNERS_PER_GROUP = 2
"""Missing pairs that enter per group and round."""
TILE_CELLS = 1 << 16
"""Pairs that are looked at together: half a megabyte stays in the processor's cache."""
NEVER = -1e300
"""Stands for "cannot share" in sums of products."""
LEAST_WORTH = 1e-200
"""So that a worthless job times ``NEVER`` still means never."""
LEAST_PROFIT = 1e-12


@dataclass(frozen=True, kw_only=True)
class _Tile:
    """Some members of a pool against all members from the first of them on."""

    pool: int
    members: IntArray
    """(n,) groups that may share in the pool."""
    start: int
    stop: int

    @property
    def rows(self) -> IntArray:
        return self.members[self.start : self.stop]

    @property
    def columns(self) -> IntArray:
        return self.members[self.start :]


class PairPricer:
    """Finds the pairs that programs over the same groups lack."""

    def __init__(self, program: ShareProgram, sharing: PairSharing) -> None:
        assert program.groups.kind is not None
        self._kind: IntArray = program.groups.kind
        self._rate = program.groups.rate / program.scale.rate[:, None]
        self._alone: BoolArray = program.groups.members < 2
        self._pool_count = int(self._rate.shape[1])
        self._kept = np.moveaxis(sharing.retained_share, 2, 0).copy()
        """(R, K, K) what a kind keeps beside another, ``NEVER`` if they cannot share."""
        self._kept[np.isnan(self._kept)] = NEVER

    def all_pairs(self, limit: int) -> Columns | None:
        """Every undominated pair, or ``None`` if there are more than ``limit``."""
        found: list[Columns] = []
        total = 0
        for tile in self._tiles():
            one, other = np.nonzero(self._together(tile) > 1.0)
            total += one.size
            if total > limit:
                return None
            found.append(self._pairs(tile.rows[one], tile.columns[other], tile.pool))
        return _all(found)

    def best_partners(self) -> Columns:
        """Each group's partner and pool with which both keep most."""
        best = np.ones(self._rate.shape[0])
        found: list[tuple[Columns, FloatArray]] = []
        for tile in self._tiles():
            together = self._together(tile)
            _raise(best, tile, together)
            found.append(self._best_of_tile(together, tile, 1, least=1.0))
        pairs, score = _joined(found)
        return pairs.at(_best_of_a_group(pairs, score, 1))

    def price(
        self, program: ShareProgram, answer: LinearAnswer, rows: Rows
    ) -> tuple[Columns, float]:
        """The most profitable pairs, and a bound on what all missing pairs can bring.

        A pair takes time of two groups, so together they bring at most half the sum over groups
        of (time a group has) x (its best pair's profit), and at most (pairs that run at a time) x
        (the best profit).
        """
        duals = answer.row_duals
        assert duals is not None
        wanted = program.wanted
        level = np.where(rows.level >= 0, duals[rows.level], 0.0)
        per_rate = wanted.gain + np.maximum(level, 0.0)
        time = np.minimum(duals[rows.time], 0.0)
        per_pool = program.limit_matrix.T @ np.minimum(duals[rows.limit], 0.0)
        if wanted.pool_cost is not None:
            per_pool += wanted.pool_cost * (duals[rows.cost] if rows.cost >= 0 else -1.0)
        best = np.zeros(self._rate.shape[0])
        found: list[tuple[Columns, FloatArray]] = []
        for tile in self._tiles():
            worth = np.maximum(per_rate * self._rate[:, tile.pool], LEAST_WORTH)
            profit = self._table(tile) * worth[tile.rows][:, None]
            profit += self._transposed(tile) * worth[tile.columns][None, :]
            profit += time[tile.rows][:, None]
            profit += (time[tile.columns] + per_pool[tile.pool])[None, :]
            self._leave_out(profit, tile)
            _raise(best, tile, profit)
            found.append(self._best_of_tile(profit, tile, PARTNERS_PER_GROUP, least=LEAST_PROFIT))
        pairs, score = _joined(found)
        chosen = pairs.at(_best_of_a_group(pairs, score, PARTNERS_PER_GROUP))
        by_time = float(best @ program.members) / 2 * _ratio_scale(program, answer)
        by_room = float(best.max(initial=0.0)) * _pairs_at_a_time(program, answer)
        return chosen, min(by_time, by_room)

    def _tiles(self) -> Iterator[_Tile]:
        """All pairs of groups that may share, each once."""
        for pool in range(self._pool_count):
            members = np.flatnonzero((self._rate[:, pool] > 0) & (self._kind >= 0))
            height = max(1, TILE_CELLS // max(1, members.size))
            for start in range(0, members.size, height):
                stop = min(start + height, int(members.size))
                yield _Tile(pool=pool, members=members, start=start, stop=stop)

    def _table(self, tile: _Tile) -> FloatArray:
        """(a, b) what the tile's rows keep beside its columns."""
        return _part(self._kept[tile.pool], self._kind[tile.rows], self._kind[tile.columns])

    def _transposed(self, tile: _Tile) -> FloatArray:
        """(a, b) what the tile's columns keep beside its rows."""
        return _part(self._kept[tile.pool], self._kind[tile.columns], self._kind[tile.rows]).T

    def _together(self, tile: _Tile) -> FloatArray:
        """(a, b) what both keep; more than 1 is better than taking turns."""
        total = self._table(tile) + self._transposed(tile)
        self._leave_out(total, tile)
        return total

    def _leave_out(self, score: FloatArray, tile: _Tile) -> None:
        """Strike out pairs that another tile or cell has, and jobs beside themselves."""
        height = tile.stop - tile.start
        score[np.tril_indices(height, -1)] = -np.inf
        lonely = np.flatnonzero(self._alone[tile.rows])
        score[lonely, lonely] = -np.inf

    def _pairs(self, first: IntArray, second: IntArray, pool: int) -> Columns:
        one, other = self._kind[first], self._kind[second]
        kept = self._kept[pool]
        return Columns(
            first=first,
            second=second,
            pool=np.full(first.size, pool, dtype=np.int64),
            rate_first=self._rate[first, pool] * kept[one, other],
            rate_second=self._rate[second, pool] * kept[other, one],
        )

    def _best_of_tile(
        self, score: FloatArray, tile: _Tile, count: int, *, least: float
    ) -> tuple[Columns, FloatArray]:
        """The best ``count`` cells of every row and column with a score above ``least``.

        Overwrites ``score``.
        """
        width = score.shape[1]
        flat = score.reshape(-1)
        cells: list[IntArray] = [np.zeros(0, dtype=np.int64)]
        scores: list[FloatArray] = [np.zeros(0)]
        for _ in range(count):
            cell = np.concatenate(
                [
                    np.arange(score.shape[0]) * width + score.argmax(axis=1),
                    score.argmax(axis=0) * width + np.arange(width),
                ]
            )
            cell = np.unique(cell[flat[cell] > least])
            if not cell.size:
                break
            cells.append(cell)
            scores.append(flat[cell])
            flat[cell] = -np.inf
        cell = np.concatenate(cells)
        pairs = self._pairs(tile.rows[cell // width], tile.columns[cell % width], tile.pool)
        return pairs, np.concatenate(scores)


def without(new: Columns, present: Columns, group_count: int, pool_count: int) -> Columns:
    """Return the new columns that are not there yet."""

    def key(columns: Columns) -> IntArray:
        pair = columns.first * (group_count + 1) + columns.second + 1
        return np.asarray(pair * pool_count + columns.pool, dtype=np.int64)

    return new.at(np.flatnonzero(~np.isin(key(new), key(present))))


def _part(table: FloatArray, rows: IntArray, columns: IntArray) -> FloatArray:
    """``table[rows][:, columns]``, without a copy where both are runs."""
    run_of_rows, run_of_columns = _run(rows), _run(columns)
    if run_of_rows is not None and run_of_columns is not None:
        return np.asarray(table[run_of_rows, run_of_columns])
    return np.asarray(table[rows[:, None], columns[None, :]])


def _run(numbers: IntArray) -> slice | None:
    if not numbers.size or (np.diff(numbers) != 1).any():
        return None
    return slice(int(numbers[0]), int(numbers[-1]) + 1)


def _raise(best: FloatArray, tile: _Tile, score: FloatArray) -> None:
    """Take a tile's best scores into those of its groups."""
    best[tile.rows] = np.maximum(best[tile.rows], score.max(axis=1))
    best[tile.columns] = np.maximum(best[tile.columns], score.max(axis=0))


def _best_of_a_group(pairs: Columns, score: FloatArray, count: int) -> IntArray:
    """Positions of the pairs that are, over all pools, among the best ``count`` of a group."""
    group = np.concatenate([pairs.first, pairs.second])
    order = np.lexsort((-np.tile(score, 2), group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    place = np.arange(order.size) - np.repeat(starts, np.diff(starts, append=order.size))
    return np.unique(order[place < count] % max(pairs.count, 1))


def _pairs_at_a_time(program: ShareProgram, answer: LinearAnswer) -> float:
    """An upper bound on how many pairs run at once (scaled)."""
    room = float(program.members.sum()) / 2
    sizes, matrix = program.limit_sizes, program.limit_matrix
    if sizes.size and (matrix.sum(axis=0) > 0).all():
        least = np.array([row[row > 0].min() if (row > 0).any() else np.inf for row in matrix])
        room = min(room, float((sizes / least).sum()))
    return room * _ratio_scale(program, answer)


def _ratio_scale(program: ShareProgram, answer: LinearAnswer) -> float:
    """In a ratio, amounts are scaled by the last variable."""
    if program.wanted.ratio and answer.values is not None:
        return max(float(answer.values[-1]), 0.0)
    return 1.0


def _joined(found: list[tuple[Columns, FloatArray]]) -> tuple[Columns, FloatArray]:
    scores = np.concatenate([np.zeros(0), *(score for _, score in found)])
    return _all([pairs for pairs, _ in found]), scores


def _all(parts: list[Columns]) -> Columns:
    names = ("first", "second", "pool", "rate_first", "rate_second")
    kinds = (np.int64, np.int64, np.int64, np.float64, np.float64)
    joined_parts = {
        name: np.concatenate([np.zeros(0, dtype=kind), *(getattr(part, name) for part in parts)])
        for name, kind in zip(names, kinds, strict=True)
    }
    return Columns(**joined_parts)
