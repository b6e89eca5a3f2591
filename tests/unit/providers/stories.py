"""Orders, and small stories that any virtual world can be led through."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cloudgavel.messages.orders import JobOrder, Orders, RehearsalTerms, Verb
from cloudgavel.messages.report import JobReport, Report
from tests.contract.harness import RUN_ID

TERMS = RehearsalTerms(steps_per_s=2.0, restore_s=10.0, save_s=5.0, save_every_s=100.0)


def a_job(
    job: str = "job",
    *,
    attempt: int = 1,
    verb: Verb = Verb.RUN,
    total: int = 1_000,
    terms: RehearsalTerms = TERMS,
    **more: Any,
) -> JobOrder:
    fields: dict[str, Any] = {"command": "true", **more}
    return JobOrder(
        job=job, attempt=attempt, verb=verb, steps_total=total, rehearsal=terms, **fields
    )


def orders(instance_id: str, sequence: int, *jobs: JobOrder, power_off: bool = False) -> Orders:
    return Orders(
        run_id=RUN_ID,
        instance_id=instance_id,
        sequence=sequence,
        lease_s=60.0,
        jobs=jobs,
        power_off=power_off,
    )


def job_of(world: Any, instance_id: str, job: str = "job", attempt: int = 1) -> JobReport:
    report = world.channel.reports()[instance_id]
    return next(found for found in report.jobs if (found.job, found.attempt) == (job, attempt))


def told(report: Report) -> Report:
    """Leave of a report what is the story's, without what only real processes can tell."""
    return replace(
        report,
        agent_pid=0,
        jobs=tuple(replace(job, loss=None, last_lines=()) for job in report.jobs),
    )


def snapshot(world: Any) -> tuple[object, ...]:
    reports = world.channel.reports()
    return (
        world.now_s(),
        world.next_event_at_s(),
        tuple(world.provider.list_instances(RUN_ID)),
        tuple(told(reports[instance_id]) for instance_id in sorted(reports)),
    )


def lead(world: Any, instants: Sequence[float]) -> list[tuple[object, ...]]:
    found = []
    for at_s in instants:
        world.advance_to(at_s)
        found.append(snapshot(world))
    return found
