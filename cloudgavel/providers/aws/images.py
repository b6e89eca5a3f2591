"""Which machine image an instance type boots, found through the API.

Amazon publishes the newest Deep Learning image of each family under an SSM parameter; where there
is none, the newest image of that name and owner is taken. Images carry the driver; the frameworks
come with the job.
"""

import fnmatch
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cloudgavel.providers.aws.clients import AwsClients
from cloudgavel.providers.aws.failures import code_of

OWNER = "amazon"


class ImageNotFound(Exception):
    """No image fits; ``message`` says which was looked for and where."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """One machine image, as far as a request depends on it."""

    image_id: str
    name: str
    architecture: str
    root_device: str
    snapshot_gib: int | None
    """The root disk may not be smaller; ``None`` = not said."""
    state: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageFamily:
    """A family of Deep Learning images: its parameter, and its name where there is none."""

    title: str
    parameter: str | None
    name_pattern: str
    architecture: str


_DEEP_LEARNING = "/aws/service/deeplearning/ami"
OPEN_DRIVER = ImageFamily(
    title="Deep Learning Base, open NVIDIA driver",
    parameter=f"{_DEEP_LEARNING}/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id",
    name_pattern="Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) *",
    architecture="x86_64",
)
OPEN_DRIVER_ARM = ImageFamily(
    title="Deep Learning Base, open NVIDIA driver, ARM",
    parameter=f"{_DEEP_LEARNING}/arm64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id",
    name_pattern="Deep Learning ARM64 Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) *",
    architecture="arm64",
)
CLOSED_DRIVER = ImageFamily(
    title="Deep Learning Base, closed NVIDIA driver",
    parameter=None,
    name_pattern="Deep Learning Base Proprietary Nvidia Driver GPU AMI (Ubuntu *) *",
    architecture="x86_64",
)
NEURON = ImageFamily(
    title="Deep Learning Base, Neuron",
    parameter="/aws/service/neuron/dlami/base/ubuntu-24.04/latest/image_id",
    name_pattern="Deep Learning Base Neuron AMI (Ubuntu 24.04) *",
    architecture="x86_64",
)

_BEFORE_OPEN_DRIVER = frozenset({"p2", "p3", "p3dn", "g3", "g3s"})
"""Kepler to Volta: NVIDIA's open kernel modules begin with Turing."""
_FAMILY = re.compile(r"([a-z0-9-]+)\.")


def type_family(instance_type: str) -> str:
    """``p4d.24xlarge`` -> ``p4d``."""
    found = _FAMILY.match(instance_type)
    return found[1] if found else instance_type


def architecture_of(instance_type: str) -> str:
    """Return ``arm64`` for Graviton families (``g5g``, ``p6e-gb200``), else ``x86_64``."""
    family = type_family(instance_type)
    # The letter after the generation: g5g, m7gd; Grace hosts say gb200, gb300.
    if re.match(r"[a-z]+\d+g", family) or "-gb" in family:
        return "arm64"
    return "x86_64"


def family_for(instance_type: str) -> ImageFamily:
    """Return the family whose driver knows this type's accelerators."""
    family = type_family(instance_type)
    if family.startswith(("trn", "inf")):
        return NEURON
    if family in _BEFORE_OPEN_DRIVER:
        return CLOSED_DRIVER
    return OPEN_DRIVER_ARM if architecture_of(instance_type) == "arm64" else OPEN_DRIVER


class Images:
    """Finds images and remembers them for the life of the process.

    A launch repeated with the same token must name the same image, so what was found is not
    looked for again.
    """

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._found: dict[tuple[str, str], Image] = {}
        self._lock = threading.Lock()

    def image_for(self, region: str, instance_type: str, wanted: str | None = None) -> Image:
        """Return the image of a type, or the one that was asked for.

        ``wanted`` is an id (``ami-...``), a parameter's path (``/...``) or a name pattern of one
        of our own or Amazon's images. ``ImageNotFound`` when there is none; boto3's errors pass.
        """
        family = family_for(instance_type)
        key = (region, wanted or family.name_pattern)
        with self._lock:
            image = self._found.get(key)
            if image is None:
                image = self._found[key] = self._look(region, family, wanted)
            return image

    def _look(self, region: str, family: ImageFamily, wanted: str | None) -> Image:
        if wanted is None:
            image_id = self._parameter(region, family.parameter) if family.parameter else None
            if image_id is not None:
                return self._by_id(region, image_id)
            return self._newest(region, family.name_pattern, family.architecture, (OWNER,))
        if wanted.startswith("ami-"):
            return self._by_id(region, wanted)
        if wanted.startswith("/"):
            image_id = self._parameter(region, wanted)
            if image_id is None:
                raise ImageNotFound(f"{region} has no parameter {wanted}")
            return self._by_id(region, image_id)
        return self._newest(region, wanted, family.architecture, (OWNER, "self"))

    def _parameter(self, region: str, name: str) -> str | None:
        try:
            answer = self._clients.client("ssm", region).get_parameter(Name=name)
        except Exception as error:
            if code_of(error) in ("ParameterNotFound", "AccessDeniedException"):
                return None
            raise
        return str(answer["Parameter"]["Value"])

    def _by_id(self, region: str, image_id: str) -> Image:
        try:
            answer = self._clients.client("ec2", region).describe_images(ImageIds=[image_id])
        except Exception as error:
            if code_of(error).startswith("InvalidAMIID"):
                raise ImageNotFound(f"{region} has no image {image_id}") from error
            raise
        found = [_read(description) for description in answer["Images"]]
        if not found:
            raise ImageNotFound(f"{region} has no image {image_id}")
        return found[0]

    def _newest(self, region: str, pattern: str, architecture: str, owners: Sequence[str]) -> Image:
        answer = self._clients.client("ec2", region).describe_images(
            Owners=list(owners),
            Filters=[
                {"Name": "name", "Values": [pattern]},
                {"Name": "architecture", "Values": [architecture]},
                {"Name": "state", "Values": ["available"]},
            ],
        )
        fitting = [
            description
            for description in answer["Images"]
            if fnmatch.fnmatchcase(str(description.get("Name", "")), pattern)
        ]
        if not fitting:
            raise ImageNotFound(f"{region} has no image named {pattern!r} for {architecture}")
        return _read(max(fitting, key=lambda each: (each.get("CreationDate", ""), each["Name"])))


def _read(description: Mapping[str, Any]) -> Image:
    root = str(description.get("RootDeviceName") or "/dev/sda1")
    sizes = [
        int(mapping["Ebs"]["VolumeSize"])
        for mapping in description.get("BlockDeviceMappings", ())
        if mapping.get("DeviceName") == root and "VolumeSize" in mapping.get("Ebs", {})
    ]
    return Image(
        image_id=str(description["ImageId"]),
        name=str(description.get("Name", "")),
        architecture=str(description.get("Architecture", "")),
        root_device=root,
        snapshot_gib=sizes[0] if sizes else None,
        state=str(description.get("State", "")),
    )
