"""``cloudgavel/simulation``: what ``cloudgavel simulate`` answers."""

from dataclasses import dataclass
from typing import Any

from cloudgavel.documents.encode import as_json


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulationResult:
    """One policy on one workload (one seed). Times in seconds, unknown is ``None``.

    Everything but ``solve_s`` and ``wall_s`` is the same whenever the same is simulated.
    """

    policy: str
    seed: int | None
    """Of a generated workload or a drawn market."""
    jobs: int
    jobs_completed: int
    avg_jct_s: float | None
    """Mean time from arrival to end over the measured jobs that ended."""
    p50_jct_s: float | None
    p90_jct_s: float | None
    p99_jct_s: float | None
    makespan_s: float | None
    """From the first arrival to the last end; ``None`` where a job did not end."""
    cost_usd: float | None
    """Fixed cluster: accelerator-seconds in use times their price. Rented: all machine-seconds,
    from the launch to the confirmed end, each at the price of its time; a sum of micro-dollars."""
    idle_cost_usd: float | None
    """Fixed cluster: of the accelerators that stood idle until the last end, on top of
    ``cost_usd``. Rented: the part of ``cost_usd`` in which no job was there (boot, idle)."""
    utilization: float
    """Accelerator-seconds in use over all there were (rented: that were paid for)."""
    deadlines: int
    deadline_misses: int
    worst_normalised_throughput: float | None
    """A job's mean steps/s over its life, over its gang's on the cluster's type mix."""
    mean_normalised_throughput: float | None
    worst_finish_time_ratio: float | None
    """Time in the cluster over the time with 1/n of it; above 1 is worse than alone."""
    mean_finish_time_ratio: float | None
    rounds: int
    moves: int
    """Fixed cluster: starts of jobs that had run before, elsewhere or earlier. Rented: moves from
    one machine to another, interruptions apart."""
    interruptions: int
    """Rented: jobs' losses of a machine that was taken. Fixed cluster: failures of jobs."""
    lost_steps: int
    """Steps that had to be done again, for they were not saved."""
    solves: int
    """Decisions that asked the policy."""
    solve_s: float
    """CPU seconds in these decisions."""
    wall_s: float
    gave_up: bool
    """Nothing ran any more although jobs were left."""

    @property
    def complete(self) -> bool:
        """Whether every job ended: only then do its figures tell of the same work as others'."""
        return self.jobs_completed == self.jobs


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A mean with its 95 % interval (Student's t over the seeds); ``None`` below three seeds."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicySummary:
    """One policy over all seeds."""

    policy: str
    seeds: int
    avg_jct_s: Interval | None
    p50_jct_s: Interval | None
    p90_jct_s: Interval | None
    p99_jct_s: Interval | None
    makespan_s: Interval | None
    cost_usd: Interval | None
    deadlines_met_share: Interval | None
    utilization: Interval
    moves: Interval
    interruptions: Interval
    lost_steps: Interval
    solve_s: float
    """CPU seconds of all seeds together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedDifference:
    """A policy less the first one, seed by seed on the same workload.

    Where either left jobs unended only ``deadline_misses`` is compared: less work takes less.
    """

    policy: str
    against: str
    metric: str
    difference: Interval
    relative: float | None
    """Mean difference over the mean of the first policy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedType:
    """So many accelerators of a type."""

    accelerator: str
    count: int
    accelerators_per_instance: int | None
    usd_per_hour: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulationDocument:
    """Policies compared on the same workloads, on the same cluster or in the same markets."""

    schema: str = "cloudgavel/simulation"
    schema_version: int = 1
    workload: str
    cluster: tuple[SimulatedType, ...]
    """Empty when machines are rented."""
    market: str | None
    """Where machines are rented, in words; ``None`` on a fixed cluster."""
    budget_usd: float | None
    """Of a rented run; ``None`` = unlimited."""
    round_s: float
    change_over_s: float
    measured_jobs: tuple[int, int] | None
    """Job times are over these jobs (by arrival, both included); ``None`` = all."""
    results: tuple[SimulationResult, ...]
    summaries: tuple[PolicySummary, ...]
    differences: tuple[PairedDifference, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the document as plain JSON values, fields under their own names."""
        encoded = as_json(self)
        assert isinstance(encoded, dict)
        return encoded

    def csv_rows(self) -> list[list[str]]:
        """Header and one row for each result, numbers unrounded, unknown empty."""
        names = list(SimulationResult.__slots__)
        rows = [names]
        for result in self.results:
            values = [getattr(result, name) for name in names]
            rows.append(["" if value is None else str(value) for value in values])
        return rows
