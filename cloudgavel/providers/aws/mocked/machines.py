"""The machines of a mocked account, and how moto's own objects are kept in step with them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

ACCOUNT = "123456789012"


@dataclass(kw_only=True, slots=True)
class MockedMachine:
    """One machine: when it was launched, and how and when it ended or will."""

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


def keep_in_step(
    machine: MockedMachine, *, now_s: float, pending_s: float, ending_s: float
) -> None:
    """Give moto's instance the state that the machine has at this instant."""
    instance = moto_instance(machine)
    if instance is None:
        return
    instance.launch_time = _utc(machine.launched_at_s).replace(tzinfo=None)
    over_at_s = machine.over_at_s(now_s)
    if over_at_s is None:
        pending = now_s < machine.launched_at_s + pending_s
        _set_state(instance, *(("pending", 0) if pending else ("running", 16)))
        return
    through = now_s >= over_at_s + ending_s
    _set_state(instance, *(("terminated", 48) if through else ("shutting-down", 32)))
    _set_reason(instance, machine, over_at_s)


def put_profile(asked: Mapping[str, str]) -> None:
    """Give moto the instance profile of a request: whether it exists, only the account knows."""
    from moto.iam.models import iam_backends

    named = asked.get("IamInstanceProfile.Name") or asked.get("IamInstanceProfile.Arn", "")
    name = named.rpartition("/")[2]
    backend = iam_backends[ACCOUNT]["aws"]
    if name and name not in {each.name for each in backend.get_instance_profiles()}:
        backend.create_instance_profile(name=name, path="/", role_names=[])


def moto_instance(machine: MockedMachine) -> Any:
    """Return moto's object of a machine; ``None`` when it has none."""
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


def _set_reason(instance: Any, machine: MockedMachine, over_at_s: float) -> None:
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


def _utc(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, tz=UTC)
