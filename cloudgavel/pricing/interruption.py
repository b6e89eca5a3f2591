"""How likely a spot machine is to be taken, what that costs in work, and how often to save.

Hazards are per machine and hour, constant over time (exponential lifetimes). A gang over several
machines stops when any of them is taken.

Sources: J. W. Young, "A first order approximation to the optimum checkpoint interval" (CACM 17(9),
1974); J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps"
(FGCS 22(3), 2006), equations 20 (expected time) and 37 (interval).
"""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

from cloudgavel.units import HOUR_S

MINIMUM_SAVE_INTERVAL_S = 60.0
MAXIMUM_SAVE_INTERVAL_S = 3600.0


def probability_within(hazard_per_hour: float, span_s: float) -> float:
    """Probability of at least one interruption within ``span_s``: ``1 - exp(-h t)``."""
    _check_not_negative(hazard_per_hour=hazard_per_hour, span_s=span_s)
    return -math.expm1(-hazard_per_hour * span_s / HOUR_S)


def hazard_per_hour(probability: float, span_s: float) -> float:
    """The constant hazard whose probability within ``span_s`` is this one.

    Inverse of ``probability_within``; ``ValueError`` for a probability of 1 or an empty span.
    """
    if not 0 <= probability < 1:
        raise ValueError(f"no finite hazard has this probability: {probability}")
    if not span_s > 0:
        raise ValueError(f"an empty span: {span_s}")
    return -math.log1p(-probability) / (span_s / HOUR_S)


def gang_probability(probability: float, machine_count: int) -> float:
    """Probability that any of ``machine_count`` independent machines is taken: ``1-(1-p)^n``."""
    if not 0 <= probability <= 1:
        raise ValueError(f"not a probability: {probability}")
    if machine_count < 1:
        raise ValueError(f"a gang has at least one machine, not {machine_count}")
    if probability == 1:
        return 1.0
    return -math.expm1(machine_count * math.log1p(-probability))


def gang_hazard_per_hour(hazard: float, machine_count: int) -> float:
    """Hazard of a gang: independent hazards add up, which is ``1-(1-p)^n`` for probabilities."""
    _check_not_negative(hazard=hazard)
    if machine_count < 1:
        raise ValueError(f"a gang has at least one machine, not {machine_count}")
    return hazard * machine_count


def mean_lifetime_s(hazard: float) -> float:
    """Mean seconds until the interruption; infinite for a hazard of 0."""
    _check_not_negative(hazard=hazard)
    return math.inf if hazard == 0 else HOUR_S / hazard


def expected_lost_work_s(hazard: float, save_interval_s: float) -> float:
    """Seconds of work lost by one interruption: the mean time since the last save.

    The mean of an exponential lifetime cut off at the interval,
    ``1/l - t / (exp(l t) - 1)``; half the interval when interruptions are rare, 0 at interval 0.
    """
    _check_not_negative(hazard=hazard, save_interval_s=save_interval_s)
    exponent = hazard * save_interval_s / HOUR_S
    if exponent < 1e-4:
        # The two terms cancel to nothing in floats here: t/2 (1 - lt/6) is the series.
        return save_interval_s / 2 * (1 - exponent / 6)
    if exponent > 700:
        return HOUR_S / hazard
    return HOUR_S / hazard - save_interval_s / math.expm1(exponent)


