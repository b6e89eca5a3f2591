"""What would be wrong with a launch, judged from facts before the call.

Mocked clouds accept nonsense and the real one answers late; so each request is checked here, in
the dry run and in earnest alike.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.aws.images import Image, architecture_of
from cloudgavel.providers.aws.places import Place
from cloudgavel.providers.aws.translate import user_data_bytes
from cloudgavel.providers.aws.user_data import MOST_BYTES
from cloudgavel.providers.failures import FailureKind

MOST_TAGS = 50
MOST_TAG_KEY = 128
MOST_TAG_VALUE = 256
MOST_CLIENT_TOKEN = 64
GP3_GIB = range(1, 16_385)
_TAG_TEXT = re.compile(r"[\w\s.:/=+\-@]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One reason why a request must not be sent."""

    kind: FailureKind
    code: str
    message: str


def offer_problems(offer: Offer, place: Place, *, in_catalogue: bool) -> list[Problem]:
    """Return what is wrong with renting this offer in this account at all."""
    if offer.provider != "aws":
        return [_invalid("NotAws", f"{offer.offer_id} is not an offer of AWS")]
    if offer.region != place.region:
        return [_invalid("WrongRegion", f"{offer.offer_id} is not in {place.region}")]
    problems = []
    if offer.is_historic:
        problems.append(
            _invalid("Historic", f"{offer.instance_type} is no longer rented: simulation only")
        )
    if not in_catalogue:
        problems.append(
            _invalid("NotInCatalogue", f"{offer.offer_id} is no longer in the catalogue")
        )
    if offer.capacity_type not in (CapacityType.SPOT, CapacityType.ON_DEMAND):
        problems.append(
            _invalid("NoSuchCapacity", f"{offer.capacity_type.value} capacity is not launched here")
        )
    if offer.zone not in place.zone_name_by_id:
        problems.append(
            _invalid("NoSuchZone", f"this account has no zone {offer.zone} in {offer.region}")
        )
    elif not place.offers(offer.zone, offer.instance_type):
        zone_name = place.zone_name_by_id[offer.zone]
        problems.append(
            Problem(
                kind=FailureKind.CAPACITY,
                code="Unsupported",
                message=f"{offer.instance_type} is not offered in {offer.zone} ({zone_name})",
            )
        )
    return problems


def request_problems(
    parameters: Mapping[str, Any],
    *,
    offer: Offer,
    place: Place,
    image: Image,
) -> list[Problem]:
    """Return what is wrong with the parameters of one ``RunInstances``; empty = send it."""
    problems: list[Problem] = []

    def must(holds: bool, code: str, message: str) -> None:
        if not holds:
            problems.append(_invalid(code, message))

    must(
        parameters.get("InstanceType") == offer.instance_type,
        "WrongType",
        f"the request is for {parameters.get('InstanceType')}, not {offer.instance_type}",
    )
    zone_name = place.zone_name_by_id.get(offer.zone)
    must(
        parameters.get("Placement", {}).get("AvailabilityZone") == zone_name,
        "WrongZone",
        f"the request is for zone {parameters.get('Placement', {}).get('AvailabilityZone')}, "
        f"{offer.zone} is {zone_name}",
    )
    must(
        parameters.get("MinCount") == 1 and parameters.get("MaxCount") == 1,
        "WrongCount",
        "a request is for exactly one instance",
    )
    token = str(parameters.get("ClientToken", ""))
    must(
        token.isascii() and 0 < len(token) <= MOST_CLIENT_TOKEN,
        "BadClientToken",
        f"the client token must be 1 to {MOST_CLIENT_TOKEN} ASCII characters",
    )
    metadata = parameters.get("MetadataOptions", {})
    must(
        metadata.get("HttpTokens") == "required" and metadata.get("HttpPutResponseHopLimit") == 1,
        "OpenMetadata",
        "instance metadata must require tokens and answer one hop away only",
    )
    must(
        parameters.get("InstanceInitiatedShutdownBehavior") == "terminate",
        "OutlivesItself",
        "a shutdown from inside must terminate the instance",
    )
    size = user_data_bytes(parameters)
    must(
        size <= MOST_BYTES,
        "UserDataTooLarge",
        f"the start-up script has {size:,} bytes, at most {MOST_BYTES:,} are taken",
    )
    problems.extend(_image_problems(parameters, offer, image))
    problems.extend(_disk_problems(parameters, image))
    problems.extend(_tag_problems(parameters))
    problems.extend(_market_problems(parameters, offer))
    return problems


