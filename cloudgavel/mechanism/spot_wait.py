"""How long a job that nobody hurries waits for spot before it goes on demand."""

import math

from cloudgavel.mechanism.columns import fits
from cloudgavel.mechanism.situation import Situation
from cloudgavel.mechanism.state import JobView
from cloudgavel.pricing.offer import CapacityType


def waits_for_spot_until_s(situation: Situation, job: JobView, column: int) -> float | None:
    """When a job that would go on demand in ``column`` stops waiting for spot; ``None`` = now.

    Only what has no deadline and no place waits, while spot that is cheaper per step is refused for
    the moment, and at most ``max_spot_wait_s`` after it began to wait.
    """
    state = situation.state
    name = job.spec.name
    if situation.columns[column].spot or job.instance_ids:
        return None
    if situation.deadlines[name] is not None:
        return None
    since_s = job.waiting_since_s
    if since_s is None:
        since_s = max(job.release_at_s, state.created_at_s)
    until_s = since_s + state.max_spot_wait_s
    if state.now_s >= until_s:
        return None
    rate = float(situation.rates[situation.row(name), column])
    here = situation.columns[column].alone_usd_per_hour / rate
    return until_s if _refused_spot_usd_per_step(situation, job) < here else None


def _refused_spot_usd_per_step(situation: Situation, job: JobView) -> float:
    """Cheapest spot that is blocked now, alone on it, in the unit of rent per hour over rate."""
    state = situation.state
    refused = {each.offer_id for each in state.blocked if each.until_s > state.now_s}
    best = math.inf
    for offer in state.offers:
        price = offer.price_usd_per_hour
        if (
            offer.offer_id not in refused
            or offer.capacity_type is not CapacityType.SPOT
            or price is None
        ):
            continue
        for request in job.spec.accelerators:
            rate = job.throughput_steps_per_s.get(request.label)
            if rate is None or request.accelerator in job.excluded or not fits(request, offer):
                continue
            count = max(1, request.count // offer.accelerators_per_instance)
            best = min(best, price * count / rate)
    return best
