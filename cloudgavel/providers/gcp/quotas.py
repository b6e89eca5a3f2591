"""The project's limits on GPUs and cores, by region and over all regions.

``regions.get`` tells the limits per GPU model of the older models (K80 to A100, L4); those of
newer ones and of TPUs are told elsewhere only, and are unknown here: unknown is not zero. A
preemptible limit of 0 means that spot machines count against the ordinary one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.base import Quota
from cloudgavel.providers.gcp.clients import GcpClients
from cloudgavel.providers.gcp.translate import host_and_gpus, is_tpu_offer

GLOBAL_GPUS = "GPUS_ALL_REGIONS"
_GPU_METRICS: Mapping[str, str] = {
    "K80": "NVIDIA_K80_GPUS",
    "P100": "NVIDIA_P100_GPUS",
    "V100": "NVIDIA_V100_GPUS",
    "T4": "NVIDIA_T4_GPUS",
    "L4": "NVIDIA_L4_GPUS",
    "A100": "NVIDIA_A100_GPUS",
    "A100-80GB": "NVIDIA_A100_80GB_GPUS",
    "H100": "NVIDIA_H100_GPUS",
}
_CPU_METRICS: Mapping[str, str] = {"n1": "CPUS", "a2": "A2_CPUS"}
"""Families whose cores have a limit of their own; g2 and a3 are limited by their GPUs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """One limit: at most ``most`` units of ``metric`` in a region (``""`` = in all)."""

    region: str
    metric: str
    most: float

    @property
    def name(self) -> str:
        """As the console calls it, with the place."""
        return f"gcp {self.region or 'all regions'} {self.metric}"


def read_region_limits(clients: GcpClients, project: str, region: str) -> list[Limit]:
    """Ask for a region's limits; Google's errors pass."""
    answer = clients.call("compute.regions", "get", {"project": project, "region": region})
    return _limits(answer.quotas, region)


def read_project_limits(clients: GcpClients, project: str) -> list[Limit]:
    """Ask for the limits over all regions; Google's errors pass."""
    answer = clients.call("compute.projects", "get", {"project": project})
    return _limits(answer.quotas, "")


def _limits(quotas: Iterable[Any], region: str) -> list[Limit]:
    return [
        Limit(region=region, metric=str(quota.metric), most=float(quota.limit)) for quota in quotas
    ]


def limits_of(limits: Iterable[Limit], offer: Offer) -> list[tuple[Limit, float]]:
    """Return the limits that count this offer, each with the units that one machine takes."""
    if is_tpu_offer(offer):
        return []
    by_metric = {(limit.region, limit.metric): limit for limit in limits}
    found = []
    gpus = float(offer.accelerators_per_instance)
    is_spot = offer.capacity_type is CapacityType.SPOT
    wanted: list[tuple[str | None, float]] = [(_GPU_METRICS.get(offer.accelerator), gpus)]
    if offer.vcpus is not None:
        family = host_and_gpus(offer.instance_type)[0].partition("-")[0]
        wanted.append((_CPU_METRICS.get(family), offer.vcpus))
    for metric, units in wanted:
        if metric is None:
            continue
        ordinary = by_metric.get((offer.region, metric))
        preemptible = by_metric.get((offer.region, f"PREEMPTIBLE_{metric}"))
        if is_spot and preemptible is not None and preemptible.most > 0:
            found.append((preemptible, units))
        elif ordinary is not None:
            found.append((ordinary, units))
        elif is_spot and preemptible is not None:
            found.append((preemptible, units))
    if (everywhere := by_metric.get(("", GLOBAL_GPUS))) is not None:
        found.append((everywhere, gpus))
    return found


def quotas_of(limits: Iterable[Limit], offers: Iterable[Offer]) -> tuple[Quota, ...]:
    """Return the limits that bind any of the offers, each with the units they take, by name."""
    known = list(limits)
    units: dict[str, dict[str, float]] = {}
    by_name: dict[str, Limit] = {}
    for offer in offers:
        for limit, taken in limits_of(known, offer):
            by_name[limit.name] = limit
            units.setdefault(limit.name, {})[offer.offer_id] = taken
    return tuple(
        Quota(name=name, limit=by_name[name].most, units_per_instance=units[name])
        for name in sorted(by_name)
    )
