"""What is spent, from the log alone, in integer micro-dollars.

An instance's bill (``pricing.billing``: per second, 60 s at least, each second at the price of its
own time) grows by *lines*. A line is the difference between the bill now and what was written so
far, so that lines always add up to the bill, whatever their number. It is split over the jobs on
the instance by the accelerators they hold; while there is none (boot, idle) it is unattributed.

Checkpoints have lines of their own, each its job's: what moves between clouds, by attempt, and what
lies in the store, by time. Both are differences too.

The caller writes a line before who is on the instance changes; then each line has one set of jobs.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from cloudgavel.pricing.billing import PriceChange, final_bill, is_waived
from cloudgavel.pricing.traffic import (
    GIB,
    cloud_of_store,
    stored_usd_per_hour,
    traffic_rates,
)
from cloudgavel.store.events import AccruedLine, InstanceEnded, StorageBooked, TrafficBooked
from cloudgavel.store.records import InstanceRecord, RunState
from cloudgavel.units import HOUR_S, micro_usd


def bill_micro_usd(record: InstanceRecord, until_s: float) -> int:
    """What the instance costs if it ends at ``until_s``, the minimum included."""
    changes = [PriceChange(at_s=at_s, usd_per_hour=price) for at_s, price in record.prices]
    until_s = max(until_s, record.launched_at_s)
    return final_bill(changes, record.launched_at_s, ended_at_s=until_s).cost_micro_usd


def accrue(state: RunState, instance_id: str, until_s: float) -> AccruedLine | None:
    """Return the line that brings the ledger of one instance to ``until_s``.

    ``None`` when there is nothing to write. The amount is negative when the end turns out to lie
    before what was written already (then ``until_s`` goes back too).
    """
    record = state.instances[instance_id]
    until_s = max(until_s, record.launched_at_s)
    written = record.accrued_micro_usd + record.waived_micro_usd
    micro = bill_micro_usd(record, until_s) - written
    if micro == 0 and until_s == record.accrued_until_s:
        return None
    by_job = split(micro, _accelerators_held(state, instance_id))
    return AccruedLine(
        instance_id=instance_id,
        until_s=until_s,
        micro_usd=micro,
        by_job=MappingProxyType(by_job),
        unattributed_micro_usd=micro - sum(by_job.values()),
    )


def waive(state: RunState, end: InstanceEnded) -> AccruedLine | None:
    """Return the line that takes back what was written, if the cloud does not charge it.

    The disk is charged all the same. Called when the ledger has reached the end. ``None`` = the
    machine is charged, or cost nothing.
    """
    record = state.instances[end.instance_id]
    lived_s = end.ended_at_s - record.launched_at_s
    waived = (
        end.reason == "interrupted"
        and not end.estimated
        and is_waived(record.offer.provider, record.offer.capacity_type, lived_s)
    )
    micro = record.accrued_micro_usd - disk_micro_usd(record, end.ended_at_s)
    if not waived or micro <= 0:
        return None
    # Everybody who bore the cost gets the same share of it back.
    bore = {**record.by_job_micro_usd, "": record.unattributed_micro_usd}
    back = split(-micro, bore)
    unattributed = back.pop("", -micro)
    return AccruedLine(
        instance_id=end.instance_id,
        until_s=record.accrued_until_s,
        micro_usd=-micro,
        by_job=MappingProxyType(back),
        unattributed_micro_usd=unattributed,
        waived=True,
    )


def disk_micro_usd(record: InstanceRecord, until_s: float) -> int:
    """What of the instance's bill up to ``until_s`` is its disk (an estimate)."""
    disk = record.offer.disk_usd_per_hour
    changes = [PriceChange(at_s=record.launched_at_s, usd_per_hour=disk)]
    until_s = max(until_s, record.launched_at_s)
    return final_bill(changes, record.launched_at_s, ended_at_s=until_s).cost_micro_usd


def book_traffic(
    state: RunState, job: str, *, uploaded_bytes: int, downloaded_bytes: int, at_s: float
) -> TrafficBooked | None:
    """Return the line for what a job's present attempt has moved in all, as its agents say.

    The cost is that of all its bytes less what was booked, so that parts add up to the whole and
    a repeated report books nothing. ``None`` = nothing new, or nothing is charged.
    """
    attempt = state.jobs[job].attempts[-1]
    store = None if state.spec is None else cloud_of_store(state.spec.store)
    offer = state.instances[attempt.instance_ids[0]].offer
    rates = traffic_rates(offer.provider, offer.region, store)
    up = max(uploaded_bytes, attempt.uploaded_bytes)
    down = max(downloaded_bytes, attempt.downloaded_bytes)
    if rates.free or (up, down) == (attempt.uploaded_bytes, attempt.downloaded_bytes):
        return None
    return TrafficBooked(
        at_s=at_s,
        job=job,
        attempt=attempt.number,
        uploaded_bytes=up,
        downloaded_bytes=down,
        micro_usd=micro_usd(rates.usd(up / GIB, down / GIB)) - attempt.traffic_micro_usd,
    )


def book_storage(state: RunState, now_s: float) -> StorageBooked | None:
    """Return the line for keeping every job's checkpoints up to now; ``None`` = under a line."""
    store = None if state.spec is None else cloud_of_store(state.spec.store)
    by_job = {}
    for name, job in state.jobs.items():
        cost = stored_usd_per_hour(store, job.stored_gib_s(now_s)) / HOUR_S
        if (micro := micro_usd(cost) - job.storage_micro_usd) > 0:
            by_job[name] = micro
    return StorageBooked(at_s=now_s, by_job=MappingProxyType(by_job)) if by_job else None


def split(micro_usd: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Split an amount by integer weights; the parts are integers and add up to the amount.

    What rounding leaves over goes, one micro-dollar each, to the largest remainders, then by name.
    Without weights the answer is empty.
    """
    total = sum(weights.values())
    if total <= 0:
        return {}
    sign = -1 if micro_usd < 0 else 1
    amount = abs(micro_usd)
    parts = {name: amount * weight // total for name, weight in weights.items()}
    left = amount - sum(parts.values())
    by_remainder = sorted(weights, key=lambda name: (-(amount * weights[name] % total), name))
    for name in by_remainder[:left]:
        parts[name] += 1
    return {name: sign * part for name, part in parts.items()}


def imbalance_micro_usd(state: RunState) -> int:
    """How far the sums are apart; 0 by construction, checked by tests and at a run's end."""
    instances = sum(record.accrued_micro_usd for record in state.instances.values())
    jobs = sum(job.spent_micro_usd for job in state.jobs.values())
    lines = sum(job.traffic_micro_usd + job.storage_micro_usd for job in state.jobs.values())
    return abs(instances + lines - state.spent_micro_usd) + abs(
        jobs + state.unattributed_micro_usd - state.spent_micro_usd
    )


def accrue_all(
    state: RunState, until_s_by_instance: Iterable[tuple[str, float]]
) -> tuple[AccruedLine, ...]:
    """Return the lines of several instances, each up to its own instant."""
    lines = (accrue(state, instance_id, until_s) for instance_id, until_s in until_s_by_instance)
    return tuple(line for line in lines if line is not None)


def _accelerators_held(state: RunState, instance_id: str) -> dict[str, int]:
    held = {}
    for name in state.jobs_on(instance_id):
        attempt = state.jobs[name].current
        if attempt is not None:
            held[name] = max(1, len(attempt.accelerator_indices))
    return held
