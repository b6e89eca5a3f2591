"""A multivariate normal over the columns of a matrix with holes: fitted, then conditioned.

Matrix completion for few rows: a row is a draw of ``offset + mean + u``, ``u ~ N(0, covariance)``.
Mean and covariance are the posterior modes under a normal-inverse-Wishart prior, found by
expectation maximisation over the holes (Dempster, Laird and Rubin, JRSS B 39(1), 1977; Schafer,
Analysis of Incomplete Multivariate Data, 1997, section 5.2.2 for the shrunken M step). Given the
entries known of a row, the others have a normal law in closed form.

With a flat offset every row has a scale of its own about which nothing is assumed, so that adding
a constant to a row adds the same constant to its predictions (universal kriging).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

PRIOR_ROWS: Final = 4.0
"""The prior covariance counts as much as so many complete rows."""
PRIOR_MEAN_ROWS: Final = 1.0
"""The prior mean likewise."""
MOST_ITERATIONS: Final = 60
CLOSE: Final = 1e-4
"""Iterations end when no mean moves by more."""
NUGGET: Final = 1e-6
"""Variance added to what is known, for the arithmetic."""


@dataclass(frozen=True, kw_only=True)
class ColumnModel:
    """C columns; natural logarithms in this package, but nothing here depends on it."""

    mean: FloatArray
    """(C,), up to a constant if the offset is flat."""
    covariance: FloatArray
    """(C, C), positive definite."""
    flat_offset: bool = True


@dataclass(frozen=True, kw_only=True)
class RowBelief:
    """The normal law of every column of one row; marginal."""

    mean: FloatArray
    """(C,)."""
    sd: FloatArray
    """(C,) standard deviation; infinite where nothing is known of the row's offset."""


def fit_columns(
    values: FloatArray,
    prior_mean: FloatArray,
    prior_covariance: FloatArray,
    *,
    flat_offset: bool = True,
    start: ColumnModel | None = None,
) -> ColumnModel:
    """Fit mean and covariance to a matrix with holes.

    ``values`` (n, C), NaN = unknown; rows without two known entries (one, without a flat offset)
    say nothing. ``start``: a fit of nearly the same matrix, to begin from. Without data the prior
    comes back. The order of rows does not matter, nor does that of columns.
    """
    least = 2 if flat_offset else 1
    rows = [
        (known, row[known])
        for row in values
        if (known := np.flatnonzero(np.isfinite(row))).size >= least
    ]
    mean = prior_mean.copy() if start is None else start.mean.copy()
    covariance = prior_covariance.copy() if start is None else start.covariance.copy()
    if not rows:
        return ColumnModel(mean=prior_mean, covariance=prior_covariance, flat_offset=flat_offset)
    for _ in range(MOST_ITERATIONS):
        expected = np.empty((len(rows), mean.size))
        scatter = PRIOR_ROWS * prior_covariance
        for number, (known, row) in enumerate(rows):
            expected[number], spread = _residual(mean, covariance, known, row, flat_offset)
            scatter = scatter + spread
        moved = mean - prior_mean
        step = (expected.sum(axis=0) - PRIOR_MEAN_ROWS * moved) / (len(rows) + PRIOR_MEAN_ROWS)
        centred = expected - step
        scatter = scatter + centred.T @ centred
        shift = moved + step
        scatter = scatter + PRIOR_MEAN_ROWS * np.outer(shift, shift)
        mean = mean + step
        covariance = scatter / (len(rows) + PRIOR_ROWS + PRIOR_MEAN_ROWS)
        covariance = 0.5 * (covariance + covariance.T)
        if float(np.abs(step).max()) < CLOSE:
            break
    return ColumnModel(mean=mean, covariance=covariance, flat_offset=flat_offset)


def _residual(
    mean: FloatArray, covariance: FloatArray, known: IntArray, row: FloatArray, flat: bool
) -> tuple[FloatArray, FloatArray]:
    """Mean (C,) and covariance (C, C) of ``u`` of one row, its offset left open if flat."""
    seen = covariance[np.ix_(known, known)] + NUGGET * np.eye(known.size)
    inverse = np.linalg.inv(seen)
    if flat:
        ones = inverse.sum(axis=1)
        inverse = inverse - np.outer(ones, ones) / ones.sum()
    across = covariance[:, known]
    gain = across @ inverse
    return gain @ (row - mean[known]), covariance - gain @ across.T


def condition(
    model: ColumnModel, known: IntArray, values: FloatArray, noise: FloatArray | None = None
) -> RowBelief:
    """Return what is believed of a row of which some entries are known.

    ``known`` (k,) columns, of which one may come several times; ``values`` (k,); ``noise`` (k, k)
    covariance of the values' own errors (``None``: exact). Exact entries come back as they are.
    With nothing known and a flat offset every ``sd`` is infinite: unknown stays unknown.
    """
    mean, covariance = model.mean, model.covariance
    if not known.size:
        wide = np.full(mean.size, np.inf)
        sd = wide if model.flat_offset else np.sqrt(np.diag(covariance))
        return RowBelief(mean=mean.copy(), sd=sd)
    errors = np.zeros((known.size, known.size)) if noise is None else noise
    seen = covariance[np.ix_(known, known)] + errors + NUGGET * np.eye(known.size)
    gain = np.linalg.solve(seen, covariance[:, known].T).T
    residual = values - mean[known]
    variance = np.diag(covariance) - np.einsum("ck,ck->c", gain, covariance[:, known])
    offset = 0.0
    if model.flat_offset:
        weights = np.linalg.solve(seen, np.ones(known.size))
        offset = float(weights @ residual / weights.sum())
        variance = variance + (1.0 - gain.sum(axis=1)) ** 2 / weights.sum()
    found = mean + offset + gain @ (residual - offset)
    sd = np.sqrt(np.maximum(variance, 0.0))
    if noise is None:
        found[known] = values
        sd[known] = 0.0
    return RowBelief(mean=found, sd=sd)
