"""The account's vCPU limits by family, region and capacity type, as Service Quotas tells them.

Limits are matched to instance types by their names (``Running On-Demand P instances``, ``All P4, P3
and P2 Spot Instance Requests``): a list of codes would miss every new family.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.aws.clients import AwsClients
from cloudgavel.providers.aws.images import type_family
from cloudgavel.providers.base import Quota

_ON_DEMAND = re.compile(r"Running On-Demand (.+?) instances?", re.IGNORECASE)
_SPOT = re.compile(r"All (.+?) Spot Instance Requests", re.IGNORECASE)
_STANDARD = re.compile(r"Standard \((.+)\)", re.IGNORECASE)
_SPLIT = re.compile(r",\s*|\s+and\s+|\s+")
UNKNOWN_VCPUS = 1.0
"""Counted for a type whose vCPUs the catalogue does not know, so that a limit of 0 still binds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VcpuLimit:
    """One limit: at most ``vcpus`` running vCPUs of the families in a region."""

    region: str
    capacity_type: CapacityType
    families: tuple[str, ...]
    """Lower case: ``p`` (all its generations) or ``p4`` (one)."""
    vcpus: float
    title: str
    code: str
    adjustable: bool = True


def limits_of(rows: Iterable[Mapping[str, Any]], *, region: str) -> list[VcpuLimit]:
    """Read the rows of ``ListServiceQuotas`` that limit instances; the rest is left out."""
    limits = []
    for row in rows:
        title = str(row.get("QuotaName", ""))
        found = _ON_DEMAND.fullmatch(title)
        capacity_type = CapacityType.ON_DEMAND
        if found is None:
            found = _SPOT.fullmatch(title)
            capacity_type = CapacityType.SPOT
        if found is None or "Value" not in row:
            continue
        words = found[1]
        if standard := _STANDARD.fullmatch(words):
            words = standard[1]
        families = tuple(word.lower() for word in _SPLIT.split(words) if word)
        limits.append(
            VcpuLimit(
                region=region,
                capacity_type=capacity_type,
                families=families,
                vcpus=float(row["Value"]),
                title=title,
                code=str(row.get("QuotaCode", "")),
                adjustable=bool(row.get("Adjustable", True)),
            )
        )
    return limits


def read_limits(clients: AwsClients, region: str) -> list[VcpuLimit]:
    """Ask Service Quotas for a region's instance limits; boto3's errors pass."""
    pages = (
        clients.client("service-quotas", region)
        .get_paginator("list_service_quotas")
        .paginate(ServiceCode="ec2")
    )
    return limits_of((row for page in pages for row in page["Quotas"]), region=region)


def limit_for(
    limits: Sequence[VcpuLimit], *, region: str, instance_type: str, capacity_type: CapacityType
) -> VcpuLimit | None:
    """Return the limit that counts a type: a generation's own before its letter's.

    ``None`` when none names it: unknown is not zero, and not unlimited either.
    """
    family = type_family(instance_type).lower()
    generation = re.match(r"([a-z]+)(\d+)?", family)
    if generation is None:
        return None
    letters, number = generation[1], generation[2] or ""
    best: tuple[int, VcpuLimit] | None = None
    for limit in limits:
        if limit.region != region or limit.capacity_type is not capacity_type:
            continue
        for named in limit.families:
            # "high" and "memory" of a name that is a sentence match no type, as they should.
            if named in (family, letters + number, letters) and (
                best is None or len(named) > best[0]
            ):
                best = (len(named), limit)
    return None if best is None else best[1]


def quotas_of(limits: Sequence[VcpuLimit], offers: Iterable[Offer]) -> tuple[Quota, ...]:
    """Return the limits that bind any of the offers, each with the vCPUs they take, by name."""
    units: dict[str, dict[str, float]] = {}
    by_name: dict[str, VcpuLimit] = {}
    for offer in offers:
        limit = limit_for(
            limits,
            region=offer.region,
            instance_type=offer.instance_type,
            capacity_type=offer.capacity_type,
        )
        if limit is None:
            continue
        name = f"aws {limit.region} {limit.title} (vCPUs)"
        by_name[name] = limit
        units.setdefault(name, {})[offer.offer_id] = offer.vcpus or UNKNOWN_VCPUS
    return tuple(
        Quota(name=name, limit=by_name[name].vcpus, units_per_instance=units[name])
        for name in sorted(by_name)
    )
