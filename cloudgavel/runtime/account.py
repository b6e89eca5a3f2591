"""The fold -> ``cloudgavel/run``: what a run did and cost."""

from cloudgavel.documents.encode import iso_utc
from cloudgavel.documents.plan import CostLine, Relaxed
from cloudgavel.documents.run import RunDocument, RunInstance, RunJob
from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.pricing.traffic import GIB
from cloudgavel.runtime.cluster_state import deadline_at_s
from cloudgavel.store.ledger import disk_micro_usd
from cloudgavel.store.records import InstanceRecord, JobRecord, RunState
from cloudgavel.units import usd


def run_document(state: RunState, *, notes: tuple[str, ...] = ()) -> RunDocument:
    """Return the account; sums hold to the micro-dollar (``documents.run``)."""
    spec = state.spec
    assert spec is not None
    return RunDocument(
        run_id=state.run_id,
        name=spec.name,
        state=state.ended or "running",
        policy=spec.policy,
        rehearsal=state.rehearsal,
        created_at=iso_utc(state.created_at_s),
        ended_at=None if state.ended_at_s is None else iso_utc(state.ended_at_s),
        budget_usd=state.budget_usd,
        spent_usd=usd(state.spent_micro_usd),
        unattributed_usd=usd(state.unattributed_micro_usd),
        lower_bound_usd=state.lower_bound_usd,
        on_demand_only_usd=state.on_demand_only_usd,
        rounds=state.decisions,
        jobs=tuple(_job(job, state) for job in state.jobs.values()),
        instances=tuple(
            _instance(record)
            for record in sorted(
                state.instances.values(), key=lambda r: (r.launched_at_s, r.instance_id)
            )
        ),
        lines=cost_lines(state),
        relaxed=relaxed(state),
        notes=notes,
    )


def cost_lines(state: RunState) -> tuple[CostLine, ...]:
    """Return what was booked beside machines, by job."""
    found = []
    for name, job in state.jobs.items():
        if job.traffic_micro_usd:
            up = sum(attempt.uploaded_bytes for attempt in job.attempts) / GIB
            down = sum(attempt.downloaded_bytes for attempt in job.attempts) / GIB
            found.append(
                CostLine(
                    kind="traffic",
                    job=name,
                    usd=usd(job.traffic_micro_usd),
                    note=f"{up:.2f} GiB saved to another cloud, {down:.2f} GiB restored from it",
                )
            )
        if job.storage_micro_usd:
            kept = sum(job.kept_bytes) / GIB
            found.append(
                CostLine(
                    kind="storage",
                    job=name,
                    usd=usd(job.storage_micro_usd),
                    note=f"{kept:.2f} GiB of checkpoints kept",
                )
            )
    return tuple(found)


def relaxed(state: RunState) -> tuple[Relaxed, ...]:
    """Return the promises released so far, without the deadlines that were kept all the same."""

    def kept(name: str) -> bool:
        return name in state.jobs and deadline_met(state.jobs[name], state) is True

    return tuple(
        Relaxed(job=p.job, promise=p.promise, by_s=p.by_s, by_usd=p.by_usd, reason=p.reason)
        for p in state.released
        if not (p.promise == "deadline" and kept(p.job))
    )


def deadline_met(job: JobRecord, state: RunState) -> bool | None:
    """``None`` without a deadline or while it is open; judged once it is finished or passed.

    A run that was stopped on request can go on in time: its deadlines are open. One whose money is
    used up cannot as things stand: they are missed.
    """
    deadline_s = deadline_at_s(job.spec, state.created_at_s)
    if deadline_s is None:
        return None
    if job.phase is JobPhase.FINISHED and job.finished_at_s is not None:
        return job.finished_at_s <= deadline_s
    if not job.active or state.ended not in (None, "stopped") or state.at_s > deadline_s:
        return False
    return None


def _job(job: JobRecord, state: RunState) -> RunJob:
    created_s = state.created_at_s
    deadline_s = deadline_at_s(job.spec, created_s)
    finished = job.phase is JobPhase.FINISHED and job.finished_at_s is not None
    return RunJob(
        name=job.spec.name,
        state=job.phase.value,
        steps_done=job.steps_done,
        steps_total=job.spec.steps_total,
        deadline_s=None if deadline_s is None else deadline_s - created_s,
        finish_s=job.finished_at_s - created_s if finished and job.finished_at_s else None,
        deadline_met=deadline_met(job, state),
        spent_usd=usd(job.spent_micro_usd),
        moves=job.moves,
        interruptions=job.interruptions,
        steps_repeated=job.steps_repeated,
        attempts=job.attempt,
        failures=job.failures,
        last_lines=job.last_lines if job.phase is JobPhase.FAILED else (),
    )


def _instance(record: InstanceRecord) -> RunInstance:
    return RunInstance(
        id=record.instance_id,
        provider=record.offer.provider,
        instance_type=record.offer.instance_type,
        zone=record.offer.zone,
        capacity_type=record.offer.capacity_type.value,
        launched_at=iso_utc(record.launched_at_s),
        ended_at=None if record.ended_at_s is None else iso_utc(record.ended_at_s),
        end_reason=None if record.end_reason is None else str(record.end_reason),
        cost_usd=usd(record.accrued_micro_usd),
        disk_usd=usd(disk_micro_usd(record, record.accrued_until_s)),
        waived_usd=usd(record.waived_micro_usd),
        estimated=record.estimated,
    )
