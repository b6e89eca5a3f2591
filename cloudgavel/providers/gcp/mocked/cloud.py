"""The state of the fake cloud: one project, what its zones sell, and what happens when."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.gcp.settings import IMAGE_FAMILY, IMAGE_PROJECT
from cloudgavel.providers.gcp.translate import GPU_TYPES, host_and_gpus, is_tpu_offer

PROJECT = "fake-project"


@dataclass(kw_only=True)
class Habits:
    """How long things take, in seconds of the cloud's clock."""

    pending_s: float = 30.0
    """From the insertion of a machine to RUNNING; of a slice to READY."""
    operation_s: float = 0.0
    """Until an insertion's operation is done."""
    list_lag_s: float = 0.0
    """A new machine is missing from lists for so long; look-ups do not lag."""
    stopping_s: float = 0.0
    """From a deletion to the machine's being gone."""
    notice_s: float = 30.0
    """From the start of a preemption to the machine's end."""


@dataclass(kw_only=True)
class Faults:
    """What goes wrong; every field may be changed at any time."""

    stocked_out: Callable[[str, str, bool], bool] = lambda zone, machine_type, is_spot: False
    """``(zone, machine type as offers name it, is spot)`` -> no capacity."""
    stock_out_code: str = "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
    refusals: dict[str, deque[tuple[int, str, str]]] = field(default_factory=dict)
    """By operation (``instances.insert``): answers ``(status, reason, message)`` to come."""
    unanswered: dict[str, int] = field(default_factory=dict)
    """By operation: so many calls work, but their answers get lost."""
    silent_zones: set[str] = field(default_factory=set)
    quota_in_operation: bool = False
    """A quota is told by the operation and not at once."""
    preempted_stay: bool = False
    """Preempted machines stay as TERMINATED, whatever their termination action."""

    def refuse_next(
        self, operation: str, status: int, reason: str, message: str = "", times: int = 1
    ) -> None:
        """Refuse the next calls of an operation."""
        queue = self.refusals.setdefault(operation, deque())
        queue.extend([(status, reason, message or reason)] * times)


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaLimit:
    """At most ``most`` units of ``metric`` in a region (``""`` = in the whole project)."""

    region: str
    metric: str
    most: float


@dataclass(kw_only=True)
class Doom:
    """A machine's end: why, from when, until when, and whether anything stays."""

    why: str
    """``delete``, ``preempted``, ``guestTerminate`` or ``expired``."""
    begins_at_s: float
    ends_at_s: float
    deletes: bool


@dataclass(kw_only=True)
class Vm:
    """One virtual machine, or the record of one that is gone."""

    zone: str
    name: str
    body: dict[str, Any]
    created_at_s: float
    running_at_s: float
    machine_type: str
    """As offers name it."""
    doom: Doom | None = None
    maintenance: str = "NONE"

    @property
    def is_spot(self) -> bool:
        """True if the cloud may take it."""
        return bool(self.body.get("scheduling", {}).get("provisioningModel") == "SPOT")

    @property
    def start_script(self) -> str:
        """The script that the machine runs at its start."""
        for item in self.body.get("metadata", {}).get("items", ()):
            if item["key"] == "startup-script":
                return str(item["value"])
        return ""

    def status(self, now_s: float) -> str | None:
        """Google's word for its state; ``None`` = gone."""
        if self.doom is not None and now_s >= self.doom.ends_at_s:
            return None if self.doom.deletes else "TERMINATED"
        if self.doom is not None and now_s >= self.doom.begins_at_s:
            return "STOPPING"
        return "RUNNING" if now_s >= self.running_at_s else "STAGING"


@dataclass(kw_only=True)
class Slice:
    """One TPU node, or the record of one that is gone."""

    zone: str
    name: str
    body: dict[str, Any]
    created_at_s: float
    ready_at_s: float
    preempted_at_s: float | None = None
    deleted_at_s: float | None = None
    gone_at_s: float | None = None
    queued: bool = False
    maintenance: str = "NONE"

    @property
    def is_spot(self) -> bool:
        """True if the cloud may take it."""
        return bool(self.body.get("schedulingConfig", {}).get("spot"))

    @property
    def start_script(self) -> str:
        """The script that the slice's host runs at its start."""
        return str(self.body.get("metadata", {}).get("startup-script", ""))

    def status(self, now_s: float) -> str | None:
        """Google's word for its state; ``None`` = gone. A preempted node stays."""
        if self.gone_at_s is not None and now_s >= self.gone_at_s:
            return None
        if self.deleted_at_s is not None and now_s >= self.deleted_at_s:
            return "DELETING"
        if self.preempted_at_s is not None and now_s >= self.preempted_at_s:
            return "PREEMPTED"
        return "READY" if now_s >= self.ready_at_s else "CREATING"


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """A machine that has just been rented, for whoever plays it (``FakeGcp.on_start``)."""

    name: str
    zone: str
    is_tpu: bool
    start_script: str


