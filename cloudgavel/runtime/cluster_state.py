"""The fold, the clouds' offers and now -> the snapshot that one decision sees."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from cloudgavel.estimation.job_rates import estimated_rates
from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.jobs.spec import AcceleratorRequest, JobSpec, RunSpec
from cloudgavel.mechanism.fleet import Instance, InstanceState
from cloudgavel.mechanism.state import BlockedOffer, ClusterState, JobView, QuotaLimit
from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.pricing.sightings import NOTHING_SEEN, OfferSightings
from cloudgavel.pricing.traffic import GIB, cloud_of_store
from cloudgavel.providers.base import Quota
from cloudgavel.providers.failures import FailureKind
from cloudgavel.store.records import InstanceRecord, IntentRecord, JobRecord, RunState
from cloudgavel.units import usd

DEFAULT_SAVE_EVERY_S = 1800.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Supply:
    """What the clouds offer at one moment."""

    offers: Sequence[Offer]
    boot_s_by_offer: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    quotas: Sequence[Quota] = ()


def cluster_state(
    state: RunState, supply: Supply, *, now_s: float, measured_counts: bool
) -> ClusterState:
    """Return the snapshot at ``now_s``.

    ``measured_counts``: measured rates replace given ones (false in a rehearsal, where this
    machine's speed says nothing about the rented accelerator's).
    """
    spec = _spec(state)
    kin = kin_rates(state.jobs.values()) if measured_counts else {}
    idle = idle_micro_usd(state)
    instances = [_instance(record) for record in state.live_instances]
    instances += [_requested(intent, supply) for _, intent in sorted(state.intents.items())]
    return ClusterState(
        run_id=state.run_id,
        now_s=now_s,
        created_at_s=state.created_at_s,
        round_number=state.decisions + 1,
        round_s=spec.round_s,
        jobs=tuple(
            job_view(
                job,
                state,
                job_rates(job, measured_counts=measured_counts, kin=kin),
                idle.get(job.spec.name, 0),
            )
            for job in state.jobs.values()
        ),
        instances=tuple(instances),
        offers=tuple(supply.offers),
        boot_s_by_offer=supply.boot_s_by_offer,
        quotas=_quotas(spec, supply),
        blocked=tuple(
            BlockedOffer(
                offer_id=offer_id,
                until_s=block.until_s,
                reason=block.reason,
                for_capacity=block.failure == FailureKind.CAPACITY,
            )
            for offer_id, block in sorted(state.blocked.items())
            if block.until_s > now_s
        ),
        spot_seen=spot_seen(state, now_s),
        budget_usd=state.budget_usd,
        spent_usd=state.spent_usd,
        store_cloud=cloud_of_store(spec.store),
        max_usd_per_hour=spec.max_usd_per_hour,
        deadline_margin_share=spec.deadline_margin_share,
        max_spot_wait_s=spec.max_spot_wait_s,
        best_effort=state.best_effort,
        stopping=state.stopping is not None,
    )


def spot_seen(state: RunState, now_s: float) -> Mapping[str, OfferSightings]:
    """Return what was seen of each spot offer: the log's past, and the machines that live now.

    A machine with notice of its end counts as lost from now on.
    """
    seen = dict(state.spot_seen)
    for record in state.live_instances:
        if record.offer.capacity_type is CapacityType.SPOT:
            known = seen.get(record.offer.offer_id, NOTHING_SEEN)
            seen[record.offer.offer_id] = known.lived(
                record.launched_at_s, now_s, taken=True if record.noticed else None
            )
    return MappingProxyType(seen)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRates:
    """What is known of a job's speeds, by ``AcceleratorRequest.label``; missing means unknown."""

    steps_per_s: Mapping[str, float]
    """Measured, given, or the low quantile of an estimate."""
    estimated: frozenset[str]
    """Labels whose rate is an estimate."""


def idle_micro_usd(state: RunState) -> Mapping[str, int]:
    """Return what machines cost while nobody was on them, by the jobs they were rented for."""
    found: dict[str, int] = {}
    for record in state.instances.values():
        if record.unattributed_micro_usd and record.launched_for:
            share = record.unattributed_micro_usd // len(record.launched_for)
            for name in record.launched_for:
                found[name] = found.get(name, 0) + share
    return found


def job_view(job: JobRecord, state: RunState, rates: JobRates, idle_micro: int = 0) -> JobView:
    """Return one job as the decision sees it."""
    spec = job.spec
    attempt = job.current
    return JobView(
        spec=spec,
        phase=job.phase,
        steps_done=job.steps_done,
        saved_steps=job.saved_steps,
        attempt=job.attempt,
        instance_ids=attempt.instance_ids if attempt is not None else (),
        request=request_of(spec, attempt.request_label) if attempt is not None else None,
        accelerator_indices=attempt.accelerator_indices if attempt is not None else (),
        move_to=job.move_to,
        stopping=job.stop_asked,
        stop_asked_at_s=job.stop_asked_at_s,
        placed_at_s=attempt.started_at_s if attempt is not None else None,
        release_at_s=state.created_at_s + spec.arrives_s,
        waits_for=tuple(
            name
            for name in spec.after
            if name not in state.jobs or state.jobs[name].phase is not JobPhase.FINISHED
        ),
        deadline_at_s=deadline_at_s(spec, state.created_at_s),
        promise_released=job.promise_released,
        covered=_was_covered(spec.name, state),
        throughput_steps_per_s=rates.steps_per_s,
        estimated=rates.estimated,
        spent_usd=usd(job.spent_micro_usd),
        idle_usd=usd(idle_micro),
        waiting_since_s=(job.attempts[-1].ended_at_s if attempt is None and job.attempts else None),
        save_error=job.save_error,
        save_every_s=attempt.save_every_s if attempt is not None else save_every_s(spec),
        checkpoint_gib=job.kept_bytes[-1] / GIB if job.kept_bytes else spec.checkpoint.size_gib,
        started_at_s=job.started_at_s,
        excluded=job.excluded,
    )