def save_interval_s(
    hazard_per_hour: float,
    save_s: float,
    *,
    minimum_s: float = MINIMUM_SAVE_INTERVAL_S,
    maximum_s: float = MAXIMUM_SAVE_INTERVAL_S,
) -> float:
    """Seconds of work between two saves that waste the least time (Daly 2006, eq. 37).

    ``save_s`` is what one save holds the job up. Clamped to ``[minimum_s, maximum_s]``; a hazard of
    0 gives the maximum, a free save the minimum.
    """
    _check_not_negative(hazard_per_hour=hazard_per_hour, save_s=save_s)
    if not 0 < minimum_s <= maximum_s:
        raise ValueError(f"not an interval to clamp to: {minimum_s} to {maximum_s}")
    if hazard_per_hour == 0:
        return maximum_s
    mean_s = HOUR_S / hazard_per_hour
    if save_s >= 2 * mean_s:
        best_s = mean_s
    else:
        ratio = save_s / (2 * mean_s)
        best_s = math.sqrt(2 * save_s * mean_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_s
    return min(max(best_s, minimum_s), maximum_s)


def useful_share(
    hazard_per_hour: float, *, save_interval_s: float, save_s: float, restore_s: float = 0.0
) -> float:
    """Expected share of rented time that moves the job forward, in ``[0, 1]``.

    Of each ``save_interval_s`` of work: saving, repeating what was lost and getting going again
    (``restore_s``: boot, restore; interruptible itself) are the rest (Daly 2006, eq. 20).
    """
    _check_not_negative(hazard_per_hour=hazard_per_hour, save_s=save_s, restore_s=restore_s)
    if not save_interval_s > 0:
        raise ValueError(f"not an interval: {save_interval_s}")
    if hazard_per_hour == 0:
        return save_interval_s / (save_interval_s + save_s)
    mean_s = HOUR_S / hazard_per_hour
    exponent = (save_interval_s + save_s) / mean_s
    if exponent + restore_s / mean_s > 700:
        return 0.0
    wall_s = mean_s * math.exp(restore_s / mean_s) * math.expm1(exponent)
    return min(1.0, save_interval_s / wall_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class HazardBelief:
    """What is believed about a hazard: a gamma posterior over a Poisson rate.

    The prior is worth ``prior_events`` interruptions in ``prior_exposure_h`` machine-hours; what
    was seen adds to both. All zero-or-positive, ``prior_exposure_h`` positive (``ValueError``).
    """

    prior_events: float
    prior_exposure_h: float
    events: int = 0
    exposure_h: float = 0.0

    def __post_init__(self) -> None:
        _check_not_negative(
            prior_events=self.prior_events, events=self.events, exposure_h=self.exposure_h
        )
        if not (self.prior_exposure_h > 0 and math.isfinite(self.prior_exposure_h)):
            raise ValueError(f"a prior needs exposure, not {self.prior_exposure_h} h")

    @property
    def mean_per_hour(self) -> float:
        """Posterior mean of the hazard."""
        return (self.prior_events + self.events) / (self.prior_exposure_h + self.exposure_h)

    def upper_per_hour(self, confidence: float = 0.9) -> float:
        """The hazard is below this with probability ``confidence``, about.

        Quantile of the gamma posterior by Wilson and Hilferty's cube (1931); within a few per
        cent for a shape of 1 or more, rougher below. Never less than 0.
        """
        shape = self.prior_events + self.events
        if shape == 0:
            return 0.0
        z = NormalDist().inv_cdf(confidence)
        cube = 1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))
        return shape * max(0.0, cube) ** 3 / (self.prior_exposure_h + self.exposure_h)

    def updated(self, *, events: int, exposure_h: float) -> "HazardBelief":
        """The belief after seeing ``events`` more interruptions in ``exposure_h`` more hours."""
        _check_not_negative(events=events, exposure_h=exposure_h)
        return replace(self, events=self.events + events, exposure_h=self.exposure_h + exposure_h)


def belief_around(rate_per_hour: float, *, worth_h: float = 20.0) -> HazardBelief:
    """A prior with this mean that counts as much as ``worth_h`` machine-hours of seeing it."""
    _check_not_negative(rate_per_hour=rate_per_hour)
    return HazardBelief(prior_events=rate_per_hour * worth_h, prior_exposure_h=worth_h)


def _check_not_negative(**values: float) -> None:
    for name, value in values.items():
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be finite and not negative: {value}")
