"""Prices from Amazon: the price list, spot histories, and what a history says about interruptions.

Nothing read here is believed before ``pricing.sanity`` has judged it against prices already known.
"""

import itertools
import json
import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from cloudgavel.pricing.catalog import Catalog, checked_catalog
from cloudgavel.pricing.findings import Rule
from cloudgavel.pricing.interruption import HazardBelief, belief_around
from cloudgavel.pricing.offer import RATE_IS_ASSUMED, CapacityType, Offer
from cloudgavel.pricing.sanity import check_offers
from cloudgavel.providers.aws.clients import PRICE_LIST_REGION, AwsClients
from cloudgavel.providers.aws.places import zone_name_by_id
from cloudgavel.units import DAY_S, HOUR_S

PRODUCT = "Linux/UNIX"
PRICE_LIST_SOURCE = "AWS price list"
SPOT_SOURCE = "AWS spot price history"
RATE_BY_CLIMBS = "; interruption rate: at least, by climbs of the price"
HISTORY_S = 30 * DAY_S
RETRY_S = 60.0
"""Pause before what could not be read is asked for again."""
HIGH_SHARE = 0.9
"""Of on-demand: a spot price this high says that capacity ran out."""
_NOT_A_BILL = frozenset({Rule.NOT_A_PRICE, Rule.PLACEHOLDER, Rule.FAR_BELOW_FLEET})
"""Findings that make a price unbelievable; the others only make an offer a bad one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpotPoint:
    """One change of a spot price in a zone (by name): it holds until the next one."""

    zone_name: str
    instance_type: str
    at_s: float
    usd_per_hour: float


# -- the price list ---------------------------------------------------------------------------


def on_demand_price(product_json: str) -> tuple[str, str, float] | None:
    """Read one product of ``GetProducts``: ``(region, instance type, USD per hour)``.

    ``None`` for anything but a plain machine: Linux, shared tenancy, used capacity, no
    preinstalled software, priced per hour and not free. A product that is no JSON is ``None`` too.
    """
    try:
        product = json.loads(product_json)
        attributes = product["product"]["attributes"]
        terms = product["terms"]["OnDemand"]
    except (ValueError, KeyError, TypeError):
        return None
    wanted = {
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "capacitystatus": "Used",
        "preInstalledSw": "NA",
    }
    if any(attributes.get(name) != value for name, value in wanted.items()):
        return None
    if attributes.get("marketoption", "OnDemand") != "OnDemand":
        return None
    region, instance_type = attributes.get("regionCode"), attributes.get("instanceType")
    if not region or not instance_type:
        return None
    for term in terms.values():
        for dimension in term.get("priceDimensions", {}).values():
            text = dimension.get("pricePerUnit", {}).get("USD")
            if text is None or dimension.get("unit") not in ("Hrs", "hrs"):
                continue
            price = float(text)
            if math.isfinite(price) and price > 0:
                return str(region), str(instance_type), price
    return None


def read_price_list(
    clients: AwsClients, *, regions: Collection[str], instance_types: Collection[str]
) -> dict[tuple[str, str], float]:
    """Ask the price list for on-demand prices: USD per hour by ``(region, instance type)``.

    One paginated question per region; boto3's errors pass.
    """
    found: dict[tuple[str, str], float] = {}
    wanted = set(instance_types)
    for region in sorted(regions):
        filters = {
            "regionCode": region,
            "operatingSystem": "Linux",
            "tenancy": "Shared",
            "capacitystatus": "Used",
            "preInstalledSw": "NA",
        }
        pages = (
            clients.client("pricing", PRICE_LIST_REGION)
            .get_paginator("get_products")
            .paginate(
                ServiceCode="AmazonEC2",
                FormatVersion="aws_v1",
                Filters=[
                    {"Type": "TERM_MATCH", "Field": field, "Value": value}
                    for field, value in filters.items()
                ],
            )
        )
        for page in pages:
            for text in page["PriceList"]:
                read = on_demand_price(text)
                if read is not None and read[0] == region and read[1] in wanted:
                    found[read[0], read[1]] = read[2]
    return found


# -- spot -------------------------------------------------------------------------------------


def read_spot_history(
    clients: AwsClients, region: str, *, instance_types: Collection[str], since_s: float
) -> list[SpotPoint]:
    """Ask for the spot price changes of a region, oldest first.

    The first point of each zone and type may lie before ``since_s``: the price that held then.
    Points that are no number are left out; boto3's errors pass.
    """
    pages = (
        clients.client("ec2", region)
        .get_paginator("describe_spot_price_history")
        .paginate(
            InstanceTypes=sorted(instance_types),
            ProductDescriptions=[PRODUCT],
            StartTime=datetime.fromtimestamp(since_s, tz=UTC),
        )
    )
    points = {
        point: None
        for page in pages
        for row in page["SpotPriceHistory"]
        if (point := _point(row)) is not None
    }
    return sorted(points, key=lambda each: (each.zone_name, each.instance_type, each.at_s))


def _point(row: Mapping[str, Any]) -> SpotPoint | None:
    try:
        price = float(row["SpotPrice"])
        at = row["Timestamp"]
    except (KeyError, ValueError):
        return None
    if not isinstance(at, datetime) or not math.isfinite(price):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return SpotPoint(
        zone_name=str(row["AvailabilityZone"]),
        instance_type=str(row["InstanceType"]),
        at_s=at.timestamp(),
        usd_per_hour=price,
    )


class SpotPrices:
    """Spot prices of the offers of a run: now, and how they changed; safe between threads.

    Prices that the sanity rules cannot believe against the catalogue are as if never read: the
    catalogue's then holds (a mocked cloud says 0.00001 for everything).
    """

    def __init__(
        self,
        clients: AwsClients,
        *,
        catalogue: Sequence[Offer],
        now_s: Callable[[], float],
        age_s: float,
    ) -> None:
        self._clients = clients
        self._catalogue = tuple(catalogue)
        self._spot = [offer for offer in catalogue if offer.capacity_type is CapacityType.SPOT]
        self._now_s = now_s
        self._age_s = age_s
        self._points: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self._read_at_s: dict[str, float] = {}
        self._covered_from_s: dict[str, float] = {}
        self._tried_at_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def renew(
        self, region: str, zone_id_by_name: Mapping[str, str], *, since_s: float | None = None
    ) -> None:
        """Read what is new in a region, if it is time, or if changes since then are not known.

        boto3's errors pass, at most once per interval.
        """
        with self._lock:
            now_s = self._now_s()
            from_s = now_s if since_s is None else min(since_s, now_s)
            covered_from_s = self._covered_from_s.get(region, math.inf)
            tried_at_s = self._tried_at_s.get(region, -math.inf)
            uncovered = from_s < covered_from_s
            pause_s = min(RETRY_S, self._age_s) if uncovered else self._age_s
            if now_s - tried_at_s < pause_s:
                return
            self._tried_at_s[region] = now_s
            types = {offer.instance_type for offer in self._spot if offer.region == region}
            if not types:
                return
            if not uncovered:
                from_s = self._read_at_s[region]
            points = read_spot_history(self._clients, region, instance_types=types, since_s=from_s)
            self._read_at_s[region] = now_s
            self._covered_from_s[region] = min(covered_from_s, from_s)
            self._keep(points, region, zone_id_by_name, now_s)

    def price(self, offer: Offer, at_s: float | None = None) -> float | None:
        """USD per hour of a spot offer, now or then; the catalogue's where none was read."""
        with self._lock:
            points = self._points.get((offer.zone, offer.instance_type), [])
            for point_at_s, price in reversed(points):
                if at_s is None or point_at_s <= at_s:
                    return price
            return offer.price_usd_per_hour

    def seen_at_s(self, offer: Offer) -> float | None:
        """When the price of ``price`` was observed."""
        with self._lock:
            if self._points.get((offer.zone, offer.instance_type)):
                return self._read_at_s.get(offer.region)
            return offer.observed_at_s

    def changes(self, offer: Offer, since_s: float) -> list[tuple[float, float]]:
        """``(at_s, USD per hour)`` in ``(since_s, now]``, oldest first."""
        with self._lock:
            now_s = self._now_s()
            points = self._points.get((offer.zone, offer.instance_type), [])
            return [point for point in points if since_s < point[0] <= now_s]

    def offers_now(self, offers: Iterable[Offer]) -> tuple[Offer, ...]:
        """Return the offers at today's prices, judged once more: what the rules refuse is left out.

        Prices of the catalogue were judged when it was made; only spot prices read since are new.
        """
        current = []
        changed: set[str] = set()
        for offer in offers:
            if offer.capacity_type is CapacityType.SPOT:
                price = self.price(offer)
                if price != offer.price_usd_per_hour:
                    offer = replace(
                        offer,
                        price_usd_per_hour=price,
                        observed_at_s=self.seen_at_s(offer),
                        source=SPOT_SOURCE,
                    )
                    changed.add(offer.offer_id)
            current.append(offer)
        if not changed:
            return tuple(current)
        accepted, _ = check_offers(
            [offer for offer in current if offer.offer_id in changed],
            reference=self._catalogue,
            trusted=lambda offer: offer.offer_id not in changed,
        )
        believed = {offer.offer_id for offer in accepted}
        return tuple(
            offer
            for offer in current
            if offer.offer_id not in changed or offer.offer_id in believed
        )

    def _keep(
        self,
        points: Iterable[SpotPoint],
        region: str,
        zone_id_by_name: Mapping[str, str],
        now_s: float,
    ) -> None:
        offers = {
            (offer.zone, offer.instance_type): offer
            for offer in self._spot
            if offer.region == region
        }
        fresh: dict[tuple[str, str], dict[float, float]] = {}
        for point in points:
            key = (zone_id_by_name.get(point.zone_name, ""), point.instance_type)
            offer = offers.get(key)
            if offer is None or not self._believable(offer, point.usd_per_hour):
                continue
            at_s = min(point.at_s, now_s)
            fresh.setdefault(key, {})[at_s] = point.usd_per_hour
        for key, changes in fresh.items():
            merged = sorted({**dict(self._points.get(key, [])), **changes}.items())
            self._points[key] = [
                change
                for before, change in zip([(0.0, -1.0), *merged], merged, strict=False)
                if change[1] != before[1]
            ]

    def _believable(self, offer: Offer, price: float) -> bool:
        if price == offer.price_usd_per_hour:
            return True
        _, findings = check_offers(
            [replace(offer, price_usd_per_hour=price, flags=())],
            reference=[each for each in self._catalogue if each.accelerator == offer.accelerator],
        )
        return not any(finding.rule in _NOT_A_BILL for finding in findings)


