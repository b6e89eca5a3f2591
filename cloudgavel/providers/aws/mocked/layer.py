"""What moto leaves out of EC2: stock-outs, limits, idempotent tokens, lag, slow states, ends.

One object is one account. Every call goes through ``handle``, which answers it, or passes it on to
moto and puts right what comes back. Instants are those of the clock that is given.
"""

import hashlib
import itertools
import re
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from xml.sax.saxutils import escape

from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.aws.images import (
    CLOSED_DRIVER,
    NEURON,
    OPEN_DRIVER,
    OPEN_DRIVER_ARM,
    ImageFamily,
)
from cloudgavel.providers.aws.mocked.wire import (
    Answer,
    NoAnswer,
    Request,
    ec2_answer,
    ec2_error,
    error_for,
    instance_ids_in,
    json_answer,
    json_error,
    numbered,
    without_instances,
)
from cloudgavel.providers.aws.prices import SpotPoint
from cloudgavel.providers.aws.quotas import VcpuLimit, limit_for

ACCOUNT = "123456789012"
_PAGE = 100
IMAGES: Mapping[str, ImageFamily] = {
    "ami-00000000000000001": OPEN_DRIVER,
    "ami-00000000000000002": OPEN_DRIVER_ARM,
    "ami-00000000000000003": CLOSED_DRIVER,
    "ami-00000000000000004": NEURON,
}
NOTICE_S = 120.0
_STATE = re.compile(rb"<instanceState>.*?</instanceState>", re.DOTALL)
_LAUNCH_TIME = re.compile(rb"<launchTime>[^<]*</launchTime>")

StockOut = Callable[[str, str, bool], bool]
"""``(zone name, instance type, is spot) -> none to be had``."""


def never(zone_name: str, instance_type: str, is_spot: bool) -> bool:
    """Return False: a cloud that has everything."""
    return False


@dataclass(kw_only=True, slots=True)
class Habits:
    """How slow this cloud is, in seconds of its clock."""

    pending_s: float = 0.0
    """From the launch to ``running``."""
    list_lag_s: float = 0.0
    """A new instance is in no list, and not found, for so long."""
    shutting_down_s: float = 0.0
    ended_listed_s: float = 3600.0


@dataclass(kw_only=True, slots=True)
class Faults:
    """What goes wrong; change it at any time."""

    stocked_out: StockOut = never
    errors: dict[str, deque[tuple[str, int]]] = field(default_factory=dict)
    """By operation: ``(code, HTTP status)`` of the next calls, in order."""
    unanswered: dict[str, int] = field(default_factory=dict)
    """By operation: so many of the next calls are carried out, and their answers lost."""
    denied: set[str] = field(default_factory=set)
    """Operations that the account's policy forbids."""
    silent_regions: set[str] = field(default_factory=set)
    """Regions that answer nothing and do nothing."""

    def fail_next(self, operation: str, *errors: tuple[str, int]) -> None:
        """Let the next calls of an operation fail so."""
        self.errors.setdefault(operation, deque()).extend(errors)


@dataclass(kw_only=True, slots=True)
class _Machine:
    instance_id: str
    region: str
    instance_type: str
    is_spot: bool
    launched_at_s: float
    asked_to_end_at_s: float | None = None
    interrupted_at_s: float | None = None
    shut_itself_down_at_s: float | None = None
    forgotten: bool = False
    moto: Any = None
    """moto's own object, once found."""

    def over_at_s(self, now_s: float) -> float | None:
        """When its end began; ``None`` = it lives (an interruption may lie ahead)."""
        ends = (self.asked_to_end_at_s, self.interrupted_at_s, self.shut_itself_down_at_s)
        return min((each for each in ends if each is not None and each <= now_s), default=None)


