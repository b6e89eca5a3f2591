"""What would be wrong with a launch, judged from facts before the call.

A fake cloud accepts nonsense and the real one answers late; so each request is checked here, in
the dry run and in earnest alike.
"""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.failures import FailureKind
from cloudgavel.providers.gcp.facts import ImageFacts, ZoneFacts
from cloudgavel.providers.gcp.startup import MOST_BYTES
from cloudgavel.providers.gcp.translate import (
    GPU_TYPES,
    accelerator_type,
    host_and_gpus,
    hosts_of_slice,
    is_tpu_offer,
    last_part,
)

MOST_LABELS = 64
MOST_DESCRIPTION = 2048
RUN_DURATION_S = range(30, 120 * 86_400 + 1)
GPU_COUNTS = (1, 2, 4, 8)
"""Cards that an n1 machine takes."""
_SPOT_ONLY = frozenset({"a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g"})
"""Part-machines that Google does not rent on demand."""
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][-_a-z0-9]{0,62}")
_LABEL_VALUE = re.compile(r"[-_a-z0-9]{0,63}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One reason why a request must not be sent."""

    kind: FailureKind
    code: str
    message: str


def unrentable(offer: Offer) -> str | None:
    """Say why this offer is never rented, whatever the zone has; ``None`` = it may be."""
    if offer.is_historic:
        return f"{offer.instance_type} is no longer rented: simulation only"
    if offer.capacity_type not in (CapacityType.SPOT, CapacityType.ON_DEMAND):
        return f"{offer.capacity_type.value} capacity is not launched here"
    if offer.instance_type in _SPOT_ONLY and offer.capacity_type is not CapacityType.SPOT:
        return f"{offer.instance_type} is rented as spot only"
    if is_tpu_offer(offer) and (hosts := hosts_of_slice(offer.instance_type)) > 1:
        return f"{offer.instance_type} has {hosts} hosts; slices of one host are run"
    return None


def offer_problems(offer: Offer, zone: ZoneFacts | None, *, in_catalogue: bool) -> list[Problem]:
    """Return what is wrong with renting this offer in this project at all.

    ``zone`` ``None`` = the project has no such zone.
    """
    if offer.provider != "gcp":
        return [_invalid("NotGcp", f"{offer.offer_id} is not an offer of Google Cloud")]
    problems = []
    if (reason := unrentable(offer)) is not None:
        problems.append(_invalid("NotRented", reason))
    if not in_catalogue:
        problems.append(
            _invalid("NotInCatalogue", f"{offer.offer_id} is no longer in the catalogue")
        )
    if zone is None:
        return [*problems, _invalid("NoSuchZone", f"this project has no zone {offer.zone}")]
    if (missing := not_sold(offer, zone)) is not None:
        problems.append(Problem(kind=FailureKind.CAPACITY, code="NotInZone", message=missing))
    return problems


def not_sold(offer: Offer, zone: ZoneFacts) -> str | None:
    """Say what of an offer its zone does not have; ``None`` = it has all of it."""
    if is_tpu_offer(offer):
        if zone.tpu_types is not None and accelerator_type(offer.instance_type) in zone.tpu_types:
            return None
        return f"{offer.instance_type} is not offered in {offer.zone}"
    host, gpu, count = host_and_gpus(offer.instance_type)
    if host not in zone.machine_types:
        return f"{host} is not offered in {offer.zone}"
    if count:
        most = zone.gpus.get(GPU_TYPES.get(gpu, gpu))
        if most is None:
            return f"{gpu} is not offered in {offer.zone}"
        if count > most:
            return f"{offer.zone} gives at most {most} {gpu} to a machine, not {count}"
    return None


def instance_problems(
    body: Mapping[str, Any], *, request_id: str, offer: Offer, image: ImageFacts
) -> list[Problem]:
    """Return what is wrong with one ``instances.insert``; empty = send it."""
    problems = _common_problems(body, name=str(body.get("name", "")))

    def must(holds: bool, code: str, message: str) -> None:
        if not holds:
            problems.append(_invalid(code, message))

    host, gpu, count = host_and_gpus(offer.instance_type)
    must(_is_uuid(request_id), "BadRequestId", "the request id must be a UUID")
    must(
        body.get("machineType") == f"zones/{offer.zone}/machineTypes/{host}",
        "WrongType",
        f"the request is for {body.get('machineType')}, not {host} in {offer.zone}",
    )
    attached = [
        (last_part(str(each.get("acceleratorType"))), each.get("acceleratorCount"))
        for each in body.get("guestAccelerators", ())
    ]
    must(
        attached == ([(GPU_TYPES.get(gpu), count)] if count else []),
        "WrongGpus",
        f"the request attaches {attached or 'no GPUs'} to {offer.instance_type}",
    )
    must(
        not count or (host.startswith("n1-") and count in GPU_COUNTS),
        "WrongGpus",
        f"{count} GPUs cannot be attached to {host}",
    )
    scheduling = body.get("scheduling", {})
    is_spot = offer.capacity_type is CapacityType.SPOT
    must(
        (scheduling.get("provisioningModel") == "SPOT") == is_spot,
        "WrongMarket",
        f"an offer of {offer.capacity_type.value} capacity would be rented as "
        f"{scheduling.get('provisioningModel')}",
    )
    must(
        scheduling.get("instanceTerminationAction") == "DELETE",
        "StaysBehind",
        "a machine that is taken or times out must be deleted",
    )
    must(
        scheduling.get("onHostMaintenance") == "TERMINATE",
        "CannotMigrate",
        "a machine with GPUs cannot be moved to another host: it must terminate",
    )
    must(
        scheduling.get("automaticRestart") is False,
        "RestartsItself",
        "a machine must not start again by itself",
    )
    seconds = int(scheduling.get("maxRunDuration", {}).get("seconds", 0))
    must(
        seconds in RUN_DURATION_S,
        "OutlivesItself",
        f"the longest run must be 30 s to 120 days, not {seconds} s",
    )
    problems.extend(_disk_problems(body, image))
    must(bool(body.get("networkInterfaces")), "NoNetwork", "the machine would have no network")
    problems.extend(
        _script_problems(
            {each["key"]: each["value"] for each in body.get("metadata", {}).get("items", ())}
        )
    )
    return problems


def node_problems(body: Mapping[str, Any], *, name: str, offer: Offer) -> list[Problem]:
    """Return what is wrong with one TPU node; empty = send it."""
    problems = _common_problems(body, name=name)

    def must(holds: bool, code: str, message: str) -> None:
        if not holds:
            problems.append(_invalid(code, message))

    wanted = accelerator_type(offer.instance_type)
    must(
        body.get("acceleratorType") == wanted,
        "WrongType",
        f"the request is for {body.get('acceleratorType')}, not {wanted}",
    )
    must(
        bool(body.get("runtimeVersion")),
        "NoRuntime",
        f"no runtime version is known for {offer.instance_type}",
    )
    is_spot = offer.capacity_type is CapacityType.SPOT
    must(
        bool(body.get("schedulingConfig", {}).get("spot")) == is_spot,
        "WrongMarket",
        f"an offer of {offer.capacity_type.value} capacity would be rented otherwise",
    )
    problems.extend(_script_problems(body.get("metadata", {})))
    return problems


def _common_problems(body: Mapping[str, Any], *, name: str) -> list[Problem]:
    problems = []
    if not _NAME.fullmatch(name):
        problems.append(_invalid("BadName", f"{name!r} is not a name of Google Cloud"))
    if len(body.get("description", "")) > MOST_DESCRIPTION:
        problems.append(_invalid("LongDescription", f"at most {MOST_DESCRIPTION} characters"))
    labels = body.get("labels", {})
    if not labels:
        problems.append(_invalid("NoLabels", "the machine would have no labels to be found by"))
    if len(labels) > MOST_LABELS:
        problems.append(_invalid("TooManyLabels", f"{len(labels)} labels, at most {MOST_LABELS}"))
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            problems.append(_invalid("BadLabel", f"{key}={value!r} is not a label of Google Cloud"))
    return problems


def _disk_problems(body: Mapping[str, Any], image: ImageFacts) -> list[Problem]:
    problems = []
    boot = [disk for disk in body.get("disks", ()) if disk.get("boot")]
    if len(boot) != 1:
        return [_invalid("NoBootDisk", "exactly one disk must boot")]
    if boot[0].get("autoDelete") is not True:
        problems.append(_invalid("DiskStays", "a disk would outlive its machine"))
    made_of = boot[0].get("initializeParams", {})
    size_gib = int(made_of.get("diskSizeGb", 0))
    if not (image.disk_gib or 1) <= size_gib <= 65_536:
        problems.append(
            _invalid(
                "DiskSize", f"a disk of {size_gib} GiB: the image needs {image.disk_gib or 1} GiB"
            )
        )
    if made_of.get("sourceImage") != image.link:
        problems.append(_invalid("WrongImage", f"{made_of.get('sourceImage')} is not known"))
    if image.status != "READY":
        problems.append(_invalid("ImageNotReady", f"{image.link} is {image.status or 'not ready'}"))
    return problems


def _script_problems(metadata: Mapping[str, str]) -> list[Problem]:
    script = metadata.get("startup-script", "")
    if not script:
        return [_invalid("NoScript", "the machine would start no agent")]
    size = len(script.encode())
    if size > MOST_BYTES:
        return [
            _invalid(
                "ScriptTooLarge",
                f"the start-up script has {size:,} bytes, at most {MOST_BYTES:,} are taken",
            )
        ]
    return []


def _is_uuid(text: str) -> bool:
    try:
        return uuid.UUID(text).int != 0
    except ValueError:
        return False


def _invalid(code: str, message: str) -> Problem:
    return Problem(kind=FailureKind.INVALID, code=code, message=message)
