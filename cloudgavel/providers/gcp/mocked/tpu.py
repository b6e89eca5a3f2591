"""Cloud TPU v2 of the fake cloud: nodes, queued resources, operations, types."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cloudgavel.providers.gcp.mocked.answers import Answer, Refusal, Request, said, stamp
from cloudgavel.providers.gcp.mocked.cloud import FakeGcp, Slice, Started

_TYPE_URL = "type.googleapis.com/google.cloud.tpu.v2."
_EMPTY = "type.googleapis.com/google.protobuf.Empty"


@dataclass(kw_only=True)
class Queued:
    """One request in the queue; it gets its slice as soon as there is capacity."""

    zone: str
    name: str
    body: dict[str, Any]
    created_at_s: float
    valid_until_s: float | None
    granted: bool = False
    deleted: bool = False


@dataclass
class FakeTpu:
    """The routes under ``/v2``."""

    cloud: FakeGcp
    queue: dict[tuple[str, str], Queued] = field(default_factory=dict)
    operations: dict[str, tuple[float, dict[str, Any]]] = field(default_factory=dict)
    """When it is done, and what it says then."""

    def route(self, request: Request) -> tuple[str, Callable[[], Answer]] | None:
        """Return the operation's name and what does it; ``None`` for a path of no use here."""
        path = request.path.removeprefix("/v2/projects/")
        if path == request.path:
            return None
        project, _, path = path.partition("/")
        if project != self.cloud.project:
            return "projects", lambda: self._no_project(project)
        match request.method, path.split("/"):
            case "GET", ["locations", zone, "acceleratorTypes"]:
                return "acceleratorTypes.list", lambda: self._types(zone)
            case "GET", ["locations", zone, "nodes"]:
                return "nodes.list", lambda: self._list_nodes(zone, request)
            case "POST", ["locations", zone, "nodes"]:
                return "nodes.create", lambda: self._create(zone, request)
            case "GET", ["locations", zone, "nodes", name]:
                return "nodes.get", lambda: said(self._shown(self._node(zone, name)))
            case "DELETE", ["locations", zone, "nodes", name]:
                return "nodes.delete", lambda: self._delete(zone, name)
            case "GET", ["locations", zone, "queuedResources"]:
                return "queuedResources.list", lambda: self._list_queue(zone, request)
            case "POST", ["locations", zone, "queuedResources"]:
                return "queuedResources.create", lambda: self._enqueue(zone, request)
            case "GET", ["locations", zone, "queuedResources", name]:
                return "queuedResources.get", lambda: said(self._shown_queued(zone, name))
            case "DELETE", ["locations", zone, "queuedResources", name]:
                return "queuedResources.delete", lambda: self._dequeue(zone, name, request)
            case "GET", ["locations", _, "operations", name]:
                return "operations.get", lambda: self._operation(name)
        return None

    # -- nodes ------------------------------------------------------------------------------

    def _create(self, zone: str, request: Request) -> Answer:
        body, name = request.json(), request.query["nodeId"]
        before = self.cloud.slices.get((zone, name))
        if before is not None and before.status(self.cloud.now_s()) is not None:
            raise Refusal(
                409, "alreadyExists", f"Resource '{name}' already exists", rpc="ALREADY_EXISTS"
            )
        self._judge(zone, body)
        if self._is_stocked_out(zone, body):
            return self._done(
                zone,
                error={
                    "code": 8,
                    "message": f'There is no more capacity in the zone "{zone}"; you can try in '
                    "another zone where Cloud TPU Nodes are offered",
                },
            )
        made = self._make(zone, name, body, queued=False)
        return self._done(zone, response={"@type": _TYPE_URL + "Node", **self._shown(made)})

    def _make(self, zone: str, name: str, body: dict[str, Any], *, queued: bool) -> Slice:
        now_s = self.cloud.now_s()
        made = Slice(
            zone=zone,
            name=name,
            body=body,
            created_at_s=now_s,
            ready_at_s=now_s + self.cloud.habits.pending_s,
            queued=queued,
        )
        self.cloud.slices[zone, name] = made
        self.cloud.on_start(
            Started(name=name, zone=zone, is_tpu=True, start_script=made.start_script)
        )
        return made

    def _judge(self, zone: str, body: dict[str, Any]) -> None:
        kind = str(body.get("acceleratorType"))
        if kind not in self.cloud.tpu_types_in(zone):
            raise Refusal(
                400,
                "badRequest",
                f"{kind} is not an accelerator type of {zone}",
                rpc="INVALID_ARGUMENT",
            )
        family, now_s = kind.rpartition("-")[0], self.cloud.now_s()
        most = self.cloud.tpu_limits.get((zone, family))
        # A preempted slice counts until it is deleted.
        used = sum(
            1
            for each in self.cloud.slices.values()
            if each.zone == zone
            and str(each.body["acceleratorType"]).rpartition("-")[0] == family
            and each.status(now_s) is not None
        )
        if most is not None and used >= most:
            raise Refusal(
                429,
                "",
                f"Quota limit 'TPU{family.upper()}PerProjectPerZoneForTPUAPI' has been exceeded. "
                f"Limit: {most} in zone {zone}.",
                rpc="RESOURCE_EXHAUSTED",
            )

    def _is_stocked_out(self, zone: str, body: dict[str, Any]) -> bool:
        is_spot = bool(body.get("schedulingConfig", {}).get("spot"))
        return self.cloud.faults.stocked_out(zone, f"tpu-{body['acceleratorType']}", is_spot)

    def _delete(self, zone: str, name: str) -> Answer:
        node, now_s = self._node(zone, name), self.cloud.now_s()
        if node.queued and not self.queue[zone, name].deleted:
            raise Refusal(
                400,
                "failedPrecondition",
                f"{name} belongs to a queued resource: delete that",
                rpc="FAILED_PRECONDITION",
            )
        self._end(node, now_s)
        return self._done(zone, self.cloud.habits.stopping_s, response={"@type": _EMPTY})

    def _end(self, node: Slice, now_s: float) -> None:
        if node.deleted_at_s is None:
            node.deleted_at_s = now_s
            node.gone_at_s = now_s + self.cloud.habits.stopping_s

    def _node(self, zone: str, name: str) -> Slice:
        node = self.cloud.slices.get((zone, name))
        if node is None or node.status(self.cloud.now_s()) is None:
            raise Refusal(404, "notFound", f"Resource '{name}' was not found", rpc="NOT_FOUND")
        return node

    def _list_nodes(self, zone: str, request: Request) -> Answer:
        self._grant()
        now_s = self.cloud.now_s()
        nodes = [
            each
            for each in self.cloud.slices.values()
            if zone in ("-", each.zone)
            and each.zone not in self.cloud.faults.silent_zones
            and each.status(now_s) is not None
            and now_s >= each.created_at_s + self.cloud.habits.list_lag_s
        ]
        return self._listed("nodes", [self._shown(each) for each in nodes], zone, request)

    def _shown(self, node: Slice) -> dict[str, Any]:
        document = {
            "name": f"{self._parent(node.zone)}/nodes/{node.name}",
            "state": node.status(self.cloud.now_s()),
            "createTime": stamp(node.created_at_s),
            **node.body,
        }
        if node.queued:
            document["queuedResource"] = f"{self._parent(node.zone)}/queuedResources/{node.name}"
        return document

    # -- the queue --------------------------------------------------------------------------

    def _enqueue(self, zone: str, request: Request) -> Answer:
        body, name, now_s = request.json(), request.query["queuedResourceId"], self.cloud.now_s()
        before = self.queue.get((zone, name))
        if before is not None and not before.deleted:
            raise Refusal(
                409, "alreadyExists", f"Resource '{name}' already exists", rpc="ALREADY_EXISTS"
            )
        node = body["tpu"]["nodeSpec"][0]["node"]
        node["schedulingConfig"] = {"spot": "spot" in body}
        self._judge(zone, node)
        valid = body.get("queueingPolicy", {}).get("validUntilDuration")
        self.queue[zone, name] = Queued(
            zone=zone,
            name=name,
            body=body,
            created_at_s=now_s,
            valid_until_s=now_s + float(valid.rstrip("s")) if valid else None,
        )
        self._grant()
        return self._done(
            zone,
            response={"@type": _TYPE_URL + "QueuedResource", **self._shown_queued(zone, name)},
        )

    def _grant(self) -> None:
        """Give waiting requests their slices where there is capacity now."""
        now_s = self.cloud.now_s()
        for queued in self.queue.values():
            node = queued.body["tpu"]["nodeSpec"][0]["node"]
            in_time = queued.valid_until_s is None or now_s <= queued.valid_until_s
            if (
                not queued.granted
                and not queued.deleted
                and in_time
                and not self._is_stocked_out(queued.zone, node)
            ):
                queued.granted = True
                self._make(queued.zone, queued.name, node, queued=True)

    def _dequeue(self, zone: str, name: str, request: Request) -> Answer:
        queued = self._queued(zone, name)
        node = self.cloud.slices.get((zone, name))
        if queued.granted and node is not None:
            if request.query.get("force") != "true" and node.status(self.cloud.now_s()):
                raise Refusal(
                    400,
                    "failedPrecondition",
                    f"{name} still has a node; force its deletion",
                    rpc="FAILED_PRECONDITION",
                )
            self._end(node, self.cloud.now_s())
        queued.deleted = True
        return self._done(zone, self.cloud.habits.stopping_s, response={"@type": _EMPTY})

    def _queued(self, zone: str, name: str) -> Queued:
        self._grant()
        queued = self.queue.get((zone, name))
        if queued is None or queued.deleted:
            raise Refusal(404, "notFound", f"Resource '{name}' was not found", rpc="NOT_FOUND")
        return queued

    def _shown_queued(self, zone: str, name: str) -> dict[str, Any]:
        queued, now_s = self._queued(zone, name), self.cloud.now_s()
        state = "WAITING_FOR_RESOURCES"
        if queued.granted:
            status = self.cloud.slices[zone, name].status(now_s)
            state = {"CREATING": "PROVISIONING", "READY": "ACTIVE"}.get(status or "", "SUSPENDED")
        elif queued.valid_until_s is not None and now_s > queued.valid_until_s:
            state = "FAILED"
        return {
            **queued.body,
            "name": f"{self._parent(zone)}/queuedResources/{name}",
            "createTime": stamp(queued.created_at_s),
            "state": {"state": state},
        }

    def _list_queue(self, zone: str, request: Request) -> Answer:
        self._grant()
        rows = [
            self._shown_queued(each.zone, each.name)
            for each in self.queue.values()
            if not each.deleted
            and zone in ("-", each.zone)
            and each.zone not in self.cloud.faults.silent_zones
        ]
        return self._listed("queuedResources", rows, zone, request)

    # -- the rest ---------------------------------------------------------------------------

    def _types(self, zone: str) -> Answer:
        types = self.cloud.tpu_types_in(zone)
        if not types:
            raise Refusal(
                403,
                "forbidden",
                f"Location {zone} is not found or access is unauthorized.",
                rpc="PERMISSION_DENIED",
            )
        parent = self._parent(zone)
        rows = [{"name": f"{parent}/acceleratorTypes/{each}", "type": each} for each in types]
        return said({"acceleratorTypes": rows})

    def _listed(self, key: str, rows: list[dict[str, Any]], zone: str, request: Request) -> Answer:
        most = int(request.query.get("pageSize") or 500)
        start = int(request.query.get("pageToken") or 0)
        document: dict[str, Any] = {key: rows[start : start + most]}
        if start + most < len(rows):
            document["nextPageToken"] = str(start + most)
        if zone == "-" and self.cloud.faults.silent_zones:
            document["unreachable"] = [
                self._parent(each) for each in sorted(self.cloud.faults.silent_zones)
            ]
        return said(document)

    def _done(self, zone: str, after_s: float = 0.0, **outcome: dict[str, Any]) -> Answer:
        """Begin an operation that is done after so long."""
        name, now_s = f"operation-{uuid.uuid4().hex[:12]}", self.cloud.now_s()
        metadata = {
            "@type": _TYPE_URL + "OperationMetadata",
            "createTime": stamp(now_s),
            "endTime": stamp(now_s + after_s),
        }
        self.operations[name] = (
            now_s + after_s,
            {"name": f"{self._parent(zone)}/operations/{name}", "metadata": metadata, **outcome},
        )
        return self._operation(name)

    def _operation(self, name: str) -> Answer:
        if name not in self.operations:
            raise Refusal(404, "notFound", f"operation {name} was not found", rpc="NOT_FOUND")
        done_at_s, document = self.operations[name]
        if self.cloud.now_s() < done_at_s:
            return said({"name": document["name"], "done": False})
        return said({**document, "done": True})

    def _no_project(self, project: str) -> Answer:
        raise Refusal(
            403,
            "forbidden",
            f"Permission denied on resource project {project}.",
            rpc="PERMISSION_DENIED",
        )

    def _parent(self, zone: str) -> str:
        return f"projects/{self.cloud.project}/locations/{zone}"
