"""Which deadlines a plan keeps even if spot vanishes, from when on, and what that costs.

A promise is insured while the decisions call it *covered* (``mechanism.guards``): the money to
finish its job on demand is put aside. Where that money is actually spent in the expected market,
because the job is sent on demand before spot could be lost too late, it is the insurance's price.
"""

from dataclasses import dataclass

from cloudgavel.mechanism.actions import Launch, Start
from cloudgavel.mechanism.reasons import KEPT_ON_DEMAND
from cloudgavel.pricing.offer import CapacityType
from cloudgavel.simulator.virtual_run import VirtualRun
from cloudgavel.store.events import RoundDecided
from cloudgavel.store.records import JobRecord, RunState
from cloudgavel.units import HOUR_S


@dataclass(frozen=True, kw_only=True)
class Insurance:
    """How one job's deadline is insured; seconds from the run's creation."""

    from_s: float | None
    """From then on to the job's end; ``None`` = never, or not to its end."""
    sent_on_demand_s: float | None
    """When the deadline sent it on demand; ``None`` = never."""
    on_demand_usd: float
    """Rent of its on-demand machines from then on."""


def insurance_of(job: JobRecord, done: VirtualRun) -> Insurance:
    """Read off the decisions of a run how a job's deadline was insured."""
    name = job.spec.name
    from_at_s: float | None = None
    sent_at_s: float | None = None
    for event in done.events:
        if not isinstance(event, RoundDecided):
            continue
        for forecast in event.plan.forecasts:
            if forecast.job == name and forecast.promise != "covered":
                from_at_s = None
            elif forecast.job == name and from_at_s is None:
                from_at_s = event.at_s
        if sent_at_s is None and any(
            (isinstance(each, Launch) and name in each.for_jobs and each.reason == KEPT_ON_DEMAND)
            or (isinstance(each, Start) and name == each.job and each.reason == KEPT_ON_DEMAND)
            for each in event.plan.actions
        ):
            sent_at_s = event.at_s
    created_s = done.state.created_at_s
    return Insurance(
        from_s=None if from_at_s is None else from_at_s - created_s,
        sent_on_demand_s=None if sent_at_s is None else sent_at_s - created_s,
        on_demand_usd=0.0 if sent_at_s is None else _on_demand_usd(job, done.state, sent_at_s),
    )


def _on_demand_usd(job: JobRecord, state: RunState, from_at_s: float) -> float:
    """Rent of the machines, whoever shares them, while the job is on them on demand."""
    total = 0.0
    for attempt in job.attempts:
        offer = state.instances[attempt.instance_ids[0]].offer
        if attempt.started_at_s >= from_at_s and offer.capacity_type is not CapacityType.SPOT:
            end_s = attempt.ended_at_s if attempt.ended_at_s is not None else state.at_s
            total += attempt.price_usd_per_hour * (end_s - attempt.started_at_s) / HOUR_S
    return total
