"""What a job's checkpoints cost on their way to the store and in it: expected, and at worst.

The worst case is counted so that the rule of the reserve holds from one decision to the next. Saves
begin at least ``save_every_s`` apart and a job makes one at a time, so that between two decisions
there are at most one per interval, one more, and one that the earlier decision asked for; and from
any decision on, one under way and a last one. A machine's wind-down is part of the time counted
(``reserve.Liability``), which makes up for a save that began before the first decision.
"""

from dataclasses import dataclass

from cloudgavel.jobs.accelerators import CATALOGUE
from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.mechanism.change_over import save_s
from cloudgavel.mechanism.columns import Column
from cloudgavel.mechanism.fleet import Instance
from cloudgavel.mechanism.state import ClusterState, JobView
from cloudgavel.pricing.interruption import save_interval_s
from cloudgavel.pricing.offer import Offer
from cloudgavel.pricing.traffic import TrafficRates, stored_usd_per_hour, traffic_rates
from cloudgavel.units import HOUR_S

STOPPING_SAVES = 2
"""One under way and a last one."""
GOING_SAVES = 4
"""Beside those that follow from the interval."""
FIRST_SAVES = 3
"""While no size is known: the first, one under way when it is known, and a last one."""
KEPT_CHECKPOINTS = 2


def traffic_rates_of(state: ClusterState, offer: Offer) -> TrafficRates:
    """Rates between a machine of this offer and the run's store."""
    return traffic_rates(offer.provider, offer.region, state.store_cloud)


def cautious_gib(job: JobView) -> float:
    """Size of a checkpoint; where it is not known, the memory of the largest gang it asks for.

    What a job saves fits into the accelerators that hold it, as a rule.
    """
    if job.checkpoint_gib is not None:
        return job.checkpoint_gib
    sizes = [
        each.count * (job.spec.memory_gib or CATALOGUE[each.accelerator].memory_gib)
        for each in job.spec.accelerators
        if each.accelerator in CATALOGUE
    ]
    return max(sizes, default=0.0)


def interval_s(state: ClusterState, job: JobView, column: Column) -> float:
    """Seconds between the saves of a job that is started there: its own, or what wastes least.

    A save that is paid for by the byte counts as so much longer as its price buys rent.
    """
    if job.spec.checkpoint.every_s is not None:
        return job.spec.checkpoint.every_s
    cost_s = save_s(job)
    usd = (job.checkpoint_gib or 0.0) * traffic_rates_of(state, column.sample).save_usd_per_gib
    if usd > 0 and column.alone_usd_per_hour > 0:
        cost_s += usd / column.alone_usd_per_hour * HOUR_S
    return save_interval_s(column.pool.interruption_rate_per_hour, cost_s)


def expected_usd_per_hour(state: ClusterState, job: JobView, column: Column) -> float:
    """Expected traffic of a job that works there, its restores after interruptions included.

    0 where a checkpoint's size is not known: nothing is known to choose by.
    """
    paid = traffic_rates_of(state, column.sample)
    if paid.free or job.checkpoint_gib is None:
        return 0.0
    saves_per_hour = HOUR_S / interval_s(state, job, column)
    restores_per_hour = column.pool.interruption_rate_per_hour * column.instance_count
    return paid.usd(job.checkpoint_gib * saves_per_hour, job.checkpoint_gib * restores_per_hour)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorstTraffic:
    """The most that checkpoints cost on their way to and from one machine."""

    usd_per_hour: float = 0.0
    """Periodic saves, until the end that the next decision could ask for."""
    once_usd: float = 0.0

    def __add__(self, other: "WorstTraffic") -> "WorstTraffic":
        return WorstTraffic(
            usd_per_hour=self.usd_per_hour + other.usd_per_hour,
            once_usd=self.once_usd + other.once_usd,
        )


NO_TRAFFIC = WorstTraffic()


def traffic_there(
    state: ClusterState, job: JobView, instance: Instance, *, goes_on: bool
) -> WorstTraffic:
    """Of a job's process on this machine; the first machine of a gang saves.

    ``goes_on``: it is not told to stop before the next decision.
    """
    leads = job.instance_ids[0] == instance.instance_id
    return _worst(
        state,
        job,
        instance.offer,
        saves=(GOING_SAVES if goes_on else STOPPING_SAVES) if leads else 0,
        every_s=job.save_every_s if leads and goes_on else None,
        restores=1 if job.phase is JobPhase.STARTING and job.saved_steps > 0 else 0,
    )


def traffic_to_come(
    state: ClusterState, job: JobView, column: Column, *, leads: bool = True, machines: int = 1
) -> WorstTraffic:
    """Of a job that is to start in this column, on so many machines, the first among them."""
    comes_from_somewhere = job.saved_steps > 0 or bool(job.instance_ids)
    return _worst(
        state,
        job,
        column.sample,
        saves=GOING_SAVES if leads else 0,
        every_s=interval_s(state, job, column) if leads else None,
        restores=machines if comes_from_somewhere else 0,
    )


def _worst(
    state: ClusterState,
    job: JobView,
    offer: Offer,
    *,
    saves: int,
    every_s: float | None,
    restores: int,
) -> WorstTraffic:
    paid = traffic_rates_of(state, offer)
    if paid.free:
        return NO_TRAFFIC
    gib = cautious_gib(job)
    per_hour = 0.0 if every_s is None else HOUR_S / max(every_s, 1.0)
    if job.checkpoint_gib is None:
        # The first save tells the size, and a decision follows at once.
        saves, per_hour = min(saves, FIRST_SAVES), 0.0
    return WorstTraffic(
        usd_per_hour=paid.usd(gib * per_hour, 0.0),
        once_usd=paid.usd(gib * saves, gib * restores),
    )


def worst_storage_usd_per_hour(state: ClusterState) -> float:
    """Most that keeping the checkpoints of all jobs costs an hour; sizes unknown are left out."""
    known = sum(job.checkpoint_gib or 0.0 for job in state.jobs)
    return stored_usd_per_hour(state.store_cloud, known * KEPT_CHECKPOINTS)


def unknown_sizes(state: ClusterState) -> tuple[str, ...]:
    """One sentence for jobs whose checkpoints may cost what nobody knows; empty = none."""
    if state.store_cloud is None:
        return ()
    elsewhere = {
        each.accelerator for each in state.offers if not traffic_rates_of(state, each).free
    }
    names = [
        job.spec.name
        for job in state.jobs
        if job.active
        and job.checkpoint_gib is None
        and any(each.accelerator in elsewhere for each in job.spec.accelerators)
    ]
    if not names:
        return ()
    shown = ", ".join(sorted(names)[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return (
        f"no size is known for the checkpoints of {shown}: what they cost on the way to another "
        "cloud is not in any forecast, and a budget keeps the price of a whole accelerator memory "
        "for each save; say `checkpoint: {size: ...}`",
    )
