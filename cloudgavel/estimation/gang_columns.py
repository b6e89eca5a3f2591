"""Columns of a throughput matrix: a gang on one accelerator; what is believed before any data.

A job's log speed in column c is its own scale + ``roofline(c)`` + a residual. The roofline
(Williams, Waterman and Patterson, CACM 52(4), 2009) says that arithmetic bounds some jobs and
memory bandwidth others; as it is not known which, the prior takes the exponent of each as 1/2, and
lets it vary from job to job.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloudgavel.jobs.accelerators import UnknownAcceleratorError, accelerator
from cloudgavel.jobs.spec import AcceleratorRequest
from cloudgavel.jobs.throughput import gang_speedup

FloatArray = NDArray[np.float64]

PEAK_EXPONENT_SD: Final = 0.25
"""How much the exponent of the peak rate, 1/2 in the mean, differs between jobs."""
BANDWIDTH_EXPONENT_SD: Final = 0.25
DOUBLING_SD: Final = 0.25
"""Of the log speed-up by a gang twice as large, about ``gang_speedup``."""
ACCELERATOR_SD: Final = 0.25
"""What the two rates do not say about one accelerator and one job."""
CELL_SD: Final = 0.15
"""What a job does in one column and in no other."""
SPREAD_DOUBLING_LOG: Final = -0.15
"""Log speed that a gang spread over machines loses each time it doubles."""
SPREAD_SD: Final = 0.25
"""Of that loss, for each doubling."""
STRANGE_ACCELERATOR_SD: Final = 1.5
"""An accelerator that is not in the catalogue may be as fast as any."""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class GangColumn:
    """``count`` accelerators of one kind, on as few machines as can be or ``spread``."""

    accelerator: str
    """As in the catalogue, or any other name (then nothing is known of it beforehand)."""
    count: int = 1
    spread: bool = False
    """Meaningless for one accelerator; ``column_of`` never says it there."""


def column_of(accelerator: str, count: int, *, spread: bool = False) -> GangColumn:
    """Return the column of a gang: one accelerator alone is never spread."""
    return GangColumn(accelerator=accelerator, count=count, spread=spread and count > 1)


def column_of_request(request: AcceleratorRequest) -> GangColumn:
    """Return the column of a gang as a job asks for it."""
    return column_of(request.accelerator, request.count)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Features:
    """What the catalogue says of a column; natural logarithms, in units of a V100."""

    peak: float
    bandwidth: float
    doublings: float
    spread_doublings: float
    scaling: float
    accelerator_sd: float


@functools.lru_cache(maxsize=4096)
def _features(column: GangColumn) -> _Features:
    unit = accelerator("V100")
    try:
        known = accelerator(column.accelerator)
        chips, sd = column.count * known.chips, ACCELERATOR_SD
    except UnknownAcceleratorError:
        known, chips, sd = unit, column.count, STRANGE_ACCELERATOR_SD
    doublings = math.log2(chips)
    return _Features(
        peak=math.log(known.peak_tflops / unit.peak_tflops),
        bandwidth=math.log(known.bandwidth_gb_per_s / unit.bandwidth_gb_per_s),
        doublings=doublings,
        spread_doublings=doublings if column.spread else 0.0,
        scaling=math.log(gang_speedup(chips)),
        accelerator_sd=sd,
    )


def roofline(columns: Sequence[GangColumn]) -> FloatArray:
    """(C,) log speed that the catalogue expects, in units of one V100.

    ``(log peak + log bandwidth) / 2 + log speedup(chips)``, less what spreading costs. Accelerators
    that the catalogue does not have are expected to be like a V100.
    """
    features = [_features(column) for column in columns]
    return np.array(
        [
            0.5 * (each.peak + each.bandwidth)
            + each.scaling
            + SPREAD_DOUBLING_LOG * each.spread_doublings
            for each in features
        ],
        dtype=np.float64,
    )


def prior_covariance(columns: Sequence[GangColumn]) -> FloatArray:
    """(C, C) covariance of a job's residuals about the roofline, positive definite.

    A random exponent of the peak rate and of the bandwidth, a random loss by doubling and by
    spreading, one deviation for each accelerator and one for each column. An entry depends on its
    two columns alone.
    """
    features = [_features(column) for column in columns]
    names = np.array([column.accelerator for column in columns])
    own = np.array([each.accelerator_sd for each in features])
    covariance = np.where(names[:, None] == names[None, :], np.outer(own, own), 0.0)
    covariance += CELL_SD**2 * np.eye(len(columns))
    for name, sd in (
        ("peak", PEAK_EXPONENT_SD),
        ("bandwidth", BANDWIDTH_EXPONENT_SD),
        ("doublings", DOUBLING_SD),
        ("spread_doublings", SPREAD_SD),
    ):
        values = np.array([getattr(each, name) for each in features], dtype=np.float64)
        covariance += sd**2 * np.outer(values, values)
    return np.asarray(covariance, dtype=np.float64)
