"""Combinations of one or two jobs in a pool: the columns of every program of shares."""

from dataclasses import dataclass

import numpy as np

from cloudgavel.policies.problem import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Columns:
    """C combinations over G groups of interchangeable jobs.

    ``second`` is -1 where a job has the accelerators to itself. Rates are those of each partner
    inside the combination; ``rate_second`` is 0 where there is none.
    """

    first: IntArray
    second: IntArray
    pool: IntArray
    rate_first: FloatArray
    rate_second: FloatArray

    @property
    def count(self) -> int:
        """C."""
        return int(self.first.size)

    @property
    def paired(self) -> IntArray:
        """Positions of the combinations of two."""
        return np.asarray(np.flatnonzero(self.second >= 0), dtype=np.int64)

    def at(self, positions: IntArray) -> "Columns":
        """Return some of the combinations."""
        return Columns(
            first=self.first[positions],
            second=self.second[positions],
            pool=self.pool[positions],
            rate_first=self.rate_first[positions],
            rate_second=self.rate_second[positions],
        )

    def gain(self, per_rate: FloatArray) -> FloatArray:
        """(C,) ``sum over partners of per_rate[group] * rate``; ``per_rate`` is (G,)."""
        total = per_rate[self.first] * self.rate_first
        at = self.paired
        total[at] += per_rate[self.second[at]] * self.rate_second[at]
        return total

    def per_group(self, first: FloatArray, second: FloatArray, group_count: int) -> FloatArray:
        """(G,) sums of values (C,) of the first and the second partners over the columns."""
        at = self.paired
        total = np.bincount(self.first, weights=first, minlength=group_count)
        total += np.bincount(self.second[at], weights=second[at], minlength=group_count)
        return total.astype(np.float64)


def single_columns(rate: FloatArray) -> Columns:
    """One column for every group (row) and pool where the rate (G, R) is positive."""
    first, pool = np.nonzero(rate > 0)
    return Columns(
        first=first.astype(np.int64),
        second=np.full(first.size, -1, dtype=np.int64),
        pool=pool.astype(np.int64),
        rate_first=rate[first, pool],
        rate_second=np.zeros(first.size),
    )


def joined(one: Columns, other: Columns) -> Columns:
    """``one`` followed by ``other``."""
    return Columns(
        first=np.concatenate([one.first, other.first]),
        second=np.concatenate([one.second, other.second]),
        pool=np.concatenate([one.pool, other.pool]),
        rate_first=np.concatenate([one.rate_first, other.rate_first]),
        rate_second=np.concatenate([one.rate_second, other.rate_second]),
    )


def classes_of(keys: FloatArray) -> tuple[IntArray, IntArray, IntArray]:
    """Group equal rows of ``keys`` (m, p): class of each row, a representative, and the sizes.

    Classes are numbered by their first row, so the order of jobs is kept.
    """
    if not keys.shape[0]:
        empty = np.zeros(0, dtype=np.int64)
        return empty, empty, empty
    rows = np.ascontiguousarray(keys + 0.0)  # -0.0 and 0.0 are the same bytes after this
    raw = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, inverse, sizes = np.unique(
        raw, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return (
        place[inverse].astype(np.int64),
        first[order].astype(np.int64),
        sizes[order].astype(np.int64),
    )
