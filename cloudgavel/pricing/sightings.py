"""What a run has seen of a spot offer: machines granted, refused and taken; and what that says.

Everything here follows from the event log, so that a controller that starts anew knows as much as
the one before it. Histories are bounded: the newest sightings are kept, and of the older ones the
counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cloudgavel.pricing.market.protocol import ASSUMED_INTERRUPTION_RATE_PER_HOUR
from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.units import HOUR_S

MOST_SIGHTINGS = 32
"""Kept for one offer."""
PRIOR_WORTH_H = 20.0
"""A catalogue's interruption rate counts as much as so many machine-hours of watching."""
SIBLING_SHARE = 0.25
"""An hour on another zone's machines of the same type and region counts as so much of one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sighting:
    """A spot offer could or could not be had: at one instant, or all through a span."""

    at_s: float
    available: bool
    until_s: float | None = None
    """A machine of it lived from ``at_s`` to here; ``None`` = an instant (a refusal, an end)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferSightings:
    """Everything seen of one offer."""

    seen: tuple[Sighting, ...] = ()
    """The newest, by beginning."""
    taken: int = 0
    """Machines that the cloud took back, or that vanished."""
    lived_h: float = 0.0
    """Machine-hours watched."""

    def refused(self, at_s: float) -> "OfferSightings":
        """After a launch that found no capacity."""
        return replace(self, seen=_bounded(self.seen, Sighting(at_s=at_s, available=False)))

    def lived(self, from_s: float, until_s: float, *, taken: bool | None) -> "OfferSightings":
        """After a machine's life; ``taken`` ``None`` = it goes on."""
        until_s = max(from_s, until_s)
        seen = _bounded(self.seen, Sighting(at_s=from_s, available=True, until_s=until_s))
        if taken:
            seen = _bounded(seen, Sighting(at_s=until_s, available=False))
        return OfferSightings(
            seen=seen,
            taken=self.taken + bool(taken),
            lived_h=self.lived_h + (until_s - from_s) / HOUR_S,
        )


NOTHING_SEEN = OfferSightings()


def learnt_rates_per_hour(
    offers: Iterable[Offer], seen: Mapping[str, OfferSightings]
) -> dict[str, float]:
    """Interruptions per machine-hour by spot offer: the catalogue's rate, corrected by what was
    seen of the offer and, for less, of its siblings (same cloud, type and region).

    The mean of a gamma posterior whose prior has the catalogue's mean, or the assumed rate where
    the catalogue has none.
    """
    spot = [each for each in offers if each.capacity_type is CapacityType.SPOT]
    pooled: dict[tuple[str, str, str], tuple[float, float]] = {}
    for offer in spot:
        known = seen.get(offer.offer_id, NOTHING_SEEN)
        taken, lived_h = pooled.get(_family(offer), (0.0, 0.0))
        pooled[_family(offer)] = (taken + known.taken, lived_h + known.lived_h)
    rates = {}
    for offer in spot:
        prior = offer.interruption_rate_per_hour
        prior = ASSUMED_INTERRUPTION_RATE_PER_HOUR if prior is None else prior
        own = seen.get(offer.offer_id, NOTHING_SEEN)
        taken, lived_h = pooled[_family(offer)]
        if lived_h <= 0 and taken <= 0:
            rates[offer.offer_id] = prior
            continue
        events = prior * PRIOR_WORTH_H + own.taken + SIBLING_SHARE * (taken - own.taken)
        hours = PRIOR_WORTH_H + own.lived_h + SIBLING_SHARE * (lived_h - own.lived_h)
        rates[offer.offer_id] = events / hours
    return rates


def _family(offer: Offer) -> tuple[str, str, str]:
    return (offer.provider, offer.region, offer.instance_type)


def _bounded(seen: tuple[Sighting, ...], one: Sighting) -> tuple[Sighting, ...]:
    ordered = sorted((*seen, one), key=lambda each: each.at_s)
    return tuple(ordered[-MOST_SIGHTINGS:])
