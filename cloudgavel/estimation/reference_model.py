"""What the reference profiles teach about columns, those that they have and all others."""

import functools
import math
from typing import Final

import numpy as np

from cloudgavel.estimation.column_model import ColumnModel, fit_columns
from cloudgavel.estimation.gang_columns import (
    GangColumn,
    column_of,
    prior_covariance,
    roofline,
)
from cloudgavel.jobs.profiles import PROFILES

KEPT_MODELS: Final = 256


@functools.cache
def _reference() -> tuple[tuple[GangColumn, ...], ColumnModel]:
    """The columns of the profiles and the law fitted to them; made once."""
    labels = sorted({label for rates in PROFILES.values() for label in rates})
    columns = tuple(column_of_label(label) for label in labels)
    values = np.array(
        [
            [math.log(rates[label]) if label in rates else np.nan for label in labels]
            for rates in PROFILES.values()
        ]
    )
    return columns, fit_columns(values, roofline(columns), prior_covariance(columns))


def column_of_label(label: str) -> GangColumn:
    """Return the column that ``AcceleratorRequest.label`` names, as in ``A100:8``."""
    accelerator, _, count = label.partition(":")
    return column_of(accelerator, int(count or 1))


@functools.lru_cache(maxsize=KEPT_MODELS)
def reference_model(columns: tuple[GangColumn, ...]) -> ColumnModel:
    """Return the law of these columns, in this order.

    Columns of the profiles have the fitted law. The others follow from them as the prior says (the
    regression of their residuals, with what it leaves open): the more alike an accelerator is to
    the known ones, the more it is expected to behave like them.
    """
    known, fitted = _reference()
    number = {column: at for at, column in enumerate(known)}
    new = tuple(dict.fromkeys(column for column in columns if column not in number))
    every = (*known, *new)
    prior, expected = prior_covariance(every), roofline(every)
    count = len(known)
    across, own = prior[count:, :count], prior[count:, count:]
    regression = np.asarray(np.linalg.solve(prior[:count, :count], across.T).T, dtype=np.float64)
    mean = np.concatenate(
        [fitted.mean, expected[count:] + regression @ (fitted.mean - expected[:count])]
    )
    left_open = own - regression @ across.T
    covariance = np.empty(prior.shape)
    covariance[:count, :count] = fitted.covariance
    covariance[count:, :count] = regression @ fitted.covariance
    covariance[:count, count:] = covariance[count:, :count].T
    covariance[count:, count:] = left_open + regression @ fitted.covariance @ regression.T
    place = {column: at for at, column in enumerate(every)}
    picked = np.array([place[column] for column in columns], dtype=np.int64)
    return ColumnModel(mean=mean[picked], covariance=covariance[np.ix_(picked, picked)])
