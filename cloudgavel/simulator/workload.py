"""What a simulation runs: jobs with a kind, a gang, steps, an arrival and perhaps a deadline."""

from collections.abc import Iterable
from dataclasses import dataclass

from cloudgavel.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadJob:
    """One job. Instants count from the start of the simulation."""

    name: str
    kind: str
    """What is run: the row of the throughput table."""
    gang_size: int
    total_steps: float
    arrives_s: float = 0.0
    weight: float = 1.0
    deadline_s: float | None = None
    entity: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """Jobs by arrival, equal ones in the order given."""

    name: str
    jobs: tuple[WorkloadJob, ...]
    notes: tuple[str, ...] = ()
    """What was left out when it was read."""

    @property
    def gang_sizes(self) -> tuple[int, ...]:
        """Every size there is, smallest first."""
        return tuple(sorted({job.gang_size for job in self.jobs}))


def workload_of(name: str, jobs: Iterable[WorkloadJob], *, notes: tuple[str, ...] = ()) -> Workload:
    """Check and order jobs.

    Raises ``UsageError`` for names that occur twice and numbers that mean nothing.
    """
    ordered = tuple(sorted(jobs, key=lambda job: job.arrives_s))
    seen: set[str] = set()
    for job in ordered:
        if job.name in seen:
            raise UsageError(f"the workload {name} names `{job.name}` twice")
        seen.add(job.name)
        for what, value, least in (
            ("steps", job.total_steps, 0.0),
            ("arrival", job.arrives_s, -1e-9),
            ("weight", job.weight, 0.0),
        ):
            if not least < value < float("inf"):
                raise UsageError(f"`{job.name}` of {name} has no usable {what}: {value:g}")
        if job.gang_size < 1:
            raise UsageError(f"`{job.name}` of {name} has a gang of {job.gang_size}")
    return Workload(name=name, jobs=ordered, notes=notes)
