"""``plan``: the whole run in virtual time, through the loop that will run it.

The market is the expected one (catalogue prices, each spot machine lives its mean), so that the
same file and prices always give the same plan.

*Feasible* means: in the expected market every deadline is kept, and the budget also pays for the
on-demand machines that insuring all of them rents there. Less money may keep them all too, but
uninsured: only if spot holds (``simulator.insurance``). The smallest sufficient budget is one
percent above the most that the run without a limit has spent and committed at any moment
(``mechanism.guards``), checked by running it again with just that budget; where that run fails it
is raised by ``LADDER_SHARE`` steps. It does not depend on the budget that is asked about, so that a
plan with the budget it names is feasible and one with less is not.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from cloudgavel.documents.encode import iso_utc
from cloudgavel.documents.plan import (
    FleetLine,
    PlanCost,
    PlanDocument,
    PlannedJob,
    Relaxed,
    Segment,
    ShadowPriceLine,
)
from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.jobs.spec import RunSpec
from cloudgavel.mechanism.plan import RoundPlan
from cloudgavel.mechanism.state import ClusterState
from cloudgavel.policies.base import Policy, SpendsBudget
from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.base import Provider, Quota
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.runtime.account import cost_lines, deadline_met
from cloudgavel.runtime.assemble import (
    bind_policy,
    expected_market,
    prices_as_of,
    prices_by_cloud,
    rehearsal_offers,
)
from cloudgavel.runtime.cluster_state import deadline_at_s
from cloudgavel.runtime.loop import Decide
from cloudgavel.simulator.dry_run import DryRun
from cloudgavel.simulator.insurance import insurance_of
from cloudgavel.simulator.market_range import ComingRange, MarketRange, market_range
from cloudgavel.simulator.traffic import known_traffic_usd
from cloudgavel.simulator.virtual_run import VirtualRun, virtual_run
from cloudgavel.store.events import LaunchFailed
from cloudgavel.store.ledger import disk_micro_usd
from cloudgavel.store.records import JobRecord, RunState
from cloudgavel.units import HOUR_S, MINUTE_S, usd

LADDER_SHARE = 0.015
"""Step by which a budget that did not suffice is raised."""
LADDER_STEPS = 8
FIRST_STEP_SHARE = 0.01
"""Above the peak of the unlimited run: exactly that much mostly fails by a cent and costs a run."""
MARGIN_ROUNDING_S = 60.0
"""Less margin than asked for by no more than this is not worth a note."""
MOST_REFUSALS = 5
"""Refusals of mocked clouds that a plan tells."""
COMPARISON_POLICY = "on_demand_only"
FRUGAL_POLICY = "min_cost"


def plan_run(
    run: RunSpec,
    *,
    budget_usd: float | None,
    now_s: float,
    best_effort: bool = False,
    policy: Policy | None = None,
    offers: Sequence[Offer] | None = None,
    decide_of: Callable[[Policy], Decide] = bind_policy,
    dry: DryRun | None = None,
    show_calls: bool = False,
    markets: int = 0,
    workers: int = 1,
) -> PlanDocument:
    """Return what ``run`` is expected to do and cost from ``now_s`` on; nothing is rented.

    ``budget_usd``: for the whole run; ``None`` = unlimited. ``policy``: instead of the run's own.
    ``offers``: instead of the bundled catalogue's. Infeasible plans are returned, not raised; the
    jobs of one show the best that the budget can keep.

    ``dry``: mocked clouds that the plan's launches and ends are tried on; what they refuse is
    planned without. ``show_calls`` lists the calls. ``markets``: how many simulated markets give
    the cost range and the deadlines' probabilities; ``workers`` processes share them.
    """
    from cloudgavel.policies.registry import policy_named, policy_of_run

    chosen = policy if policy is not None else policy_of_run(run)
    rentable = tuple(offers) if offers is not None else bundled_offers(run)
    decide = decide_of(chosen)
    quotas: tuple[Quota, ...] = ()
    if dry is not None:
        rentable = dry.sold(rentable)
        quotas = dry.quotas()
        decide = remembering(decide)

    # What is enough is asked of a policy that saves: one that spends would want all there is.
    frugal = decide
    if isinstance(chosen, SpendsBudget):
        frugal = decide_of(policy_named(FRUGAL_POLICY))
        frugal = frugal if dry is None else remembering(frugal)

    def simulate(
        limit_usd: float | None,
        best: bool,
        on: Callable[[SimulatedCloud], Provider] | None = None,
        by: Decide = decide,
    ) -> VirtualRun:
        return virtual_run(
            run,
            offers=rentable,
            market=expected_market(run),
            decide=by,
            now_s=now_s,
            budget_usd=limit_usd,
            best_effort=best,
            quotas=quotas,
            provider_of=on,
        )

    def in_markets(best: bool) -> ComingRange:
        return market_range(
            run,
            markets=markets,
            offers=rentable,
            policy=chosen,
            now_s=now_s,
            budget_usd=budget_usd,
            best_effort=best,
            quotas=quotas,
            decide_of=decide_of,
            workers=workers,
        )

    free = simulate(None, best_effort, by=frugal)
    kept = keeps_every_promise(free)

    def with_least(limit_usd: float) -> VirtualRun:
        return simulate(limit_usd, best_effort, by=frugal)

    smallest = smallest_sufficient_usd(free, with_least) if kept else None
    feasible = kept and (budget_usd is None or (smallest is not None and budget_usd >= smallest))
    shown, limit_usd, best = free, None, best_effort
    if frugal is not decide:
        limit_usd, best = budget_usd, best_effort or not feasible
        shown = simulate(limit_usd, best)
        feasible = feasible and keeps_every_promise(shown)
    elif budget_usd is not None and not (feasible and budget_usd >= 2 * free.peak_reserve_usd):
        shown = simulate(budget_usd, best_effort or not feasible)
        if feasible and not keeps_every_promise(shown):
            shown = free
        else:
            limit_usd, best = budget_usd, best_effort or not feasible
    # Other processes work on the markets while the rest is done here.
    assumed = best_effort or not feasible
    coming = in_markets(assumed)
    if dry is not None:
        shown = simulate(limit_usd, best, dry.mirror)
        feasible = feasible and keeps_every_promise(shown)
    on_demand = virtual_run(
        run,
        offers=[offer for offer in rentable if offer.capacity_type is not CapacityType.SPOT],
        market=expected_market(run),
        decide=decide_of(policy_named(COMPARISON_POLICY)),
        now_s=now_s,
        budget_usd=None,
        best_effort=True,
        quotas=quotas,
    )
    document = _document(
        run,
        shown,
        policy_name=chosen.name,
        offers=rentable,
        budget_usd=budget_usd,
        feasible=feasible,
        worst_case_usd=_worst_case_usd(free),
        smallest_usd=smallest,
        lower_bound_usd=free.plans[0].lower_bound_usd if free.plans else None,
        on_demand_only_usd=on_demand.state.spent_usd if on_demand.complete else None,
        now_s=now_s,
    )
    if dry is not None:
        document = _with_calls(document, dry, shown, show_calls=show_calls)
    found = coming.wait()
    if assumed != (best_effort or not feasible):
        # What the mocked clouds refused has cost a promise.
        found = in_markets(best_effort or not feasible).wait()
    return document if found is None else _with_range(document, found)


def remembering(decide: Decide) -> Decide:
    """Answer a state that was asked about before with the same plan: it is the same anyway."""
    known: dict[tuple[str, float, int], RoundPlan] = {}

    def decision(state: ClusterState) -> RoundPlan:
        key = (state.digest(), state.now_s, state.round_number)
        if key not in known:
            known[key] = decide(state)
        return known[key]

    return decision


def _with_calls(
    document: PlanDocument, dry: DryRun, shown: VirtualRun, *, show_calls: bool
) -> PlanDocument:
    """Add what the mocked clouds were asked, and what they refused for good."""
    refused = dict.fromkeys(
        f"{event.offer_id} would be refused: {event.message}"
        for event in shown.events
        if isinstance(event, LaunchFailed) and event.failure in ("invalid", "quota", "credentials")
    )
    return replace(
        document,
        notes=(*document.notes, *dry.notes, *list(refused)[:MOST_REFUSALS]),
        call_count=len(dry.calls),
        calls=tuple(dry.calls) if show_calls else None,
    )


def _with_range(document: PlanDocument, found: MarketRange) -> PlanDocument:
    return replace(
        document,
        markets=found.markets,
        cost=replace(document.cost, p05_usd=found.p05_usd, p95_usd=found.p95_usd),
        jobs=tuple(
            replace(job, deadline_probability=found.deadline_share.get(job.name))
            for job in document.jobs
        ),
    )


def keeps_every_promise(done: VirtualRun) -> bool:
    """True when every job finished, in time and within its own ``max_cost``."""
    if not done.complete:
        return False
    for job in done.state.jobs.values():
        if deadline_met(job, done.state) is False:
            return False
        limit = job.spec.max_cost_usd
        if limit is not None and usd(job.spent_micro_usd) > limit:
            return False
    return True


def bundled_offers(run: RunSpec) -> tuple[Offer, ...]:
    """Offers of the bundled catalogue that the run may rent."""
    from cloudgavel.pricing.bundled import bundled_catalog

    return rehearsal_offers(run, bundled_catalog())


def smallest_sufficient_usd(
    free: VirtualRun, simulate: Callable[[float], VirtualRun]
) -> float | None:
    """Smallest budget on the ladder with which the run keeps everything; ``None`` = none of it."""
    budget = up_to_cent(free.peak_exposure_usd * (1 + FIRST_STEP_SHARE))
    for _ in range(LADDER_STEPS):
        limited = simulate(budget)
        if keeps_every_promise(limited) and limited.state.spent_usd <= budget:
            return budget
        budget = up_to_cent(budget * (1 + LADDER_SHARE))
    return None


def up_to_cent(amount_usd: float) -> float:
    """Round a budget up to whole cents."""
    return math.ceil(round(amount_usd * 100, 6)) / 100


def _worst_case_usd(free: VirtualRun) -> float | None:
    """Budget that pays for every deadline on demand at every moment; ``None`` = none does."""
    promised = {name for name, job in free.state.jobs.items() if _has_deadline(job)}
    first = free.plans[0].forecasts if free.plans else ()
    covered = {forecast.job for forecast in first if forecast.promise == "covered"}
    return up_to_cent(free.peak_reserve_usd) if promised <= covered else None


def _has_deadline(job: JobRecord) -> bool:
    return job.spec.deadline_s is not None or job.spec.deadline_at_s is not None


def _document(
    run: RunSpec,
    shown: VirtualRun,
    *,
    policy_name: str,
    offers: tuple[Offer, ...],
    budget_usd: float | None,
    feasible: bool,
    worst_case_usd: float | None,
    smallest_usd: float | None,
    lower_bound_usd: float | None,
    on_demand_only_usd: float | None,
    now_s: float,
) -> PlanDocument:
    state = shown.state
    jobs = tuple(_planned_job(job, shown) for job in state.jobs.values())
    finishes = [job.finish_s for job in jobs]
    makespan = max((f for f in finishes if f is not None), default=None)
    document = PlanDocument(
        name=run.name,
        plan_id="",
        policy=policy_name,
        rehearsal=not run.clouds,
        prices_as_of=prices_as_of(offers),
        prices=prices_by_cloud(offers, now_s=now_s),
        created_at=iso_utc(now_s),
        feasible=feasible,
        budget_usd=budget_usd,
        budget_covers_worst_case=(
            None
            if budget_usd is None
            else worst_case_usd is not None and worst_case_usd <= budget_usd
        ),
        worst_case_budget_usd=worst_case_usd,
        smallest_sufficient_budget_usd=smallest_usd,
        cost=PlanCost(
            expected_usd=state.spent_usd,
            lower_bound_usd=lower_bound_usd,
            on_demand_only_usd=on_demand_only_usd,
            traffic_usd=known_traffic_usd(state),
            storage_usd=usd(sum(job.storage_micro_usd for job in state.jobs.values())),
            disk_usd=usd(
                sum(
                    disk_micro_usd(record, record.accrued_until_s)
                    for record in state.instances.values()
                )
            ),
        ),
        makespan_s=None if None in finishes else makespan,
        rounds=state.decisions,
        jobs=jobs,
        fleet=_fleet(state),
        lines=cost_lines(state),
        relaxed=_relaxed(state),
        shadow_prices=_shadow_prices(shown),
        notes=(
            *_margin_notes(run, state),
            *dict.fromkeys(note for plan in shown.plans for note in plan.notes),
        ),
    )
    return replace(document, plan_id=_plan_id(document, run, offers))


def _plan_id(document: PlanDocument, run: RunSpec, offers: tuple[Offer, ...]) -> str:
    """Name of this very plan: what was asked, the prices and what follows; not when it was made."""
    body = repr((run, offers, replace(document, created_at="", prices=())))
    return hashlib.sha256(body.encode()).hexdigest()[:8]


def _planned_job(job: JobRecord, shown: VirtualRun) -> PlannedJob:
    state = shown.state
    created_s = state.created_at_s
    deadline_s = deadline_at_s(job.spec, created_s)
    finished_s = job.finished_at_s if job.phase is JobPhase.FINISHED else None
    met = deadline_met(job, state)
    if deadline_s is not None and finished_s is None:
        met = False
    insurance = insurance_of(job, shown)
    return PlannedJob(
        name=job.spec.name,
        finish_s=None if finished_s is None else finished_s - created_s,
        deadline_s=None if deadline_s is None else deadline_s - created_s,
        deadline_met=met,
        cost_usd=usd(job.spent_micro_usd),
        segments=_segments(job, state),
        insured_from_s=insurance.from_s,
        sent_on_demand_s=insurance.sent_on_demand_s,
        insurance_usd=insurance.on_demand_usd,
        save_every_s=job.attempts[-1].save_every_s if job.attempts else None,
    )


def _segments(job: JobRecord, state: RunState) -> tuple[Segment, ...]:
    segments = []
    for attempt in job.attempts:
        record = state.instances[attempt.instance_ids[0]]
        offer = record.offer
        end_s = attempt.ended_at_s if attempt.ended_at_s is not None else state.at_s
        _, _, gang = attempt.request_label.partition(":")
        segments.append(
            Segment(
                provider=offer.provider,
                zone=offer.zone,
                instance_type=offer.instance_type,
                capacity_type=offer.capacity_type.value,
                start_s=attempt.started_at_s - state.created_at_s,
                end_s=end_s - state.created_at_s,
                accelerator=offer.accelerator,
                gang=int(gang or 1),
                steps_per_s=attempt.steps_per_s_expected,
                steps_per_s_estimated=attempt.request_label not in job.spec.throughput_steps_per_s,
                usd_per_hour=attempt.price_usd_per_hour,
            )
        )
    return tuple(segments)


def _margin_notes(run: RunSpec, state: RunState) -> list[str]:
    """Name the deadlines that are met, but not with ``deadline_margin`` to spare."""
    notes = []
    for name, job in state.jobs.items():
        deadline_s = deadline_at_s(job.spec, state.created_at_s)
        if deadline_s is None or job.finished_at_s is None or not deadline_met(job, state):
            continue
        release_s = state.created_at_s + job.spec.arrives_s
        margin_s = run.deadline_margin_share * (deadline_s - release_s)
        slack_s = deadline_s - job.finished_at_s
        if slack_s < margin_s - MARGIN_ROUNDING_S:
            notes.append(
                f"{name} ends {slack_s / MINUTE_S:.0f} min before its deadline; deadline_margin "
                f"({run.deadline_margin_share:.0%}) asks for {margin_s / MINUTE_S:.0f} min"
            )
    return notes


def _fleet(state: RunState) -> FleetLine:
    changes: list[tuple[float, int, float]] = []
    hours = spot_hours = 0.0
    for record in state.instances.values():
        end_s = record.ended_at_s if record.ended_at_s is not None else state.at_s
        price = record.prices[0][1]
        changes.append((record.launched_at_s, 1, price))
        changes.append((end_s, -1, -price))
        lived = (end_s - record.launched_at_s) / HOUR_S
        hours += lived
        if record.offer.capacity_type is CapacityType.SPOT:
            spot_hours += lived
    count = peak_count = 0
    rate = peak_rate = 0.0
    for _, change, price_change in sorted(changes):
        count += change
        rate += price_change
        peak_count = max(peak_count, count)
        peak_rate = max(peak_rate, rate)
    return FleetLine(
        peak_instances=peak_count,
        peak_usd_per_hour=round(peak_rate, 6),
        instance_hours=hours,
        spot_share=spot_hours / hours if hours > 0 else None,
    )


def _relaxed(state: RunState) -> tuple[Relaxed, ...]:
    """What is not kept: promises released on the way, and deadlines missed in the end."""
    found = {
        (p.job, p.promise): Relaxed(
            job=p.job, promise=p.promise, by_s=p.by_s, by_usd=p.by_usd, reason=p.reason
        )
        for p in state.released
    }
    for name, job in state.jobs.items():
        deadline_s = deadline_at_s(job.spec, state.created_at_s)
        key = (name, "deadline")
        if deadline_s is None:
            continue
        if job.phase is not JobPhase.FINISHED or job.finished_at_s is None:
            reason = found[key].reason if key in found else "it is not finished"
            found[key] = Relaxed(
                job=name, promise="deadline", by_s=None, by_usd=None, reason=reason
            )
        elif job.finished_at_s > deadline_s:
            reason = found[key].reason if key in found else "it finishes late"
            found[key] = Relaxed(
                job=name,
                promise="deadline",
                by_s=job.finished_at_s - deadline_s,
                by_usd=None,
                reason=reason,
            )
        elif key in found:
            # Released on the way and kept all the same: no promise is broken.
            del found[key]
    return tuple(found[key] for key in sorted(found))


def _shadow_prices(shown: VirtualRun) -> tuple[ShadowPriceLine, ...]:
    first = shown.plans[0].shadow_prices if shown.plans else ()
    return tuple(
        ShadowPriceLine(
            constraint=price.constraint,
            unit=price.unit,
            usd_per_unit_down=price.usd_per_unit_down,
            usd_per_unit_up=price.usd_per_unit_up,
        )
        for price in first
    )
