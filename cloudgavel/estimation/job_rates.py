"""Steps per second of a job where they are not known, from whatever is known of it and its like."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from cloudgavel.estimation.column_model import condition
from cloudgavel.estimation.gang_columns import column_of_request
from cloudgavel.estimation.reference_model import column_of_label, reference_model
from cloudgavel.jobs.profiles import PROFILES
from cloudgavel.jobs.spec import AcceleratorRequest, JobSpec
from cloudgavel.jobs.throughput import memory_fits

LOW_QUANTILE: Final = 0.10
"""Plans count on the rate that is exceeded with a chance of 90 %."""
LOW_QUANTILE_SDS: Final = -1.2815515655446004
"""Where that lies on a normal law."""
KEPT_ESTIMATES: Final = 20_000


class Relation(StrEnum):
    """Whose rates a witness tells."""

    OWN = "own"
    """The job's, given or measured."""
    KIN = "kin"
    """Jobs of the same ``foreach`` entry, or with the same profile."""
    PROFILE = "profile"
    """The reference profile's, measured by others with other software."""


OFFSET_SD: Final[Mapping[Relation, float]] = {
    Relation.OWN: 0.0,
    Relation.KIN: 0.5,
    Relation.PROFILE: 0.5,
}
"""Of the log factor between the job and the witness, the same in every column."""
CELL_SD: Final[Mapping[Relation, float]] = {
    Relation.OWN: 0.03,
    Relation.KIN: 0.05,
    Relation.PROFILE: 0.15,
}
"""Of the log error of one of its rates by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Witness:
    """Rates that tell something about a job: hashable, in a fixed order."""

    relation: Relation
    rates_steps_per_s: tuple[tuple[str, float], ...]
    """(``AcceleratorRequest.label``, steps/s) pairs, positive and finite."""

    @classmethod
    def of(cls, relation: Relation, rates_steps_per_s: Mapping[str, float]) -> "Witness":
        """Make one of a mapping; its order does not matter."""
        return cls(relation=relation, rates_steps_per_s=tuple(sorted(rates_steps_per_s.items())))


@dataclass(frozen=True, kw_only=True, slots=True)
class RateEstimate:
    """A log-normal belief about one rate."""

    median_steps_per_s: float
    log_sd: float

    @property
    def low_steps_per_s(self) -> float:
        """The low quantile, which plans count on."""
        return self.median_steps_per_s * math.exp(LOW_QUANTILE_SDS * self.log_sd)


def estimated_rates(
    spec: JobSpec,
    *,
    measured_steps_per_s: Mapping[str, float] | None = None,
    kin_steps_per_s: Mapping[str, float] | None = None,
) -> dict[str, RateEstimate]:
    """Estimate the gangs that a job accepts and whose rate is neither given nor measured.

    By ``AcceleratorRequest.label``. ``measured_steps_per_s``: of the job itself, before what the
    spec gives; ``kin_steps_per_s``: measured on its like. Gangs in whose memory the model does not
    fit are left out. Empty if nothing is known that an estimate could rest on. An estimate carries
    no promise of a deadline.
    """
    own = {**spec.throughput_steps_per_s, **(measured_steps_per_s or {})}
    wanted = tuple(
        request
        for request in spec.accelerators
        if request.label not in own and memory_fits(spec, request)
    )
    if not wanted:
        return {}
    witnesses = [Witness.of(Relation.OWN, own), Witness.of(Relation.KIN, kin_steps_per_s or {})]
    if spec.profile is not None:
        witnesses.append(Witness.of(Relation.PROFILE, PROFILES.get(spec.profile, {})))
    heard = tuple(each for each in witnesses if each.rates_steps_per_s)
    if not heard:
        return {}
    found = _estimates(wanted, heard)
    return {request.label: each for request, each in zip(wanted, found, strict=True)}


@functools.lru_cache(maxsize=KEPT_ESTIMATES)
def _estimates(
    wanted: tuple[AcceleratorRequest, ...], witnesses: Sequence[Witness]
) -> tuple[RateEstimate, ...]:
    """Condition the law of the reference profiles on every witness at once.

    Errors of one witness share its offset, so its shape counts more than its level.
    """
    heard = [
        (number, witness.relation, column_of_label(label), math.log(rate))
        for number, witness in enumerate(witnesses)
        for label, rate in witness.rates_steps_per_s
    ]
    asked = [column_of_request(request) for request in wanted]
    columns = tuple(dict.fromkeys([*asked, *(column for _, _, column, _ in heard)]))
    place = {column: at for at, column in enumerate(columns)}
    source = np.array([number for number, _, _, _ in heard])
    offset = np.array([OFFSET_SD[relation] for _, relation, _, _ in heard])
    alone = np.array([CELL_SD[relation] for _, relation, _, _ in heard])
    noise = np.where(source[:, None] == source[None, :], np.outer(offset, offset), 0.0)
    belief = condition(
        reference_model(columns),
        np.array([place[column] for _, _, column, _ in heard], dtype=np.int64),
        np.array([value for _, _, _, value in heard]),
        noise + np.diag(alone**2),
    )
    return tuple(
        RateEstimate(
            median_steps_per_s=math.exp(float(belief.mean[place[column]])),
            log_sd=float(belief.sd[place[column]]),
        )
        for column in asked
    )