class FakeGcp:
    """One project of a fake Google Cloud; thread-safe under ``lock``.

    ``offers`` say what the zones sell, ``limits`` the quotas. ``calls`` counts every call by
    operation (``instances.insert``, ``nodes.create``, ...), refused ones too.
    """

    def __init__(
        self,
        *,
        now_s: Callable[[], float],
        offers: Iterable[Offer],
        project: str = PROJECT,
        limits: Sequence[QuotaLimit] = (),
        tpu_limits: Mapping[tuple[str, str], int] | None = None,
        habits: Habits | None = None,
        image_gib: int = 50,
    ) -> None:
        """``tpu_limits``: most slices by zone and family (``v5litepod``); others are unlimited."""
        self.now_s = now_s
        self.project = project
        self.offers = [offer for offer in offers if offer.provider == "gcp"]
        self.limits = list(limits)
        self.tpu_limits = dict(tpu_limits or {})
        self.habits = habits or Habits()
        self.faults = Faults()
        self.images = {(IMAGE_PROJECT, IMAGE_FAMILY): image_gib}
        self.vms: dict[tuple[str, str], Vm] = {}
        self.slices: dict[tuple[str, str], Slice] = {}
        self.buckets: set[str] = set()
        self.denied_permissions: set[str] = set()
        self.aws_accounts: dict[str, str] = {}
        """By workload identity provider (``projects/...``): the AWS account that it trusts."""
        self.aws_account_of: Callable[[Mapping[str, str]], str | None] = lambda headers: None
        """Whose signed request this is; the real one asks AWS."""
        self.impersonated: set[str] = set()
        """E-mails of service accounts that federated identities may act as."""
        self.skus: dict[str, list[dict[str, Any]]] = {}
        """By service (``services/6F81-5844-456A``)."""
        self.calls: Counter[str] = Counter()
        self.on_start: Callable[[Started], None] = lambda started: None
        self.lock = threading.RLock()

    # -- what is sold -----------------------------------------------------------------------

    @property
    def zones(self) -> list[str]:
        """Every zone with an offer."""
        return sorted({offer.zone for offer in self.offers})

    def hosts_in(self, zone: str) -> dict[str, Offer]:
        """Machine types of a zone, each with an offer that has it."""
        return {
            host_and_gpus(offer.instance_type)[0]: offer
            for offer in self.offers
            if offer.zone == zone and not is_tpu_offer(offer)
        }

    def gpus_in(self, zone: str) -> dict[str, int]:
        """Most cards to a machine by Google's name of the GPU."""
        most: dict[str, int] = {}
        for offer in self.offers:
            if offer.zone == zone and offer.accelerator in GPU_TYPES:
                gpu = GPU_TYPES[offer.accelerator]
                most[gpu] = max(most.get(gpu, 0), offer.accelerators_per_instance)
        return most

    def tpu_types_in(self, zone: str) -> list[str]:
        """Accelerator types of a zone's slices, as Google names them."""
        return sorted(
            {
                offer.instance_type.removeprefix("tpu-")
                for offer in self.offers
                if offer.zone == zone and is_tpu_offer(offer)
            }
        )

    # -- what happens -----------------------------------------------------------------------

    def machine(self, name: str) -> Vm | Slice | None:
        """Return the newest machine or slice of this name, gone ones too."""
        with self.lock:
            rented: list[Vm | Slice] = [*self.vms.values(), *self.slices.values()]
            found = [each for each in rented if each.name == name]
        return max(found, key=lambda each: each.created_at_s, default=None)

    def status(self, name: str) -> str | None:
        """Google's word for a machine's state; ``None`` = gone, or never there."""
        machine = self.machine(name)
        return None if machine is None else machine.status(self.now_s())

    def interrupt(self, name: str, *, at_s: float | None = None) -> None:
        """Have the cloud take a spot machine: at ``at_s`` it is gone, its notice comes before."""
        machine = self.machine(name)
        if machine is None or not machine.is_spot:
            return
        with self.lock:
            now_s = self.now_s()
            ends_at_s = now_s + self.habits.notice_s if at_s is None else at_s
            if isinstance(machine, Slice):
                machine.preempted_at_s = ends_at_s
                return
            begins_at_s = max(now_s, ends_at_s - self.habits.notice_s)
            action = machine.body["scheduling"].get("instanceTerminationAction")
            machine.doom = Doom(
                why="preempted",
                begins_at_s=begins_at_s,
                ends_at_s=max(begins_at_s, ends_at_s),
                deletes=action == "DELETE" and not self.faults.preempted_stay,
            )

    def power_off(self, name: str) -> None:
        """A machine shuts itself down from inside: it stays, stopped."""
        machine = self.machine(name)
        with self.lock:
            now_s = self.now_s()
            if isinstance(machine, Vm) and machine.status(now_s) in ("STAGING", "RUNNING"):
                machine.doom = Doom(
                    why="guestTerminate", begins_at_s=now_s, ends_at_s=now_s, deletes=False
                )

    def vanish(self, name: str) -> None:
        """A machine is deleted by hand, and gone at once."""
        machine = self.machine(name)
        with self.lock:
            now_s = self.now_s()
            if isinstance(machine, Vm):
                machine.doom = Doom(
                    why="vanished", begins_at_s=now_s, ends_at_s=now_s, deletes=True
                )
            elif machine is not None:
                machine.deleted_at_s = machine.gone_at_s = now_s

    def is_taken(self, machine: Vm | Slice) -> bool:
        """True from the notice of a preemption on."""
        now_s = self.now_s()
        if isinstance(machine, Slice):
            taken_at_s = machine.preempted_at_s
            return taken_at_s is not None and now_s >= taken_at_s - self.habits.notice_s
        doom = machine.doom
        return doom is not None and doom.why == "preempted" and now_s >= doom.begins_at_s
