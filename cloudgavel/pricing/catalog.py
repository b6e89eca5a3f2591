"""An immutable catalogue of offers: search, merge, age."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from cloudgavel.pricing.findings import Finding, Severity
from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.pricing.sanity import check_offers, trust_none

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalog:
    """Offers to choose from, those refused, and why.

    ``offers`` are sorted by ``offer_id``, each id once (``ValueError`` otherwise).
    """

    offers: tuple[Offer, ...]
    refused: tuple[Offer, ...] = ()
    """Offers that a sanity rule left out; each has a finding."""
    findings: tuple[Finding, ...] = ()
    _by_id: Mapping[str, Offer] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        by_id = {offer.offer_id: offer for offer in self.offers}
        if len(by_id) != len(self.offers):
            raise ValueError("a catalogue holds each offer once")
        ordered = tuple(by_id[offer_id] for offer_id in sorted(by_id))
        object.__setattr__(self, "offers", ordered)
        object.__setattr__(self, "_by_id", MappingProxyType(by_id))

    def get(self, offer_id: str) -> Offer | None:
        """The offer of this id, or ``None`` if the catalogue does not hold it."""
        return self._by_id.get(offer_id)

    def search(
        self,
        *,
        providers: Collection[str] | None = None,
        regions: Collection[str] | None = None,
        zones: Collection[str] | None = None,
        accelerators: Collection[str] | None = None,
        min_accelerators: int = 1,
        capacity_types: Collection[CapacityType] | None = None,
        max_usd_per_hour: float | None = None,
        include_historic: bool = False,
    ) -> tuple[Offer, ...]:
        """Offers that pass every filter, sorted by ``offer_id``; ``None`` = no such filter.

        An empty collection matches nothing. An offer of unknown price passes unless
        ``max_usd_per_hour`` is given: an unknown price keeps no ceiling.
        """
        return tuple(
            offer
            for offer in self.offers
            if matches(
                offer,
                providers=providers,
                regions=regions,
                zones=zones,
                accelerators=accelerators,
                min_accelerators=min_accelerators,
                capacity_types=capacity_types,
                max_usd_per_hour=max_usd_per_hour,
                include_historic=include_historic,
            )
        )

    def cheapest_per(
        self, key: Callable[[Offer], Key], *, include_historic: bool = False
    ) -> dict[Key, Offer]:
        """For each value of ``key`` the offer with the lowest price per hour.

        Offers of unknown price are left out; ties go to the smaller ``offer_id``.
        """
        best: dict[Key, tuple[float, Offer]] = {}
        for offer in self.offers:
            price = offer.price_usd_per_hour
            if price is None or (offer.is_historic and not include_historic):
                continue
            value = key(offer)
            if value not in best or price < best[value][0]:
                best[value] = (price, offer)
        return {value: offer for value, (_, offer) in best.items()}

    def merge(self, newer: "Catalog") -> "Catalog":
        """Bring this catalogue up to date with ``newer``.

        Of two observations of one offer the later one counts (of equally old ones ``newer``'s); an
        unknown price or interruption rate never replaces a known one. An offer that ``newer``
        refuses and does not also accept is refused here too, whatever we believed before.
        """
        newly_refused = {offer.offer_id for offer in newer.refused}
        merged = {
            offer.offer_id: offer for offer in self.offers if offer.offer_id not in newly_refused
        }
        for offer in newer.offers:
            older = self._by_id.get(offer.offer_id)
            merged[offer.offer_id] = offer if older is None else _later(older, offer)
        refused = {
            offer.offer_id: offer
            for offer in (*self.refused, *newer.refused)
            if offer.offer_id not in merged
        }
        newly_judged = {finding.offer_id for finding in newer.findings} | newer._by_id.keys()
        findings = (
            *(finding for finding in self.findings if finding.offer_id not in newly_judged),
            *newer.findings,
        )
        return Catalog(
            offers=tuple(merged.values()), refused=tuple(refused.values()), findings=findings
        )

    def age_s(self, now_s: float) -> float | None:
        """Seconds since the *oldest* of the prices was observed; ``None`` if one never was."""
        instants = [
            offer.observed_at_s for offer in self.offers if offer.price_usd_per_hour is not None
        ]
        known = [instant for instant in instants if instant is not None]
        if not known or len(known) != len(instants):
            return None
        return now_s - min(known)

    def flags_of(self, offer_id: str) -> tuple[Finding, ...]:
        """Findings about an offer that is kept all the same."""
        return tuple(
            finding
            for finding in self.findings
            if finding.offer_id == offer_id and finding.severity is Severity.FLAGGED
        )


def checked_catalog(
    offers: Iterable[Offer],
    *,
    reference: Iterable[Offer] = (),
    trusted: Callable[[Offer], bool] = trust_none,
    findings: Iterable[Finding] = (),
) -> Catalog:
    """A catalogue of what ``sanity.check_offers`` accepts, with the rest under ``refused``.

    ``findings`` are those already made (by ``parse``); they are kept in front.
    """
    rows = tuple(offers)
    accepted, found = check_offers(rows, reference=reference, trusted=trusted)
    accepted_rows = {id(offer) for offer in accepted}
    return Catalog(
        offers=accepted,
        refused=tuple(offer for offer in rows if id(offer) not in accepted_rows),
        findings=(*findings, *found),
    )


def matches(
    offer: Offer,
    *,
    providers: Collection[str] | None = None,
    regions: Collection[str] | None = None,
    zones: Collection[str] | None = None,
    accelerators: Collection[str] | None = None,
    min_accelerators: int = 1,
    capacity_types: Collection[CapacityType] | None = None,
    max_usd_per_hour: float | None = None,
    include_historic: bool = False,
) -> bool:
    """Whether one offer passes the filters of ``Catalog.search``."""
    price = offer.price_usd_per_hour
    return (
        (providers is None or offer.provider in providers)
        and (regions is None or offer.region in regions)
        and (zones is None or offer.zone in zones)
        and (accelerators is None or offer.accelerator in accelerators)
        and offer.accelerators_per_instance >= min_accelerators
        and (capacity_types is None or offer.capacity_type in capacity_types)
        and (max_usd_per_hour is None or (price is not None and price <= max_usd_per_hour))
        and (include_historic or not offer.is_historic)
    )


def price_order(offer: Offer) -> tuple[bool, float, str]:
    """Sort key: cheapest hour first, unknown prices last, ties by ``offer_id``."""
    price = offer.price_usd_per_hour
    return price is None, price or 0.0, offer.offer_id


def accelerator_price_order(offer: Offer) -> tuple[bool, float, str]:
    """Sort key: cheapest accelerator-hour first, unknown prices last, ties by ``offer_id``."""
    price = offer.usd_per_accelerator_hour
    return price is None, price or 0.0, offer.offer_id


def _later(older: Offer, newer: Offer) -> Offer:
    """The later observation, its unknowns filled from the other one."""
    if newer.price_usd_per_hour is None and older.price_usd_per_hour is not None:
        return older
    if (
        older.price_usd_per_hour is not None
        and older.observed_at_s is not None
        and (newer.observed_at_s is None or newer.observed_at_s < older.observed_at_s)
    ):
        return older
    if newer.interruption_rate_per_hour is None and older.interruption_rate_per_hour is not None:
        return replace(newer, interruption_rate_per_hour=older.interruption_rate_per_hour)
    return newer
