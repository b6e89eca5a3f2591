"""Why a job gets nothing: plain sentences, with numbers."""

from collections.abc import Sequence

from cloudgavel.mechanism.columns import fits
from cloudgavel.mechanism.state import ClusterState, JobView
from cloudgavel.units import span

MAX_DURATION = "max_duration reached"
"""A job whose time is up: whoever carries the plan out marks it FAILED."""
MAX_COST = "max_cost reached"
KEPT_ON_DEMAND = "the deadline is kept on demand from now on"
RENTED_FOR_IT = "a machine was rented for it"
"""The reason proper is that of the launch."""
MACHINE_TAKEN = "the cloud takes the machine it was on"
"""A job that is saved, or goes on elsewhere, because it must; the account counts no move."""
OUT_OF_MONEY = "the money left does not pay for a useful stay on any machine it may use"
STOPPING = "the run is being stopped"
NOT_ARRIVED = "it has not arrived yet"
HELD_BACK = "the plan starts it later"
NO_QUOTA = "every machine it may use is taken: a quota or max_usd_per_hour leaves no room now"
MONEY_FOR_PROMISES = "the money left is kept for the promised deadlines"
MONEY_FOR_OTHERS = "the money left does not pay for it to the end; others go first"


def limit_reached(job: JobView, now_s: float) -> str | None:
    """Which limit of its own a job has used up, if any."""
    duration_s = job.spec.max_duration_s
    if (
        duration_s is not None
        and job.started_at_s is not None
        and now_s >= job.started_at_s + duration_s
    ):
        return MAX_DURATION
    if job.spec.max_cost_usd is not None and job.spent_usd >= job.spec.max_cost_usd:
        return MAX_COST
    return None


def comes_after(names: Sequence[str]) -> str:
    """A job waits for others."""
    return f"it comes after {', '.join(sorted(names))}"


def does_not_stop(name: str, since_s: float) -> str:
    """Why a machine ends under a job that was told to save and stop."""
    return f"{name} was told to stop {span(since_s)} ago and did not"


def waits_for_spot(left_s: float) -> str:
    """A job waits for spot that is refused now."""
    return f"spot is refused now; it goes on demand in {span(left_s)} if that lasts"


def nothing_fits(state: ClusterState, job: JobView) -> str:
    """Why no offer can run a job: throughput, memory, offers, or all of them blocked."""
    asked = [each for each in job.spec.accelerators if each.accelerator not in job.excluded]
    if not asked:
        return "it ran out of memory on every accelerator it may use"
    known = [each for each in asked if each.label in job.throughput_steps_per_s]
    if not known:
        labels = ", ".join(each.label for each in asked)
        return f"its throughput is unknown on {labels}"
    priced = [
        offer
        for offer in state.offers
        if offer.price_usd_per_hour is not None and any(fits(each, offer) for each in known)
    ]
    labels = ", ".join(each.label for each in known)
    if not priced:
        return f"nothing with a known price is offered with {labels}"
    blocked = {each.offer_id: each for each in state.blocked if each.until_s > state.now_s}
    why = [blocked[offer.offer_id].reason for offer in priced if offer.offer_id in blocked]
    if len(why) == len(priced):
        return f"all offers with {labels} were refused lately ({'; '.join(sorted(set(why)))})"
    if job.spec.memory_gib is not None:
        return f"no offer with {labels} fits (memory {job.spec.memory_gib:g} GiB, spot_only)"
    return f"no offer with {labels} can be used now"
