"""What happened, as a closed union of frozen events; the log of them is the only memory of a run.

``at_s`` is the run's own time (virtual in a rehearsal), UNIX seconds. Money is integer
micro-dollars. Events are appended, never changed; a field added later has a default.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import get_args

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.jobs.spec import RunSpec
from cloudgavel.mechanism.plan import RoundPlan
from cloudgavel.pricing.offer import Offer
from cloudgavel.store.codec import decode, encode


@dataclass(frozen=True, kw_only=True, slots=True)
class RunCreated:
    """A run begins; its deadlines count from ``at_s``."""

    at_s: float
    run_id: str
    spec: RunSpec
    budget_usd: float | None
    rehearsal: bool = True
    best_effort: bool = False
    on_demand_only_usd: float | None = None
    """What the plan said the run would cost without spot and moves; to compare with."""
    lower_bound_usd: float | None = None
    prices_as_of: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecChanged:
    """The person changed jobs.yaml and asked for the update."""

    at_s: float
    spec: RunSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetSet:
    """The budget for the whole run, money already spent included."""

    at_s: float
    budget_usd: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunResumed:
    """A run that was stopped, or out of budget, goes on."""

    at_s: float
    best_effort: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class StopRequested:
    """``down``: save everything, end every machine, keep what is not finished for later."""

    at_s: float
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ControllerStarted:
    """A controller took the lease; its number is the epoch of the orders it sends."""

    at_s: float
    holder: str
    pid: int
    host: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ControllerEnded:
    """A controller left in an orderly way; machines may go on."""

    at_s: float
    holder: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundDecided:
    """The whole decision of one round."""

    at_s: float
    plan: RoundPlan


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchIntended:
    """Written before the cloud is asked: finished after a crash with the same token."""

    at_s: float
    token: str
    offers: tuple[Offer, ...]
    """Acceptable ones in order; the first that the cloud grants is taken."""
    for_jobs: tuple[str, ...]
    reason: str
    round_number: int
    gang: str | None = None
    """The job whose gang of several machines this one is of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchSucceeded:
    """The cloud rented ``instance_id``: money runs from ``launched_at_s``."""

    at_s: float
    token: str
    instance_id: str
    offer: Offer
    launched_at_s: float
    price_usd_per_hour: float
    expected_ready_at_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchFailed:
    """One acceptable offer was not granted; it costs nothing.

    ``closes_intent``: no further offer is tried under this token.
    """

    at_s: float
    token: str
    offer_id: str
    failure: str
    """A ``providers.failures.FailureKind`` value, or ``cancelled``."""
    message: str
    closes_intent: bool
    blocked_until_s: float | None = None
    """The offer is not asked for until then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceReady:
    """Its agent takes orders."""

    at_s: float
    instance_id: str
    address: str | None = None
    """At which other machines reach it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InterruptionNoticed:
    """The cloud said that the instance will be taken."""

    at_s: float
    instance_id: str
    ends_at_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TerminateAsked:
    """The end was asked for; it bills until the cloud confirms."""

    at_s: float
    instance_id: str
    """Or the token of an open intent: ended as soon as it is known."""
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceEnded:
    """The instance no longer exists and no longer bills."""

    at_s: float
    instance_id: str
    ended_at_s: float
    reason: str
    """A ``providers.base.EndReason`` value."""
    estimated: bool = False
    """Ended outside the tool: ``ended_at_s`` is when it was last seen alive."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OrphanSeen:
    """A machine with the run's tag and no intent; it may cost money."""

    at_s: float
    instance_id: str
    offer_id: str
    price_usd_per_hour: float


