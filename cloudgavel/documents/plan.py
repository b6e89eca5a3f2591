"""``cloudgavel/plan``: what a run is expected to do and cost."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NINETY_PERCENT_FROM_MARKETS = 19
"""Simulated markets from which on the cost range is that of nine in ten; of fewer, of all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Relaxed:
    """A promise that is not kept, with its size."""

    job: str
    promise: str
    by_s: float | None
    by_usd: float | None
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CostLine:
    """What one job cost beside its machines; part of its cost and of the run's."""

    kind: str
    """``traffic`` (checkpoints between clouds) or ``storage`` (checkpoints in the store)."""
    job: str
    usd: float
    note: str
    estimated: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ShadowPriceLine:
    """What one unit more or less of a limit would change in the cost."""

    constraint: str
    unit: str
    usd_per_unit_down: float | None
    usd_per_unit_up: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanCost:
    """The plan's cost beside what it can be compared with."""

    expected_usd: float
    lower_bound_usd: float | None
    on_demand_only_usd: float | None
    p05_usd: float | None = None
    """Cost that five in a hundred simulated markets stay below, the least one seen with fewer than
    ``NINETY_PERCENT_FROM_MARKETS``; ``None`` = none was simulated."""
    p95_usd: float | None = None
    disk_usd: float = 0.0
    """Of the expected cost: boot disks, estimated; 0 = not counted in."""
    traffic_usd: float | None = 0.0
    """Of the expected cost: checkpoints between clouds, estimated; ``None`` = a checkpoint's size
    is unknown, and what it costs is not part of the expected cost."""
    storage_usd: float = 0.0
    """Of the expected cost: checkpoints in the store until the run ends, estimated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A stretch of one job on one instance; seconds from the run's creation."""

    provider: str
    zone: str
    instance_type: str
    capacity_type: str
    start_s: float
    end_s: float
    accelerator: str = ""
    gang: int = 1
    steps_per_s: float | None = None
    steps_per_s_estimated: bool = False
    """Neither given nor measured: no promise rests on it."""
    usd_per_hour: float | None = None
    """Price of the whole instance."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedJob:
    """One job of the plan."""

    name: str
    finish_s: float | None
    deadline_s: float | None
    deadline_met: bool | None
    cost_usd: float
    segments: tuple[Segment, ...]
    deadline_probability: float | None = None
    """Share of the simulated markets in which the deadline was kept; ``None`` = not known."""
    insured_from_s: float | None = None
    """From then on the deadline is kept even if spot vanishes: on-demand money is put aside;
    ``None`` = never, or no deadline."""
    sent_on_demand_s: float | None = None
    """When its deadline sends it on demand; ``None`` = never."""
    insurance_usd: float = 0.0
    """Rent of its on-demand machines from then on."""
    save_every_s: float | None = None
    """Seconds between its saves where it was last; ``None`` = it was nowhere."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetLine:
    """The plan's fleet in one line."""

    peak_instances: int
    peak_usd_per_hour: float
    instance_hours: float
    spot_share: float | None
    """Of the instance-hours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedCall:
    """One call to a cloud that the run would make; here it was made of a mocked account."""

    at_s: float
    """Seconds from the run's creation."""
    provider: str
    service: str
    region: str | None
    """Region, or zone where the service counts by zones."""
    operation: str
    parameters: Mapping[str, Any]
    """JSON values; long ones are told by their size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanPrices:
    """Where the prices of one cloud come from."""

    provider: str
    source: str
    """``live`` (read from the cloud), ``snapshot`` (bundled), or ``mixed``."""
    as_of: str
    """Day of the oldest."""
    age_s: float | None
    """Of the oldest that was read from the cloud, when the plan was made."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanDocument:
    """The whole run in virtual time; nothing was rented."""

    schema: str = "cloudgavel/plan"
    schema_version: int = 1
    name: str
    plan_id: str
    policy: str
    rehearsal: bool
    """Prices are real, machines are this computer's processes, no money is spent."""
    prices_as_of: str
    """Day of the oldest price, or ``unknown``."""
    prices: tuple[PlanPrices, ...] = ()
    created_at: str
    feasible: bool
    """In the expected market every deadline is kept, and the budget also pays for the on-demand
    machines that insuring all of them rents there. If not, deadlines can still be met: by jobs
    whose ``insured_from_s`` is null only if spot holds, or its estimated speed does."""
    budget_usd: float | None
    budget_covers_worst_case: bool | None
    worst_case_budget_usd: float | None = None
    """Budget with which every deadline is kept even if spot vanishes at the worst moment."""
    smallest_sufficient_budget_usd: float | None
    """Smallest budget with which the plan is feasible; ``None`` = none is."""
    cost: PlanCost
    makespan_s: float | None
    rounds: int
    jobs: tuple[PlannedJob, ...]
    fleet: FleetLine
    lines: tuple[CostLine, ...] = ()
    """What is not a machine's; in the jobs' costs too."""
    relaxed: tuple[Relaxed, ...]
    shadow_prices: tuple[ShadowPriceLine, ...]
    notes: tuple[str, ...] = ()
    markets: int | None = None
    """Simulated markets behind the cost range and the probabilities; ``None`` = none."""
    call_count: int | None = None
    """Calls made of mocked clouds; ``None`` = the run rents from none."""
    calls: tuple[PlannedCall, ...] | None = None
    """Those calls in order; ``None`` = they were not asked for."""
