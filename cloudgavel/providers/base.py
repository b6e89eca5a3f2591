"""What every provider of machines promises, and the channel to the agents on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from cloudgavel.messages.orders import Orders
from cloudgavel.messages.report import Report
from cloudgavel.pricing.offer import Offer


class MachineState(StrEnum):
    """What a cloud says of an instance."""

    PENDING = "pending"
    RUNNING = "running"
    TERMINATING = "terminating"
    TERMINATED = "terminated"


class EndReason(StrEnum):
    """Why an instance ended."""

    REQUESTED = "requested"
    INTERRUPTED = "interrupted"
    VANISHED = "vanished"
    """Ended without a word (terminated by hand, lost)."""
    EXPIRED = "expired"
    """Its own watchdog or lifetime ended it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchRequest:
    """One instance to rent, written down before the call."""

    token: str
    """Idempotency token: the same token never rents twice."""
    run_id: str
    offer: Offer
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedInstance:
    """One line of a cloud's list."""

    instance_id: str
    token: str
    run_id: str
    offer_id: str
    state: MachineState
    launched_at_s: float
    price_usd_per_hour: float
    """Now; of an ended one its last."""
    expected_ready_at_s: float | None = None
    ended_at_s: float | None = None
    end_reason: EndReason | None = None
    notice_ends_at_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Quota:
    """At most ``limit`` units over the offers it counts."""

    name: str
    limit: float
    units_per_instance: Mapping[str, float]


@runtime_checkable
class Provider(Protocol):
    """A few verbs and a closed set of failures (``providers.failures``).

    - ``launch`` is idempotent by token: repeated, it returns the same instance.
    - ``list_instances`` may lag: a new instance can be missing for a while; an ended one stays
      listed as TERMINATED for at least an hour of the provider's time.
    - ``terminate`` is idempotent, also for instances already gone; only a later listing with
      TERMINATED confirms the end.
    - A failed launch costs nothing.
    """

    name: str

    def offers(self) -> Sequence[Offer]:
        """Return what can be asked for, at today's prices."""
        ...

    def boot_s(self, offer: Offer) -> float:
        """Expected seconds from launch to an agent that takes orders."""
        ...

    def quotas(self) -> Sequence[Quota]:
        """Return the account's limits."""
        ...

    def launch(self, request: LaunchRequest) -> ListedInstance:
        """Rent one instance; raises ``LaunchFailed`` with its kind."""
        ...

    def list_instances(self, run_id: str) -> Sequence[ListedInstance]:
        """Return the instances that carry the run's tag, recently ended ones included."""
        ...

    def price_changes(self, instance_id: str, since_s: float) -> Sequence[tuple[float, float]]:
        """Return ``(at_s, usd_per_hour)`` changes after ``since_s``, oldest first."""
        ...

    def terminate(self, instance_id: str) -> None:
        """Ask for the end of an instance."""
        ...


class AgentChannel(Protocol):
    """Orders down, reports up; through the run's object store, or simulated."""

    def send(self, orders: Orders) -> None:
        """Replace an instance's orders; higher sequence wins."""
        ...

    def reports(self) -> Mapping[str, Report]:
        """Return the newest report of every instance that ever reported."""
        ...

    def heard_since_s(self) -> float:
        """Since when reports arrive without a break; ``-inf`` = always, ``inf`` = not now."""
        ...


class Paced(Protocol):
    """A world whose time is virtual: the driver asks what comes next and moves there."""

    def now_s(self) -> float:
        """Return the world's present instant."""
        ...

    def next_event_at_s(self) -> float | None:
        """Return when something observable happens next, strictly after now."""
        ...

    def advance_to(self, at_s: float) -> None:
        """Let everything happen up to ``at_s``; returns when it has."""
        ...
