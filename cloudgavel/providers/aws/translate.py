"""Between the provider's types and EC2's: requests, answers, states. Pure."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cloudgavel.pricing.offer import CapacityType
from cloudgavel.providers.aws.images import Image
from cloudgavel.providers.aws.settings import AwsSettings
from cloudgavel.providers.base import EndReason, LaunchRequest, MachineState
from cloudgavel.providers.tags import OFFER_TAG, RUN_TAG, TOKEN_TAG, tags_of

EXACT_RUN_TAG = "cloudgavel:run"
EXACT_TOKEN_TAG = "cloudgavel:token"
EXACT_OFFER_TAG = "cloudgavel:offer"
PRICE_TAG = "cloudgavel:usd-per-hour"
"""The values as they are: labels may end in a hash (``providers.tags``), AWS's tags need not."""

_SPOT_TAKEN = frozenset({"Server.SpotInstanceTermination", "Server.SpotInstanceShutdown"})
_SHUT_ITSELF_DOWN = "Client.InstanceInitiatedShutdown"
_ASKED_FOR = "Client.UserInitiatedShutdown"
_INSTANT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")

_STATES: Mapping[str, MachineState] = {
    "pending": MachineState.PENDING,
    "running": MachineState.RUNNING,
    "shutting-down": MachineState.TERMINATING,
    "terminated": MachineState.TERMINATED,
    # We never stop a machine. One stopped by hand does no work; ``down`` and ``reap`` end it.
    "stopping": MachineState.TERMINATED,
    "stopped": MachineState.TERMINATED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Ec2Instance:
    """What a description of an instance says, in our words."""

    instance_id: str
    region: str
    zone_name: str
    instance_type: str
    capacity_type: CapacityType
    token: str
    run_id: str
    offer_id: str
    state: MachineState
    launched_at_s: float | None
    ended_at_s: float | None
    """As Amazon writes it; ``None`` = not said."""
    end_reason: EndReason | None
    """``None`` = still there, or ended by somebody's call (ours, or a person's)."""
    price_usd_per_hour: float | None
    """At the launch, from our own tag."""


def client_token(request: LaunchRequest) -> str:
    """EC2's idempotency token of one request: 32 hexadecimal characters.

    EC2 ties a token to the parameters of the call, and the next offer of the same intent is
    another call: so it follows from the intent's token *and* the offer.
    """
    text = f"{request.token}\n{request.offer.offer_id}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def run_instances_parameters(
    request: LaunchRequest,
    *,
    settings: AwsSettings,
    zone_name: str,
    image: Image,
    user_data: str,
    placement_group: str | None = None,
) -> dict[str, Any]:
    """Return the parameters of ``RunInstances`` for one instance; equal inputs, equal parameters.

    IMDSv2 only, one hop; a shutdown from inside terminates; the disks go with the machine; spot is
    one-time and terminates on interruption.
    """
    offer = request.offer
    tags = tag_list(request, offer_name=f"{offer.instance_type} {offer.capacity_type.value}")
    placement: dict[str, Any] = {"AvailabilityZone": zone_name, "Tenancy": "default"}
    if placement_group is not None:
        placement["GroupName"] = placement_group
    parameters: dict[str, Any] = {
        "ClientToken": client_token(request),
        "ImageId": image.image_id,
        "InstanceType": offer.instance_type,
        "MinCount": 1,
        "MaxCount": 1,
        "Placement": placement,
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
        },
        "InstanceInitiatedShutdownBehavior": "terminate",
        "BlockDeviceMappings": [
            {
                "DeviceName": image.root_device,
                "Ebs": {
                    "VolumeSize": max(settings.disk_gib, image.snapshot_gib or 0),
                    "VolumeType": "gp3",
                    "DeleteOnTermination": True,
                },
            }
        ],
        "UserData": user_data,
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": tags} for kind in _tagged_kinds(offer.capacity_type)
        ],
    }
    if settings.instance_profile is not None:
        is_arn = settings.instance_profile.startswith("arn:")
        parameters["IamInstanceProfile"] = {"Arn" if is_arn else "Name": settings.instance_profile}
    if zone_name in settings.subnet_by_zone:
        parameters["SubnetId"] = settings.subnet_by_zone[zone_name]
    if groups := settings.security_groups_by_region.get(offer.region):
        parameters["SecurityGroupIds"] = list(groups)
    if offer.capacity_type is CapacityType.SPOT:
        spot: dict[str, Any] = {
            "SpotInstanceType": "one-time",
            "InstanceInterruptionBehavior": "terminate",
        }
        if settings.spot_price_cap_usd_per_hour is not None:
            spot["MaxPrice"] = f"{settings.spot_price_cap_usd_per_hour:.6f}"
        parameters["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": spot}
    return parameters


