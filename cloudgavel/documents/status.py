"""``cloudgavel/status``: a run at one moment, for ``status``, ``watch`` and the live view."""

from dataclasses import dataclass

from cloudgavel.documents.plan import Relaxed


@dataclass(frozen=True, kw_only=True, slots=True)
class StatusJob:
    """One line of the promises."""

    name: str
    state: str
    on: str | None
    """``aws p3.2xlarge spot`` or ``None``."""
    steps_per_s_measured: float | None
    steps_per_s_expected: float | None
    steps_done: int
    steps_total: int
    finish_s: float | None
    """Expected, or real once finished; seconds from the run's creation."""
    deadline_s: float | None
    promise: str
    """``none``, ``covered``, ``expected``, ``released``, ``kept``, ``missed``."""
    spent_usd: float
    reason: str | None
    """Why it waits, or why it is where it is."""
    save_every_s: float | None = None
    """Seconds between its saves where it is; ``None`` = it is nowhere."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StatusFleetLine:
    """Instances of one kind."""

    provider: str
    instance_type: str
    capacity_type: str
    count: int
    age_s: float
    """Of the oldest."""
    busy_share: float | None
    """Part of its accelerators that jobs hold now."""
    usd_per_hour: float
    """All of them together."""
    interruption_rate_per_hour: float | None
    note: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StatusEvent:
    """One line of what happened, newest first."""

    at: str
    at_s: float
    """Seconds from the run's creation."""
    subject: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StatusDocument:
    """A run at one moment."""

    schema: str = "cloudgavel/status"
    schema_version: int = 1
    run_id: str
    name: str
    state: str
    rehearsal: bool
    policy: str
    round: int
    now: str
    """The run's own time (virtual in a rehearsal)."""
    now_s: float
    """Seconds from the run's creation."""
    next_decision_s: float | None
    """Seconds from the run's creation."""
    controller_alive: bool
    controller_seen_s_ago: float | None
    budget_usd: float | None
    spent_usd: float
    committed_usd: float
    usd_per_hour: float
    expected_total_usd: float | None
    """Spent and what the decision expects of the active jobs; once the run has ended, spent."""
    lower_bound_usd: float | None
    on_demand_only_usd: float | None
    jobs: tuple[StatusJob, ...]
    fleet: tuple[StatusFleetLine, ...]
    orphans: tuple[str, ...]
    """Machines with our tag and no intent: they may cost money; ``down`` ends them."""
    events: tuple[StatusEvent, ...]
    relaxed: tuple[Relaxed, ...] = ()