def _image_problems(parameters: Mapping[str, Any], offer: Offer, image: Image) -> list[Problem]:
    problems = []
    if parameters.get("ImageId") != image.image_id:
        problems.append(_invalid("WrongImage", f"image {parameters.get('ImageId')} is not known"))
    if image.state != "available":
        problems.append(
            _invalid("ImageNotReady", f"image {image.image_id} is {image.state or 'not available'}")
        )
    needed = architecture_of(offer.instance_type)
    if image.architecture != needed:
        problems.append(
            _invalid(
                "WrongArchitecture",
                f"image {image.image_id} is for {image.architecture}, {offer.instance_type} "
                f"is {needed}",
            )
        )
    return problems


def _disk_problems(parameters: Mapping[str, Any], image: Image) -> list[Problem]:
    problems = []
    mappings = parameters.get("BlockDeviceMappings", [])
    if not any(mapping.get("DeviceName") == image.root_device for mapping in mappings):
        problems.append(
            _invalid("NoRootDisk", f"no disk is mapped to the image's root {image.root_device}")
        )
    for mapping in mappings:
        disk = mapping.get("Ebs", {})
        size = disk.get("VolumeSize", 0)
        smallest = image.snapshot_gib or 1
        if size not in GP3_GIB or (mapping["DeviceName"] == image.root_device and size < smallest):
            problems.append(
                _invalid(
                    "DiskSize",
                    f"a disk of {size} GiB: the image needs {smallest}, gp3 has {GP3_GIB[-1]} "
                    "at most",
                )
            )
        if disk.get("DeleteOnTermination") is not True:
            problems.append(_invalid("DiskStays", "a disk would outlive its instance"))
    return problems


def _tag_problems(parameters: Mapping[str, Any]) -> list[Problem]:
    problems = []
    specifications = parameters.get("TagSpecifications", [])
    if not any(each.get("ResourceType") == "instance" for each in specifications):
        problems.append(_invalid("NoTags", "the instance would have no tags to be found by"))
    for specification in specifications:
        tags = specification.get("Tags", [])
        if len(tags) > MOST_TAGS:
            problems.append(_invalid("TooManyTags", f"{len(tags)} tags, at most {MOST_TAGS}"))
        for tag in tags:
            key, value = tag["Key"], tag["Value"]
            if (
                not 0 < len(key) <= MOST_TAG_KEY
                or len(value) > MOST_TAG_VALUE
                or key.lower().startswith("aws:")
                or not _TAG_TEXT.fullmatch(key)
                or not _TAG_TEXT.fullmatch(value)
            ):
                problems.append(_invalid("BadTag", f"{key}={value!r} is not a tag of AWS"))
    return problems


def _market_problems(parameters: Mapping[str, Any], offer: Offer) -> list[Problem]:
    market = parameters.get("InstanceMarketOptions")
    if offer.capacity_type is not CapacityType.SPOT:
        if market is None:
            return []
        return [_invalid("WrongMarket", "an on-demand offer would be rented as spot")]
    if market is None or market.get("MarketType") != "spot":
        return [_invalid("WrongMarket", "a spot offer would be rented on demand")]
    options = market.get("SpotOptions", {})
    problems = []
    if options.get("SpotInstanceType") != "one-time":
        problems.append(_invalid("PersistentSpot", "a spot request must be one-time"))
    if options.get("InstanceInterruptionBehavior") != "terminate":
        problems.append(_invalid("SpotLingers", "an interrupted instance must terminate"))
    cap, shown = options.get("MaxPrice"), offer.price_usd_per_hour
    if cap is not None and shown is not None and float(cap) < shown:
        problems.append(
            Problem(
                kind=FailureKind.CAPACITY,
                code="SpotMaxPriceTooLow",
                message=f"${shown:g}/h is above the cap of ${float(cap):g}/h",
            )
        )
    return problems


def _invalid(code: str, message: str) -> Problem:
    return Problem(kind=FailureKind.INVALID, code=code, message=message)
