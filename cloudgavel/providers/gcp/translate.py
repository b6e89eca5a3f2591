"""Between the provider's types and Google's: names, request bodies, answers. Pure.

Request bodies are plain dictionaries in the form of the REST interface, so that they can be judged
(``validate``), shown and compared without Google's clients.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.base import LaunchRequest, MachineState
from cloudgavel.providers.gcp.settings import GcpSettings
from cloudgavel.providers.tags import OFFER_TAG, RUN_TAG, TOKEN_TAG, label_value, tags_of

VM_PREFIX = "cloudgavel-vm-"
TPU_PREFIX = "cloudgavel-tpu-"
BOOT_ALLOWANCE_S = 600.0
"""The cloud's own timer lets the machine's, and that one the agent, save and end first."""
CLOUD_SCOPE = "https://www.googleapis.com/auth/cloud-platform"

GPU_TYPES: Mapping[str, str] = {
    "K80": "nvidia-tesla-k80",
    "P100": "nvidia-tesla-p100",
    "V100": "nvidia-tesla-v100",
    "T4": "nvidia-tesla-t4",
    "L4": "nvidia-l4",
    "A100": "nvidia-tesla-a100",
    "A100-80GB": "nvidia-a100-80gb",
    "H100": "nvidia-h100-80gb",
}
"""Google's name of each GPU by ours."""

TPU_RUNTIMES: Mapping[str, str] = {
    "v2": "tpu-ubuntu2204-base",
    "v3": "tpu-ubuntu2204-base",
    "v4": "tpu-ubuntu2204-base",
    "v5litepod": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}
"""Google's recommended software version by family of slices."""

_HOST_AND_GPUS = re.compile(r"(?P<host>[a-z0-9-]+)\+(?P<count>\d+)x(?P<gpu>[A-Za-z0-9-]+)")
_CORES_PER_HOST = {"v2": 8, "v3": 8, "v4": 8, "v5p": 8}
_ONE_HOST_UP_TO = {"v5litepod": 8, "v6e": 8}
_CHIPS_PER_HOST = 4

