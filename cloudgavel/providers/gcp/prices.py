"""Prices from the Cloud Billing catalogue: SKUs to offers, and how an offer's price changed.

A machine is cores + GiB of memory + GPUs, each a SKU of its own, told apart by the words of its
description. Nothing read here is believed before ``pricing.sanity`` has judged it.
"""

import logging
import math
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cloudgavel.pricing.catalog import Catalog, checked_catalog
from cloudgavel.pricing.findings import Rule
from cloudgavel.pricing.offer import RATE_IS_ASSUMED, CapacityType, Offer
from cloudgavel.pricing.sanity import check_offers, trust_none
from cloudgavel.providers.gcp.clients import GcpClients
from cloudgavel.providers.gcp.failures import call_failed
from cloudgavel.providers.gcp.translate import (
    accelerator_type,
    host_and_gpus,
    is_tpu_offer,
    tpu_family,
)

log = logging.getLogger("cloudgavel.gcp")

COMPUTE_SERVICE = "services/6F81-5844-456A"
TPU_SERVICE = "services/E000-3F24-B8AA"
SOURCE = "Cloud Billing catalogue"
PAGE_SIZE = 5000
RETRY_S = 600.0
"""Pause before what could not be read is asked for again."""
_NOT_A_BILL = frozenset({Rule.NOT_A_PRICE, Rule.PLACEHOLDER, Rule.FAR_BELOW_FLEET})

_FAMILIES = {
    "N1 Predefined Instance": "n1",
    "A2 Instance": "a2",
    "A3 Instance": "a3",
    "G2 Instance": "g2",
}
_GPUS = {
    "Nvidia Tesla K80": "K80",
    "Nvidia Tesla P100": "P100",
    "Nvidia Tesla V100": "V100",
    "Nvidia Tesla T4": "T4",
    "Nvidia Tesla A100": "A100",
    "Nvidia Tesla A100 80GB": "A100-80GB",
    "Nvidia L4": "L4",
    "Nvidia H100 80GB": "H100",
}
_TPUS = {"TpuV5e": "v5litepod", "TpuV5p": "v5p", "TpuV6e": "v6e"}
_SPOT_WORDS = r"attached to Spot Preemptible VMs "
_HOST_SKU = re.compile(
    r"(?P<spot>Spot Preemptible )?(?P<family>"
    + "|".join(map(re.escape, _FAMILIES))
    + r") (?P<part>Core|Ram) running in .+"
)
_GPU_SKU = re.compile(
    r"(?P<gpu>" + "|".join(map(re.escape, _GPUS)) + rf") GPU (?P<spot>{_SPOT_WORDS})?running in .+"
)
_TPU_SKU = re.compile(r"(?P<tpu>" + "|".join(_TPUS) + rf") (?P<spot>{_SPOT_WORDS})?running in .+")
_OLD_TPU_SKU = re.compile(
    r"(?P<spot>Preemptible )?TPU-(?P<version>v[234]) Accelerators?(?: .+)?", re.IGNORECASE
)
_CORES_PER_UNIT = {"v2": 8, "v3": 8, "v4": 2, "v5p": 2}
"""Cores in a slice's name per unit that is priced: a device of 8 cores, or a chip of 2."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SkuPrice:
    """One part's price in a region."""

    part: str
    """``n1/core``, ``n1/ram`` (per GiB), ``gpu/V100``, ``tpu/v5litepod``."""
    region: str
    is_spot: bool
    usd_per_hour: float
    since_s: float | None
    """When Google says that this price began."""


def part_of(description: str) -> tuple[str, bool] | None:
    """Read a SKU's description: ``(part, is spot)``; ``None`` for whatever is not rented here.

    The whole description must fit, so commitments, custom, reserved, sole-tenancy and premium
    variants, whose words surround these, are left out.
    """
    if found := _HOST_SKU.fullmatch(description):
        return f"{_FAMILIES[found['family']]}/{found['part'].lower()}", bool(found["spot"])
    if found := _GPU_SKU.fullmatch(description):
        return f"gpu/{_GPUS[found['gpu']]}", bool(found["spot"])
    if found := _TPU_SKU.fullmatch(description):
        return f"tpu/{_TPUS[found['tpu']]}", bool(found["spot"])
    if found := _OLD_TPU_SKU.fullmatch(description):
        return f"tpu/{found['version'].lower()}", bool(found["spot"])
    return None