def _was_covered(name: str, state: RunState) -> bool:
    """Return whether the newest decision called the job's promise covered."""
    forecasts = state.plan.forecasts if state.plan is not None else ()
    return any(each.job == name and each.promise == "covered" for each in forecasts)


def job_rates(
    job: JobRecord,
    *,
    measured_counts: bool,
    kin: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> JobRates:
    """Return the job's speeds; ``kin``: measured ones by ``kinship`` (see ``kin_rates``)."""
    measured = measured_rates(job) if measured_counts else {}
    known = {**job.spec.throughput_steps_per_s, **measured}
    estimates = estimated_rates(
        job.spec,
        measured_steps_per_s=measured,
        kin_steps_per_s=kin.get(kinship(job.spec) or "", {}),
    )
    low = {label: estimate.low_steps_per_s for label, estimate in estimates.items()}
    return JobRates(steps_per_s=MappingProxyType(known | low), estimated=frozenset(low))


def measured_rates(job: JobRecord) -> dict[str, float]:
    """Return what the job's own progress tells, by label."""
    rates = {label: windows.steps_per_s for label, windows in job.rate_windows.items()}
    return {label: rate for label, rate in rates.items() if rate is not None}


def kinship(spec: JobSpec) -> str | None:
    """Return what jobs that run alike have in common: their ``foreach`` entry, or the profile."""
    if spec.family is not None:
        return f"foreach {spec.family}"
    return None if spec.profile is None else f"profile {spec.profile}"


def kin_rates(jobs: Iterable[JobRecord]) -> dict[str, dict[str, float]]:
    """Return the median of the measured rates of every kinship, by label."""
    found: dict[str, dict[str, list[float]]] = {}
    for job in jobs:
        name = kinship(job.spec)
        if name is None:
            continue
        for label, rate in measured_rates(job).items():
            found.setdefault(name, {}).setdefault(label, []).append(rate)
    return {
        name: {label: statistics.median(rates) for label, rates in by_label.items()}
        for name, by_label in found.items()
    }


def save_every_s(spec: JobSpec) -> float:
    """Return the interval of periodic saves before a decision chose one."""
    return spec.checkpoint.every_s if spec.checkpoint.every_s is not None else DEFAULT_SAVE_EVERY_S


def deadline_at_s(spec: JobSpec, created_at_s: float) -> float | None:
    """Return the job's deadline as an instant; ``None`` = none."""
    if spec.deadline_at_s is not None:
        return spec.deadline_at_s
    return created_at_s + spec.deadline_s if spec.deadline_s is not None else None


def request_of(spec: JobSpec, label: str) -> AcceleratorRequest:
    """Return the gang that a label names."""
    for request in spec.accelerators:
        if request.label == label:
            return request
    accelerator, _, count = label.partition(":")
    return AcceleratorRequest(accelerator=accelerator, count=int(count or 1))


def _spec(state: RunState) -> RunSpec:
    if state.spec is None:
        raise ValueError("the log has no run in it")
    return state.spec


def _instance(record: InstanceRecord) -> Instance:
    return Instance(
        instance_id=record.instance_id,
        offer=record.offer,
        state=record.state,
        price_usd_per_hour=record.price_usd_per_hour,
        launched_at_s=record.launched_at_s,
        ready_at_s=record.ready_at_s,
        expected_ready_at_s=record.expected_ready_at_s,
        notice_ends_at_s=record.notice_ends_at_s if record.noticed else None,
        intended_jobs=record.for_jobs,
        terminate_asked_at_s=record.terminate_asked_at_s,
    )


def _requested(intent: IntentRecord, supply: Supply) -> Instance:
    offer = intent.next_offer or intent.offers[0]
    boot_s = supply.boot_s_by_offer.get(offer.offer_id)
    return Instance(
        instance_id=intent.token,
        offer=offer,
        state=InstanceState.TERMINATING if intent.terminate_asked else InstanceState.REQUESTED,
        price_usd_per_hour=offer.price_usd_per_hour or 0.0,
        launched_at_s=intent.intended_at_s,
        expected_ready_at_s=None if boot_s is None else intent.intended_at_s + boot_s,
        intended_jobs=intent.for_jobs,
    )


def _quotas(spec: RunSpec, supply: Supply) -> tuple[QuotaLimit, ...]:
    limits = [
        QuotaLimit(name=q.name, limit=q.limit, units_per_instance=q.units_per_instance)
        for q in supply.quotas
    ]
    for cloud in spec.clouds or spec.rehearsal.clouds:
        if cloud.max_instances is not None:
            limits.append(
                QuotaLimit(
                    name=f"max_instances of {cloud.provider}",
                    limit=float(cloud.max_instances),
                    units_per_instance=MappingProxyType(
                        {
                            offer.offer_id: 1.0
                            for offer in supply.offers
                            if offer.provider == cloud.provider
                        }
                    ),
                )
            )
    return tuple(limits)
