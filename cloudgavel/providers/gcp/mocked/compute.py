"""Compute Engine of the fake cloud: instances, operations, types, images, quotas."""

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cloudgavel.providers.gcp.mocked.answers import Answer, Refusal, Request, said, stamp
from cloudgavel.providers.gcp.mocked.cloud import Doom, FakeGcp, Started, Vm
from cloudgavel.providers.gcp.translate import GPU_TYPES, last_part

_NAMED = re.compile(r'name\s*=\s*"([^"]+)"')
_LABELLED = re.compile(r'labels\.([a-z0-9_-]+)\s*(?:="([^"]*)"|:\*)')
_TYPED = re.compile(r'operationType\s*=\s*"([^"]+)"')
_OURS = {google: ours for ours, google in GPU_TYPES.items()}
_METRICS = {
    "K80": "NVIDIA_K80_GPUS",
    "P100": "NVIDIA_P100_GPUS",
    "V100": "NVIDIA_V100_GPUS",
    "T4": "NVIDIA_T4_GPUS",
    "L4": "NVIDIA_L4_GPUS",
    "A100": "NVIDIA_A100_GPUS",
    "A100-80GB": "NVIDIA_A100_80GB_GPUS",
    "H100": "NVIDIA_H100_GPUS",
}


@dataclass(kw_only=True)
class Operation:
    """One operation; done at ``done_at_s``, with an error or without."""

    name: str
    zone: str
    kind: str
    target: str
    began_at_s: float
    done_at_s: float
    user: str = "controller@fake-project.iam.gserviceaccount.com"
    error: tuple[str, str] | None = None


