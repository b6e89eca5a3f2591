"""A workload with its throughputs as a run that rents: what a jobs.yaml of it would say."""

import math
from dataclasses import replace
from types import MappingProxyType

from cloudgavel.errors import UsageError
from cloudgavel.jobs.accelerators import canonical
from cloudgavel.jobs.spec import AcceleratorRequest, JobSpec, RunSpec
from cloudgavel.simulator.throughputs import ThroughputTable
from cloudgavel.simulator.workload import Workload, WorkloadJob


def run_of_workload(
    workload: Workload, table: ThroughputTable, *, round_s: float = 360.0
) -> RunSpec:
    """Return the run: each job accepts every accelerator on which its kind is known to run.

    Steps are rounded up to whole ones. Checkpoints take the defaults of a jobs.yaml.
    ``UsageError`` for a job that no accelerator runs.
    """
    return RunSpec(
        name=workload.name,
        round_s=round_s,
        jobs=tuple(_spec(job, table, workload.name) for job in workload.jobs),
    )


def from_start(run: RunSpec, now_s: float) -> RunSpec:
    """Return the run with every deadline counted from its start, which is ``now_s``."""
    return replace(
        run,
        jobs=tuple(
            job
            if job.deadline_at_s is None
            else replace(job, deadline_s=job.deadline_at_s - now_s, deadline_at_s=None)
            for job in run.jobs
        ),
    )


def _spec(job: WorkloadJob, table: ThroughputTable, workload: str) -> JobSpec:
    rates: dict[AcceleratorRequest, float] = {}
    for spelt in table.accelerators:
        rate = table.rate((job.kind, job.gang_size), spelt)
        if rate is not None:
            request = AcceleratorRequest(accelerator=canonical(spelt), count=job.gang_size)
            rates[request] = rate
    if not rates:
        raise UsageError(
            f"`{job.name}` of {workload} runs on no accelerator",
            facts=[
                ("kind", job.kind),
                ("accelerators", f"{job.gang_size} at once"),
                ("throughputs known of", ", ".join(table.accelerators)),
            ],
        )
    return JobSpec(
        name=job.name,
        commands=MappingProxyType({"any": "simulated"}),
        steps_total=math.ceil(job.total_steps),
        accelerators=tuple(rates),
        throughput_steps_per_s=MappingProxyType(
            {request.label: rate for request, rate in rates.items()}
        ),
        deadline_s=job.deadline_s,
        weight=job.weight,
        entity=job.entity,
        arrives_s=job.arrives_s,
    )
