"""A matrix of logarithms of which a part is known, and what is believed of the rest."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloudgavel.estimation.column_model import ColumnModel, FloatArray, condition, fit_columns

BoolArray = NDArray[np.bool_]

REFIT_GROWTH: Final = 0.1
"""The law of the columns is fitted anew when so much more is known; rows are updated at once."""


@dataclass(frozen=True, kw_only=True)
class CompletedMatrix:
    """n rows, C columns; natural logarithms. Make one with ``complete``."""

    truth: FloatArray
    """(n, C), NaN = there is nothing to know. Read only where ``known``."""
    known: BoolArray
    """(n, C)."""
    model: ColumnModel
    prior: ColumnModel
    fitted_to: int
    """Entries known when ``model`` was fitted."""
    mean: FloatArray
    """(n, C): what is known as it is, the others estimated."""
    sd: FloatArray
    """(n, C): 0 where known, infinite where nothing can be said."""

    def measured(self, cells: Iterable[tuple[int, int]]) -> "CompletedMatrix":
        """Return the matrix with more entries known; entries without a truth are passed over."""
        known = self.known.copy()
        for row, column in cells:
            known[row, column] = bool(np.isfinite(self.truth[row, column]))
        rows = np.flatnonzero((known & ~self.known).any(axis=1))
        if not rows.size:
            return self
        count = int(known.sum())
        if count >= (1 + REFIT_GROWTH) * self.fitted_to:
            return complete(self.truth, known, self.prior, start=self.model)
        mean, sd = self.mean.copy(), self.sd.copy()
        for row in rows.tolist():
            mean[row], sd[row] = _believed(self.model, self.truth[row], known[row])
        return replace(self, known=known, mean=mean, sd=sd)


def complete(
    truth: FloatArray, known: BoolArray, prior: ColumnModel, *, start: ColumnModel | None = None
) -> CompletedMatrix:
    """Fit the law of the columns to what is known, and condition every row on its own part."""
    values = np.where(known, truth, np.nan)
    model = fit_columns(
        values, prior.mean, prior.covariance, flat_offset=prior.flat_offset, start=start
    )
    mean, sd = np.empty(truth.shape), np.empty(truth.shape)
    for row in range(truth.shape[0]):
        mean[row], sd[row] = _believed(model, truth[row], known[row])
    return CompletedMatrix(
        truth=truth,
        known=known,
        model=model,
        prior=prior,
        fitted_to=int(known.sum()),
        mean=mean,
        sd=sd,
    )


def _believed(
    model: ColumnModel, truth: FloatArray, known: BoolArray
) -> tuple[FloatArray, FloatArray]:
    columns = np.flatnonzero(known)
    belief = condition(model, columns, truth[columns])
    return belief.mean, belief.sd


def drawn(
    real: BoolArray, share: float, dice: np.random.Generator, *, one_in_each_row: bool
) -> BoolArray:
    """Return which of the ``real`` entries are measured: the first ``share`` of a random order.

    ``one_in_each_row``: the first of each row before all others. The order does not depend on the
    share, so a larger one measures the same entries and more.
    """
    cells = np.argwhere(real)
    order = cells[dice.permutation(len(cells))]
    known = np.zeros(real.shape, dtype=bool)
    if one_in_each_row:
        for row, column in order.tolist():
            if not known[row].any():
                known[row, column] = True
    wanted = round(share * len(cells)) - int(known.sum())
    rest = [cell for cell in order.tolist() if not known[cell[0], cell[1]]]
    for row, column in rest[: max(wanted, 0)]:
        known[row, column] = True
    return known
