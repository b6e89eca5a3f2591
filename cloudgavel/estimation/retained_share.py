"""What a job keeps of its rate beside another, estimated from the pairs that were measured.

Rows are the kinds that are slowed down, columns the kind beside them on one accelerator; values are
natural logarithms of the retained share, at most 0. Estimating these from a few measured pairs is
what the 2020 scheduler does with random profiling and matrix completion (Narayanan et al., OSDI
2020, section 6).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cloudgavel.estimation.column_model import ColumnModel, FloatArray
from cloudgavel.estimation.completed import CompletedMatrix, complete, drawn

JobKind = tuple[str, int]
"""What is run, and on how many accelerators."""
Alone = Mapping[tuple[str, bool], Mapping[JobKind, float]]
"""(accelerator type, spread) -> kind -> steps/s of the whole gang."""
Beside = Mapping[str, Mapping[tuple[JobKind, JobKind], float]]
"""Accelerator type -> (kind, the other kind) -> steps/s of the first on shared accelerators."""

USUAL_SHARE: Final = 0.6
"""Kept beside another job where nothing was measured."""
SENSITIVITY_SD: Final = 0.2
"""How easily a kind is slowed down, whatever is beside it; of the logarithm, as all of these."""
ACCELERATOR_SD: Final = 0.2
"""The same, on one accelerator."""
NEIGHBOUR_SD: Final = 0.15
"""What one neighbour does to one kind on every accelerator."""
CELL_SD: Final = 0.15


def pair_prior(columns: Sequence[tuple[str, str]], measured: FloatArray) -> ColumnModel:
    """Return the prior law over columns (accelerator, neighbour).

    ``measured``: the log shares known so far, any shape; their mean is the prior's, in which the
    usual share counts as one more.
    """
    usual = float((np.log(USUAL_SHARE) + measured.sum()) / (1 + measured.size))
    accelerators = np.array([accelerator for accelerator, _ in columns])
    neighbours = np.array([neighbour for _, neighbour in columns])
    covariance = np.full((len(columns), len(columns)), SENSITIVITY_SD**2)
    covariance += ACCELERATOR_SD**2 * (accelerators[:, None] == accelerators[None, :])
    covariance += NEIGHBOUR_SD**2 * (neighbours[:, None] == neighbours[None, :])
    covariance += CELL_SD**2 * np.eye(len(columns))
    return ColumnModel(mean=np.full(len(columns), usual), covariance=covariance, flat_offset=False)


@dataclass(frozen=True, kw_only=True)
class PairMatrix:
    """Retained shares of one gang size: kinds by (accelerator, neighbour)."""

    row_of: Mapping[str, int]
    column_of: Mapping[tuple[str, str], int]
    shares: CompletedMatrix

    def measured(self, accelerator: str, kind: str, other: str) -> "PairMatrix":
        """Return the matrix with a pair measured for both; itself if that is nothing new."""
        cells = [
            (self.row_of[one], self.column_of[accelerator, beside])
            for one, beside in ((kind, other), (other, kind))
            if one in self.row_of and (accelerator, beside) in self.column_of
        ]
        shares = self.shares.measured(cells)
        return self if shares is self.shares else replace(self, shares=shares)

    def share(self, accelerator: str, kind: str, other: str) -> float | None:
        """Believed share in (0, 1]; ``None`` where the truth has no pair."""
        row, column = self.row_of.get(kind), self.column_of.get((accelerator, other))
        if row is None or column is None or not np.isfinite(self.shares.truth[row, column]):
            return None
        return min(math.exp(float(self.shares.mean[row, column])), 1.0)


def pair_matrices(
    alone: Alone, pairs: Beside, share: float, dice: np.random.Generator
) -> dict[int, PairMatrix]:
    """Retained shares by gang size, a part of them measured (as ``estimated_table`` says).

    Pairs of different gang sizes are left out.
    """
    shares: dict[int, dict[tuple[str, str, str], float]] = {}
    for accelerator, cells in pairs.items():
        own = alone.get((accelerator, False), {})
        for (kind, other), rate in cells.items():
            back = cells.get((other, kind), 0.0)
            both_run = min(rate, back, own.get(kind, 0.0), own.get(other, 0.0)) > 0
            if kind[1] == other[1] and both_run:
                kept = math.log(min(rate / own[kind], 1.0))
                shares.setdefault(kind[1], {})[accelerator, kind[0], other[0]] = kept
    found = {}
    for gang in sorted(shares):
        truth = shares[gang]
        names = sorted({name for _, name, _ in truth})
        columns = sorted({(accelerator, beside) for accelerator, _, beside in truth})
        row_of = {name: at for at, name in enumerate(names)}
        column_number = {column: at for at, column in enumerate(columns)}
        matrix = np.full((len(names), len(columns)), np.nan)
        for (accelerator, name, beside), value in truth.items():
            matrix[row_of[name], column_number[accelerator, beside]] = value
        # One draw for both directions of a pair: the entries of the upper triangle.
        upper = np.zeros(matrix.shape, dtype=bool)
        for accelerator, name, beside in truth:
            if name <= beside:
                upper[row_of[name], column_number[accelerator, beside]] = True
        known = drawn(upper, share, dice, one_in_each_row=False)
        for row, column in np.argwhere(known).tolist():
            accelerator, beside = columns[column]
            known[row_of[beside], column_number[accelerator, names[row]]] = True
        known &= np.isfinite(matrix)
        found[gang] = PairMatrix(
            row_of=row_of,
            column_of=column_number,
            shares=complete(matrix, known, pair_prior(columns, matrix[known])),
        )
    return found