def read_sku(sku: Any) -> list[SkuPrice]:
    """Read one ``billing_v1.Sku``: a price per region that it serves; none if it is no such part.

    Old TPU SKUs say ``OnDemand`` of preemptible ones too: the description decides.
    """
    found = part_of(sku.description)
    if found is None or str(sku.category.usage_type) not in ("OnDemand", "Preemptible"):
        return []
    if not sku.pricing_info:
        return []
    info = sku.pricing_info[-1]
    rates = info.pricing_expression.tiered_rates
    if not rates:
        return []
    money = rates[-1].unit_price
    price = int(money.units) + int(money.nanos) / 1e9
    if money.currency_code not in ("", "USD") or not math.isfinite(price) or price <= 0:
        return []
    began_s = info.effective_time.timestamp() if info.effective_time else 0.0
    part, is_spot = found
    return [
        SkuPrice(
            part=part,
            region=str(region),
            is_spot=is_spot,
            usd_per_hour=price,
            since_s=began_s if began_s > 0 else None,
        )
        for region in sku.service_regions
    ]


def read_skus(clients: GcpClients, *, services: Iterable[str]) -> list[SkuPrice]:
    """Ask the catalogue for every part rented here; Google's errors pass.

    Compute's catalogue has tens of thousands of SKUs: about ten pages.
    """
    return [
        price
        for service in services
        for sku in clients.call("billing", "list_skus", {"parent": service, "page_size": PAGE_SIZE})
        for price in read_sku(sku)
    ]


def services_for(offers: Iterable[Offer]) -> list[str]:
    """Return the catalogues that price these offers."""
    services = set()
    for offer in offers:
        old = is_tpu_offer(offer) and tpu_family(offer.instance_type) in ("v2", "v3", "v4")
        services.add(TPU_SERVICE if old else COMPUTE_SERVICE)
    return sorted(services)


Parts = Mapping[tuple[str, str, bool], SkuPrice]


def by_part(prices: Iterable[SkuPrice]) -> dict[tuple[str, str, bool], SkuPrice]:
    """Index prices by part, region and kind; of two the dearer: a bill never surprises upwards."""
    found: dict[tuple[str, str, bool], SkuPrice] = {}
    for price in prices:
        key = (price.part, price.region, price.is_spot)
        if key not in found or found[key].usd_per_hour < price.usd_per_hour:
            found[key] = price
    return found


def price_of(offer: Offer, parts: Parts) -> tuple[float, float | None] | None:
    """Put an offer's price together: ``(USD per hour, since when)``.

    ``None`` when a part is missing: a machine without its GPUs' price has none.
    """
    is_spot = offer.capacity_type is CapacityType.SPOT
    needed: list[tuple[str, float]]
    if is_tpu_offer(offer):
        family = tpu_family(offer.instance_type)
        size = int(accelerator_type(offer.instance_type).rpartition("-")[2])
        needed = [(f"tpu/{family}", size / _CORES_PER_UNIT.get(family, 1))]
    else:
        if offer.vcpus is None or offer.memory_gib is None:
            return None
        host = host_and_gpus(offer.instance_type)[0].partition("-")[0]
        needed = [
            (f"{host}/core", offer.vcpus),
            (f"{host}/ram", offer.memory_gib),
            (f"gpu/{offer.accelerator}", float(offer.accelerators_per_instance)),
        ]
    total, since_s = 0.0, None
    for part, count in needed:
        price = parts.get((part, offer.region, is_spot))
        if price is None:
            return None
        total += count * price.usd_per_hour
        if price.since_s is not None:
            since_s = price.since_s if since_s is None else max(since_s, price.since_s)
    return round(total, 6), since_s