class MotoLayer:
    """One account of a mocked EC2; safe between threads."""

    def __init__(
        self,
        *,
        now_s: Callable[[], float],
        offers: Sequence[Offer],
        limits: Iterable[VcpuLimit] = (),
        habits: Habits | None = None,
        faults: Faults | None = None,
        spot_history: Sequence[SpotPoint] | None = None,
        price_list: Sequence[str] = (),
    ) -> None:
        """``offers`` say which zone sells what.

        ``spot_history=None`` leaves moto's (0.00001 everywhere); ``price_list``: products.
        """
        self.habits = habits or Habits()
        self.faults = faults or Faults()
        self.limits = list(limits)
        self.spot_history = spot_history
        self.price_list = list(price_list)
        self.calls: Counter[str] = Counter()
        """Calls by operation, those that failed included."""
        self.on_launch: Callable[[str, str, str], None] | None = None
        """Called with instance id, region and user data (text) after a launch."""
        self.before: Callable[[Request], None] | None = None
        """Called at the start of each call, several at a time."""
        self.on_end: Callable[[str], None] | None = None
        """Called with the instance id when a machine's end begins."""
        self._now_s = now_s
        self._offers = tuple(offers)
        self._vcpus_of = {
            offer.instance_type: offer.vcpus for offer in offers if offer.vcpus is not None
        }
        self._machines: dict[str, _Machine] = {}
        self._by_token: dict[tuple[str, str], tuple[str, Answer]] = {}
        self._groups: dict[tuple[str, str], dict[str, str]] = {}
        self._lock = threading.RLock()

    # -- what happens to machines -----------------------------------------------------------

    def interrupt(self, instance_id: str, *, after_s: float = 0.0) -> None:
        """Take a spot machine back, now or later; it is marked for it ``NOTICE_S`` before.

        ``on_end`` hears only of what happens at once.
        """
        if after_s <= 0:
            self._end(instance_id, "interrupted_at_s")
            return
        with self._lock:
            self._machines[instance_id].interrupted_at_s = self._now_s() + after_s

    def end_by_hand(self, instance_id: str) -> None:
        """Let somebody terminate a machine in the console."""
        self._end(instance_id, "asked_to_end_at_s")

    def shut_down_from_inside(self, instance_id: str) -> None:
        """Let a machine switch itself off."""
        self._end(instance_id, "shut_itself_down_at_s")

    def forget(self, instance_id: str) -> None:
        """Let EC2 know nothing of a machine from now on."""
        with self._lock:
            self._machines[instance_id].forgotten = True

    def live_ids(self) -> list[str]:
        """Return the machines whose end has not begun, by launch."""
        with self._lock:
            return [
                each.instance_id
                for each in self._machines.values()
                if each.over_at_s(self._now_s()) is None
            ]

    def _end(self, instance_id: str, how: str) -> None:
        with self._lock:
            machine = self._machines[instance_id]
            if machine.over_at_s(self._now_s()) is not None:
                return
            setattr(machine, how, self._now_s())
        if self.on_end is not None:
            self.on_end(instance_id)

    # -- calls ------------------------------------------------------------------------------

    def handle(self, request: Request, forward: Callable[[], Answer]) -> Answer:
        """Answer one call; ``NoAnswer`` when its connection is to end without one."""
        if self.before is not None:
            self.before(request)
        with self._lock:
            self.calls[request.operation] += 1
            if request.region in self.faults.silent_regions:
                raise NoAnswer(request.operation)
            if request.operation in self.faults.denied:
                denied = (
                    "UnauthorizedOperation"
                    if request.service == "ec2"
                    else ("AccessDeniedException")
                )
                return error_for(
                    request, denied, "You are not authorized to perform this operation", status=403
                )
            if queue := self.faults.errors.get(request.operation):
                code, status = queue.popleft()
                return error_for(request, code, f"{code} (as arranged)", status=status)
            answer = self._answer(request, forward)
            if self.faults.unanswered.get(request.operation, 0) > 0:
                self.faults.unanswered[request.operation] -= 1
                raise NoAnswer(request.operation)
        self._tell(request, answer)
        return answer

    def _answer(self, request: Request, forward: Callable[[], Answer]) -> Answer:
        if request.service == "ec2":
            self._bring_up_to_date()
            own = getattr(self, f"_{_snake(request.operation)}", None)
            return own(request, forward) if own is not None else forward()
        own = {
            ("ssm", "GetParameter"): self._get_parameter,
            ("servicequotas", "ListServiceQuotas"): self._list_quotas,
            ("pricing", "GetProducts"): self._get_products,
        }.get((request.service, request.operation))
        return own(request, forward) if own is not None else forward()

    def _tell(self, request: Request, answer: Answer) -> None:
        """Tell the listeners outside the lock: they may come back with calls."""
        if answer.status != 200:
            return
        if request.operation == "RunInstances" and self.on_launch is not None:
            for instance_id in instance_ids_in(answer):
                self.on_launch(instance_id, request.region, user_data_of(request))
        elif request.operation == "TerminateInstances" and self.on_end is not None:
            for instance_id in instance_ids_in(answer):
                self.on_end(instance_id)

    # -- EC2 --------------------------------------------------------------------------------

    def _run_instances(self, request: Request, forward: Callable[[], Answer]) -> Answer:
        asked = request.parameters
        region, token = request.region, asked.get("ClientToken", "")
        digest = _digest(asked)
        if asked.get("DryRun") == "true":
            return ec2_error(
                "DryRunOperation",
                "Request would have succeeded, but DryRun flag is set.",
                status=412,
            )
        if token and (known := self._by_token.get((region, token))) is not None:
            if known[0] != digest:
                return ec2_error(
                    "IdempotentParameterMismatch",
                    f"Arguments on this idempotent request are inconsistent with token {token}",
                )
            return self._as_now(known[1])
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        _put_profile(asked)
        answer = forward()
        if answer.status != 200:
            return answer
        now_s = self._now_s()
        stamp = _stamp(now_s)
        answer = Answer(
            status=200,
            body=_LAUNCH_TIME.sub(f"<launchTime>{stamp}</launchTime>".encode(), answer.body),
            headers={k: v for k, v in answer.headers.items() if k.lower() != "content-length"},
        )
        for instance_id in instance_ids_in(answer):
            self._machines[instance_id] = _Machine(
                instance_id=instance_id,
                region=region,
                instance_type=asked.get("InstanceType", ""),
                is_spot=asked.get("InstanceMarketOptions.MarketType") == "spot",
                launched_at_s=now_s,
            )
        if token:
            self._by_token[region, token] = (digest, answer)
        return answer

    def _as_now(self, answer: Answer) -> Answer:
        """Return a kept answer with the state that its instance has by now."""
        self._bring_up_to_date()
        body = answer.body
        for instance_id in instance_ids_in(answer):
            instance = self._machines[instance_id].moto
            state = f"<code>{instance._state.code}</code><name>{instance._state.name}</name>"
            body = _STATE.sub(f"<instanceState>{state}</instanceState>".encode(), body)
        return Answer(status=answer.status, body=body, headers=answer.headers)

    def _refusal(self, request: Request) -> Answer | None:
        asked, region = request.parameters, request.region
        instance_type = asked.get("InstanceType", "")
        zone_name = asked.get("Placement.AvailabilityZone", "")
        is_spot = asked.get("InstanceMarketOptions.MarketType") == "spot"
        capacity_type = CapacityType.SPOT if is_spot else CapacityType.ON_DEMAND
        limit = limit_for(
            self.limits, region=region, instance_type=instance_type, capacity_type=capacity_type
        )
        if limit is not None:
            used = sum(
                self._vcpus_of.get(each.instance_type, 0.0)
                for each in self._machines.values()
                if each.region == region
                and each.over_at_s(self._now_s()) is None
                and each.is_spot == is_spot
                and limit_for(
                    self.limits,
                    region=region,
                    instance_type=each.instance_type,
                    capacity_type=capacity_type,
                )
                is limit
            )
            if used + self._vcpus_of.get(instance_type, 1.0) > limit.vcpus:
                code = "MaxSpotInstanceCountExceeded" if is_spot else "VcpuLimitExceeded"
                return ec2_error(
                    code,
                    f"You have requested more vCPU capacity than your current vCPU limit of "
                    f"{limit.vcpus:g} allows for the instance bucket that the specified instance "
                    "type belongs to.",
                )
        if self.faults.stocked_out(zone_name, instance_type, is_spot):
            return ec2_error(
                "InsufficientInstanceCapacity",
                f"We currently do not have sufficient {instance_type} capacity in the "
                f"Availability Zone you requested ({zone_name}).",
                status=500,
            )
        return None

    def _describe_instances(self, request: Request, forward: Callable[[], Answer]) -> Answer:
        missing = self._hidden_ids()
        for instance_id in numbered(request.parameters, "InstanceId"):
            if instance_id in missing:
                return _not_found(instance_id)
        return without_instances(forward(), missing)

    def _describe_instance_type_offerings(
        self, request: Request, forward: Callable[[], Answer]
    ) -> Answer:
        from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

        asked = set(numbered(request.parameters, "Filter.1.Value"))
        names = {zone.zone_id: zone.name for zone in RegionsAndZonesBackend.zones[request.region]}
        sold = sorted(
            {
                (names[offer.zone], offer.instance_type)
                for offer in self._offers
                if offer.zone in names and offer.instance_type in asked
            }
        )
        items = "".join(
            f"<item><instanceType>{escape(instance_type)}</instanceType>"
            f"<locationType>availability-zone</locationType><location>{name}</location></item>"
            for name, instance_type in sold
        )
        return ec2_answer(
            "DescribeInstanceTypeOfferings",
            f"<instanceTypeOfferingSet>{items}</instanceTypeOfferingSet>",
        )

    def _describe_spot_instance_requests(
        self, request: Request, forward: Callable[[], Answer]
    ) -> Answer:
        now_s = self._now_s()
        items = "".join(
            f"<item><spotInstanceRequestId>sir-{each.instance_id[2:10]}</spotInstanceRequestId>"
            f"<instanceId>{each.instance_id}</instanceId><state>active</state><status>"
            "<code>marked-for-termination</code><updateTime>"
            f"{_stamp(each.interrupted_at_s - NOTICE_S)}</updateTime></status></item>"
            for each in self._machines.values()
            if each.region == request.region
            and each.interrupted_at_s is not None
            and each.over_at_s(now_s) is None
            and each.interrupted_at_s - NOTICE_S <= now_s
        )
        return ec2_answer(
            "DescribeSpotInstanceRequests",
            f"<spotInstanceRequestSet>{items}</spotInstanceRequestSet>",
        )

    def _terminate_instances(self, request: Request, forward: Callable[[], Answer]) -> Answer:
        missing = self._hidden_ids()
        ids = numbered(request.parameters, "InstanceId")
        for instance_id in ids:
            machine = self._machines.get(instance_id)
            if instance_id in missing or (machine is not None and machine.region != request.region):
                return _not_found(instance_id)
        answer = forward()
        if answer.status == 200:
            for instance_id in ids:
                machine = self._machines.get(instance_id)
                if machine is not None and machine.over_at_s(self._now_s()) is None:
                    machine.asked_to_end_at_s = self._now_s()
        return answer

    def _describe_spot_price_history(
        self, request: Request, forward: Callable[[], Answer]
    ) -> Answer:
        if self.spot_history is None:
            return forward()
        types = set(numbered(request.parameters, "InstanceType"))
        start = request.parameters.get("StartTime")
        start_s = datetime.fromisoformat(start).timestamp() if start else 0.0
        chosen: list[SpotPoint] = []
        rows = [
            point
            for point in self.spot_history
            if point.zone_name.startswith(request.region)
            and point.instance_type in types
            and point.at_s <= self._now_s()
        ]
        rows.sort(key=lambda point: (point.zone_name, point.instance_type, point.at_s))
        for _, group in itertools.groupby(
            rows, key=lambda point: (point.zone_name, point.instance_type)
        ):
            points = list(group)
            # The price that held at the start belongs to the answer, as on the real service.
            before = [point for point in points if point.at_s <= start_s][-1:]
            chosen += before + [point for point in points if point.at_s > start_s]
        page = int(request.parameters.get("NextToken") or 0)
        items = "".join(
            f"<item><instanceType>{escape(point.instance_type)}</instanceType>"
            "<productDescription>Linux/UNIX</productDescription>"
            f"<spotPrice>{point.usd_per_hour:.6f}</spotPrice>"
            f"<timestamp>{_stamp(point.at_s)}</timestamp>"
            f"<availabilityZone>{escape(point.zone_name)}</availabilityZone></item>"
            for point in chosen[page : page + _PAGE]
        )
        following = str(page + _PAGE) if page + _PAGE < len(chosen) else ""
        return ec2_answer(
            "DescribeSpotPriceHistory",
            f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{following}</nextToken>",
        )

    def _create_placement_group(self, request: Request, forward: Callable[[], Answer]) -> Answer:
        name = request.parameters.get("GroupName", "")
        if (request.region, name) in self._groups:
            return ec2_error("InvalidPlacementGroup.Duplicate", f"{name} exists")
        keys = request.parameters
        tags = {
            keys[key]: keys.get(key.removesuffix("Key") + "Value", "")
            for key in keys
            if re.fullmatch(r"TagSpecification\.1\.Tag\.\d+\.Key", key)
        }
        self._groups[request.region, name] = tags
        return ec2_answer("CreatePlacementGroup", "<return>true</return>")

    def _describe_placement_groups(self, request: Request, forward: Callable[[], Answer]) -> Answer:
        tag = request.parameters.get("Filter.1.Name", "tag:").removeprefix("tag:")
        value = request.parameters.get("Filter.1.Value.1")
        items = "".join(
            f"<item><groupName>{escape(name)}</groupName><strategy>cluster</strategy>"
            "<state>available</state></item>"
            for (region, name), tags in sorted(self._groups.items())
            if region == request.region and (not tag or tags.get(tag) == value)
        )
        return ec2_answer(
            "DescribePlacementGroups", f"<placementGroupSet>{items}</placementGroupSet>"
        )

    def _delete_placement_group(self, request: Request, forward: Callable[[], Answer]) -> Answer:
        name = request.parameters.get("GroupName", "")
        if self._groups.pop((request.region, name), None) is None:
            return ec2_error("InvalidPlacementGroup.Unknown", f"{name} does not exist")
        return ec2_answer("DeletePlacementGroup", "<return>true</return>")

    # -- the neighbours ---------------------------------------------------------------------

    def _get_parameter(self, request: Request, forward: Callable[[], Answer]) -> Answer:
        name = str(request.parameters.get("Name", ""))
        for image_id, family in IMAGES.items():
            if family.parameter == name:
                return json_answer(
                    {"Parameter": {"Name": name, "Type": "String", "Value": image_id, "Version": 1}}
                )
        if name.startswith("/aws/service/"):
            return json_error("ParameterNotFound", name)
        return forward()

    def _list_quotas(self, request: Request, forward: Callable[[], Answer]) -> Answer:
        rows = [
            {
                "ServiceCode": "ec2",
                "QuotaName": limit.title,
                "QuotaCode": limit.code,
                "Value": limit.vcpus,
                "Adjustable": limit.adjustable,
            }
            for limit in self.limits
            if limit.region == request.region
        ]
        page = int(request.parameters.get("NextToken") or 0)
        document: dict[str, Any] = {"Quotas": rows[page : page + _PAGE]}
        if page + _PAGE < len(rows):
            document["NextToken"] = str(page + _PAGE)
        return json_answer(document)

    def _get_products(self, request: Request, forward: Callable[[], Answer]) -> Answer:
        wanted = {each["Field"]: each["Value"] for each in request.parameters.get("Filters", ())}
        region = wanted.get("regionCode", "")
        rows = [text for text in self.price_list if f'"{region}"' in text]
        page = int(request.parameters.get("NextToken") or 0)
        document: dict[str, Any] = {
            "FormatVersion": "aws_v1",
            "PriceList": rows[page : page + _PAGE],
        }
        if page + _PAGE < len(rows):
            document["NextToken"] = str(page + _PAGE)
        return json_answer(document)

    # -- moto's own objects -----------------------------------------------------------------

    def _hidden_ids(self) -> set[str]:
        now_s, habits = self._now_s(), self.habits
        return {
            each.instance_id
            for each in self._machines.values()
            if each.forgotten
            or now_s < each.launched_at_s + habits.list_lag_s
            or (
                (over_at_s := each.over_at_s(now_s)) is not None
                and now_s > over_at_s + habits.shutting_down_s + habits.ended_listed_s
            )
        }

    def _bring_up_to_date(self) -> None:
        """Give moto's instances the states that they have at this instant."""
        now_s = self._now_s()
        for machine in self._machines.values():
            instance = _moto_instance(machine)
            if instance is None:
                continue
            instance.launch_time = _utc(machine.launched_at_s).replace(tzinfo=None)
            over_at_s = machine.over_at_s(now_s)
            if over_at_s is None:
                pending = now_s < machine.launched_at_s + self.habits.pending_s
                _set_state(instance, *(("pending", 0) if pending else ("running", 16)))
                continue
            through = now_s >= over_at_s + self.habits.shutting_down_s
            _set_state(instance, *(("terminated", 48) if through else ("shutting-down", 32)))
            _set_reason(instance, machine, over_at_s)


