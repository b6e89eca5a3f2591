"""What the account sees in a region: its zones under their names, and the types they offer.

A zone's *id* (``use1-az1``) is the same building for everyone; its *name* (``us-east-1a``) is this
account's own. The catalogue knows ids, calls take names.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from cloudgavel.providers.aws.clients import AwsClients

_MOST_VALUES = 100
"""Values of one filter in one call (the limit is 200)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One region as one account sees it."""

    region: str
    zone_name_by_id: Mapping[str, str]
    """Only zones that the account may use."""
    offered: frozenset[tuple[str, str]]
    """``(zone name, instance type)`` pairs, of the types that were asked about."""
    seen_at_s: float

    def offers(self, zone_id: str, instance_type: str) -> bool:
        """True when the zone of this id is the account's and sells the type."""
        name = self.zone_name_by_id.get(zone_id)
        return name is not None and (name, instance_type) in self.offered


class Places:
    """Asks for regions once and again when what is known is old; safe between threads.

    When a renewal fails, what was known stays; the first look's error passes to the caller.
    """

    def __init__(
        self,
        clients: AwsClients,
        *,
        types_by_region: Mapping[str, Collection[str]],
        now_s: Callable[[], float],
        age_s: float,
    ) -> None:
        self._clients = clients
        self._types_by_region = types_by_region
        self._now_s = now_s
        self._age_s = age_s
        self._known: dict[str, Place] = {}
        self._locks = {region: threading.Lock() for region in types_by_region}
        self._any_lock = threading.Lock()

    def place(self, region: str) -> Place:
        """Return the region, looked at if need be; boto3's errors pass when it never answered."""
        with self._any_lock:
            lock = self._locks.setdefault(region, threading.Lock())
        with lock:
            known, now_s = self._known.get(region), self._now_s()
            if known is not None and now_s - known.seen_at_s < self._age_s:
                return known
            try:
                self._known[region] = self._look(region, now_s)
            except Exception:
                if known is None:
                    raise
            return self._known[region]

    def _look(self, region: str, now_s: float) -> Place:
        ec2 = self._clients.client("ec2", region)
        names = zone_name_by_id(self._clients, region)
        offered: set[tuple[str, str]] = set()
        types = sorted(self._types_by_region.get(region, ()))
        # Filtered, not named: a name that Amazon no longer knows fails a whole describe call.
        for start in range(0, len(types), _MOST_VALUES):
            pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
                LocationType="availability-zone",
                Filters=[{"Name": "instance-type", "Values": types[start : start + _MOST_VALUES]}],
            )
            offered.update(
                (str(row["Location"]), str(row["InstanceType"]))
                for page in pages
                for row in page["InstanceTypeOfferings"]
            )
        return Place(
            region=region, zone_name_by_id=names, offered=frozenset(offered), seen_at_s=now_s
        )


def zone_name_by_id(clients: AwsClients, region: str) -> dict[str, str]:
    """Return the zones that the account may use in a region; boto3's errors pass."""
    zones = clients.client("ec2", region).describe_availability_zones(
        Filters=[{"Name": "state", "Values": ["available"]}]
    )["AvailabilityZones"]
    return {
        str(zone["ZoneId"]): str(zone["ZoneName"])
        for zone in zones
        if zone.get("State") == "available" and zone.get("OptInStatus") != "not-opted-in"
    }
