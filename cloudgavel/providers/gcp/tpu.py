"""Slices of Cloud TPU: create, list, look up, delete; directly or through queued resources.

There is no client token: a slice's name follows from its request, so "already exists" is ours. A
preempted node *still exists* and is deleted before anything of its run is created.
"""

import json
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from cloudgavel.providers.base import MachineState
from cloudgavel.providers.gcp.clients import GcpClients
from cloudgavel.providers.gcp.compute import (
    LONGEST_LOOK_PAUSE_S,
    LOOK_PAUSES_S,
    Created,
    Listing,
)
from cloudgavel.providers.gcp.failures import (
    OperationFailed,
    already_exists,
    is_gone,
    status_of,
)
from cloudgavel.providers.gcp.settings import GcpSettings
from cloudgavel.providers.gcp.translate import (
    GcpMachine,
    is_of_run,
    proto_instant,
    queued_body,
    read_node,
    read_queued,
    zone_of,
)

log = logging.getLogger("cloudgavel.gcp")

PAGE_SIZE = 500
_QUEUE_STILL_WAITS = frozenset(
    {"STATE_UNSPECIFIED", "CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES"}
)


class Slices:
    """The calls on TPU slices; keeps nothing, so it is safe between threads."""

    def __init__(
        self, clients: GcpClients, *, settings: GcpSettings, pause: Callable[[float], None]
    ) -> None:
        """``pause`` waits so many seconds between two looks."""
        self._clients = clients
        self._settings = settings
        self._pause = pause

    def create(self, body: Mapping[str, Any], *, zone: str, name: str) -> Created:
        """Create one slice and watch for a stock-out; Google's errors and ``OperationFailed`` pass.

        One of this name that is dead is deleted first; one that lives is ours.
        """
        before = self.get(zone, name)
        if before is not None and before.state is not MachineState.TERMINATED:
            return Created(machine=before, existed=True)
        if before is not None:
            self.delete(zone, name)
            self._until_gone(zone, name)
        if self._settings.tpu_queue_wait_s is None:
            return self._create_node(body, zone=zone, name=name)
        return self._create_queued(body, zone=zone, name=name)

    def of_run(self, run_id: str | None, zones: Collection[str] | None = None) -> Listing:
        """Return the slices of a run (``None`` = of every run).

        With queued resources in the settings also what waits in the queue.
        """
        parent = self._parent("-")
        machines: dict[tuple[str, str], GcpMachine] = {}
        silent: set[str] = set()
        if self._settings.tpu_queue_wait_s is not None:
            queued = self._clients.call(
                "tpu", "list_queued_resources", {"parent": parent, "page_size": PAGE_SIZE}
            )
            for page in queued.pages:
                silent.update(_silent_zone(each) for each in page.unreachable)
                for resource in page.queued_resources:
                    if (machine := read_queued(resource)) is not None:
                        machines[machine.zone, machine.instance_id] = machine
        nodes = self._clients.call("tpu", "list_nodes", {"parent": parent, "page_size": PAGE_SIZE})
        for page in nodes.pages:
            silent.update(_silent_zone(each) for each in page.unreachable)
            for node in page.nodes:
                # A node says more than the resource that it came from.
                machine = read_node(node)
                machines[machine.zone, machine.instance_id] = machine
        return Listing(
            machines=tuple(
                machine
                for machine in machines.values()
                if is_of_run(machine, run_id) and (zones is None or machine.zone in zones)
            ),
            silent_zones=tuple(sorted(silent)),
        )

    def get(self, zone: str, name: str) -> GcpMachine | None:
        """Look one slice up, in the queue too; ``None`` = gone."""
        node = self._found("get_node", f"{self._parent(zone)}/nodes/{name}")
        if node is not None:
            return read_node(node)
        return self._queued(zone, name)

    def delete(self, zone: str, name: str) -> str | None:
        """Ask for the end of a slice and of the queued resource of its name.

        Returns the operation; ``None`` = gone, or going. With force the resource's node goes too;
        without a resource there is only the node.
        """
        resource = f"{self._parent(zone)}/queuedResources/{name}"
        node = f"{self._parent(zone)}/nodes/{name}"
        try:
            return self._deleted(
                "delete_queued_resource", {"name": resource, "force": True}
            ) or self._deleted("delete_node", {"name": node})
        except Exception as error:
            # One that is being deleted may refuse to be told so again.
            if status_of(error) in (400, 409):
                machine = self.get(zone, name)
                if machine is None or machine.state is MachineState.TERMINATING:
                    return None
            raise

    def done_at_s(self, operation: str) -> float | None:
        """When a deletion was done; ``None`` if it is not, or is forgotten."""
        from google.cloud import tpu_v2

        found = self._found("get_operation", operation)
        if found is None or not found.done:
            return None
        end = tpu_v2.OperationMetadata.deserialize(found.metadata.value).end_time
        return proto_instant(end)

    # -- creating ---------------------------------------------------------------------------

    def _create_node(self, body: Mapping[str, Any], *, zone: str, name: str) -> Created:
        from google.cloud import tpu_v2

        request = {
            "parent": self._parent(zone),
            "node_id": name,
            "node": tpu_v2.Node.from_json(json.dumps(body)),
        }
        try:
            operation = self._clients.call("tpu", "create_node", request)
        except Exception as error:
            if already_exists(error):
                return Created(machine=self.get(zone, name), existed=True)
            raise
        machine: GcpMachine | None = None
        for pause_s in self._looks(self._settings.operation_wait_s):
            # Boots take minutes: the node's being there is enough, a stock-out comes before.
            if operation.done():
                _judge(operation)
                break
            machine = self.get(zone, name)
            if machine is not None and machine.status not in ("CREATING", "STATE_UNSPECIFIED"):
                break
            if pause_s is not None:
                self._pause(pause_s)
        return Created(machine=self.get(zone, name), existed=False)

    def _create_queued(self, body: Mapping[str, Any], *, zone: str, name: str) -> Created:
        from google.cloud import tpu_v2

        wait_s = self._settings.tpu_queue_wait_s or 0.0
        queued = queued_body(body, name=name, parent=self._parent(zone), wait_s=wait_s)
        request = {
            "parent": self._parent(zone),
            "queued_resource_id": name,
            "queued_resource": tpu_v2.QueuedResource.from_json(json.dumps(queued)),
        }
        try:
            self._clients.call("tpu", "create_queued_resource", request)
        except Exception as error:
            if not already_exists(error):
                raise
        for pause_s in self._looks(wait_s):
            waiting = self._queued(zone, name)
            if waiting is None or waiting.state is MachineState.TERMINATED:
                break
            if waiting.status not in _QUEUE_STILL_WAITS:
                return Created(machine=self.get(zone, name), existed=False)
            if pause_s is not None:
                self._pause(pause_s)
        # Taken back, or it would be granted, and billed, when nobody waits for it any more.
        self.delete(zone, name)
        raise OperationFailed(
            "RESOURCE_EXHAUSTED",
            f"There was no more capacity in the zone {zone} within {wait_s:g} s in its queue",
        )

    def _until_gone(self, zone: str, name: str) -> None:
        for pause_s in self._looks(self._settings.operation_wait_s):
            if self.get(zone, name) is None:
                return
            if pause_s is not None:
                self._pause(pause_s)
        raise OperationFailed("UNAVAILABLE", f"the preempted slice {name} is still being deleted")

    @staticmethod
    def _looks(wait_s: float) -> list[float | None]:
        """The pauses after each look; the last look has none."""
        pauses: list[float | None] = []
        waited_s = 0.0
        for pause_s in (*LOOK_PAUSES_S, *[LONGEST_LOOK_PAUSE_S] * 10_000):
            if waited_s + pause_s > wait_s:
                break
            pauses.append(pause_s)
            waited_s += pause_s
        return [*pauses, None]

    # -- calls ------------------------------------------------------------------------------

    def _queued(self, zone: str, name: str) -> GcpMachine | None:
        found = self._found("get_queued_resource", f"{self._parent(zone)}/queuedResources/{name}")
        return None if found is None else read_queued(found)

    def _parent(self, zone: str) -> str:
        return f"projects/{self._settings.project}/locations/{zone}"

    def _found(self, operation: str, name: str) -> Any:
        try:
            return self._clients.call("tpu", operation, {"name": name})
        except Exception as error:
            if is_gone(error):
                return None
            raise

    def _deleted(self, operation: str, request: Mapping[str, Any]) -> str | None:
        try:
            return str(self._clients.call("tpu", operation, request).operation.name)
        except Exception as error:
            if is_gone(error):
                return None
            raise


def _silent_zone(location: str) -> str:
    """``projects/p/locations/z`` or ``z`` -> ``z``."""
    return zone_of(location) or location


def _judge(operation: Any) -> None:
    error = operation.operation.error
    if error.code:
        raise OperationFailed.of_rpc(int(error.code), str(error.message))