def user_data_of(request: Request) -> str:
    """Return the user data of a ``RunInstances`` as text; empty when it has none."""
    import base64

    return base64.b64decode(request.parameters.get("UserData", "")).decode()


def _put_profile(asked: Mapping[str, str]) -> None:
    """Give moto the instance profile of a request: whether it exists, only the account knows."""
    from moto.iam.models import iam_backends

    named = asked.get("IamInstanceProfile.Name") or asked.get("IamInstanceProfile.Arn", "")
    name = named.rpartition("/")[2]
    backend = iam_backends[ACCOUNT]["aws"]
    if name and name not in {each.name for each in backend.get_instance_profiles()}:
        backend.create_instance_profile(name=name, path="/", role_names=[])


def _moto_instance(machine: _Machine) -> Any:
    if machine.moto is None:
        from moto.ec2.models import ec2_backends

        for reservation in ec2_backends[ACCOUNT][machine.region].reservations.values():
            for instance in reservation.instances:
                if instance.id == machine.instance_id:
                    machine.moto = instance
    return machine.moto


def _set_state(instance: Any, name: str, code: int) -> None:
    instance._state.name = name
    instance._state.code = code


def _set_reason(instance: Any, machine: _Machine, over_at_s: float) -> None:
    from moto.ec2.models.instances import StateReason

    stamp = _utc(over_at_s).strftime("%Y-%m-%d %H:%M:%S GMT")
    if machine.interrupted_at_s == over_at_s:
        code, words = "Server.SpotInstanceTermination", "Spot instance termination"
        transition = f"{code}: {words} ({stamp})"
    elif machine.shut_itself_down_at_s == over_at_s:
        code, words = "Client.InstanceInitiatedShutdown", "Instance initiated shutdown"
        transition = ""
    else:
        code, words = "Client.UserInitiatedShutdown", "User initiated shutdown"
        transition = f"User initiated ({stamp})"
    instance._reason = transition
    instance.state_reason = StateReason(f"{code}: {words}", code)


def _digest(parameters: Mapping[str, str]) -> str:
    text = "\n".join(f"{key}={parameters[key]}" for key in sorted(parameters))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _not_found(instance_id: str) -> Answer:
    return ec2_error(
        "InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist"
    )


def _snake(operation: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower()


def _stamp(at_s: float) -> str:
    return _utc(at_s).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _utc(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, tz=UTC)
