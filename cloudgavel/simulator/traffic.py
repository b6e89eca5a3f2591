"""What a planned run's checkpoints cost between clouds, where their sizes are known."""

from cloudgavel.pricing.traffic import cloud_of_store, traffic_rates
from cloudgavel.store.records import RunState
from cloudgavel.units import usd


def known_traffic_usd(state: RunState) -> float | None:
    """Return what the run booked; ``None`` when a job away from the store has no known size."""
    store = None if state.spec is None else cloud_of_store(state.spec.store)
    for job in state.jobs.values():
        offers = [state.instances[attempt.instance_ids[0]].offer for attempt in job.attempts]
        paid = any(not traffic_rates(each.provider, each.region, store).free for each in offers)
        if paid and job.spec.checkpoint.size_gib is None:
            return None
    return usd(sum(job.traffic_micro_usd for job in state.jobs.values()))
