"""The jobs of a jobs.yaml as a workload of a fixed cluster."""

from collections.abc import Sequence

from cloudgavel.errors import UsageError
from cloudgavel.estimation.job_rates import estimated_rates
from cloudgavel.jobs.accelerators import canonical
from cloudgavel.jobs.spec import JobSpec, RunSpec
from cloudgavel.simulator.throughputs import JobKind, ThroughputTable
from cloudgavel.simulator.workload import Workload, WorkloadJob, workload_of


def fixed_workload(run: RunSpec, types: Sequence[str]) -> tuple[Workload, ThroughputTable]:
    """Return the jobs and their steps/s, given or estimated, on the cluster's types.

    A job of a fixed cluster has one gang size: that of the first gang it accepts there. Raises
    ``UsageError`` for a job that accepts none of the types, that waits for another one, or whose
    deadline is an instant.
    """
    spelt = {canonical(name): name for name in types}
    alone: dict[tuple[str, bool], dict[JobKind, float]] = {(name, False): {} for name in types}
    jobs = []
    for job in run.jobs:
        _refuse_what_is_not_simulated(job)
        here = [each for each in job.accelerators if each.accelerator in spelt]
        if not here:
            raise UsageError(
                f"`{job.name}` accepts nothing that the cluster has",
                facts=[
                    ("it accepts", ", ".join(each.label for each in job.accelerators)),
                    ("the cluster has", ", ".join(types)),
                ],
            )
        gang = here[0].count
        estimates = estimated_rates(job)
        rates = dict(job.throughput_steps_per_s)
        rates |= {label: each.median_steps_per_s for label, each in estimates.items()}
        for request in here:
            rate = rates.get(request.label)
            if request.count == gang and rate is not None:
                alone[spelt[request.accelerator], False][job.name, gang] = rate
        jobs.append(
            WorkloadJob(
                name=job.name,
                kind=job.name,
                gang_size=gang,
                total_steps=float(job.steps_total),
                arrives_s=job.arrives_s,
                weight=job.weight,
                deadline_s=job.deadline_s,
                entity=job.entity,
            )
        )
    return workload_of(run.name, jobs), ThroughputTable(alone=alone, beside={})


def _refuse_what_is_not_simulated(job: JobSpec) -> None:
    if job.after:
        raise UsageError(
            f"`{job.name}` waits for {', '.join(job.after)}: on a fixed cluster `after` is not "
            "simulated",
            hints=["give it `arrives:` instead, or simulate rented machines"],
        )
    if job.deadline_at_s is not None:
        raise UsageError(
            f"the deadline of `{job.name}` is an instant: on a fixed cluster time begins at 0",
            hints=["give it as a span, like `deadline: 12h`"],
        )
