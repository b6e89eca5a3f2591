"""Seeded workloads by the published law: Poisson arrivals, log-uniform durations, gangs, deadlines.

Narayanan et al., OSDI 2020, section 7.1: 80 % of the jobs last 10^U(1.5, 3) minutes on the
reference accelerator, 20 % 10^U(3, 4) minutes; 70 % take one accelerator, 10 % two, 15 % four and
5 % eight; deadlines are 1.2, 2 or 10 times the duration after the arrival.
"""

from dataclasses import dataclass

import numpy as np

from cloudgavel.errors import UsageError
from cloudgavel.simulator.throughputs import ThroughputTable
from cloudgavel.simulator.workload import Workload, WorkloadJob, workload_of

SHORT_SHARE = 0.8
SHORT_LOG_MINUTES = (1.5, 3.0)
LONG_LOG_MINUTES = (3.0, 4.0)
GANGS = ((1, 0.70), (2, 0.10), (4, 0.15), (8, 0.05))
DEADLINE_FACTORS = (1.2, 2.0, 10.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratorSettings:
    """What is drawn."""

    job_count: int
    jobs_per_hour: float | None = None
    """``None``: all at the start."""
    several_accelerators: bool = False
    deadlines: bool = False
    reference: str = "v100"
    """Type on which durations are meant."""


def generated_workload(
    table: ThroughputTable, settings: GeneratorSettings, dice: np.random.Generator, *, name: str
) -> Workload:
    """Draw a workload over the kinds of a table; the same dice give the same jobs.

    Raises ``UsageError`` when the table has nothing measured on the reference type.
    """
    measured = table.alone.get((settings.reference, False), {})
    by_gang: dict[int, list[str]] = {}
    for (kind, gang), rate in sorted(measured.items()):
        if rate > 0:
            by_gang.setdefault(gang, []).append(kind)
    gangs = [(size, part) for size, part in GANGS if by_gang.get(size)]
    if not settings.several_accelerators:
        gangs = [(size, part) for size, part in gangs if size == 1]
    if not gangs:
        raise UsageError(
            f"no throughput is known on `{settings.reference}`",
            facts=[("known types", ", ".join(table.accelerators))],
        )
    sizes = [size for size, _ in gangs]
    parts = np.array([part for _, part in gangs])
    jobs = []
    arrives_s = 0.0
    for number in range(settings.job_count):
        if settings.jobs_per_hour is not None and number:
            arrives_s += float(dice.exponential(3600.0 / settings.jobs_per_hour))
        size = int(sizes[int(dice.choice(len(sizes), p=parts / parts.sum()))])
        kinds = by_gang[size]
        kind = kinds[int(dice.integers(len(kinds)))]
        low, high = SHORT_LOG_MINUTES if dice.random() < SHORT_SHARE else LONG_LOG_MINUTES
        duration_s = 60.0 * 10.0 ** float(dice.uniform(low, high))
        factor = DEADLINE_FACTORS[int(dice.integers(len(DEADLINE_FACTORS)))]
        jobs.append(
            WorkloadJob(
                name=str(number),
                kind=kind,
                gang_size=size,
                total_steps=duration_s * measured[kind, size],
                arrives_s=arrives_s,
                deadline_s=arrives_s + factor * duration_s if settings.deadlines else None,
            )
        )
    return workload_of(name, jobs)