@dataclass
class FakeCompute:
    """The routes under ``/compute/v1``."""

    cloud: FakeGcp
    operations: list[Operation] = field(default_factory=list)
    by_request_id: dict[tuple[str, str], Operation] = field(default_factory=dict)

    def route(self, request: Request) -> tuple[str, Callable[[], Answer]] | None:
        """Return the operation's name and what does it; ``None`` for a path of no use here."""
        path = request.path.removeprefix("/compute/v1/projects/")
        parts = path.split("/")
        if path == request.path or len(parts) < 1:
            return None
        project, rest = parts[0], parts[1:]
        match request.method, rest:
            case "GET", ["global", "images", "family", family]:
                return "images.getFromFamily", lambda: self._image(project, family)
            case _ if project != self.cloud.project:
                return "projects", lambda: self._no_project(project)
            case "GET", []:
                return "projects.get", lambda: self._quotas("")
            case "GET", ["regions", region]:
                return "regions.get", lambda: self._quotas(region)
            case "GET", ["aggregated", "machineTypes"]:
                return "machineTypes.aggregatedList", lambda: self._machine_types(request)
            case "GET", ["aggregated", "acceleratorTypes"]:
                return "acceleratorTypes.aggregatedList", self._gpu_types
            case "GET", ["aggregated", "instances"]:
                return "instances.aggregatedList", lambda: self._list_all(request)
            case "GET", ["zones", zone, "instances"]:
                return "instances.list", lambda: self._list_zone(zone, request)
            case "POST", ["zones", zone, "instances"]:
                return "instances.insert", lambda: self._insert(zone, request)
            case "GET", ["zones", zone, "instances", name]:
                return "instances.get", lambda: said(self._shown(self._vm(zone, name)))
            case "DELETE", ["zones", zone, "instances", name]:
                return "instances.delete", lambda: self._delete(zone, name)
            case "GET", ["zones", zone, "operations"]:
                return "zoneOperations.list", lambda: self._list_operations(zone, request)
            case "GET", ["zones", zone, "operations", name]:
                return "zoneOperations.get", lambda: self._get_operation(zone, name)
        return None

    # -- instances --------------------------------------------------------------------------

    def _insert(self, zone: str, request: Request) -> Answer:
        body, now_s = request.json(), self.cloud.now_s()
        name = str(body["name"])
        self._known_zone(zone)
        token = request.query.get("requestId", "")
        if token:
            if not _is_uuid(token):
                raise Refusal(400, "invalid", f"Invalid value for field 'requestId': '{token}'")
            if (zone, token) in self.by_request_id:
                return said(self._operation(self.by_request_id[zone, token]))
        before = self.cloud.vms.get((zone, name))
        if before is not None and before.status(now_s) is not None:
            raise Refusal(
                409, "alreadyExists", f"The resource '{self._path(zone, name)}' already exists"
            )
        machine_type = self._judged_type(zone, body)
        is_spot = body.get("scheduling", {}).get("provisioningModel") == "SPOT"
        operation = Operation(
            name=f"operation-{uuid.uuid4().hex[:12]}",
            zone=zone,
            kind="insert",
            target=self._path(zone, name),
            began_at_s=now_s,
            done_at_s=now_s + self.cloud.habits.operation_s,
        )
        over = self._over_quota(zone, body, is_spot=is_spot)
        if over is not None and not self.cloud.faults.quota_in_operation:
            raise Refusal(403, "quotaExceeded", over)
        self.operations.append(operation)
        if token:
            self.by_request_id[zone, token] = operation
        if over is not None:
            operation.error = ("QUOTA_EXCEEDED", over)
        elif self.cloud.faults.stocked_out(zone, machine_type, is_spot):
            operation.error = (
                self.cloud.faults.stock_out_code,
                f"The zone '{zone}' does not have enough resources available to fulfill the "
                f"request for {machine_type}. Try a different zone, or try again later.",
            )
        else:
            vm = Vm(
                zone=zone,
                name=name,
                body=body,
                created_at_s=now_s,
                running_at_s=now_s + self.cloud.habits.pending_s,
                machine_type=machine_type,
            )
            longest_s = float(
                body.get("scheduling", {}).get("maxRunDuration", {}).get("seconds", 0)
            )
            if longest_s:
                ends_at_s = vm.running_at_s + longest_s
                vm.doom = Doom(
                    why="expired", begins_at_s=ends_at_s, ends_at_s=ends_at_s, deletes=True
                )
            self.cloud.vms[zone, name] = vm
            self.cloud.on_start(
                Started(name=name, zone=zone, is_tpu=False, start_script=vm.start_script)
            )
        return said(self._operation(operation))

    def _delete(self, zone: str, name: str) -> Answer:
        vm, now_s = self._vm(zone, name), self.cloud.now_s()
        ends_at_s = now_s + self.cloud.habits.stopping_s
        if vm.doom is not None and vm.doom.why == "delete":
            ends_at_s = vm.doom.ends_at_s
        else:
            vm.doom = Doom(why="delete", begins_at_s=now_s, ends_at_s=ends_at_s, deletes=True)
        operation = Operation(
            name=f"operation-{uuid.uuid4().hex[:12]}",
            zone=zone,
            kind="delete",
            target=self._path(zone, name),
            began_at_s=now_s,
            done_at_s=ends_at_s,
        )
        self.operations.append(operation)
        return said(self._operation(operation))

    def _list_all(self, request: Request) -> Answer:
        now_s, silent = self.cloud.now_s(), self.cloud.faults.silent_zones
        wanted = _label_filter(request.query.get("filter", ""))
        vms = [vm for vm in self._listed(now_s) if wanted(vm.body) and vm.zone not in silent]
        page, following = _page(vms, request)
        items: dict[str, Any] = {}
        for vm in page:
            scope = items.setdefault(f"zones/{vm.zone}", {"instances": []})
            scope["instances"].append(self._shown(vm))
        document: dict[str, Any] = {"items": items}
        if silent:
            document["unreachables"] = [f"zones/{zone}" for zone in sorted(silent)]
        return said(document | following)

    def _list_zone(self, zone: str, request: Request) -> Answer:
        self._known_zone(zone)
        wanted = _label_filter(request.query.get("filter", ""))
        vms = [vm for vm in self._listed(self.cloud.now_s()) if vm.zone == zone and wanted(vm.body)]
        page, following = _page(vms, request)
        return said({"items": [self._shown(vm) for vm in page]} | following)

    def _listed(self, now_s: float) -> list[Vm]:
        return [
            vm
            for vm in self.cloud.vms.values()
            if vm.status(now_s) is not None
            and now_s >= vm.created_at_s + self.cloud.habits.list_lag_s
        ]

    def _vm(self, zone: str, name: str) -> Vm:
        vm = self.cloud.vms.get((zone, name))
        if vm is None or vm.status(self.cloud.now_s()) is None:
            raise Refusal(404, "notFound", f"The resource '{self._path(zone, name)}' was not found")
        return vm

    def _shown(self, vm: Vm) -> dict[str, Any]:
        now_s = self.cloud.now_s()
        document = {
            "kind": "compute#instance",
            "zone": f"https://www.googleapis.com/compute/v1/projects/{self.cloud.project}/zones/"
            f"{vm.zone}",
            "status": vm.status(now_s),
            "creationTimestamp": stamp(vm.created_at_s),
            **vm.body,
        }
        if vm.doom is not None and now_s >= vm.doom.ends_at_s:
            document["lastStopTimestamp"] = stamp(vm.doom.ends_at_s)
        return document

    def _judged_type(self, zone: str, body: Mapping[str, Any]) -> str:
        host = last_part(str(body.get("machineType")))
        if host not in self.cloud.hosts_in(zone):
            raise Refusal(
                400,
                "invalid",
                f"Invalid value for field 'resource.machineType': the referenced machine type "
                f"{host} does not exist in {zone}",
            )
        attached = body.get("guestAccelerators", [])
        for each in attached:
            if last_part(each["acceleratorType"]) not in self.cloud.gpus_in(zone):
                raise Refusal(404, "notFound", f"{each['acceleratorType']} was not found")
        if attached and body.get("scheduling", {}).get("onHostMaintenance") != "TERMINATE":
            raise Refusal(400, "invalid", "Instances with guest accelerators cannot live migrate")
        if not attached:
            return host
        gpu = last_part(attached[0]["acceleratorType"])
        return f"{host}+{attached[0]['acceleratorCount']}x{_OURS.get(gpu, gpu)}"

    # -- quotas -----------------------------------------------------------------------------

    def _units(self, zone: str, body: Mapping[str, Any], metric: str, *, is_spot: bool) -> float:
        """How much of a metric one machine takes."""
        host = last_part(str(body["machineType"]))
        offer = self.cloud.hosts_in(zone).get(host)
        attached = body.get("guestAccelerators", [])
        if attached:
            ours = _OURS.get(last_part(attached[0]["acceleratorType"]), "")
            count = float(attached[0]["acceleratorCount"])
        else:
            ours = offer.accelerator if offer is not None else ""
            count = float(offer.accelerators_per_instance) if offer is not None else 0.0
        if metric == "GPUS_ALL_REGIONS":
            return count
        plain = metric.removeprefix("PREEMPTIBLE_")
        if is_spot != (plain != metric):
            return 0.0
        if plain == _METRICS.get(ours):
            return count
        if plain == "CPUS" and host.startswith("n1-") and offer is not None:
            return offer.vcpus or 0.0
        return 0.0

    def _over_quota(self, zone: str, body: Mapping[str, Any], *, is_spot: bool) -> str | None:
        region, now_s = zone.rpartition("-")[0], self.cloud.now_s()
        for limit in self.cloud.limits:
            if limit.region not in ("", region):
                continue
            used = sum(
                self._units(vm.zone, vm.body, limit.metric, is_spot=vm.is_spot)
                for vm in self.cloud.vms.values()
                if vm.status(now_s) not in (None, "TERMINATED")
                and limit.region in ("", vm.zone.rpartition("-")[0])
            )
            needed = self._units(zone, body, limit.metric, is_spot=is_spot)
            if needed and used + needed > limit.most:
                where = f"in region {region}" if limit.region else "globally"
                return f"Quota '{limit.metric}' exceeded. Limit: {limit.most:.1f} {where}."
        return None

    def _quotas(self, region: str) -> Answer:
        if region and region not in {zone.rpartition("-")[0] for zone in self.cloud.zones}:
            raise Refusal(404, "notFound", f"The resource 'regions/{region}' was not found")
        quotas = [
            {"metric": limit.metric, "limit": limit.most, "usage": 0.0}
            for limit in self.cloud.limits
            if limit.region == region
        ]
        return said({"name": region or self.cloud.project, "quotas": quotas})

    # -- operations -------------------------------------------------------------------------

    def _operation(self, operation: Operation) -> dict[str, Any]:
        is_done = self.cloud.now_s() >= operation.done_at_s
        document: dict[str, Any] = {
            "kind": "compute#operation",
            "name": operation.name,
            "zone": f"https://www.googleapis.com/compute/v1/projects/{self.cloud.project}/zones/"
            f"{operation.zone}",
            "operationType": operation.kind,
            "targetLink": f"https://www.googleapis.com/compute/v1/{operation.target}",
            "status": "DONE" if is_done else "RUNNING",
            "user": operation.user,
            "insertTime": stamp(operation.began_at_s),
            "startTime": stamp(operation.began_at_s),
        }
        if is_done:
            document["endTime"] = stamp(operation.done_at_s)
            if operation.error is not None:
                code, message = operation.error
                document["error"] = {"errors": [{"code": code, "message": message}]}
                document["httpErrorStatusCode"] = 503
                document["httpErrorMessage"] = "SERVICE UNAVAILABLE"
        return document

    def _get_operation(self, zone: str, name: str) -> Answer:
        for operation in self.operations:
            if operation.zone == zone and operation.name == name:
                return said(self._operation(operation))
        raise Refusal(404, "notFound", f"The resource 'operations/{name}' was not found")

    def _list_operations(self, zone: str, request: Request) -> Answer:
        kinds = _TYPED.findall(request.query.get("filter", ""))
        now_s = self.cloud.now_s()
        own = [
            Operation(
                name=f"systemevent-{vm.name}",
                zone=zone,
                kind=f"compute.instances.{vm.doom.why}",
                target=self._path(zone, vm.name),
                began_at_s=vm.doom.begins_at_s,
                done_at_s=vm.doom.begins_at_s,
                user="system",
            )
            for vm in self.cloud.vms.values()
            if vm.zone == zone
            and vm.doom is not None
            and vm.doom.why in ("preempted", "guestTerminate")
            and now_s >= vm.doom.begins_at_s
        ]
        listed = [each for each in (*self.operations, *own) if each.zone == zone]
        found = [each for each in listed if not kinds or each.kind in kinds]
        page, following = _page(found, request)
        return said({"items": [self._operation(each) for each in page]} | following)

    # -- types ------------------------------------------------------------------------------

    def _machine_types(self, request: Request) -> Answer:
        named = set(_NAMED.findall(request.query.get("filter", "")))
        items = {
            f"zones/{zone}": {
                "machineTypes": [
                    {"name": host, "guestCpus": int(offer.vcpus or 0)}
                    for host, offer in sorted(self.cloud.hosts_in(zone).items())
                    if not named or host in named
                ]
            }
            for zone in self.cloud.zones
        }
        return said({"items": items})

    def _gpu_types(self) -> Answer:
        items = {
            f"zones/{zone}": {
                "acceleratorTypes": [
                    {"name": gpu, "maximumCardsPerInstance": most}
                    for gpu, most in sorted(self.cloud.gpus_in(zone).items())
                ]
            }
            for zone in self.cloud.zones
        }
        return said({"items": items})

    def _image(self, project: str, family: str) -> Answer:
        size_gib = self.cloud.images.get((project, family))
        if size_gib is None:
            raise Refusal(404, "notFound", f"The resource 'images/family/{family}' was not found")
        return said({"name": f"{family}-v20261101", "status": "READY", "diskSizeGb": str(size_gib)})

    def _known_zone(self, zone: str) -> None:
        if zone not in self.cloud.zones:
            raise Refusal(404, "notFound", f"The resource 'zones/{zone}' was not found")

    def _no_project(self, project: str) -> Answer:
        raise Refusal(404, "notFound", f"The resource 'projects/{project}' was not found")

    def _path(self, zone: str, name: str) -> str:
        return f"projects/{self.cloud.project}/zones/{zone}/instances/{name}"


def _label_filter(text: str) -> Callable[[Mapping[str, Any]], bool]:
    found = _LABELLED.search(text)
    if found is None:
        return lambda body: True
    key, value = found[1], found[2]

    def wanted(body: Mapping[str, Any]) -> bool:
        labels = body.get("labels", {})
        return key in labels and (value is None or labels[key] == value)

    return wanted


def _page(rows: list[Any], request: Request) -> tuple[list[Any], dict[str, str]]:
    most = int(request.query.get("maxResults", 500))
    start = int(request.query.get("pageToken") or 0)
    page = rows[start : start + most]
    more = start + most < len(rows)
    return page, {"nextPageToken": str(start + most)} if more else {}


def _is_uuid(text: str) -> bool:
    try:
        return uuid.UUID(text).int != 0
    except ValueError:
        return False