# -- the catalogue ------------------------------------------------------------------------------


def refreshed_catalog(
    known: Catalog,
    *,
    on_demand: Mapping[tuple[str, str], float],
    spot: Mapping[str, Sequence[SpotPoint]],
    zone_id_by_name: Mapping[str, Mapping[str, str]],
    observed_at_s: float,
) -> Catalog:
    """Return what was read as a catalogue, judged against ``known``; merge it with ``merge``.

    ``spot`` and ``zone_id_by_name`` are by region. Only machines that ``known`` describes are
    priced: their accelerators and vCPUs come from there. Spot histories set the interruption rate
    (``prior_of_history``) where the catalogue has only an assumption.
    """
    latest: dict[tuple[str, str, str], list[SpotPoint]] = {}
    for region, points in spot.items():
        names = zone_id_by_name.get(region, {})
        for point in points:
            if zone := names.get(point.zone_name):
                latest.setdefault((region, zone, point.instance_type), []).append(point)
    read: list[Offer] = []
    for offer in known.offers:
        if offer.provider != "aws" or offer.is_historic:
            continue
        if offer.capacity_type is CapacityType.ON_DEMAND:
            price = on_demand.get((offer.region, offer.instance_type))
            if price is not None:
                read.append(_observed(offer, price, observed_at_s, PRICE_LIST_SOURCE))
        elif offer.capacity_type is CapacityType.SPOT:
            history = latest.get((offer.region, offer.zone, offer.instance_type))
            if not history:
                continue
            history = sorted(history, key=lambda point: point.at_s)
            fresh = _observed(offer, history[-1].usd_per_hour, observed_at_s, SPOT_SOURCE)
            ceiling = on_demand.get((offer.region, offer.instance_type))
            if ceiling is None:
                ceiling = _on_demand_beside(known, offer)
            belief = prior_of_history(
                history,
                on_demand_usd_per_hour=ceiling,
                until_s=observed_at_s,
                assumed_per_hour=offer.interruption_rate_per_hour,
            )
            if belief is not None:
                climbed = belief.mean_per_hour != offer.interruption_rate_per_hour
                fresh = replace(
                    fresh,
                    interruption_rate_per_hour=belief.mean_per_hour,
                    source=SPOT_SOURCE + (RATE_BY_CLIMBS if climbed else RATE_IS_ASSUMED),
                )
            read.append(fresh)
    return checked_catalog(read, reference=known.offers)


