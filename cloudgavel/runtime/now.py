"""The fold and its newest events -> ``cloudgavel/status``: a run at one moment."""

from collections.abc import Iterable, Sequence

from cloudgavel.documents.encode import iso_utc
from cloudgavel.documents.status import StatusDocument, StatusEvent, StatusFleetLine, StatusJob
from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.mechanism.actions import Wait
from cloudgavel.mechanism.plan import Forecast
from cloudgavel.pricing.offer import Offer
from cloudgavel.runtime.account import deadline_met, relaxed
from cloudgavel.runtime.cluster_state import deadline_at_s
from cloudgavel.runtime.story import tell, why
from cloudgavel.store.events import Event
from cloudgavel.store.records import InstanceRecord, JobRecord, RunState
from cloudgavel.units import usd

SHOWN_EVENTS = 30


def status_document(
    state: RunState,
    *,
    now_s: float,
    events: Sequence[Event] = (),
    controller_alive: bool = False,
    controller_seen_s_ago: float | None = None,
) -> StatusDocument:
    """Return the run at ``now_s`` of its own time; ``events`` are the newest, oldest first."""
    spec = state.spec
    assert spec is not None
    plan = state.plan
    expected_left = plan.expected_cost_left_usd if plan is not None else None
    if state.ended is not None:
        expected_left = 0.0
    wake_s = plan.next_wake_at_s if plan is not None else None
    return StatusDocument(
        run_id=state.run_id,
        name=spec.name,
        state=state.ended or ("stopping" if state.stopping is not None else "running"),
        rehearsal=state.rehearsal,
        policy=spec.policy,
        round=state.decisions,
        now=iso_utc(now_s),
        now_s=now_s - state.created_at_s,
        next_decision_s=(
            None if wake_s is None or state.ended is not None else wake_s - state.created_at_s
        ),
        controller_alive=controller_alive,
        controller_seen_s_ago=controller_seen_s_ago,
        budget_usd=state.budget_usd,
        spent_usd=state.spent_usd,
        committed_usd=plan.committed_usd if plan is not None and state.ended is None else 0.0,
        usd_per_hour=sum(record.price_usd_per_hour for record in state.live_instances),
        expected_total_usd=None if expected_left is None else state.spent_usd + expected_left,
        lower_bound_usd=state.lower_bound_usd,
        on_demand_only_usd=state.on_demand_only_usd,
        jobs=tuple(_job(name, job, state) for name, job in state.jobs.items()),
        fleet=_fleet(state, now_s),
        orphans=tuple(f"{key} ({offer})" for key, offer in state.orphans.items()),
        events=tuple(_events(events, state)),
        relaxed=relaxed(state),
    )


def offer_words(offer: Offer) -> str:
    """``aws p3.2xlarge spot``, ``gcp a2-highgpu-1g on-demand``."""
    return f"{offer.provider} {offer.instance_type} {offer.capacity_type.value.replace('_', '-')}"


def _job(name: str, job: JobRecord, state: RunState) -> StatusJob:
    forecast = _forecast(name, state)
    attempt = job.current
    created_s = state.created_at_s
    deadline_s = deadline_at_s(job.spec, created_s)
    finish_s = job.finished_at_s if job.phase is JobPhase.FINISHED else None
    if finish_s is None and forecast is not None and job.active:
        finish_s = forecast.finish_at_s
    return StatusJob(
        name=name,
        state=job.phase.value,
        on=None if attempt is None else _places(attempt.instance_ids, state),
        steps_per_s_measured=job.steps_per_s_measured if attempt is not None else None,
        steps_per_s_expected=attempt.steps_per_s_expected if attempt is not None else None,
        steps_done=job.steps_done,
        steps_total=job.spec.steps_total,
        finish_s=None if finish_s is None else finish_s - created_s,
        deadline_s=None if deadline_s is None else deadline_s - created_s,
        promise=_promise(job, forecast, state, deadline_s),
        spent_usd=usd(job.spent_micro_usd),
        reason=_reason(name, job, state),
        save_every_s=None if attempt is None else attempt.save_every_s,
    )


def _places(instance_ids: Iterable[str], state: RunState) -> str:
    words = [offer_words(state.instances[i].offer) for i in instance_ids]
    return words[0] if len(words) == 1 else f"{len(words)} x {words[0]}"


def _forecast(name: str, state: RunState) -> Forecast | None:
    forecasts = state.plan.forecasts if state.plan is not None else ()
    return next((forecast for forecast in forecasts if forecast.job == name), None)


def _promise(
    job: JobRecord, forecast: Forecast | None, state: RunState, deadline_s: float | None
) -> str:
    if deadline_s is None:
        return "none"
    met = deadline_met(job, state)
    if met is not None:
        return "kept" if met else "missed"
    if job.promise_released:
        return "released"
    return forecast.promise if forecast is not None else "expected"


def _reason(name: str, job: JobRecord, state: RunState) -> str | None:
    if job.active and job.current is None and state.plan is not None:
        for action in state.plan.actions:
            if isinstance(action, Wait) and action.job == name:
                return action.reason
    if job.reason is None:
        return None
    members = job.current.instance_ids if job.current is not None else ()
    return why(job.reason, job.move_to or members, state)


def _fleet(state: RunState, now_s: float) -> tuple[StatusFleetLine, ...]:
    groups: dict[tuple[str, str, str], list[InstanceRecord]] = {}
    for record in state.live_instances:
        offer = record.offer
        key = (offer.provider, offer.instance_type, offer.capacity_type.value)
        groups.setdefault(key, []).append(record)
    lines = []
    for (provider, instance_type, capacity_type), records in sorted(groups.items()):
        total = sum(record.offer.accelerators_per_instance for record in records)
        held = sum(_held(record, state) for record in records)
        rates = [r.offer.interruption_rate_per_hour for r in records]
        known = [rate for rate in rates if rate is not None]
        lines.append(
            StatusFleetLine(
                provider=provider,
                instance_type=instance_type,
                capacity_type=capacity_type,
                count=len(records),
                age_s=max(0.0, now_s - min(record.launched_at_s for record in records)),
                busy_share=held / total if total else None,
                usd_per_hour=sum(record.price_usd_per_hour for record in records),
                interruption_rate_per_hour=max(known) if known else None,
                note=_fleet_note(records),
            )
        )
    return tuple(lines)


def _held(record: InstanceRecord, state: RunState) -> int:
    held = 0
    for name in state.jobs_on(record.instance_id):
        attempt = state.jobs[name].current
        if attempt is not None:
            held += max(1, len(attempt.accelerator_indices))
    return min(held, record.offer.accelerators_per_instance)


def _fleet_note(records: Sequence[InstanceRecord]) -> str | None:
    noticed = sum(1 for record in records if record.noticed)
    ending = sum(1 for record in records if record.terminate_asked_at_s is not None)
    booting = sum(1 for r in records if r.ready_at_s is None and r.terminate_asked_at_s is None)
    parts = [
        f"{count} {word}"
        for count, word in ((noticed, "to be taken"), (ending, "ending"), (booting, "booting"))
        if count
    ]
    return ", ".join(parts) or None


def _events(events: Sequence[Event], state: RunState) -> Iterable[StatusEvent]:
    told = 0
    for event in reversed(events):
        words = tell(event, state)
        if words is None:
            continue
        yield StatusEvent(
            at=iso_utc(event.at_s),
            at_s=event.at_s - state.created_at_s,
            subject=words[0],
            text=words[1],
        )
        told += 1
        if told >= SHOWN_EVENTS:
            return
