"""What checkpoints cost on their way between clouds: an estimate beside the plan's cost.

List prices of data that leave a cloud for the internet, first tier, read 2026-11; what arrives is
free. Traffic between regions of one cloud (about 0.02) is not told apart: the region of a bucket is
not known here.
"""

from collections.abc import Mapping
from types import MappingProxyType

LEAVING_USD_PER_GIB: Mapping[str, float] = MappingProxyType({"aws": 0.09, "gcp": 0.12})
_CLOUD_OF_STORE = MappingProxyType({"s3": "aws", "gs": "gcp"})


def cloud_of_store(store_url: str | None) -> str | None:
    """``s3://bucket/x`` -> ``aws``; ``None`` for a directory."""
    return None if store_url is None else _CLOUD_OF_STORE.get(store_url.partition(":")[0])


def traffic_usd(
    *, machine_cloud: str, store_cloud: str, gib: float, saves: int, restores: int
) -> float:
    """USD for so many saves and restores of ``gib`` GiB; 0 within one cloud."""
    if machine_cloud == store_cloud:
        return 0.0
    out = LEAVING_USD_PER_GIB.get(machine_cloud, 0.0)
    back = LEAVING_USD_PER_GIB.get(store_cloud, 0.0)
    return gib * (saves * out + restores * back)