_VM_STATES: Mapping[str, MachineState] = {
    "PENDING": MachineState.PENDING,
    "PROVISIONING": MachineState.PENDING,
    "STAGING": MachineState.PENDING,
    "RUNNING": MachineState.RUNNING,
    "REPAIRING": MachineState.RUNNING,
    "STOPPING": MachineState.TERMINATING,
    "PENDING_STOP": MachineState.TERMINATING,
    "DEPROVISIONING": MachineState.TERMINATING,
    "SUSPENDING": MachineState.TERMINATING,
    # Nothing of ours is ever stopped to be started again: what does not run is to be deleted.
    "STOPPED": MachineState.TERMINATED,
    "SUSPENDED": MachineState.TERMINATED,
    "TERMINATED": MachineState.TERMINATED,
}
_NODE_STATES: Mapping[str, MachineState] = {
    "CREATING": MachineState.PENDING,
    "STARTING": MachineState.PENDING,
    "READY": MachineState.RUNNING,
    "RESTARTING": MachineState.RUNNING,
    "REIMAGING": MachineState.RUNNING,
    "REPAIRING": MachineState.RUNNING,
    "DELETING": MachineState.TERMINATING,
    "STOPPING": MachineState.TERMINATING,
    "STOPPED": MachineState.TERMINATED,
    "PREEMPTED": MachineState.TERMINATED,
    "TERMINATED": MachineState.TERMINATED,
    "HIDING": MachineState.TERMINATED,
    "HIDDEN": MachineState.TERMINATED,
    "UNKNOWN": MachineState.TERMINATED,
}
_QUEUED_STATES: Mapping[str, MachineState] = {
    "CREATING": MachineState.PENDING,
    "ACCEPTED": MachineState.PENDING,
    "WAITING_FOR_RESOURCES": MachineState.PENDING,
    "PROVISIONING": MachineState.PENDING,
    "ACTIVE": MachineState.RUNNING,
    "SUSPENDING": MachineState.TERMINATED,
    "SUSPENDED": MachineState.TERMINATED,
    "FAILED": MachineState.TERMINATED,
    "DELETING": MachineState.TERMINATING,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class GcpMachine:
    """What a description of a VM, a TPU node or a queued resource says, in our words."""

    instance_id: str
    """Its name; it follows from run, token and offer."""
    zone: str
    is_tpu: bool
    machine_type: str
    """As offers name it (an n1 host without its GPUs)."""
    capacity_type: CapacityType
    run_id: str
    token: str
    offer_id: str
    state: MachineState
    status: str
    """Google's own word."""
    created_at_s: float | None
    ended_at_s: float | None
    is_queued: bool = False
    """Belongs to a queued resource of the same name, which has to be deleted with it."""


# -- names --------------------------------------------------------------------------------------


def is_tpu_offer(offer: Offer) -> bool:
    """True for a slice of TPUs, false for a virtual machine."""
    return offer.instance_type.startswith("tpu-")


def instance_name(request: LaunchRequest) -> str:
    """Name of a request's machine: equal requests, equal names, so a repeat finds the first."""
    prefix = TPU_PREFIX if is_tpu_offer(request.offer) else VM_PREFIX
    return prefix + _digest(request, 10).hex()


def request_id(request: LaunchRequest) -> str:
    """Google's idempotency token of an insertion: a UUID that follows from the request."""
    return str(uuid.UUID(bytes=_digest(request, 16), version=4))


def is_ours(name: str) -> bool:
    """True for names that this program gives."""
    return name.startswith((VM_PREFIX, TPU_PREFIX))


def _digest(request: LaunchRequest, size: int) -> bytes:
    text = f"{request.run_id}\n{request.token}\n{request.offer.offer_id}"
    return hashlib.blake2b(text.encode(), digest_size=size).digest()


# -- types --------------------------------------------------------------------------------------


def host_and_gpus(instance_type: str) -> tuple[str, str, int]:
    """``n1-standard-8+2xV100`` -> (``n1-standard-8``, ``V100``, 2); no ``+``: no GPUs to attach."""
    found = _HOST_AND_GPUS.fullmatch(instance_type)
    if found is None:
        return instance_type, "", 0
    return found["host"], found["gpu"], int(found["count"])


def accelerator_type(instance_type: str) -> str:
    """``tpu-v5litepod-8`` -> ``v5litepod-8``."""
    return instance_type.removeprefix("tpu-")


def tpu_family(instance_type: str) -> str:
    """``tpu-v5litepod-8`` -> ``v5litepod``."""
    return accelerator_type(instance_type).rpartition("-")[0]


def hosts_of_slice(instance_type: str) -> int:
    """How many virtual machines a slice has, each with an agent's worth of chips of its own.

    The number in a slice's name counts cores for v2 to v4 and v5p (eight to a host), chips for
    v5litepod and v6e (up to eight on one host, else four to a host).
    """
    family, _, size = accelerator_type(instance_type).rpartition("-")
    count = int(size)
    if family in _ONE_HOST_UP_TO:
        return 1 if count <= _ONE_HOST_UP_TO[family] else -(-count // _CHIPS_PER_HOST)
    return max(1, -(-count // _CORES_PER_HOST.get(family, 8)))


# -- requests -----------------------------------------------------------------------------------


def labels_of(request: LaunchRequest) -> dict[str, str]:
    """Return the labels of a request's machine, those of its own tags first."""
    return {
        **request.tags,
        **tags_of(run_id=request.run_id, token=request.token, offer_id=request.offer.offer_id),
    }


def description_of(request: LaunchRequest) -> str:
    """Run, token and offer as they are: labels may have had to be changed (``providers.tags``)."""
    return json.dumps(
        {
            "cloudgavel": 1,
            "run": request.run_id,
            "token": request.token,
            "offer": request.offer.offer_id,
        },
        sort_keys=True,
    )


def instance_body(
    request: LaunchRequest,
    *,
    settings: GcpSettings,
    image: str,
    image_gib: int | None,
    start_script: str,
) -> dict[str, Any]:
    """Return the instance to insert; equal inputs, equal bodies.

    Spot and on-demand alike end by deletion: at the machine's own shutdown timer, or the cloud's.
    """
    offer = request.offer
    host, gpu, count = host_and_gpus(offer.instance_type)
    network: dict[str, Any] = {"network": settings.network}
    if subnetwork := settings.subnetwork_by_region.get(offer.region):
        network["subnetwork"] = subnetwork
    if settings.external_ip:
        network["accessConfigs"] = [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}]
    body: dict[str, Any] = {
        "name": instance_name(request),
        "description": description_of(request),
        "machineType": f"zones/{offer.zone}/machineTypes/{host}",
        "labels": labels_of(request),
        "scheduling": {
            "provisioningModel": "SPOT" if _is_spot(offer) else "STANDARD",
            "instanceTerminationAction": "DELETE",
            "onHostMaintenance": "TERMINATE",
            "automaticRestart": False,
            "maxRunDuration": {"seconds": str(int(settings.lifetime_s + BOOT_ALLOWANCE_S))},
        },
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "initializeParams": {
                    "sourceImage": image,
                    "diskSizeGb": str(max(settings.disk_gib, image_gib or 0)),
                    "diskType": f"zones/{offer.zone}/diskTypes/pd-balanced",
                    "labels": labels_of(request),
                },
            }
        ],
        "networkInterfaces": [network],
        "metadata": {
            "items": [
                {"key": "startup-script", "value": start_script},
                {"key": "install-nvidia-driver", "value": "True"},
                {"key": "block-project-ssh-keys", "value": "true"},
            ]
        },
    }
    if count:
        body["guestAccelerators"] = [
            {
                "acceleratorType": f"zones/{offer.zone}/acceleratorTypes/{GPU_TYPES.get(gpu, gpu)}",
                "acceleratorCount": count,
            }
        ]
    if settings.service_account is not None:
        body["serviceAccounts"] = [{"email": settings.service_account, "scopes": [CLOUD_SCOPE]}]
    return body


def node_body(
    request: LaunchRequest, *, settings: GcpSettings, start_script: str
) -> dict[str, Any]:
    """Return the TPU node to create; equal inputs, equal bodies."""
    offer = request.offer
    family = tpu_family(offer.instance_type)
    runtime = settings.tpu_runtime_by_family.get(family, TPU_RUNTIMES.get(family, ""))
    network: dict[str, Any] = {
        "network": f"projects/{settings.project}/{settings.network}",
        "enableExternalIps": settings.external_ip,
    }
    if subnetwork := settings.subnetwork_by_region.get(offer.region):
        network["subnetwork"] = subnetwork
    body: dict[str, Any] = {
        "description": description_of(request),
        "acceleratorType": accelerator_type(offer.instance_type),
        "runtimeVersion": runtime,
        "networkConfig": network,
        "schedulingConfig": {"spot": _is_spot(offer)},
        "labels": labels_of(request),
        "metadata": {"startup-script": start_script},
    }
    if settings.service_account is not None:
        body["serviceAccount"] = {"email": settings.service_account, "scope": [CLOUD_SCOPE]}
    return body


def queued_body(
    node: Mapping[str, Any], *, name: str, parent: str, wait_s: float
) -> dict[str, Any]:
    """Return the queued resource that asks for one node and waits at most so long."""
    is_spot = bool(node.get("schedulingConfig", {}).get("spot"))
    inner = {key: value for key, value in node.items() if key != "schedulingConfig"}
    body: dict[str, Any] = {
        "tpu": {"nodeSpec": [{"parent": parent, "nodeId": name, "node": inner}]},
        "queueingPolicy": {"validUntilDuration": f"{int(wait_s)}s"},
    }
    if is_spot:
        body["spot"] = {}
    return body


def _is_spot(offer: Offer) -> bool:
    return offer.capacity_type is CapacityType.SPOT


# -- answers ------------------------------------------------------------------------------------


def read_instance(instance: Any) -> GcpMachine:
    """Read one ``compute_v1.Instance``."""
    run_id, token, offer_id = _whose(instance.description, instance.labels)
    state = _VM_STATES.get(instance.status, MachineState.PENDING)
    is_spot = instance.scheduling.provisioning_model == "SPOT"
    ended_at_s = None
    if state is MachineState.TERMINATED:
        ended_at_s = instant(instance.last_stop_timestamp)
    return GcpMachine(
        instance_id=instance.name,
        zone=last_part(instance.zone),
        is_tpu=False,
        machine_type=last_part(instance.machine_type),
        capacity_type=CapacityType.SPOT if is_spot else CapacityType.ON_DEMAND,
        run_id=run_id,
        token=token,
        offer_id=offer_id,
        state=state,
        status=instance.status,
        created_at_s=instant(instance.creation_timestamp),
        ended_at_s=ended_at_s,
    )


def read_node(node: Any) -> GcpMachine:
    """Read one ``tpu_v2.Node``."""
    run_id, token, offer_id = _whose(node.description, node.labels)
    scheduling = node.scheduling_config
    is_spot = bool(scheduling.spot or scheduling.preemptible)
    return GcpMachine(
        instance_id=last_part(node.name),
        zone=zone_of(node.name),
        is_tpu=True,
        machine_type=f"tpu-{node.accelerator_type}",
        capacity_type=CapacityType.SPOT if is_spot else CapacityType.ON_DEMAND,
        run_id=run_id,
        token=token,
        offer_id=offer_id,
        state=_NODE_STATES.get(node.state.name, MachineState.PENDING),
        status=node.state.name,
        created_at_s=proto_instant(node.create_time),
        ended_at_s=None,
        is_queued=bool(node.queued_resource),
    )


def read_queued(resource: Any) -> GcpMachine | None:
    """Read one ``tpu_v2.QueuedResource`` of one node; ``None`` for one of another form."""
    specs = list(resource.tpu.node_spec)
    if len(specs) != 1:
        return None
    node = specs[0].node
    run_id, token, offer_id = _whose(node.description, node.labels)
    status = resource.state.state.name
    is_spot = offer_id.endswith("/spot") or bool(node.scheduling_config.spot)
    return GcpMachine(
        instance_id=last_part(resource.name),
        zone=zone_of(resource.name),
        is_tpu=True,
        machine_type=f"tpu-{node.accelerator_type}",
        capacity_type=CapacityType.SPOT if is_spot else CapacityType.ON_DEMAND,
        run_id=run_id,
        token=token,
        offer_id=offer_id,
        state=_QUEUED_STATES.get(status, MachineState.PENDING),
        status=status,
        created_at_s=proto_instant(resource.create_time),
        ended_at_s=None,
        is_queued=True,
    )


def _whose(description: str, labels: Mapping[str, str]) -> tuple[str, str, str]:
    """Run, token and offer: the exact ones where the description is ours, else the labels."""
    try:
        exact = json.loads(description or "{}")
    except ValueError:
        exact = {}
    if isinstance(exact, dict) and exact.get("cloudgavel") == 1:
        return str(exact["run"]), str(exact["token"]), str(exact["offer"])
    return labels.get(RUN_TAG, ""), labels.get(TOKEN_TAG, ""), labels.get(OFFER_TAG, "")


def is_of_run(machine: GcpMachine, run_id: str | None) -> bool:
    """True for a machine of the run; ``None`` = of any run of this program."""
    if run_id is None:
        return bool(machine.run_id)
    return machine.run_id in (run_id, label_value(run_id))


def last_part(url: str) -> str:
    """Return what follows the last ``/``."""
    return url.rpartition("/")[2]


def zone_of(name: str) -> str:
    """``projects/p/locations/us-east1-d/nodes/n`` -> ``us-east1-d``."""
    parts = name.split("/")
    return parts[parts.index("locations") + 1] if "locations" in parts else ""


def instant(text: str) -> float | None:
    """RFC 3339 -> UNIX seconds; ``None`` for an empty or unreadable text."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def proto_instant(value: Any) -> float | None:
    """Protobuf's timestamp as the clients show it; the epoch itself means that it is not set."""
    seconds = value.timestamp() if value else 0.0
    return float(seconds) if seconds > 0 else None
