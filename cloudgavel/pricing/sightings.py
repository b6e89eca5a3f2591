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
    """Interruptions per machine-hour of spot offers of which, or of whose siblings (same cloud,
    type and region), something was seen: the catalogue's rate, corrected. By offer id; of all
    others nothing is known beyond ``catalogue_rate_per_hour``.

    The mean of a gamma posterior whose prior has the catalogue's mean. What was seen of siblings
    counts for less.
    """
    watched: dict[tuple[str, str, str], list[Offer]] = {}
    if seen:
        for offer in offers:
            if offer.capacity_type is CapacityType.SPOT:
                watched.setdefault(_family(offer), []).append(offer)
    rates: dict[str, float] = {}
    for family in watched.values():
        known = {each.offer_id: seen.get(each.offer_id, NOTHING_SEEN) for each in family}
        taken = sum(each.taken for each in known.values())
        lived_h = sum(each.lived_h for each in known.values())
        if lived_h <= 0 and taken <= 0:
            continue
        for offer in family:
            own = known[offer.offer_id]
            events = catalogue_rate_per_hour(offer) * PRIOR_WORTH_H + own.taken
            events += SIBLING_SHARE * (taken - own.taken)
            hours = PRIOR_WORTH_H + own.lived_h + SIBLING_SHARE * (lived_h - own.lived_h)
            rates[offer.offer_id] = events / hours
    return rates


def catalogue_rate_per_hour(offer: Offer) -> float:
    """Interruptions per hour before anything is seen: of spot without a known rate, an assumption;
    0 on demand.
    """
    if offer.capacity_type is not CapacityType.SPOT:
        return 0.0
    rate = offer.interruption_rate_per_hour
    return ASSUMED_INTERRUPTION_RATE_PER_HOUR if rate is None else rate


def _family(offer: Offer) -> tuple[str, str, str]:
    return (offer.provider, offer.region, offer.instance_type)


def _bounded(seen: tuple[Sighting, ...], one: Sighting) -> tuple[Sighting, ...]:
    ordered = sorted((*seen, one), key=lambda each: each.at_s)
    return tuple(ordered[-MOST_SIGHTINGS:])