def tag_list(request: LaunchRequest, *, offer_name: str) -> list[dict[str, str]]:
    """Return the request's tags, and the exact values beside the labels, by key."""
    price = request.offer.price_usd_per_hour
    tags = {
        **tags_of(run_id=request.run_id, token=request.token, offer_id=request.offer.offer_id),
        **request.tags,
        EXACT_RUN_TAG: request.run_id,
        EXACT_TOKEN_TAG: request.token,
        EXACT_OFFER_TAG: request.offer.offer_id,
        **({} if price is None else {PRICE_TAG: f"{price:.6f}"}),
        "Name": f"cloudgavel {request.run_id} {offer_name}"[:255],
    }
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]


def read_instance(description: Mapping[str, Any], *, region: str) -> Ec2Instance:
    """Read one instance of ``DescribeInstances`` or ``RunInstances``."""
    tags = {tag["Key"]: tag.get("Value", "") for tag in description.get("Tags", ())}
    state_name = str(description.get("State", {}).get("Name", "pending"))
    state = _STATES.get(state_name, MachineState.PENDING)
    reason, ended_at_s = None, None
    if state in (MachineState.TERMINATED, MachineState.TERMINATING):
        code = str((description.get("StateReason") or {}).get("Code", ""))
        transition = str(description.get("StateTransitionReason", ""))
        reason = _end_reason(code, transition, state_name)
        ended_at_s = _instant_in(transition)
    launched = description.get("LaunchTime")
    is_spot = description.get("InstanceLifecycle") == "spot"
    return Ec2Instance(
        instance_id=str(description["InstanceId"]),
        region=region,
        zone_name=str(description.get("Placement", {}).get("AvailabilityZone", "")),
        instance_type=str(description.get("InstanceType", "")),
        capacity_type=CapacityType.SPOT if is_spot else CapacityType.ON_DEMAND,
        token=tags.get(EXACT_TOKEN_TAG, tags.get(TOKEN_TAG, "")),
        run_id=tags.get(EXACT_RUN_TAG, tags.get(RUN_TAG, "")),
        offer_id=tags.get(EXACT_OFFER_TAG, tags.get(OFFER_TAG, "")),
        state=state,
        launched_at_s=launched.timestamp() if isinstance(launched, datetime) else None,
        ended_at_s=ended_at_s,
        end_reason=reason,
        price_usd_per_hour=_price(tags.get(PRICE_TAG)),
    )


def instances_of(pages: Iterable[Mapping[str, Any]], *, region: str) -> list[Ec2Instance]:
    """Read every instance of every page of ``DescribeInstances``."""
    return [
        read_instance(description, region=region)
        for page in pages
        for reservation in page.get("Reservations", ())
        for description in reservation.get("Instances", ())
    ]


def _tagged_kinds(capacity_type: CapacityType) -> tuple[str, ...]:
    kinds = ("instance", "volume", "network-interface")
    return (*kinds, "spot-instances-request") if capacity_type is CapacityType.SPOT else kinds


def _end_reason(code: str, transition: str, state_name: str) -> EndReason | None:
    if code in _SPOT_TAKEN or any(word in transition for word in _SPOT_TAKEN):
        return EndReason.INTERRUPTED
    if state_name in ("stopping", "stopped"):
        return EndReason.VANISHED
    if code == _SHUT_ITSELF_DOWN:
        return EndReason.EXPIRED
    if code.startswith("Server."):
        return EndReason.VANISHED
    if code == _ASKED_FOR or not code:
        return None
    return EndReason.VANISHED


def _price(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _instant_in(transition: str) -> float | None:
    """``User initiated (2026-11-29 20:36:23 GMT)`` -> its UNIX seconds."""
    found = _INSTANT.search(transition)
    if found is None:
        return None
    return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()


def user_data_bytes(parameters: Mapping[str, Any]) -> int:
    """Return the size of the user data as EC2 counts it: before base64."""
    data = parameters.get("UserData", "")
    raw = data.encode() if isinstance(data, str) else bytes(data)
    return len(raw)


def decoded_user_data(encoded: str) -> str:
    """Return user data as ``DescribeInstanceAttribute`` gives it back (base64) as text."""
    return base64.b64decode(encoded).decode()
