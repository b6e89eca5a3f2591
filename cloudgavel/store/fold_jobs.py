"""The part of the fold that is about jobs and their attempts."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from cloudgavel.estimation.measured_rate import RateWindows
from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.store import events as ev
from cloudgavel.store.changes import with_instance, with_item, with_job
from cloudgavel.store.records import AttemptRecord, JobRecord, RunState

KEPT_CHECKPOINTS = 2
"""How many checkpoints of a job agents leave in the store."""


def _attempt_started(state: RunState, event: ev.AttemptStarted) -> RunState:
    job = state.jobs[event.job]
    previous = job.attempts[-1] if job.attempts else None
    moved = previous is not None and previous.end == "stopped"
    attempt = AttemptRecord(
        number=event.attempt,
        instance_ids=event.instance_ids,
        request_label=event.request_label,
        accelerator_indices=event.accelerator_indices,
        save_every_s=event.save_every_s,
        started_at_s=event.at_s,
        reason=event.reason,
        steps_per_s_expected=event.steps_per_s_expected,
        price_usd_per_hour=event.price_usd_per_hour,
    )
    state = with_job(
        state,
        event.job,
        phase=JobPhase.STARTING,
        attempts=(*job.attempts, attempt),
        steps_done=job.saved_steps,
        rate_windows=_with_windows(job, event.request_label, RateWindows.paused),
        move_to=(),
        stop_asked_at_s=None,
        failed_stops=0,
        save_error=None,
        moves=job.moves + (1 if moved else 0),
        started_at_s=job.started_at_s if job.started_at_s is not None else event.at_s,
        reason=event.reason,
    )
    for instance_id in event.instance_ids:
        waiting = state.instances[instance_id].for_jobs
        if event.job in waiting:
            rest = tuple(name for name in waiting if name != event.job)
            state = with_instance(state, instance_id, for_jobs=rest)
    return state


def _with_windows(
    job: JobRecord, label: str, change: Callable[[RateWindows], RateWindows]
) -> Mapping[str, RateWindows]:
    before = job.rate_windows.get(label, RateWindows())
    return with_item(job.rate_windows, label, change(before))


def _save_asked(state: RunState, event: ev.SaveAsked) -> RunState:
    return with_job(state, event.job, save_sequence=state.jobs[event.job].save_sequence + 1)


def _stop_asked(state: RunState, event: ev.StopAsked) -> RunState:
    return with_job(
        state,
        event.job,
        stop_asked_at_s=event.at_s,
        move_to=event.to_instance_ids,
        phase=JobPhase.MOVING if event.to_instance_ids else JobPhase.SAVING,
        reason=event.reason,
    )


def _current(job: JobRecord, attempt: int) -> bool:
    return job.current is not None and job.current.number == attempt


def _progressed(state: RunState, event: ev.Progressed) -> RunState:
    job = state.jobs[event.job]
    if not _current(job, event.attempt):
        return state
    attempt = job.attempts[-1]
    repeated = job.steps_repeated
    attempts = job.attempts
    if attempt.restored_step is None:
        before = job.attempts[-2].end_step if len(job.attempts) > 1 else None
        repeated += max(0, (before or 0) - event.restored_step)
        attempts = (*attempts[:-1], replace(attempt, restored_step=event.restored_step))
    measured = event.steps_per_s_measured

    def seen(windows: RateWindows) -> RateWindows:
        if event.phase is not JobPhase.RUNNING:
            return windows.paused()
        return windows.progressed(event.at_s, event.step)

    return with_job(
        state,
        event.job,
        attempts=attempts,
        steps_repeated=repeated,
        steps_done=event.step,
        phase=job.phase if job.stop_asked else event.phase,
        steps_per_s_measured=measured if measured is not None else job.steps_per_s_measured,
        rate_windows=_with_windows(job, attempt.request_label, seen),
        loss=event.loss if event.loss is not None else job.loss,
    )


def _checkpoint_saved(state: RunState, event: ev.CheckpointSaved) -> RunState:
    job = state.jobs[event.job]
    saved = max(job.saved_steps, event.step)
    done = job.steps_done if job.current is not None else max(job.steps_done, saved)
    state = with_job(state, event.job, saved_steps=saved, steps_done=max(done, event.step))
    if event.size_bytes is None:
        return state
    return with_job(
        state,
        event.job,
        kept_bytes=(*job.kept_bytes, event.size_bytes)[-KEPT_CHECKPOINTS:],
        stored_byte_s=job.stored_gib_s(event.at_s) * 2**30,
        stored_since_s=max(job.stored_since_s, event.at_s),
    )


def _traffic_booked(state: RunState, event: ev.TrafficBooked) -> RunState:
    job = state.jobs[event.job]
    attempts = tuple(
        replace(
            attempt,
            uploaded_bytes=event.uploaded_bytes,
            downloaded_bytes=event.downloaded_bytes,
            traffic_micro_usd=attempt.traffic_micro_usd + event.micro_usd,
        )
        if attempt.number == event.attempt
        else attempt
        for attempt in job.attempts
    )
    spent = job.spent_micro_usd + event.micro_usd
    state = replace(state, spent_micro_usd=state.spent_micro_usd + event.micro_usd)
    return with_job(state, event.job, attempts=attempts, spent_micro_usd=spent)


def _storage_booked(state: RunState, event: ev.StorageBooked) -> RunState:
    for name, micro in event.by_job.items():
        job = state.jobs[name]
        state = with_job(
            state,
            name,
            storage_micro_usd=job.storage_micro_usd + micro,
            spent_micro_usd=job.spent_micro_usd + micro,
        )
    total = state.spent_micro_usd + sum(event.by_job.values())
    return replace(state, spent_micro_usd=total)


def _save_failed(state: RunState, event: ev.SaveFailed) -> RunState:
    job = state.jobs[event.job]
    if event.error is not None and job.stop_asked:
        # What cannot be saved is not moved: the order to stop is taken back.
        return with_job(
            state,
            event.job,
            save_error=event.error,
            stop_asked_at_s=None,
            failed_stops=job.failed_stops + 1,
            move_to=(),
            phase=JobPhase.RUNNING,
            reason=f"not stopped: its checkpoint could not be written ({event.error})",
        )
    return with_job(state, event.job, save_error=event.error)


def _end_attempt(
    state: RunState, name: str, *, at_s: float, step: int, end: str, **changes: Any
) -> RunState:
    job = state.jobs[name]
    if job.current is None:
        return with_job(state, name, **changes) if changes else state
    ended = replace(job.attempts[-1], ended_at_s=at_s, end_step=step, end=end)
    return with_job(
        state,
        name,
        **{"attempts": (*job.attempts[:-1], ended), "stop_asked_at_s": None, **changes},
    )


def _attempt_stopped(state: RunState, event: ev.AttemptStopped) -> RunState:
    job = state.jobs[event.job]
    if not _current(job, event.attempt):
        return state
    return _end_attempt(
        state,
        event.job,
        at_s=event.at_s,
        step=event.step,
        end="interruption" if event.interrupted else "stopped",
        phase=JobPhase.MOVING if job.move_to else JobPhase.WAITING,
        steps_done=job.saved_steps,
        interruptions=job.interruptions + (1 if event.interrupted else 0),
    )


def _attempt_lost(state: RunState, event: ev.AttemptLost) -> RunState:
    job = state.jobs[event.job]
    if not _current(job, event.attempt):
        return state
    return _end_attempt(
        state,
        event.job,
        at_s=event.at_s,
        step=event.step,
        end=event.cause,
        phase=JobPhase.MOVING if job.move_to else JobPhase.WAITING,
        steps_done=job.saved_steps,
        interruptions=job.interruptions + (1 if event.cause != "terminated" else 0),
    )


def _attempt_failed(state: RunState, event: ev.AttemptFailed) -> RunState:
    job = state.jobs[event.job]
    if not _current(job, event.attempt):
        return state
    excluded = job.excluded
    if event.out_of_memory_on is not None:
        excluded = excluded | {event.out_of_memory_on}
    return _end_attempt(
        state,
        event.job,
        at_s=event.at_s,
        step=event.step,
        end="failed",
        phase=JobPhase.WAITING,
        move_to=(),
        steps_done=job.saved_steps,
        failures=job.failures + 1,
        excluded=excluded,
        last_lines=event.last_lines,
    )


def _job_finished(state: RunState, event: ev.JobFinished) -> RunState:
    return _end_attempt(
        state,
        event.job,
        at_s=event.at_s,
        step=event.step,
        end="finished",
        phase=JobPhase.FINISHED,
        move_to=(),
        steps_done=event.step,
        finished_at_s=event.at_s,
    )


def _job_failed(state: RunState, event: ev.JobFailed) -> RunState:
    job = state.jobs[event.job]
    return _end_attempt(
        state,
        event.job,
        at_s=event.at_s,
        step=job.steps_done,
        end="failed",
        phase=JobPhase.FAILED,
        move_to=(),
        finished_at_s=event.at_s,
        reason=event.reason,
        last_lines=event.last_lines or job.last_lines,
    )


def _job_cancelled(state: RunState, event: ev.JobCancelled) -> RunState:
    return _end_attempt(
        state,
        event.job,
        at_s=event.at_s,
        step=state.jobs[event.job].steps_done,
        end="cancelled",
        phase=JobPhase.CANCELLED,
        move_to=(),
        finished_at_s=event.at_s,
        reason=event.reason,
    )


APPLY_TO_JOBS: Mapping[type, Callable[[RunState, Any], RunState]] = MappingProxyType(
    {
        ev.AttemptStarted: _attempt_started,
        ev.SaveAsked: _save_asked,
        ev.StopAsked: _stop_asked,
        ev.Progressed: _progressed,
        ev.CheckpointSaved: _checkpoint_saved,
        ev.TrafficBooked: _traffic_booked,
        ev.StorageBooked: _storage_booked,
        ev.SaveFailed: _save_failed,
        ev.AttemptStopped: _attempt_stopped,
        ev.AttemptLost: _attempt_lost,
        ev.AttemptFailed: _attempt_failed,
        ev.JobFinished: _job_finished,
        ev.JobFailed: _job_failed,
        ev.JobCancelled: _job_cancelled,
    }
)
"""What each event about a job does."""
