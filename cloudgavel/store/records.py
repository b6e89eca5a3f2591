"""What is known of a run after folding its events: frozen records, one per thing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cloudgavel.estimation.measured_rate import RateWindows
from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.jobs.spec import JobSpec, RunSpec
from cloudgavel.mechanism.fleet import InstanceState
from cloudgavel.mechanism.plan import RoundPlan
from cloudgavel.pricing.offer import Offer
from cloudgavel.pricing.sightings import OfferSightings
from cloudgavel.units import usd

_PLACED = (JobPhase.STARTING, JobPhase.RUNNING, JobPhase.SAVING, JobPhase.MOVING)
_OVER = (JobPhase.FINISHED, JobPhase.FAILED, JobPhase.CANCELLED)


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptRecord:
    """One stretch of a job on one set of instances."""

    number: int
    instance_ids: tuple[str, ...]
    request_label: str
    accelerator_indices: tuple[int, ...]
    save_every_s: float
    started_at_s: float
    reason: str
    steps_per_s_expected: float | None
    price_usd_per_hour: float
    """Of all its instances together, when it was started."""
    restored_step: int | None = None
    """Where it began; ``None`` until its first sign of life."""
    ended_at_s: float | None = None
    end_step: int | None = None
    uploaded_bytes: int = 0
    downloaded_bytes: int = 0
    """Of checkpoints, as far as they are booked."""
    traffic_micro_usd: int = 0
    end: str | None = None
    """``stopped``, ``interruption``, ``vanished``, ``terminated``, ``failed``, ``finished``..."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """One job as the log tells it."""

    spec: JobSpec
    phase: JobPhase = JobPhase.WAITING
    steps_done: int = 0
    """Of the present attempt; of the newest checkpoint when it is nowhere."""
    saved_steps: int = 0
    attempts: tuple[AttemptRecord, ...] = ()
    move_to: tuple[str, ...] = ()
    stop_asked_at_s: float | None = None
    """When the present attempt was told to save and end; ``None`` = it is to run."""
    failed_stops: int = 0
    """How often it could not be saved when it was to end."""
    save_sequence: int = 0
    started_at_s: float | None = None
    finished_at_s: float | None = None
    """When it reached its last phase (finished, failed, cancelled)."""
    spent_micro_usd: int = 0
    """Machines, traffic and storage."""
    storage_micro_usd: int = 0
    kept_bytes: tuple[int, ...] = ()
    """Sizes of the checkpoints that the store keeps, as far as known; the newest is last."""
    stored_byte_s: float = 0.0
    """Bytes kept times seconds, up to ``stored_since_s``."""
    stored_since_s: float = 0.0
    moves: int = 0
    interruptions: int = 0
    steps_repeated: int = 0
    failures: int = 0
    save_error: str | None = None
    promise_released: bool = False
    excluded: frozenset[str] = frozenset()
    last_lines: tuple[str, ...] = ()
    steps_per_s_measured: float | None = None
    """What the newest report says, for people to see."""
    rate_windows: Mapping[str, RateWindows] = field(default_factory=lambda: MappingProxyType({}))
    """Measured from its progress, by request label: what decisions count on."""
    loss: float | None = None
    reason: str | None = None
    """The last word about it: why it is where it is, why it failed."""

    @property
    def active(self) -> bool:
        """True while there is work left."""
        return self.phase not in _OVER

    @property
    def placed(self) -> bool:
        """True while a process of it may exist."""
        return self.phase in _PLACED and self.current is not None

    @property
    def current(self) -> AttemptRecord | None:
        """The attempt that has not ended, if any."""
        if self.attempts and self.attempts[-1].ended_at_s is None:
            return self.attempts[-1]
        return None

    @property
    def traffic_micro_usd(self) -> int:
        """What its checkpoints cost between clouds, booked so far."""
        return sum(attempt.traffic_micro_usd for attempt in self.attempts)

    def stored_gib_s(self, now_s: float) -> float:
        """GiB kept in the store times seconds, up to now."""
        held_s = max(0.0, now_s - self.stored_since_s)
        return (self.stored_byte_s + sum(self.kept_bytes) * held_s) / 2**30

    @property
    def stop_asked(self) -> bool:
        """True while the present attempt is to save and end."""
        return self.stop_asked_at_s is not None

    @property
    def attempt(self) -> int:
        """Number of the newest attempt; 0 = never started."""
        return self.attempts[-1].number if self.attempts else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class IntentRecord:
    """A launch that is written down and not known to have ended in an instance or a refusal."""

    token: str
    intended_at_s: float
    offers: tuple[Offer, ...]
    tried: tuple[str, ...]
    """Offers refused so far."""
    for_jobs: tuple[str, ...]
    reason: str
    gang: str | None = None
    terminate_asked: bool = False

    @property
    def next_offer(self) -> Offer | None:
        """The offer to ask for now; ``None`` = all refused."""
        return next((offer for offer in self.offers if offer.offer_id not in self.tried), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceRecord:
    """One instance, from its launch to its end and beyond."""

    instance_id: str
    token: str
    offer: Offer
    state: InstanceState
    prices: tuple[tuple[float, float], ...]
    """``(from_s, usd_per_hour)``, oldest first: what it cost when."""
    launched_at_s: float
    expected_ready_at_s: float | None = None
    ready_at_s: float | None = None
    address: str | None = None
    noticed: bool = False
    notice_ends_at_s: float | None = None
    for_jobs: tuple[str, ...] = ()
    """Launched for these, not placed on it yet."""
    launched_for: tuple[str, ...] = ()
    """Launched for these, for good."""
    launch_reason: str = ""
    """Why it was rented."""
    terminate_asked_at_s: float | None = None
    terminate_reason: str | None = None
    ended_at_s: float | None = None
    end_reason: str | None = None
    estimated: bool = False
    accrued_micro_usd: int = 0
    """Without what was waived."""
    waived_micro_usd: int = 0
    """What its cloud does not charge, although it ran."""
    accrued_until_s: float = 0.0
    unattributed_micro_usd: int = 0
    by_job_micro_usd: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def alive(self) -> bool:
        """True until its end is confirmed."""
        return self.state is not InstanceState.ENDED

    @property
    def price_usd_per_hour(self) -> float:
        """What it costs by its newest price."""
        return self.prices[-1][1]


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockRecord:
    """An offer that refused lately."""

    until_s: float
    reason: str
    failure: str
    """A ``providers.failures.FailureKind`` value."""
    refusals: int
    """In a row: the back-off grows with them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleasedPromise:
    """A promise that is no longer held."""

    at_s: float
    job: str
    promise: str
    by_s: float | None
    by_usd: float | None
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunState:
    """Everything that follows from a run's events."""

    run_id: str = ""
    spec: RunSpec | None = None
    created_at_s: float = 0.0
    rehearsal: bool = True
    best_effort: bool = False
    budget_usd: float | None = None
    on_demand_only_usd: float | None = None
    lower_bound_usd: float | None = None
    prices_as_of: str = ""
    at_s: float = 0.0
    """Of the newest event."""
    jobs: Mapping[str, JobRecord] = field(default_factory=lambda: MappingProxyType({}))
    instances: Mapping[str, InstanceRecord] = field(default_factory=lambda: MappingProxyType({}))
    intents: Mapping[str, IntentRecord] = field(default_factory=lambda: MappingProxyType({}))
    """Open ones, by token."""
    instance_of_token: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    blocked: Mapping[str, BlockRecord] = field(default_factory=lambda: MappingProxyType({}))
    spot_seen: Mapping[str, OfferSightings] = field(default_factory=lambda: MappingProxyType({}))
    """By spot offer: refusals, and machines whose life is over."""
    orphans: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Machines with our tag and no intent: id -> offer id."""
    spent_micro_usd: int = 0
    unattributed_micro_usd: int = 0
    decisions: int = 0
    plan: RoundPlan | None = None
    """The newest decision."""
    decided_at_s: float | None = None
    released: tuple[ReleasedPromise, ...] = ()
    notified: frozenset[tuple[str, str]] = frozenset()
    """Messages that were delivered or given up: ``(key, address)``."""
    controllers: int = 0
    """How many times a controller started: the epoch of orders."""
    stopping: str | None = None
    """Why everything is being stopped; ``None`` = it is not."""
    ended: str | None = None
    """The state in which the run ended; ``None`` while it goes on."""
    ended_at_s: float | None = None

    @property
    def live_instances(self) -> tuple[InstanceRecord, ...]:
        """Instances whose end is not confirmed, by id."""
        return tuple(record for _, record in sorted(self.instances.items()) if record.alive)

    @property
    def active_jobs(self) -> tuple[JobRecord, ...]:
        """Jobs with work left, in the order of the file."""
        return tuple(job for job in self.jobs.values() if job.active)

    @property
    def spent_usd(self) -> float:
        """Money spent so far."""
        return usd(self.spent_micro_usd)

    def jobs_on(self, instance_id: str) -> tuple[str, ...]:
        """Names of the jobs whose process may be on the instance."""
        return tuple(
            name
            for name, job in self.jobs.items()
            if job.current is not None and instance_id in job.current.instance_ids
        )
