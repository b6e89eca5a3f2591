"""What moto leaves out of EC2: stock-outs, limits, idempotent tokens, lag, slow states, ends.

One object is one account. Every call goes through ``handle``, which answers it, or passes it on to
moto and puts right what comes back. Instants are those of the clock that is given.
"""

import hashlib
import re
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.aws.mocked import tables
from cloudgavel.providers.aws.mocked.machines import MockedMachine, keep_in_step, put_profile
from cloudgavel.providers.aws.mocked.tables import stamp
from cloudgavel.providers.aws.mocked.wire import (
    Answer,
    NoAnswer,
    Request,
    ec2_answer,
    ec2_error,
    error_for,
    instance_ids_in,
    numbered,
    without_instances,
)
from cloudgavel.providers.aws.prices import SpotPoint
from cloudgavel.providers.aws.quotas import VcpuLimit, limit_for

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
        self._machines: dict[str, MockedMachine] = {}
        self._by_token: dict[tuple[str, str], tuple[str, Answer]] = {}
        self._groups = tables.PlacementGroups()
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
            if own is not None:
                answer: Answer = own(request, forward)
                return answer
        looked_up = self._looked_up(request)
        return forward() if looked_up is None else looked_up

    def _looked_up(self, request: Request) -> Answer | None:
        """Answer what only has to be looked up (``mocked.tables``); ``None`` = moto's own."""
        match request.operation:
            case "DescribeInstanceTypeOfferings":
                return tables.offerings(request, self._offers)
            case "DescribeSpotPriceHistory" if self.spot_history is not None:
                return tables.spot_history(request, self.spot_history, self._now_s())
            case "CreatePlacementGroup" | "DescribePlacementGroups" | "DeletePlacementGroup":
                return self._groups.answer(request)
            case "GetParameter":
                return tables.parameter(request)
            case "ListServiceQuotas":
                return tables.quotas(request, self.limits)
            case "GetProducts":
                return tables.products(request, self.price_list)
        return None

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
        put_profile(asked)
        answer = forward()
        if answer.status != 200:
            return answer
        now_s = self._now_s()
        answer = Answer(
            status=200,
            body=_LAUNCH_TIME.sub(f"<launchTime>{stamp(now_s)}</launchTime>".encode(), answer.body),
            headers={k: v for k, v in answer.headers.items() if k.lower() != "content-length"},
        )
        for instance_id in instance_ids_in(answer):
            self._machines[instance_id] = MockedMachine(
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

    def _describe_spot_instance_requests(
        self, request: Request, forward: Callable[[], Answer]
    ) -> Answer:
        now_s = self._now_s()
        items = "".join(
            f"<item><spotInstanceRequestId>sir-{each.instance_id[2:10]}</spotInstanceRequestId>"
            f"<instanceId>{each.instance_id}</instanceId><state>active</state><status>"
            "<code>marked-for-termination</code><updateTime>"
            f"{stamp(each.interrupted_at_s - NOTICE_S)}</updateTime></status></item>"
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
        for machine in self._machines.values():
            keep_in_step(
                machine,
                now_s=self._now_s(),
                pending_s=self.habits.pending_s,
                ending_s=self.habits.shutting_down_s,
            )


def user_data_of(request: Request) -> str:
    """Return the user data of a ``RunInstances`` as text; empty when it has none."""
    import base64

    return base64.b64decode(request.parameters.get("UserData", "")).decode()


def _digest(parameters: Mapping[str, str]) -> str:
    text = "\n".join(f"{key}={parameters[key]}" for key in sorted(parameters))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _not_found(instance_id: str) -> Answer:
    return ec2_error(
        "InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist"
    )


def _snake(operation: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower()
