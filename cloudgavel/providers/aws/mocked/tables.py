"""Answers of a mocked account that only have to be looked up: no machine is touched."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape

from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.aws.images import (
    CLOSED_DRIVER,
    NEURON,
    OPEN_DRIVER,
    OPEN_DRIVER_ARM,
    ImageFamily,
)
from cloudgavel.providers.aws.mocked.wire import (
    Answer,
    Request,
    ec2_answer,
    ec2_error,
    json_answer,
    json_error,
    numbered,
)
from cloudgavel.providers.aws.prices import SpotPoint
from cloudgavel.providers.aws.quotas import VcpuLimit

_PAGE = 100
IMAGES: Mapping[str, ImageFamily] = {
    "ami-00000000000000001": OPEN_DRIVER,
    "ami-00000000000000002": OPEN_DRIVER_ARM,
    "ami-00000000000000003": CLOSED_DRIVER,
    "ami-00000000000000004": NEURON,
}


def stamp(at_s: float) -> str:
    """Return an instant as EC2 writes it."""
    return datetime.fromtimestamp(at_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def offerings(request: Request, offers: Iterable[Offer]) -> Answer:
    """Say which zone sells which of the types that were asked about."""
    from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

    asked = set(numbered(request.parameters, "Filter.1.Value"))
    names = {zone.zone_id: zone.name for zone in RegionsAndZonesBackend.zones[request.region]}
    sold = sorted(
        {
            (names[offer.zone], offer.instance_type)
            for offer in offers
            if offer.zone in names and offer.instance_type in asked
        }
    )
    items = "".join(
        f"<item><instanceType>{escape(instance_type)}</instanceType>"
        f"<locationType>availability-zone</locationType><location>{name}</location></item>"
        for name, instance_type in sold
    )
    return ec2_answer(
        "DescribeInstanceTypeOfferings",
        f"<instanceTypeOfferingSet>{items}</instanceTypeOfferingSet>",
    )


def spot_history(request: Request, history: Sequence[SpotPoint], now_s: float) -> Answer:
    """Return one page of a region's spot price changes, the one that held at the start included."""
    types = set(numbered(request.parameters, "InstanceType"))
    start = request.parameters.get("StartTime")
    start_s = datetime.fromisoformat(start).timestamp() if start else 0.0
    chosen: list[SpotPoint] = []
    rows = [
        point
        for point in history
        if point.zone_name.startswith(request.region)
        and point.instance_type in types
        and point.at_s <= now_s
    ]
    rows.sort(key=lambda point: (point.zone_name, point.instance_type, point.at_s))
    for _, group in itertools.groupby(
        rows, key=lambda point: (point.zone_name, point.instance_type)
    ):
        points = list(group)
        # The price that held at the start belongs to the answer, as on the real service.
        before = [point for point in points if point.at_s <= start_s][-1:]
        chosen += before + [point for point in points if point.at_s > start_s]
    page = int(request.parameters.get("NextToken") or 0)
    items = "".join(
        f"<item><instanceType>{escape(point.instance_type)}</instanceType>"
        "<productDescription>Linux/UNIX</productDescription>"
        f"<spotPrice>{point.usd_per_hour:.6f}</spotPrice>"
        f"<timestamp>{stamp(point.at_s)}</timestamp>"
        f"<availabilityZone>{escape(point.zone_name)}</availabilityZone></item>"
        for point in chosen[page : page + _PAGE]
    )
    following = str(page + _PAGE) if page + _PAGE < len(chosen) else ""
    return ec2_answer(
        "DescribeSpotPriceHistory",
        f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{following}</nextToken>",
    )


def parameter(request: Request) -> Answer | None:
    """Return a public parameter; ``None`` for one of the account's own."""
    name = str(request.parameters.get("Name", ""))
    for image_id, family in IMAGES.items():
        if family.parameter == name:
            return json_answer(
                {"Parameter": {"Name": name, "Type": "String", "Value": image_id, "Version": 1}}
            )
    if name.startswith("/aws/service/"):
        return json_error("ParameterNotFound", name)
    return None


def quotas(request: Request, limits: Iterable[VcpuLimit]) -> Answer:
    """Return one page of a region's limits."""
    rows = [
        {
            "ServiceCode": "ec2",
            "QuotaName": limit.title,
            "QuotaCode": limit.code,
            "Value": limit.vcpus,
            "Adjustable": limit.adjustable,
        }
        for limit in limits
        if limit.region == request.region
    ]
    page = int(request.parameters.get("NextToken") or 0)
    document: dict[str, Any] = {"Quotas": rows[page : page + _PAGE]}
    if page + _PAGE < len(rows):
        document["NextToken"] = str(page + _PAGE)
    return json_answer(document)


def products(request: Request, price_list: Sequence[str]) -> Answer:
    """Return one page of the price list's products of a region."""
    wanted = {each["Field"]: each["Value"] for each in request.parameters.get("Filters", ())}
    region = wanted.get("regionCode", "")
    rows = [text for text in price_list if f'"{region}"' in text]
    page = int(request.parameters.get("NextToken") or 0)
    document: dict[str, Any] = {
        "FormatVersion": "aws_v1",
        "PriceList": rows[page : page + _PAGE],
    }
    if page + _PAGE < len(rows):
        document["NextToken"] = str(page + _PAGE)
    return json_answer(document)


class PlacementGroups:
    """The account's placement groups: name and region to tags."""

    def __init__(self) -> None:
        self._tags: dict[tuple[str, str], dict[str, str]] = {}

    def answer(self, request: Request) -> Answer:
        """Create, describe or delete."""
        match request.operation:
            case "CreatePlacementGroup":
                return self._create(request)
            case "DeletePlacementGroup":
                return self._delete(request)
        return self._describe(request)

    def _create(self, request: Request) -> Answer:
        name = request.parameters.get("GroupName", "")
        if (request.region, name) in self._tags:
            return ec2_error("InvalidPlacementGroup.Duplicate", f"{name} exists")
        keys = request.parameters
        tags = {
            keys[key]: keys.get(key.removesuffix("Key") + "Value", "")
            for key in keys
            if re.fullmatch(r"TagSpecification\.1\.Tag\.\d+\.Key", key)
        }
        self._tags[request.region, name] = tags
        return ec2_answer("CreatePlacementGroup", "<return>true</return>")

    def _describe(self, request: Request) -> Answer:
        tag = request.parameters.get("Filter.1.Name", "tag:").removeprefix("tag:")
        value = request.parameters.get("Filter.1.Value.1")
        items = "".join(
            f"<item><groupName>{escape(name)}</groupName><strategy>cluster</strategy>"
            "<state>available</state></item>"
            for (region, name), tags in sorted(self._tags.items())
            if region == request.region and (not tag or tags.get(tag) == value)
        )
        return ec2_answer(
            "DescribePlacementGroups", f"<placementGroupSet>{items}</placementGroupSet>"
        )

    def _delete(self, request: Request) -> Answer:
        name = request.parameters.get("GroupName", "")
        if self._tags.pop((request.region, name), None) is None:
            return ec2_error("InvalidPlacementGroup.Unknown", f"{name} does not exist")
        return ec2_answer("DeletePlacementGroup", "<return>true</return>")
