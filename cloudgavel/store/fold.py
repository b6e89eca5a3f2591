"""Events -> ``RunState``: pure, one event at a time; the same events always give the same state."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from cloudgavel.errors import BugError
from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.jobs.spec import RunSpec
from cloudgavel.mechanism.fleet import InstanceState
from cloudgavel.pricing.offer import CapacityType
from cloudgavel.pricing.sightings import NOTHING_SEEN
from cloudgavel.store import events as ev
from cloudgavel.store.changes import with_instance, with_item, with_job, without_item
from cloudgavel.store.fold_jobs import APPLY_TO_JOBS
from cloudgavel.store.records import (
    BlockRecord,
    InstanceRecord,
    IntentRecord,
    JobRecord,
    ReleasedPromise,
    RunState,
)

_NO_CAPACITY = "capacity"
"""``providers.failures.FailureKind.CAPACITY``."""
_TAKEN = ("interrupted", "vanished")
"""Ends (``providers.base.EndReason``) of a spot machine that nobody here asked for."""


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
        gang=event.gang,
    )
    return replace(state, intents=with_item(state.intents, event.token, intent))


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
        launch_reason=intent.reason,
        terminate_asked_at_s=event.at_s if intent.terminate_asked else None,
        accrued_until_s=event.launched_at_s,
    )
    return replace(
        state,
        intents=without_item(state.intents, event.token),
        instances=with_item(state.instances, event.instance_id, record),
        instance_of_token=with_item(state.instance_of_token, event.token, event.instance_id),
        blocked=without_item(state.blocked, event.offer.offer_id),
    )


def _launch_failed(state: RunState, event: ev.LaunchFailed) -> RunState:
    if event.closes_intent:
        intents = without_item(state.intents, event.token)
    else:
        intent = state.intents[event.token]
        intents = with_item(
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
            failure=event.failure,
            refusals=1 + (before.refusals if before is not None else 0),
        )
        blocked = with_item(blocked, event.offer_id, record)
    seen = state.spot_seen
    if event.failure == _NO_CAPACITY and event.offer_id.endswith(f"/{CapacityType.SPOT}"):
        known = seen.get(event.offer_id, NOTHING_SEEN)
        seen = with_item(seen, event.offer_id, known.refused(event.at_s))
    return replace(state, intents=intents, blocked=blocked, spot_seen=seen)


def _instance_ready(state: RunState, event: ev.InstanceReady) -> RunState:
    now = state.instances[event.instance_id].state
    return with_instance(
        state,
        event.instance_id,
        ready_at_s=event.at_s,
        address=event.address,
        state=InstanceState.READY if now is InstanceState.BOOTING else now,
    )


def _interruption_noticed(state: RunState, event: ev.InterruptionNoticed) -> RunState:
    return with_instance(
        state, event.instance_id, noticed=True, notice_ends_at_s=event.ends_at_s or event.at_s
    )


def _terminate_asked(state: RunState, event: ev.TerminateAsked) -> RunState:
    if event.instance_id in state.intents:
        intent = replace(state.intents[event.instance_id], terminate_asked=True)
        return replace(state, intents=with_item(state.intents, event.instance_id, intent))
    return with_instance(
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
            state = with_job(state, name, move_to=(), phase=phase)
    record = state.instances[event.instance_id]
    if record.alive and record.offer.capacity_type is CapacityType.SPOT:
        offer_id = record.offer.offer_id
        known = state.spot_seen.get(offer_id, NOTHING_SEEN).lived(
            record.launched_at_s, event.ended_at_s, taken=event.reason in _TAKEN
        )
        state = replace(state, spot_seen=with_item(state.spot_seen, offer_id, known))
    return with_instance(
        state,
        event.instance_id,
        state=InstanceState.ENDED,
        ended_at_s=event.ended_at_s,
        end_reason=event.reason,
        estimated=event.estimated,
        for_jobs=(),
    )


def _orphan_seen(state: RunState, event: ev.OrphanSeen) -> RunState:
    return replace(state, orphans=with_item(state.orphans, event.instance_id, event.offer_id))


def _orphan_ended(state: RunState, event: ev.OrphanEnded) -> RunState:
    return replace(state, orphans=without_item(state.orphans, event.instance_id))


def _price_changed(state: RunState, event: ev.PriceChanged) -> RunState:
    prices = state.instances[event.instance_id].prices
    merged = tuple(
        sorted((*(p for p in prices if p[0] != event.at_s), (event.at_s, event.price_usd_per_hour)))
    )
    return with_instance(state, event.instance_id, prices=merged)


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
            waived_micro_usd=record.waived_micro_usd - (line.micro_usd if line.waived else 0),
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
        return with_job(state, event.job, promise_released=True)
    return state


def _run_ended(state: RunState, event: ev.RunEnded) -> RunState:
    return replace(state, ended=event.state, ended_at_s=event.at_s)


def _notified(state: RunState, event: ev.Notified) -> RunState:
    return replace(state, notified=state.notified | {(event.key, event.address)})


_APPLY: Mapping[type, Callable[[RunState, Any], RunState]] = MappingProxyType(
    {
        **APPLY_TO_JOBS,
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
        ev.InterruptionNoticed: _interruption_noticed,
        ev.TerminateAsked: _terminate_asked,
        ev.InstanceEnded: _instance_ended,
        ev.OrphanSeen: _orphan_seen,
        ev.OrphanEnded: _orphan_ended,
        ev.PriceChanged: _price_changed,
        ev.Accrued: _accrued,
        ev.PromiseReleased: _promise_released,
        ev.RunEnded: _run_ended,
        ev.Notified: _notified,
    }
)
