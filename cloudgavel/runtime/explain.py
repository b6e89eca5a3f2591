"""The fold -> ``cloudgavel/explain``: one job as the newest decision saw it."""

from collections.abc import Iterator

from cloudgavel.documents.explain import ExplainChoice, ExplainDocument
from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.mechanism.actions import Wait
from cloudgavel.mechanism.plan import RoundPlan
from cloudgavel.policies.spot.verdict import SpotVerdict
from cloudgavel.pricing.sightings import catalogue_rate_per_hour, learnt_rates_per_hour
from cloudgavel.runtime.account import deadline_met
from cloudgavel.runtime.cluster_state import deadline_at_s, save_every_s, spot_seen
from cloudgavel.runtime.now import offer_words
from cloudgavel.store.records import AttemptRecord, JobRecord, RunState
from cloudgavel.units import usd


def explain_document(state: RunState, name: str, *, planned: bool = False) -> ExplainDocument:
    """Explain a job of the run (``KeyError`` for an unknown one)."""
    job, plan = state.jobs[name], state.plan
    created_s = state.created_at_s
    spec = state.spec
    forecasts = {} if plan is None else {each.job: each for each in plan.forecasts}
    verdicts = {} if plan is None else {each.job: each for each in plan.spot}
    forecast = forecasts.get(name) if job.active else None
    verdict = verdicts.get(name) if job.active else None
    deadline_s = deadline_at_s(job.spec, created_s)
    price = next(
        (
            each
            for each in (plan.shadow_prices if plan is not None and job.active else ())
            if each.constraint == f"deadline of {name}"
        ),
        None,
    )
    latest = None if forecast is None else forecast.latest_on_demand_at_s
    last = job.attempts[-1] if job.attempts else None
    attempt = job.current if job.active else last
    return ExplainDocument(
        run="" if spec is None else spec.name,
        job=name,
        planned=planned,
        round=state.decisions,
        at_s=(state.decided_at_s or state.at_s) - created_s,
        state=job.phase.value,
        on=_on(job, state),
        reason=_reason(name, job, plan),
        ended_s=None if job.finished_at_s is None else job.finished_at_s - created_s,
        last_on=None if job.active or last is None else _place(last, state),
        last_reason=None if job.active or last is None else last.reason,
        steps_done=job.steps_done,
        steps_total=job.spec.steps_total,
        spent_usd=usd(job.spent_micro_usd),
        expected_finish_s=_finish_s(job, state),
        expected_cost_left_usd=None if forecast is None else forecast.cost_usd,
        deadline_s=None if deadline_s is None else deadline_s - created_s,
        promise=_promise(job, state, None if forecast is None else forecast.promise),
        choices=() if verdict is None else tuple(_choices(verdict)),
        forced_by=None if verdict is None else verdict.forced_by,
        latest_on_demand_s=None if latest is None else latest - created_s,
        reserve_usd=None if forecast is None else forecast.reserve_usd,
        most_usd=None if verdict is None else verdict.cap_usd,
        deadline_usd_per_hour_less=None if price is None else price.usd_per_unit_down,
        deadline_usd_per_hour_more=None if price is None else price.usd_per_unit_up,
        save_every_s=attempt.save_every_s if attempt is not None else save_every_s(job.spec),
        save_every_given=job.spec.checkpoint.every_s is not None,
        save_s=job.spec.checkpoint.save_s,
        loss_rate_per_hour=None if attempt is None else _loss_rate_per_hour(attempt, state),
    )


def _choices(verdict: SpotVerdict) -> Iterator[ExplainChoice]:
    yield ExplainChoice(
        hold="wait",
        offer_id=None,
        accelerators=None,
        expected_cost_usd=verdict.wait_usd,
        loss_chance=None,
        chosen=verdict.hold == "wait",
    )
    for place, chance in sorted(
        verdict.loss_chance.items(),
        key=lambda each: (verdict.spot_usd.get(each[0], float("inf")), each[0]),
    ):
        offer_id, _, gang = place.rpartition("*")
        yield ExplainChoice(
            hold="spot",
            offer_id=offer_id,
            accelerators=int(gang),
            expected_cost_usd=verdict.spot_usd.get(place),
            loss_chance=chance,
            chosen=verdict.hold == "spot" and verdict.offer_id == place,
        )
    offer_id, _, gang = verdict.on_demand_offer_id.rpartition("*")
    yield ExplainChoice(
        hold="on_demand",
        offer_id=offer_id,
        accelerators=int(gang),
        expected_cost_usd=verdict.on_demand_usd,
        loss_chance=None,
        chosen=verdict.hold == "on_demand",
    )


def _on(job: JobRecord, state: RunState) -> str | None:
    if job.current is not None:
        return _place(job.current, state)
    coming = [record for record in state.live_instances if job.spec.name in record.launched_for]
    return f"{offer_words(coming[0].offer)}, getting ready" if coming and job.active else None


def _place(attempt: AttemptRecord, state: RunState) -> str:
    return offer_words(state.instances[attempt.instance_ids[0]].offer)


def _reason(name: str, job: JobRecord, plan: RoundPlan | None) -> str | None:
    if job.phase is JobPhase.FINISHED:
        # The last word about it is of its last place.
        return None
    if not job.active or plan is None:
        return job.reason
    waits = [each.reason for each in plan.actions if isinstance(each, Wait) and each.job == name]
    if waits:
        return waits[0]
    return job.current.reason if job.current is not None else job.reason


def _finish_s(job: JobRecord, state: RunState) -> float | None:
    if job.phase is JobPhase.FINISHED and job.finished_at_s is not None:
        return job.finished_at_s - state.created_at_s
    for each in state.plan.forecasts if state.plan is not None and job.active else ():
        if each.job == job.spec.name and each.finish_at_s is not None:
            return each.finish_at_s - state.created_at_s
    return None


def _promise(job: JobRecord, state: RunState, told: str | None) -> str:
    met = deadline_met(job, state)
    if met is not None:
        return "kept" if met else "missed"
    if told is not None:
        return told
    return "none" if deadline_at_s(job.spec, state.created_at_s) is None else "expected"


def _loss_rate_per_hour(attempt: AttemptRecord, state: RunState) -> float:
    records = [state.instances[each] for each in attempt.instance_ids]
    offers = {record.offer.offer_id: record.offer for record in state.instances.values()}
    learnt = learnt_rates_per_hour(offers.values(), spot_seen(state, state.at_s))
    return sum(
        learnt.get(record.offer.offer_id, catalogue_rate_per_hour(record.offer))
        for record in records
    )
