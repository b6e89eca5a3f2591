"""What the agents' reports say of jobs that the log does not know yet."""

from collections.abc import Collection, Iterator, Mapping

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.messages.report import JobReport, ProcessState
from cloudgavel.providers.base import EndReason
from cloudgavel.runtime.looks import Sightings, World
from cloudgavel.runtime.settings import LoopSettings
from cloudgavel.store import events as ev
from cloudgavel.store.ledger import book_traffic
from cloudgavel.store.records import AttemptRecord, JobRecord, RunState

_MEMORY_WORDS = ("out of memory", "out-of-memory", "resource_exhausted", "outofmemoryerror")
_ALIVE_PHASE = {
    ProcessState.RUNNING: JobPhase.RUNNING,
    ProcessState.PAUSED: JobPhase.RUNNING,
    ProcessState.SAVING: JobPhase.SAVING,
}

ENDS_OF_ATTEMPTS = (ev.AttemptStopped, ev.AttemptFailed, ev.AttemptLost, ev.JobFinished)


def attempt_news(
    name: str,
    state: RunState,
    job: JobRecord,
    attempt: AttemptRecord,
    world: World,
    noticed: set[str],
    going: Collection[str],
    at_s: float,
    sightings: Sightings,
    settings: LoopSettings,
) -> Iterator[ev.Event]:
    """Yield what the agents say of one attempt that the log does not know.

    ``noticed``: instances that their cloud is about to take; ``going``: those that are gone or
    were told to end. A process that ended badly along with one of them was lost, not failed: it
    does not count against ``retries``.
    """
    answers = _job_reports(name, attempt, world)
    known = [answer for answer in answers if answer is not None]
    if not known or answers[0] is None:
        return
    leader = answers[0]
    number = attempt.number
    saved = max((r.saved_step for r in known if r.saved_step is not None), default=0)
    if saved > job.saved_steps:
        size = max((r.saved_bytes for r in known if r.saved_bytes is not None), default=None)
        yield ev.CheckpointSaved(at_s=at_s, job=name, attempt=number, step=saved, size_bytes=size)
    # The first member of a gang saves; each restores a copy of its own.
    traffic = book_traffic(
        state,
        name,
        uploaded_bytes=max(r.uploaded_bytes for r in known),
        downloaded_bytes=sum(r.downloaded_bytes for r in known),
        at_s=at_s,
    )
    if traffic is not None:
        yield traffic
    save_error = next((r.save_error for r in known if r.save_error is not None), None)
    if save_error != job.save_error or (
        save_error is not None and at_s >= stop_has_failed_at_s(job)
    ):
        yield ev.SaveFailed(at_s=at_s, job=name, attempt=number, error=save_error)
    yield from _progress(name, job, leader, world, at_s, sightings, settings)
    bad = next((r for r in known if _ended_badly(r)), None)
    if bad is not None and any(i in going for i in attempt.instance_ids):
        return
    if bad is not None and any(i in noticed for i in attempt.instance_ids):
        step = max(r.step for r in known)
        yield ev.AttemptLost(at_s=at_s, job=name, attempt=number, step=step, cause="interruption")
    elif bad is not None:
        yield from _failure(name, job, attempt, bad, at_s)
    elif len(known) == len(answers) and all(r.state is ProcessState.EXITED for r in known):
        yield ev.JobFinished(at_s=at_s, job=name, step=leader.step)
    elif len(known) == len(answers) and all(
        r.state in (ProcessState.STOPPED, ProcessState.EXITED) for r in known
    ):
        taken = any(i in noticed for i in attempt.instance_ids) or not job.stop_asked
        yield ev.AttemptStopped(
            at_s=at_s, job=name, attempt=number, step=leader.step, interrupted=taken
        )


def lost_attempt(name: str, job: JobRecord, end: ev.InstanceEnded, world: World) -> ev.AttemptLost:
    """Return the loss of the attempt that was on an instance that ended."""
    attempt = job.attempts[-1]
    answers = [r for r in _job_reports(name, attempt, world) if r is not None]
    cause = {
        EndReason.INTERRUPTED: "interruption",
        EndReason.REQUESTED: "terminated",
    }.get(EndReason(end.reason), "vanished")
    return ev.AttemptLost(
        at_s=max(end.ended_at_s, attempt.started_at_s),
        job=name,
        attempt=attempt.number,
        step=max([job.steps_done, *(r.step for r in answers)]),
        cause=cause,
    )


