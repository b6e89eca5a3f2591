"""What checkpoints cost beside machines: their way between clouds, and their place in the store.

First-tier list prices per GiB (both clouds count 2**30 bytes), looked up 2026-11. Free allowances
of an account are not counted, so that no budget rests on them. What arrives is free everywhere.

- Leaving AWS 0.09 (to the internet, first 10 TB), S3 Standard 0.023 a month (N. Virginia):
  published summaries of 2026; the price pages themselves fill in their tables by script.
- Leaving Google 0.12: Google's own "Pricing examples" of Cloud Storage; the Premium Tier of
  machines is taken to be alike.
- Cloud Storage Standard 0.020 to 0.023 a month in one region of the US or Europe: Google's price
  page. The 0.026 counted here is the multi-region ``us``, dearer than those; it and ``ELSEWHERE``
  were not found on a page that could be read.

The rates are those of North America and Europe. A machine elsewhere pays ``ELSEWHERE``, dearer than
any region known. In which region a bucket lies is not known: it is taken to be in North America or
Europe, and traffic between regions of one cloud (about 0.02) is not told apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cloudgavel.units import DAY_S, HOUR_S

GIB = float(2**30)
MONTH_S = 30 * DAY_S
LEAVING_USD_PER_GIB: Mapping[str, float] = MappingProxyType({"aws": 0.09, "gcp": 0.12})
ELSEWHERE_USD_PER_GIB: Mapping[str, float] = MappingProxyType({"aws": 0.154, "gcp": 0.23})
"""Cape Town, the dearest of AWS; to China, the dearest of Google."""
STORED_USD_PER_GIB_MONTH: Mapping[str, float] = MappingProxyType({"aws": 0.023, "gcp": 0.026})
_NEAR = ("us-", "ca-", "eu-", "northamerica-", "europe-")
"""Regions whose names begin so pay the rates of North America and Europe."""
_CLOUD_OF_STORE = MappingProxyType({"s3": "aws", "gs": "gcp"})


@dataclass(frozen=True, kw_only=True, slots=True)
class TrafficRates:
    """What one GiB costs between a machine and the store."""

    save_usd_per_gib: float
    restore_usd_per_gib: float

    def usd(self, save_gib: float, restore_gib: float) -> float:
        """USD of so much in each direction."""
        return save_gib * self.save_usd_per_gib + restore_gib * self.restore_usd_per_gib

    @property
    def free(self) -> bool:
        """Whether nothing is charged."""
        return self.save_usd_per_gib == 0 and self.restore_usd_per_gib == 0


FREE = TrafficRates(save_usd_per_gib=0.0, restore_usd_per_gib=0.0)


def cloud_of_store(store_url: str | None) -> str | None:
    """``s3://bucket/x`` -> ``aws``; ``None`` for a directory."""
    return None if store_url is None else _CLOUD_OF_STORE.get(store_url.partition(":")[0])


def traffic_rates(provider: str, region: str, store_cloud: str | None) -> TrafficRates:
    """Rates between a machine and the store: free within one cloud and without a cloud's store."""
    if store_cloud is None or provider == store_cloud:
        return FREE
    near = region.startswith(_NEAR)
    leaving = LEAVING_USD_PER_GIB if near else ELSEWHERE_USD_PER_GIB
    return TrafficRates(
        save_usd_per_gib=leaving.get(provider, 0.0),
        restore_usd_per_gib=LEAVING_USD_PER_GIB.get(store_cloud, 0.0),
    )


def stored_usd_per_hour(store_cloud: str | None, gib: float) -> float:
    """What it costs to keep ``gib`` GiB in the store; 0 without a cloud's store."""
    if store_cloud is None:
        return 0.0
    return STORED_USD_PER_GIB_MONTH.get(store_cloud, 0.0) * gib * HOUR_S / MONTH_S
