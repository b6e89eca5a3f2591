"""``cloudgavel/run``: what a run did and cost."""

from dataclasses import dataclass

from cloudgavel.documents.plan import CostLine, Relaxed


@dataclass(frozen=True, kw_only=True, slots=True)
class RunJob:
    """One job of a run."""

    name: str
    state: str
    steps_done: int
    steps_total: int
    deadline_s: float | None
    finish_s: float | None
    """Seconds from the run's creation; ``None`` = not finished."""
    deadline_met: bool | None
    spent_usd: float
    moves: int
    interruptions: int
    steps_repeated: int
    """Steps done again because they were lost."""
    attempts: int
    failures: int
    last_lines: tuple[str, ...] = ()
    """The end of the log of a failed job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInstance:
    """One instance of a run."""

    id: str
    provider: str
    instance_type: str
    zone: str
    capacity_type: str
    launched_at: str
    ended_at: str | None
    end_reason: str | None
    cost_usd: float
    disk_usd: float = 0.0
    """Of the cost: the boot disk, estimated."""
    waived_usd: float = 0.0
    """Not charged, because the cloud took it in its first hour (AWS spot)."""
    estimated: bool
    """Ended outside the tool: billed up to when it was last seen alive."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunDocument:
    """The account of a run; the sums hold to the micro-dollar.

    ``spent_usd == sum(instances.cost_usd) + sum(lines.usd)
    == sum(jobs.spent_usd) + unattributed_usd``.
    """

    schema: str = "cloudgavel/run"
    schema_version: int = 1
    run_id: str
    name: str
    state: str
    """``running``, ``finished``, ``failed`` (a job failed), ``budget_exhausted``, ``stopped``."""
    policy: str
    rehearsal: bool
    created_at: str
    ended_at: str | None
    budget_usd: float | None
    spent_usd: float
    unattributed_usd: float
    lower_bound_usd: float | None
    on_demand_only_usd: float | None
    rounds: int
    jobs: tuple[RunJob, ...]
    instances: tuple[RunInstance, ...]
    lines: tuple[CostLine, ...] = ()
    relaxed: tuple[Relaxed, ...] = ()
    notes: tuple[str, ...] = ()