def overdue_jobs(state: RunState, now_s: float, over: Mapping[str, float]) -> Iterator[ev.Event]:
    """Yield jobs that can no longer finish: too long under way, or what they wait for failed."""
    for name, job in state.jobs.items():
        if not job.active or name in over:
            continue
        limit = job.spec.max_duration_s
        began_s = job.started_at_s
        if limit is not None and began_s is not None and now_s >= began_s + limit:
            reason = f"ran longer than its max_duration of {limit:.0f} s"
            yield ev.JobFailed(at_s=now_s, job=name, reason=reason)
            continue
        dead = [
            other
            for other in job.spec.after
            if other in state.jobs
            and state.jobs[other].phase in (JobPhase.FAILED, JobPhase.CANCELLED)
        ]
        if dead:
            phase = state.jobs[dead[0]].phase.lower()
            yield ev.JobFailed(at_s=now_s, job=name, reason=f"it comes after {dead[0]}: {phase}")


def stop_has_failed_at_s(job: JobRecord) -> float:
    """When a stop whose save goes on failing (with the same words) counts as failed."""
    if job.stop_asked_at_s is None:
        return float("inf")
    return job.stop_asked_at_s + 2 * job.spec.checkpoint.save_s + job.spec.grace_s


def _job_reports(name: str, attempt: AttemptRecord, world: World) -> list[JobReport | None]:
    """Return what each instance of the gang says of this attempt, by rank; ``None`` = nothing."""
    answers: list[JobReport | None] = []
    for instance_id in attempt.instance_ids:
        report = world.reports.get(instance_id)
        lines = report.jobs if report is not None else ()
        answers.append(
            next((r for r in lines if r.job == name and r.attempt == attempt.number), None)
        )
    return answers


def _ended_badly(report: JobReport) -> bool:
    if report.state is ProcessState.EXITED:
        return report.exit_code != 0 or report.error is not None
    return report.state is ProcessState.STOPPED and report.error is not None


def _progress(
    name: str,
    job: JobRecord,
    leader: JobReport,
    world: World,
    at_s: float,
    sightings: Sightings,
    settings: LoopSettings,
) -> Iterator[ev.Event]:
    if leader.state is ProcessState.STARTING:
        return
    attempt = job.attempts[-1]
    phase = _ALIVE_PHASE.get(leader.state, job.phase)
    if phase is JobPhase.STARTING:
        phase = JobPhase.RUNNING
    changed = attempt.restored_step is None or (phase is not job.phase and not job.stop_asked)
    due = at_s - sightings.progress_at_s.get(name, float("-inf")) >= settings.progress_every_s
    if changed or (leader.step != job.steps_done and (due or world.with_progress)):
        sightings.progress_at_s[name] = at_s
        yield ev.Progressed(
            at_s=at_s,
            job=name,
            attempt=leader.attempt,
            step=leader.step,
            phase=phase,
            restored_step=leader.restored_step,
            steps_per_s_measured=leader.steps_per_s,
            loss=leader.loss,
        )


def _failure(
    name: str, job: JobRecord, attempt: AttemptRecord, report: JobReport, at_s: float
) -> Iterator[ev.Event]:
    lines = report.last_lines if report.error is None else (*report.last_lines, report.error)
    text = "\n".join(lines).lower()
    accelerator = attempt.request_label.partition(":")[0]
    retry = job.failures < job.spec.retries
    yield ev.AttemptFailed(
        at_s=at_s,
        job=name,
        attempt=attempt.number,
        step=report.step,
        exit_code=report.exit_code,
        last_lines=lines,
        retry=retry,
        out_of_memory_on=accelerator if any(word in text for word in _MEMORY_WORDS) else None,
    )
    if not retry:
        tries = job.failures + 1
        how = f"exit code {report.exit_code}"
        if report.exit_code is None:
            ran = attempt.restored_step is not None or report.step > report.restored_step
            how = report.error if ran and report.error is not None else "could not start"
        yield ev.JobFailed(
            at_s=at_s,
            job=name,
            reason=f"{how}, attempt {tries} of {tries}",
            last_lines=lines,
        )
