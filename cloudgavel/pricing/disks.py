"""What the boot disk of a machine costs: an estimate, part of the price per hour, shown apart.

List prices per GiB and month as known in 2026-11: Amazon EBS gp3 (3,000 IOPS and 125 MB/s are
free), Google Persistent Disk ``pd-balanced``. Both are billed by the second for what is
provisioned, and go with the machine. A month is counted as 30 days, as in Amazon's own example.
These rules stand on the clouds' price pages. Their tables of rates by region are filled in by
script and could not be read there: the rates below are not checked against them.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from cloudgavel.pricing.offer import Offer

HOURS_PER_MONTH = 720.0
DEFAULT_GIB = 200
"""What machines are rented with unless told otherwise."""
USD_PER_GIB_MONTH: Mapping[tuple[str, str], float] = MappingProxyType(
    {
        ("aws", "us-east-1"): 0.08,
        ("aws", "us-east-2"): 0.08,
        ("aws", "us-west-2"): 0.08,
        ("aws", "eu-west-1"): 0.088,
        ("gcp", "us-central1"): 0.10,
        ("gcp", "us-east1"): 0.10,
        ("gcp", "us-east5"): 0.10,
        ("gcp", "us-west1"): 0.10,
        ("gcp", "us-east4"): 0.11,
        ("gcp", "us-west4"): 0.11,
        ("gcp", "europe-west4"): 0.11,
    }
)
ELSEWHERE_USD_PER_GIB_MONTH = 0.16
"""Dearer than any region known: a budget is not to be broken by a guess."""
SOURCE = "list prices of EBS gp3 and Persistent Disk balanced, 2026-11"


def disk_usd_per_hour(offer: Offer, gib: float) -> float:
    """Estimate the boot disk of ``gib`` GiB beside a machine; 0 for TPU slices and other clouds.

    A slice's own boot disk is part of what Google rents out. To the micro-dollar.
    """
    if offer.accelerator.startswith("tpu") or offer.provider not in ("aws", "gcp"):
        return 0.0
    rate = USD_PER_GIB_MONTH.get((offer.provider, offer.region), ELSEWHERE_USD_PER_GIB_MONTH)
    return round(rate * gib / HOURS_PER_MONTH, 6)


def with_disk(offer: Offer, gib: float) -> Offer:
    """The offer with its disk in the price; one that has it, or has no price, as it is."""
    price = offer.price_usd_per_hour
    if price is None or offer.disk_usd_per_hour:
        return offer
    disk = disk_usd_per_hour(offer, gib)
    return replace(offer, price_usd_per_hour=round(price + disk, 6), disk_usd_per_hour=disk)