@dataclass(frozen=True, kw_only=True, slots=True)
class OrphanEnded:
    """A machine that was an orphan is gone."""

    at_s: float
    instance_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceChanged:
    """From ``at_s`` on the instance costs ``price_usd_per_hour``; the past is not re-priced."""

    at_s: float
    instance_id: str
    price_usd_per_hour: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AccruedLine:
    """What one instance cost since its last line: ``micro_usd`` = sum(by_job) + unattributed."""

    instance_id: str
    until_s: float
    micro_usd: int
    by_job: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    unattributed_micro_usd: int = 0
    waived: bool = False
    """A credit for everything written so far: the cloud does not charge this instance."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Accrued:
    """Money spent, written to the ledger."""

    at_s: float
    lines: tuple[AccruedLine, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptStarted:
    """A job's next attempt is ordered to run; the attempt's number is its fencing epoch."""

    at_s: float
    job: str
    attempt: int
    instance_ids: tuple[str, ...]
    request_label: str
    accelerator_indices: tuple[int, ...]
    save_every_s: float
    reason: str
    steps_per_s_expected: float | None = None
    price_usd_per_hour: float = 0.0
    """Of all its instances together, when it was started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveAsked:
    """The job is ordered to save now and go on."""

    at_s: float
    job: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StopAsked:
    """The job is ordered to save and end where it is."""

    at_s: float
    job: str
    to_instance_ids: tuple[str, ...]
    """Where it is to go on; empty = it waits."""
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Progressed:
    """How far an attempt is."""

    at_s: float
    job: str
    attempt: int
    step: int
    phase: JobPhase
    restored_step: int = 0
    steps_per_s_measured: float | None = None
    loss: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointSaved:
    """A checkpoint is committed: never lost again."""

    at_s: float
    job: str
    attempt: int
    step: int
    size_bytes: int | None = None
    """``None`` = not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrafficBooked:
    """Checkpoints of an attempt moved between clouds; an estimate from list prices.

    Bytes are those of the whole attempt so far, so that told twice they are booked once.
    """

    at_s: float
    job: str
    attempt: int
    uploaded_bytes: int
    downloaded_bytes: int
    micro_usd: int
    """Since the attempt's last line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageBooked:
    """Keeping the jobs' checkpoints in the store since the last line; an estimate."""

    at_s: float
    by_job: Mapping[str, int]
    """Micro-dollars."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveFailed:
    """A save did not work: the job is not moved until one does (``error=None`` = it did)."""

    at_s: float
    job: str
    attempt: int
    error: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptStopped:
    """An attempt ended on order, or by itself on the cloud's notice."""

    at_s: float
    job: str
    attempt: int
    step: int
    interrupted: bool
    """The cloud was taking the instance: an interruption, not a move."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptLost:
    """The attempt's instance is gone; what was not saved is repeated."""

    at_s: float
    job: str
    attempt: int
    step: int
    """Last known."""
    cause: str
    """``interruption``, ``vanished`` or ``terminated``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptFailed:
    """The job's process ended badly by itself."""

    at_s: float
    job: str
    attempt: int
    step: int
    exit_code: int | None
    last_lines: tuple[str, ...]
    retry: bool
    out_of_memory_on: str | None = None
    """Accelerator on which its memory did not suffice: not tried again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFinished:
    """All of a job's work is done."""

    at_s: float
    job: str
    step: int


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFailed:
    """A job is given up."""

    at_s: float
    job: str
    reason: str
    last_lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class JobCancelled:
    """The person took the job back."""

    at_s: float
    job: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PromiseReleased:
    """A promise is no longer held, and why."""

    at_s: float
    job: str
    promise: str
    by_s: float | None
    by_usd: float | None
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnded:
    """Nothing runs and nothing bills any more."""

    at_s: float
    state: str
    """``finished``, ``failed``, ``budget_exhausted`` or ``stopped``."""
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Notified:
    """A message under ``notify`` was delivered to one address, or given up; not told again."""

    at_s: float
    key: str
    address: str
    """A hash: the address may be a secret."""
    delivered: bool


Event = (
    RunCreated
    | SpecChanged
    | BudgetSet
    | RunResumed
    | StopRequested
    | ControllerStarted
    | ControllerEnded
    | RoundDecided
    | LaunchIntended
    | LaunchSucceeded
    | LaunchFailed
    | InstanceReady
    | InterruptionNoticed
    | TerminateAsked
    | InstanceEnded
    | OrphanSeen
    | OrphanEnded
    | PriceChanged
    | Accrued
    | AttemptStarted
    | SaveAsked
    | StopAsked
    | Progressed
    | CheckpointSaved
    | TrafficBooked
    | StorageBooked
    | SaveFailed
    | AttemptStopped
    | AttemptLost
    | AttemptFailed
    | JobFinished
    | JobFailed
    | JobCancelled
    | PromiseReleased
    | RunEnded
    | Notified
)
"""Everything that can be written to a run's log."""

_KINDS: Mapping[str, type[Event]] = MappingProxyType(
    {kind.__name__: kind for kind in get_args(Event)}
)


def kind_of(event: Event) -> str:
    """Return the name under which the event is stored."""
    return type(event).__name__


def to_json(event: Event) -> str:
    """Return the event's body as JSON text."""
    return json.dumps(encode(event), separators=(",", ":"), allow_nan=False)


def from_json(kind: str, body: str) -> Event:
    """Return the event that ``to_json`` wrote; ``ValueError`` for an unknown kind or shape."""
    if kind not in _KINDS:
        raise ValueError(f"unknown kind of event: {kind} (written by a newer version?)")
    return decode(_KINDS[kind], json.loads(body))
