"""Virtual machines of Compute Engine: insert and watch, list, look up, delete, and how one ended.

The SDK's own ``insert(...).result()`` asks the real host whatever the endpoint, so operations are
looked up here.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cloudgavel.providers.base import EndReason, MachineState
from cloudgavel.providers.gcp.clients import GcpClients
from cloudgavel.providers.gcp.failures import (
    OperationFailed,
    already_exists,
    is_gone,
    status_of,
)
from cloudgavel.providers.gcp.settings import GcpSettings
from cloudgavel.providers.gcp.translate import (
    GcpMachine,
    instant,
    is_of_run,
    last_part,
    read_instance,
)
from cloudgavel.providers.tags import RUN_TAG, label_value

log = logging.getLogger("cloudgavel.gcp")

PAGE_SIZE = 500
"""The most that an aggregated list gives at once."""
NOTICE_S = 30.0
"""From the start of a preemption to the machine's end, at most."""
LOOK_PAUSES_S = (0.5, 1.0, 2.0, 3.0)
LONGEST_LOOK_PAUSE_S = 5.0
PREEMPTED = "compute.instances.preempted"
GUEST_ENDED = "compute.instances.guestTerminate"
DELETED = "delete"
_STORIES = (PREEMPTED, GUEST_ENDED, DELETED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """What a list found, and the zones that gave no answer: they may hold machines."""

    machines: tuple[GcpMachine, ...]
    silent_zones: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Created:
    """The machine of a request, or that it was and is no more (``machine`` ``None``)."""

    machine: GcpMachine | None
    existed: bool
    """True if an earlier call had made it."""
    open_operation: str | None = None
    """Still undecided: a stock-out may yet be told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """One trace of how a machine ended."""

    reason: EndReason
    at_s: float | None
    """When the trace was written."""


@dataclass(slots=True)
class Stories:
    """Traces by zone, read once per listing."""

    by_zone: dict[str, dict[str, list[Ending]]] = field(default_factory=dict)


class Machines:
    """The calls on virtual machines; keeps nothing, so it is safe between threads."""

    def __init__(
        self, clients: GcpClients, *, settings: GcpSettings, pause: Callable[[float], None]
    ) -> None:
        """``pause`` waits so many seconds between two looks at an operation."""
        self._clients = clients
        self._settings = settings
        self._pause = pause

    def create(self, body: Mapping[str, Any], *, zone: str, request_id: str) -> Created:
        """Insert one instance and watch for a stock-out.

        Google's errors and ``OperationFailed`` pass. A name that is taken is ours: it follows from
        the request.
        """
        import json

        from google.cloud import compute_v1

        name = str(body["name"])
        request = {
            "project": self._settings.project,
            "zone": zone,
            "request_id": request_id,
            "instance_resource": compute_v1.Instance.from_json(json.dumps(body)),
        }
        try:
            operation = self._clients.call("compute.instances", "insert_unary", request)
        except Exception as error:
            if already_exists(error):
                return Created(machine=self.get(zone, name), existed=True)
            raise
        try:
            is_done = self._watch(zone, operation)
        except OperationFailed as error:
            if error.code == "RESOURCE_ALREADY_EXISTS":
                return Created(machine=self.get(zone, name), existed=True)
            raise
        machine = self.get(zone, name)
        return Created(
            machine=machine,
            existed=is_done and machine is None,
            open_operation=None if is_done else str(operation.name),
        )

    def is_settled(self, zone: str, operation: str) -> bool:
        """True when an operation is done and worked; ``OperationFailed`` when it did not."""
        return self._judge(self._operation(zone, operation))

    def done_at_s(self, zone: str, operation: str) -> float | None:
        """When an operation was done; ``None`` if it is not, or is forgotten."""
        try:
            found = self._operation(zone, operation)
        except Exception as error:
            if is_gone(error):
                return None
            raise
        return instant(found.end_time) if _status(found) == "DONE" else None

    def of_run(self, run_id: str | None, zones: Collection[str] | None = None) -> Listing:
        """Return the machines of a run (``None`` = of every run) in all zones, or in some."""
        value = f'="{label_value(run_id)}"' if run_id is not None else ":*"
        pages = self._clients.call(
            "compute.instances",
            "aggregated_list",
            {
                "project": self._settings.project,
                "filter": f"labels.{RUN_TAG}{value}",
                "max_results": PAGE_SIZE,
            },
        ).pages
        found: list[GcpMachine] = []
        silent: set[str] = set()
        for page in pages:
            silent.update(last_part(scope) for scope in page.unreachables)
            for scope, inside in page.items.items():
                if inside.warning.code == "UNREACHABLE":
                    silent.add(last_part(scope))
                found += [read_instance(instance) for instance in inside.instances]
        return Listing(
            machines=tuple(
                machine
                for machine in found
                if is_of_run(machine, run_id) and (zones is None or machine.zone in zones)
            ),
            silent_zones=tuple(sorted(silent)),
        )

    def get(self, zone: str, name: str) -> GcpMachine | None:
        """Look one machine up; ``None`` = gone."""
        request = {"project": self._settings.project, "zone": zone, "instance": name}
        try:
            return read_instance(self._clients.call("compute.instances", "get", request))
        except Exception as error:
            if is_gone(error):
                return None
            raise

    def delete(self, zone: str, name: str) -> str | None:
        """Ask for the end of a machine and return the operation; ``None`` = gone, or going.

        Without a request id: a repeat of one is answered with the first call's outcome, a failed
        one too.
        """
        request = {"project": self._settings.project, "zone": zone, "instance": name}
        try:
            return str(self._clients.call("compute.instances", "delete_unary", request).name)
        except Exception as error:
            if is_gone(error) or (status_of(error) == 400 and self._is_ending(zone, name)):
                return None
            raise

    def endings(self, zone: str, name: str, stories: Stories) -> list[Ending]:
        """Return the traces of one machine's end, oldest first; none = it left without a word.

        With the action ``DELETE`` the zone's operations are the only trace of a preemption.
        """
        if zone not in stories.by_zone:
            stories.by_zone[zone] = self._read_stories(zone)
        return stories.by_zone[zone].get(name, [])

    def _is_ending(self, zone: str, name: str) -> bool:
        """True for one that is on its way out, and may refuse to be told so again."""
        machine = self.get(zone, name)
        return machine is None or machine.state is MachineState.TERMINATING

    # -- operations -------------------------------------------------------------------------

    def _watch(self, zone: str, operation: Any) -> bool:
        """Look at an insertion until it is done or it has been watched long enough."""
        waited_s, looks = 0.0, 0
        while not self._judge(operation):
            pause_s = LOOK_PAUSES_S[looks] if looks < len(LOOK_PAUSES_S) else LONGEST_LOOK_PAUSE_S
            if waited_s + pause_s > self._settings.operation_wait_s:
                return False
            self._pause(pause_s)
            waited_s += pause_s
            looks += 1
            try:
                operation = self._operation(zone, operation.name)
            except Exception as error:
                # The insertion was taken; that it cannot be looked at now changes nothing.
                log.warning("cannot look at %s: %s", operation.name, error)
        return True

    def _operation(self, zone: str, name: str) -> Any:
        request = {"project": self._settings.project, "zone": zone, "operation": name}
        return self._clients.call("compute.zone_operations", "get", request)

    @staticmethod
    def _judge(operation: Any) -> bool:
        errors = list(operation.error.errors)
        if errors:
            raise OperationFailed(str(errors[0].code), str(errors[0].message))
        if operation.http_error_status_code:
            raise OperationFailed(
                str(operation.http_error_status_code), str(operation.http_error_message)
            )
        return _status(operation) == "DONE"

    def _read_stories(self, zone: str) -> dict[str, list[Ending]]:
        asked = " OR ".join(f'(operationType = "{kind}")' for kind in _STORIES)
        listed = self._clients.call(
            "compute.zone_operations",
            "list",
            {
                "project": self._settings.project,
                "zone": zone,
                "filter": asked,
                "max_results": PAGE_SIZE,
            },
        )
        found: dict[str, list[Ending]] = {}
        for operation in listed:
            if "/instances/" not in operation.target_link:
                continue
            ending = self._ending(operation)
            if ending is not None:
                found.setdefault(last_part(operation.target_link), []).append(ending)
        for endings in found.values():
            endings.sort(key=lambda each: (each.at_s is None, each.at_s or 0.0))
        return found

    def _ending(self, operation: Any) -> Ending | None:
        at_s = instant(operation.insert_time) or instant(operation.start_time)
        kind = operation.operation_type
        if kind == PREEMPTED:
            return Ending(reason=EndReason.INTERRUPTED, at_s=at_s)
        if kind == GUEST_ENDED:
            return Ending(reason=EndReason.EXPIRED, at_s=at_s)
        if kind == DELETED:
            account = self._settings.service_account
            by_itself = account is not None and operation.user == account
            reason = EndReason.EXPIRED if by_itself else EndReason.VANISHED
            return Ending(reason=reason, at_s=instant(operation.end_time) or at_s)
        return None


def preempted_at_s(endings: Iterable[Ending]) -> float | None:
    """When the cloud began to take a machine; ``None`` = it did not."""
    for ending in endings:
        if ending.reason is EndReason.INTERRUPTED:
            return ending.at_s
    return None


def _status(operation: Any) -> str:
    status = operation.status
    return str(getattr(status, "name", status))
