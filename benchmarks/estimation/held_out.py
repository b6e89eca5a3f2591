"""Errors of estimates on what was not measured: rates alone, shares kept by pairs, new columns."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from cloudgavel.estimation.column_model import ColumnModel, condition, fit_columns
from cloudgavel.estimation.estimated_table import EstimatedTable
from cloudgavel.estimation.gang_columns import (
    GangColumn,
    prior_covariance,
    roofline,
)
from cloudgavel.estimation.job_rates import LOW_QUANTILE_SDS

FloatArray = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass
class Errors:
    """Log errors (estimate less truth), and their standard deviations where there are any."""

    log_errors: list[float] = field(default_factory=list)
    log_sds: list[float] = field(default_factory=list)

    def add(self, estimate: FloatArray, truth: FloatArray, sd: FloatArray | None = None) -> None:
        self.log_errors += (estimate - truth).ravel().tolist()
        if sd is not None:
            self.log_sds += sd.ravel().tolist()

    def __str__(self) -> str:
        relative = np.abs(np.expm1(self.log_errors))
        text = f"{np.median(relative):7.1%} {np.percentile(relative, 90):8.1%}"
        if not self.log_sds:
            return f"{text} {'-':>8} {'-':>8}"
        scaled = np.array(self.log_errors) / np.array(self.log_sds)
        inside = np.mean(np.abs(scaled) < -LOW_QUANTILE_SDS)
        # The truth lies above the low quantile where the estimate is not too high by as much.
        above = np.mean(scaled < -LOW_QUANTILE_SDS)
        return f"{text} {inside:8.1%} {above:8.1%}"


HEAD = f"{'':34} {'median':>7} {'p90':>8} {'in 80%':>8} {'>= low':>8}"


def two_way(values: FloatArray, weight: float = 0.0) -> FloatArray:
    """Row effect plus column effect by alternating means; ``weight``: pseudo-rows at the mean.

    Columns without an entry have the mean effect.
    """
    known = np.isfinite(values)
    row, column = np.zeros(values.shape[0]), np.zeros(values.shape[1])
    level = float(values[known].mean())
    for _ in range(100):
        left = np.where(known, values - level - column, 0.0)
        row = left.sum(axis=1) / np.maximum(known.sum(axis=1) + weight, 1)
        left = np.where(known, values - level - row[:, None], 0.0)
        column = left.sum(axis=0) / np.maximum(known.sum(axis=0) + weight, 1)
    return level + row[:, None] + column


def by_roofline(values: FloatArray, columns: tuple[GangColumn, ...]) -> FloatArray:
    """The catalogue alone: each row's mean distance from it is the row's scale."""
    expected = roofline(columns)
    scale = np.nanmean(values - expected, axis=1)
    return scale[:, None] + expected


def alone_errors(tables: list[EstimatedTable]) -> Iterator[str]:
    model, roof, means = Errors(), Errors(), Errors()
    for table in tables:
        rates = table.rates
        held = np.isfinite(rates.truth) & ~rates.known
        values = np.where(rates.known, rates.truth, np.nan)
        model.add(rates.mean[held], rates.truth[held], rates.sd[held])
        roof.add(by_roofline(values, table.columns)[held], rates.truth[held])
        means.add(two_way(values)[held], rates.truth[held])
    for name, errors in (("this model", model), ("roofline", roof), ("column means", means)):
        yield f"  {name:32} {errors}"


def pair_errors(tables: list[EstimatedTable]) -> Iterator[str]:
    model, mean, effects = Errors(), Errors(), Errors()
    for table in tables:
        for matrix in table.pairs.values():
            shares = matrix.shares
            held = np.isfinite(shares.truth) & ~shares.known
            values = np.where(shares.known, shares.truth, np.nan)
            model.add(np.minimum(shares.mean, 0.0)[held], shares.truth[held], shares.sd[held])
            mean.add(np.full(held.sum(), np.nanmean(values)), shares.truth[held])
            effects.add(np.minimum(two_way(values, 1.0), 0.0)[held], shares.truth[held])
    for name, errors in (("this model", model), ("mean share", mean), ("two effects", effects)):
        yield f"  {name:32} {errors}"


def new_job_errors(table: EstimatedTable, *, accelerators_known: int) -> Errors:
    """A job whose whole model family was never seen, measured on one column (every one in turn).

    Estimated are its other columns. ``accelerators_known`` 0: on any accelerator; 1: only columns
    of accelerators that no profile has either, which follow by the catalogue alone.
    """
    found = Errors()
    truth = table.rates.truth
    families = np.array([name.split(" (")[0] for name in table.names])
    consolidated = np.array([not column.spread for column in table.columns])
    names = np.array([column.accelerator for column in table.columns])
    expected, prior = roofline(table.columns), prior_covariance(table.columns)
    hidden_sets = [None] if accelerators_known == 0 else sorted(set(names.tolist()))
    for hidden in hidden_sets:
        seen = consolidated if hidden is None else consolidated & (names != hidden)
        wanted = consolidated if hidden is None else consolidated & (names == hidden)
        for family in sorted(set(families.tolist())):
            others = np.where((families != family)[:, None] & seen, truth, np.nan)
            model = fit_columns(others, expected, prior)
            for row in np.flatnonzero(families == family):
                _one_by_one(found, model, truth[row], seen, wanted)
    return found


def _one_by_one(
    found: Errors, model: ColumnModel, truth: FloatArray, seen: FloatArray, wanted: FloatArray
) -> None:
    real = np.isfinite(truth)
    for column in np.flatnonzero(real & seen):
        belief = condition(model, np.array([column]), truth[[column]])
        others = real & wanted
        others[column] = False
        found.add(belief.mean[others], truth[others], belief.sd[others])