def read_catalog(
    clients: AwsClients,
    known: Catalog,
    *,
    regions: Collection[str],
    now_s: float,
) -> Catalog:
    """Read price list and spot histories of the regions; boto3's errors pass.

    What comes back holds only what was read, judged against ``known``: ``known.merge(it)`` is the
    catalogue of today.
    """
    types = {
        region: {
            offer.instance_type
            for offer in known.offers
            if offer.provider == "aws" and offer.region == region and not offer.is_historic
        }
        for region in regions
    }
    return refreshed_catalog(
        known,
        on_demand=read_price_list(
            clients, regions=regions, instance_types=set().union(*types.values())
        ),
        spot={
            region: read_spot_history(
                clients, region, instance_types=types[region], since_s=now_s - HISTORY_S
            )
            for region in sorted(regions)
            if types[region]
        },
        zone_id_by_name={
            region: {name: zone_id for zone_id, name in zone_name_by_id(clients, region).items()}
            for region in regions
        },
        observed_at_s=now_s,
    )


def prior_of_history(
    history: Sequence[SpotPoint],
    *,
    on_demand_usd_per_hour: float | None,
    until_s: float,
    assumed_per_hour: float | None,
    worth_h: float = 20.0,
) -> HazardBelief | None:
    """What one zone's spot history says about the hazard of its machines.

    No bid is placed, so a price does not take a machine; but it follows demand, and a climb to nine
    tenths of on-demand marks a time when capacity ran out. Each climb counts as one interruption
    over the history's hours. That is a lower bound (machines are taken in quiet times too), so it
    can raise the assumed rate and never lowers it. The belief is worth ``worth_h`` machine-hours.
    ``None`` without an on-demand price, or without either an assumption or a day of history.
    """
    if not on_demand_usd_per_hour:
        return None
    ordered = sorted(history, key=lambda point: point.at_s)
    exposure_s = until_s - ordered[0].at_s if ordered else 0.0
    seen_per_hour: float | None = None
    if exposure_s >= DAY_S:
        high = HIGH_SHARE * on_demand_usd_per_hour
        climbs = sum(
            1
            for before, after in itertools.pairwise(ordered)
            if before.usd_per_hour < high <= after.usd_per_hour
        )
        seen_per_hour = climbs / (exposure_s / HOUR_S)
    if assumed_per_hour is None:
        # Quiet alone says nothing.
        return belief_around(seen_per_hour, worth_h=worth_h) if seen_per_hour else None
    return belief_around(max(assumed_per_hour, seen_per_hour or 0.0), worth_h=worth_h)


def _observed(offer: Offer, price: float, at_s: float, source: str) -> Offer:
    flags = tuple(flag for flag in offer.flags if flag not in ("suspect", "derived"))
    return replace(offer, price_usd_per_hour=price, observed_at_s=at_s, source=source, flags=flags)


def _on_demand_beside(known: Catalog, spot: Offer) -> float | None:
    beside = replace(spot, capacity_type=CapacityType.ON_DEMAND)
    offer = known.get(beside.offer_id)
    return None if offer is None else offer.price_usd_per_hour