def refreshed_catalog(
    clients: GcpClients,
    *,
    reference: Catalog,
    now_s: float,
    trusted: Callable[[Offer], bool] = trust_none,
) -> Catalog:
    """Return the reference's offers of Google Cloud at today's prices, judged against it.

    An offer whose parts are not all in the catalogue keeps its old price, age and source.
    Google's errors pass.
    """
    offers = [offer for offer in reference.offers if offer.provider == "gcp"]
    parts = by_part(read_skus(clients, services=services_for(offers)))
    renewed = []
    for offer in offers:
        found = None if offer.is_historic else price_of(offer, parts)
        renewed.append(
            offer
            if found is None
            else replace(
                offer,
                price_usd_per_hour=found[0],
                observed_at_s=now_s,
                # Google publishes no history: what was assumed of interruptions stays assumed.
                source=SOURCE + (RATE_IS_ASSUMED if _is_spot(offer) else ""),
                flags=(),
            )
        )
    return checked_catalog(renewed, reference=reference.offers, trusted=trusted)


def _is_spot(offer: Offer) -> bool:
    return offer.capacity_type is CapacityType.SPOT


class BillingPrices:
    """Prices of a run's offers as they change; read at most every ``age_s``, thread-safe."""

    def __init__(
        self,
        clients: GcpClients,
        *,
        catalogue: Sequence[Offer],
        now_s: Callable[[], float],
        age_s: float,
    ) -> None:
        self._clients = clients
        self._catalogue = {offer.offer_id: offer for offer in catalogue}
        self._now_s = now_s
        self._age_s = age_s
        self._changes: dict[str, list[tuple[float, float]]] = {}
        self._next_at_s = float("-inf")
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Read the catalogue again if it is old; a failure is logged and leaves what was known."""
        with self._lock:
            now_s = self._now_s()
            if now_s < self._next_at_s:
                return
            offers = list(self._catalogue.values())
            try:
                parts = by_part(read_skus(self._clients, services=services_for(offers)))
            except Exception as error:
                log.warning("%s", call_failed(error, "read prices").message)
                self._next_at_s = now_s + min(RETRY_S, self._age_s)
                return
            self._next_at_s = now_s + self._age_s
            self._take(parts, offers, now_s)

    def _take(self, parts: Parts, offers: Sequence[Offer], now_s: float) -> None:
        told = {}
        for offer in offers:
            found = price_of(offer, parts)
            if found is not None:
                told[offer.offer_id] = (
                    replace(offer, price_usd_per_hour=found[0], observed_at_s=now_s, flags=()),
                    found[1],
                )
        renewed = [offer for offer, _ in told.values()]
        _, findings = check_offers(renewed, reference=offers)
        refused = {each.offer_id for each in findings if each.rule in _NOT_A_BILL}
        for offer_id, (offer, since_s) in told.items():
            price = offer.price_usd_per_hour
            if offer_id in refused or price is None or price == self._latest(offer_id):
                continue
            changes = self._changes.setdefault(offer_id, [])
            at_s = now_s if since_s is None else min(since_s, now_s)
            if changes and at_s <= changes[-1][0]:
                at_s = now_s
            changes.append((at_s, price))

    def _latest(self, offer_id: str) -> float | None:
        changes = self._changes.get(offer_id)
        return changes[-1][1] if changes else self._catalogue[offer_id].price_usd_per_hour

    def price(self, offer: Offer, at_s: float | None = None) -> float | None:
        """Return what the offer cost then (``None`` = by all that is known)."""
        price = self._catalogue.get(offer.offer_id, offer).price_usd_per_hour
        with self._lock:
            for change_at_s, changed in self._changes.get(offer.offer_id, ()):
                if at_s is None or change_at_s <= at_s:
                    price = changed
        return price

    def changes(self, offer: Offer, since_s: float) -> list[tuple[float, float]]:
        """Return the changes after ``since_s``, oldest first."""
        with self._lock:
            return [each for each in self._changes.get(offer.offer_id, ()) if each[0] > since_s]

    def offers_now(self, offers: Iterable[Offer]) -> tuple[Offer, ...]:
        """Return the offers at the newest prices known."""
        return tuple(replace(offer, price_usd_per_hour=self.price(offer)) for offer in offers)
