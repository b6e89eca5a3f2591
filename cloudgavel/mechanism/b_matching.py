"""One round of a fixed cluster: the most valuable set of whole units that fits.

A unit is a gang of one job, or a pair of jobs on the same accelerators, in one pool. A job is in
at most one unit, a type holds at most its accelerators: a maximum-weight b-matching. With gangs of
one size a type and no pairs it is an assignment problem and solved as one; otherwise the linear
program is tried first and an integer program decides where its corner is fractional.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sparse

from cloudgavel.policies.problem import FloatArray, IntArray
from cloudgavel.policies.solve import LinearProgram, solve_integer, solve_linear

WHOLE = 1e-6


@dataclass(frozen=True, kw_only=True)
class RoundRows:
    """C kinds of units over G classes of jobs (usually one job each) and R pools."""

    first: IntArray
    """(C,) class of the first job."""
    second: IntArray
    """(C,) class of the second; -1 = alone."""
    pool: IntArray
    """(C,)."""
    members: IntArray
    """(G,) jobs of each class."""
    gang: IntArray
    """(R,) accelerators of a unit in the pool."""
    type_of_pool: IntArray
    """(R,)."""
    accelerators: IntArray
    """(types,) free for this round."""

    @property
    def count(self) -> int:
        """C."""
        return int(self.first.size)

    def jobs_used(self, counts: IntArray) -> IntArray:
        """(G,) jobs of each class that so many units of each kind take."""
        used = np.zeros(self.members.size, dtype=np.int64)
        np.add.at(used, self.first, counts)
        pairs = self.second >= 0
        np.add.at(used, self.second[pairs], counts[pairs])
        return used

    def accelerators_used(self, counts: IntArray) -> IntArray:
        """(types,) accelerators that so many units of each kind take."""
        used = np.zeros(self.accelerators.size, dtype=np.int64)
        np.add.at(used, self.type_of_pool[self.pool], counts * self.gang[self.pool])
        return used

    def fit(self, counts: IntArray) -> bool:
        """Whether jobs and accelerators suffice."""
        return bool(
            (self.jobs_used(counts) <= self.members).all()
            and (self.accelerators_used(counts) <= self.accelerators).all()
        )


def best_units(rows: RoundRows, worth: FloatArray, most: IntArray) -> IntArray:
    """Return how many units of each kind (C,) run: ``max sum worth n``, ``0 <= n <= most``.

    Units worth nothing or less are left out. Deterministic; if both solvers fail (they have not
    been seen to), the units are taken greedily by worth per accelerator.
    """
    counts = np.zeros(rows.count, dtype=np.int64)
    kept = np.flatnonzero((worth > 0) & (most > 0))
    if not kept.size:
        return counts
    assigned = _assigned(rows, worth, kept)
    if assigned is not None:
        return assigned
    program = _program(rows, worth, most, kept)
    answer = solve_linear(program)
    if answer.values is None or np.abs(answer.values - np.round(answer.values)).max() > WHOLE:
        answer = solve_integer(program)
    if not answer.is_usable or answer.values is None:
        return _greedy(rows, worth, most)
    counts[kept] = np.round(answer.values).astype(np.int64)
    return counts


def _assigned(rows: RoundRows, worth: FloatArray, kept: IntArray) -> IntArray | None:
    """Solve as an assignment of jobs to slots; ``None`` if it is not one."""
    pool = rows.pool[kept]
    kind = rows.type_of_pool[pool]
    if (rows.second[kept] >= 0).any() or (rows.members[rows.first[kept]] > 1).any():
        return None
    most_gang = np.zeros(rows.accelerators.size, dtype=np.int64)
    least_gang = np.full(rows.accelerators.size, np.iinfo(np.int64).max, dtype=np.int64)
    np.maximum.at(most_gang, kind, rows.gang[pool])
    np.minimum.at(least_gang, kind, rows.gang[pool])
    if (most_gang > np.maximum(least_gang, 1)).any():
        return None
    jobs, job = np.unique(rows.first[kept], return_inverse=True)
    free = rows.members[jobs] > 0
    slots = np.minimum(rows.accelerators // np.maximum(most_gang, 1), jobs.size)
    slots = np.where(most_gang > 0, slots, 0)
    best = np.zeros((jobs.size, rows.accelerators.size))
    which = np.full(best.shape, -1, dtype=np.int64)
    order = np.argsort(worth[kept], kind="stable")
    # Of several columns of a type (a placement each) the last written is the most valuable.
    best[job[order], kind[order]] = worth[kept][order]
    which[job[order], kind[order]] = kept[order]
    best[~free] = 0.0
    slot_kind = np.repeat(np.arange(slots.size), slots)
    from scipy.optimize import linear_sum_assignment

    counts = np.zeros(rows.count, dtype=np.int64)
    taken, slot = linear_sum_assignment(best[:, slot_kind], maximize=True)
    for at, number in zip(taken, slot_kind[slot], strict=True):
        if best[at, number] > 0:
            counts[which[at, number]] = 1
    return counts


def _program(rows: RoundRows, worth: FloatArray, most: IntArray, kept: IntArray) -> LinearProgram:
    groups, types = rows.members.size, rows.accelerators.size
    at = np.arange(kept.size)
    pairs = np.flatnonzero(rows.second[kept] >= 0)
    pool = rows.pool[kept]
    row = np.concatenate(
        [rows.first[kept], rows.second[kept][pairs], groups + rows.type_of_pool[pool]]
    )
    column = np.concatenate([at, pairs, at])
    value = np.concatenate(
        [np.ones(kept.size), np.ones(pairs.size), rows.gang[pool].astype(np.float64)]
    )
    size = np.concatenate([rows.members, rows.accelerators]).astype(np.float64)
    return LinearProgram(
        cost=-worth[kept],
        matrix=sparse.csc_matrix((value, (row, column)), shape=(groups + types, kept.size)),
        row_lower=np.full(groups + types, -np.inf),
        row_upper=size,
        lower=np.zeros(kept.size),
        upper=most[kept].astype(np.float64),
        integer=np.ones(kept.size, dtype=bool),
    )


def _greedy(rows: RoundRows, worth: FloatArray, most: IntArray) -> IntArray:
    counts = np.zeros(rows.count, dtype=np.int64)
    for row in np.argsort(-worth / rows.gang[rows.pool], kind="stable"):
        while worth[row] > 0 and counts[row] < most[row]:
            counts[row] += 1
            if not rows.fit(counts):
                counts[row] -= 1
                break
    return counts
