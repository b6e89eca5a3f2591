"""Events -> ``RunState``: pure, one event at a time; the same events always give the same state."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from cloudgavel.errors import BugError
from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.jobs.spec import RunSpec
from cloudgavel.mechanism.fleet import InstanceState
from cloudgavel.store import events as ev
from cloudgavel.store.records import (
    AttemptRecord,
    BlockRecord,
    InstanceRecord,
    IntentRecord,
    JobRecord,
    ReleasedPromise,
    RunState,
)

_Value = TypeVar("_Value")


def fold(events: Iterable[ev.Event], state: RunState | None = None) -> RunState:
    """Return what is known after ``events``, starting from ``state`` (default: nothing)."""
    result = RunState() if state is None else state
    for event in events:
        result = apply(result, event)
    return result


def apply(state: RunState, event: ev.Event) -> RunState:
    """Return ``state`` after one more event; ``BugError`` for one about an unknown thing."""
    try:
        after = _APPLY[type(event)](state, event)
    except KeyError as error:
        raise BugError(
            f"the event {ev.kind_of(event)} speaks of {error}, which the log does not know"
        ) from error
    return replace(after, at_s=max(state.at_s, event.at_s))


def _with(mapping: Mapping[str, _Value], key: str, value: _Value) -> Mapping[str, _Value]:
    return MappingProxyType({**mapping, key: value})


def _without(mapping: Mapping[str, _Value], key: str) -> Mapping[str, _Value]:
    return MappingProxyType({k: v for k, v in mapping.items() if k != key})


def _job(state: RunState, name: str, /, **changes: Any) -> RunState:
    return replace(state, jobs=_with(state.jobs, name, replace(state.jobs[name], **changes)))


def _instance(state: RunState, instance_id: str, /, **changes: Any) -> RunState:
    record = replace(state.instances[instance_id], **changes)
    return replace(state, instances=_with(state.instances, instance_id, record))


def _jobs_of(spec: RunSpec, known: Mapping[str, JobRecord]) -> Mapping[str, JobRecord]:
    merged = {
        job.name: replace(known[job.name], spec=job) if job.name in known else JobRecord(spec=job)
        for job in spec.jobs
    }
    kept = {name: record for name, record in known.items() if name not in merged}
    return MappingProxyType({**merged, **kept})


def _run_created(state: RunState, event: ev.RunCreated) -> RunState:
    return replace(
        state,
        run_id=event.run_id,
        spec=event.spec,
        created_at_s=event.at_s,
        rehearsal=event.rehearsal,
        best_effort=event.best_effort,
        budget_usd=event.budget_usd,
        on_demand_only_usd=event.on_demand_only_usd,
        lower_bound_usd=event.lower_bound_usd,
        prices_as_of=event.prices_as_of,
        jobs=_jobs_of(event.spec, {}),
    )


def _spec_changed(state: RunState, event: ev.SpecChanged) -> RunState:
    return replace(state, spec=event.spec, jobs=_jobs_of(event.spec, state.jobs))


def _budget_set(state: RunState, event: ev.BudgetSet) -> RunState:
    return replace(state, budget_usd=event.budget_usd)


def _run_resumed(state: RunState, event: ev.RunResumed) -> RunState:
    return replace(state, stopping=None, ended=None, ended_at_s=None, best_effort=event.best_effort)


def _stop_requested(state: RunState, event: ev.StopRequested) -> RunState:
    return replace(state, stopping=event.reason)


def _controller_started(state: RunState, event: ev.ControllerStarted) -> RunState:
    return replace(state, controllers=state.controllers + 1)


def _controller_ended(state: RunState, event: ev.ControllerEnded) -> RunState:
    return state


def _round_decided(state: RunState, event: ev.RoundDecided) -> RunState:
    bound = state.lower_bound_usd
    return replace(
        state,
        plan=event.plan,
        decided_at_s=event.at_s,
        decisions=state.decisions + 1,
        lower_bound_usd=bound if bound is not None else event.plan.lower_bound_usd,
    )


def _launch_intended(state: RunState, event: ev.LaunchIntended) -> RunState:
    intent = IntentRecord(
        token=event.token,
        intended_at_s=event.at_s,
        offers=event.offers,
        tried=(),
        for_jobs=event.for_jobs,
        reason=event.reason,
    )
    return replace(state, intents=_with(state.intents, event.token, intent))


def _launch_succeeded(state: RunState, event: ev.LaunchSucceeded) -> RunState:
    intent = state.intents[event.token]
    record = InstanceRecord(
        instance_id=event.instance_id,
        token=event.token,
        offer=event.offer,
        state=InstanceState.TERMINATING if intent.terminate_asked else InstanceState.BOOTING,
        prices=((event.launched_at_s, event.price_usd_per_hour),),
        launched_at_s=event.launched_at_s,
        expected_ready_at_s=event.expected_ready_at_s,
        for_jobs=intent.for_jobs,
        launched_for=intent.for_jobs,
        terminate_asked_at_s=event.at_s if intent.terminate_asked else None,
        accrued_until_s=event.launched_at_s,
    )
    return replace(
        state,
        intents=_without(state.intents, event.token),
        instances=_with(state.instances, event.instance_id, record),
        instance_of_token=_with(state.instance_of_token, event.token, event.instance_id),
        blocked=_without(state.blocked, event.offer.offer_id),
    )


def _launch_failed(state: RunState, event: ev.LaunchFailed) -> RunState:
    if event.closes_intent:
        intents = _without(state.intents, event.token)
    else:
        intent = state.intents[event.token]
        intents = _with(
            state.intents,
            event.token,
            replace(intent, tried=(*intent.tried, event.offer_id)),
        )
    blocked = state.blocked
    if event.blocked_until_s is not None:
        before = blocked.get(event.offer_id)
        record = BlockRecord(
            until_s=event.blocked_until_s,
            reason=f"{event.failure}: {event.message}" if event.message else event.failure,
            refusals=1 + (before.refusals if before is not None else 0),
        )
        blocked = _with(blocked, event.offer_id, record)
    return replace(state, intents=intents, blocked=blocked)


def _instance_ready(state: RunState, event: ev.InstanceReady) -> RunState:
    now = state.instances[event.instance_id].state
    return _instance(
        state,
        event.instance_id,
        ready_at_s=event.at_s,
        state=InstanceState.READY if now is InstanceState.BOOTING else now,
    )


def _noticed(state: RunState, event: ev.InterruptionNoticed) -> RunState:
    return _instance(
        state, event.instance_id, noticed=True, notice_ends_at_s=event.ends_at_s or event.at_s
    )


def _terminate_asked(state: RunState, event: ev.TerminateAsked) -> RunState:
    if event.instance_id in state.intents:
        intent = replace(state.intents[event.instance_id], terminate_asked=True)
        return replace(state, intents=_with(state.intents, event.instance_id, intent))
    return _instance(
        state,
        event.instance_id,
        state=InstanceState.TERMINATING,
        terminate_asked_at_s=event.at_s,
        terminate_reason=event.reason,
    )


def _instance_ended(state: RunState, event: ev.InstanceEnded) -> RunState:
    for name, job in state.jobs.items():
        if event.instance_id in job.move_to:
            phase = JobPhase.WAITING if job.current is None else JobPhase.SAVING
            state = _job(state, name, move_to=(), phase=phase)
    return _instance(
        state,
        event.instance_id,
        state=InstanceState.ENDED,
        ended_at_s=event.ended_at_s,
        end_reason=event.reason,
        estimated=event.estimated,
        for_jobs=(),
    )


def _orphan_seen(state: RunState, event: ev.OrphanSeen) -> RunState:
    return replace(state, orphans=_with(state.orphans, event.instance_id, event.offer_id))


def _orphan_ended(state: RunState, event: ev.OrphanEnded) -> RunState:
    return replace(state, orphans=_without(state.orphans, event.instance_id))


def _price_changed(state: RunState, event: ev.PriceChanged) -> RunState:
    prices = state.instances[event.instance_id].prices
    merged = tuple(
        sorted((*(p for p in prices if p[0] != event.at_s), (event.at_s, event.price_usd_per_hour)))
    )
    return _instance(state, event.instance_id, prices=merged)


def _accrued(state: RunState, event: ev.Accrued) -> RunState:
    instances = dict(state.instances)
    jobs = dict(state.jobs)
    spent, unattributed = state.spent_micro_usd, state.unattributed_micro_usd
    for line in event.lines:
        record = instances[line.instance_id]
        by_job = dict(record.by_job_micro_usd)
        for name, micro in line.by_job.items():
            by_job[name] = by_job.get(name, 0) + micro
            jobs[name] = replace(jobs[name], spent_micro_usd=jobs[name].spent_micro_usd + micro)
        instances[line.instance_id] = replace(
            record,
            accrued_micro_usd=record.accrued_micro_usd + line.micro_usd,
            accrued_until_s=line.until_s,
            unattributed_micro_usd=record.unattributed_micro_usd + line.unattributed_micro_usd,
            by_job_micro_usd=MappingProxyType(by_job),
        )
        spent += line.micro_usd
        unattributed += line.unattributed_micro_usd
    return replace(
        state,
        instances=MappingProxyType(instances),
        jobs=MappingProxyType(jobs),
        spent_micro_usd=spent,
        unattributed_micro_usd=unattributed,
    )


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
    state = _job(
        state,
        event.job,
        phase=JobPhase.STARTING,
        attempts=(*job.attempts, attempt),
        steps_done=job.saved_steps,
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
            state = _instance(state, instance_id, for_jobs=rest)
    return state


def _save_asked(state: RunState, event: ev.SaveAsked) -> RunState:
    return _job(state, event.job, save_sequence=state.jobs[event.job].save_sequence + 1)


def _stop_asked(state: RunState, event: ev.StopAsked) -> RunState:
    return _job(
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
    return _job(
        state,
        event.job,
        attempts=attempts,
        steps_repeated=repeated,
        steps_done=event.step,
        phase=job.phase if job.stop_asked else event.phase,
        steps_per_s_measured=measured if measured is not None else job.steps_per_s_measured,
        loss=event.loss if event.loss is not None else job.loss,
    )


def _checkpoint_saved(state: RunState, event: ev.CheckpointSaved) -> RunState:
    job = state.jobs[event.job]
    saved = max(job.saved_steps, event.step)
    done = job.steps_done if job.current is not None else max(job.steps_done, saved)
    return _job(state, event.job, saved_steps=saved, steps_done=max(done, event.step))


def _save_failed(state: RunState, event: ev.SaveFailed) -> RunState:
    job = state.jobs[event.job]
    if event.error is not None and job.stop_asked:
        # What cannot be saved is not moved: the order to stop is taken back.
        return _job(
            state,
            event.job,
            save_error=event.error,
            stop_asked_at_s=None,
            failed_stops=job.failed_stops + 1,
            move_to=(),
            phase=JobPhase.RUNNING,
            reason=f"not stopped: its checkpoint could not be written ({event.error})",
        )
    return _job(state, event.job, save_error=event.error)


def _end_attempt(
    state: RunState, name: str, *, at_s: float, step: int, end: str, **changes: Any
) -> RunState:
    job = state.jobs[name]
    if job.current is None:
        return _job(state, name, **changes) if changes else state
    ended = replace(job.attempts[-1], ended_at_s=at_s, end_step=step, end=end)
    return _job(
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


def _promise_released(state: RunState, event: ev.PromiseReleased) -> RunState:
    promise = ReleasedPromise(
        at_s=event.at_s,
        job=event.job,
        promise=event.promise,
        by_s=event.by_s,
        by_usd=event.by_usd,
        reason=event.reason,
    )
    kept = tuple(p for p in state.released if (p.job, p.promise) != (event.job, event.promise))
    state = replace(state, released=(*kept, promise))
    if event.promise == "deadline":
        return _job(state, event.job, promise_released=True)
    return state


def _run_ended(state: RunState, event: ev.RunEnded) -> RunState:
    return replace(state, ended=event.state, ended_at_s=event.at_s)


_APPLY: Mapping[type, Callable[[RunState, Any], RunState]] = MappingProxyType(
    {
        ev.RunCreated: _run_created,
        ev.SpecChanged: _spec_changed,
        ev.BudgetSet: _budget_set,
        ev.RunResumed: _run_resumed,
        ev.StopRequested: _stop_requested,
        ev.ControllerStarted: _controller_started,
        ev.ControllerEnded: _controller_ended,
        ev.RoundDecided: _round_decided,
        ev.LaunchIntended: _launch_intended,
        ev.LaunchSucceeded: _launch_succeeded,
        ev.LaunchFailed: _launch_failed,
        ev.InstanceReady: _instance_ready,
        ev.InterruptionNoticed: _noticed,
        ev.TerminateAsked: _terminate_asked,
        ev.InstanceEnded: _instance_ended,
        ev.OrphanSeen: _orphan_seen,
        ev.OrphanEnded: _orphan_ended,
        ev.PriceChanged: _price_changed,
        ev.Accrued: _accrued,
        ev.AttemptStarted: _attempt_started,
        ev.SaveAsked: _save_asked,
        ev.StopAsked: _stop_asked,
        ev.Progressed: _progressed,
        ev.CheckpointSaved: _checkpoint_saved,
        ev.SaveFailed: _save_failed,
        ev.AttemptStopped: _attempt_stopped,
        ev.AttemptLost: _attempt_lost,
        ev.AttemptFailed: _attempt_failed,
        ev.JobFinished: _job_finished,
        ev.JobFailed: _job_failed,
        ev.JobCancelled: _job_cancelled,
        ev.PromiseReleased: _promise_released,
        ev.RunEnded: _run_ended,
    }
)
