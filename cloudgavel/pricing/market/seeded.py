"""A market drawn by a seed: every draw is a hash of (seed, what is asked), nothing is remembered.

The same seed therefore tells the same story however often and in whatever order it is asked, and
one more instance never changes the fate of another.
"""

import hashlib
import math
from dataclasses import dataclass
from statistics import NormalDist

from cloudgavel.pricing.market.protocol import (
    assumed_boot_s,
    check_options,
    mean_spot_lifetime_s,
)
from cloudgavel.pricing.offer import CapacityType, Offer

_STANDARD_NORMAL = NormalDist()
_WALK_OCTAVES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Outages:
    """Spells without spot capacity in a zone, which also end the instances running there.

    Time is cut into windows of ``mean_gap_s + mean_outage_s`` from instant 0, with a phase of their
    own per offer; each holds one outage at a drawn place, of exponential length (cut at nine tenths
    of the window).
    """

    mean_gap_s: float = 6 * 3600.0
    mean_outage_s: float = 1800.0

    def __post_init__(self) -> None:
        if not (self.mean_gap_s > 0 and self.mean_outage_s > 0):
            raise ValueError(f"outages need positive spans: {self}")

    @property
    def window_s(self) -> float:
        """Length of a window."""
        return self.mean_gap_s + self.mean_outage_s


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceWalk:
    """Spot prices that wander round the catalogue's by steps.

    The logarithm of the factor is a sum of normal draws on eight time scales, each twice the
    last, so that near instants have near prices and no step needs the one before it;
    ``volatility`` is the standard deviation of each sum. The factor stays within
    ``[lowest, highest]``.
    """

    step_s: float = 3600.0
    volatility: float = 0.15
    lowest_factor: float = 0.5
    highest_factor: float = 2.0

    def __post_init__(self) -> None:
        if not (self.step_s > 0 and self.volatility >= 0):
            raise ValueError(f"not a walk: {self}")
        if not 0 < self.lowest_factor <= 1 <= self.highest_factor:
            raise ValueError(f"the factors must lie round 1: {self}")

    def step_at(self, at_s: float) -> int:
        """Number of the step in force; step k holds for ``[k step_s, (k+1) step_s)``."""
        step = math.floor(at_s / self.step_s)
        # The quotient may round to just under the step that begins at this very instant.
        return step + 1 if (step + 1) * self.step_s <= at_s else step


@dataclass(frozen=True, kw_only=True, slots=True)
class SeededMarket:
    """Exponential spot lifetimes; on request outages and wandering prices.

    ``interruptions_per_hour`` and ``boot_delay_s`` override the offers' own figures; a rate of 0
    means that only outages interrupt.
    """

    seed: int
    interruptions_per_hour: float | None = None
    boot_delay_s: float | None = None
    outages: Outages | None = None
    price_walk: PriceWalk | None = None
    origin_s: float = 0.0
    """Instant at which the story begins: outages and steps of the walk count from it."""

    def __post_init__(self) -> None:
        check_options(self.interruptions_per_hour, self.boot_delay_s)

    def price_usd_per_hour(self, offer: Offer, at_s: float) -> float | None:
        """The catalogue's price, times the walk's factor for spot, to the micro-dollar.

        The walk begins at the catalogue's price: the factor of the first step is 1.
        """
        price, walk = offer.price_usd_per_hour, self.price_walk
        if price is None or walk is None or offer.capacity_type is not CapacityType.SPOT:
            return price
        moved = self._walked(offer, walk.step_at(at_s - self.origin_s)) - self._walked(offer, 0)
        factor = math.exp(walk.volatility * moved / math.sqrt(_WALK_OCTAVES))
        return round(price * min(max(factor, walk.lowest_factor), walk.highest_factor), 6)

    def _walked(self, offer: Offer, step: int) -> float:
        return sum(
            _STANDARD_NORMAL.inv_cdf(self._uniform("price", offer.offer_id, octave, step >> octave))
            for octave in range(_WALK_OCTAVES)
        )

    def next_price_change_s(self, offer: Offer, after_s: float) -> float | None:
        """The next step of the walk; never without one, or on demand."""
        walk = self.price_walk
        if (
            walk is None
            or offer.price_usd_per_hour is None
            or offer.capacity_type is not CapacityType.SPOT
        ):
            return None
        return self.origin_s + (walk.step_at(after_s - self.origin_s) + 1) * walk.step_s

    def capacity_available(self, offer: Offer, at_s: float) -> bool:
        """False within an outage ``[start, end)``, for spot."""
        if self.outages is None or offer.capacity_type is not CapacityType.SPOT:
            return True
        start_s, end_s = self._outage(
            offer, self._window_of(offer, at_s, self.outages), self.outages
        )
        return not start_s <= at_s < end_s

    def next_capacity_change_s(self, offer: Offer, after_s: float) -> float | None:
        """The next start or end of an outage; never without outages, or on demand."""
        if self.outages is None or offer.capacity_type is not CapacityType.SPOT:
            return None
        window = self._window_of(offer, after_s, self.outages)
        return next(
            instant_s
            for later in range(3)
            for instant_s in self._outage(offer, window + later, self.outages)
            if instant_s > after_s
        )

    def interruption_at_s(
        self, offer: Offer, instance_ordinal: int, launched_at_s: float
    ) -> float | None:
        """The end of an exponential lifetime, or the next outage if that is earlier."""
        if offer.capacity_type is not CapacityType.SPOT:
            return None
        ends = []
        lifetime_s = mean_spot_lifetime_s(offer, self.interruptions_per_hour)
        if lifetime_s is not None:
            uniform = self._uniform("life", offer.offer_id, instance_ordinal)
            ends.append(launched_at_s - lifetime_s * math.log(uniform))
        if not self.capacity_available(offer, launched_at_s):
            ends.append(launched_at_s)
        elif (outage_s := self.next_capacity_change_s(offer, launched_at_s)) is not None:
            ends.append(outage_s)
        return min(ends, default=None)

    def boot_s(self, offer: Offer, instance_ordinal: int) -> float:
        """The assumed delay of the offer's kind, or the override."""
        return assumed_boot_s(offer) if self.boot_delay_s is None else self.boot_delay_s

    def _window_of(self, offer: Offer, at_s: float, outages: Outages) -> int:
        return math.floor((at_s - self._phase_s(offer, outages)) / outages.window_s)

    def _phase_s(self, offer: Offer, outages: Outages) -> float:
        return self.origin_s + self._uniform("phase", offer.offer_id) * outages.window_s

    def _outage(self, offer: Offer, window: int, outages: Outages) -> tuple[float, float]:
        """Start and end of the outage of one window; it lies within the window."""
        longest_s = 0.9 * outages.window_s
        length_s = min(
            -outages.mean_outage_s * math.log(self._uniform("length", offer.offer_id, window)),
            longest_s,
        )
        room_s = outages.window_s - length_s
        start_s = (
            self._phase_s(offer, outages)
            + window * outages.window_s
            + self._uniform("place", offer.offer_id, window) * room_s
        )
        return start_s, start_s + length_s

    def _uniform(self, *what: str | int) -> float:
        """A draw from the open interval (0, 1), the same for the same question."""
        question = "\x1f".join((str(self.seed), *map(str, what)))
        digest = hashlib.blake2b(question.encode(), digest_size=8).digest()
        return ((int.from_bytes(digest, "big") >> 12) + 0.5) / 2**52
