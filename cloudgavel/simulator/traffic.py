"""What a planned run's checkpoints cost on their way between clouds."""

from cloudgavel.pricing.traffic import cloud_of_store, traffic_usd
from cloudgavel.store.records import AttemptRecord, RunState


def expected_traffic_usd(state: RunState) -> float | None:
    """Estimate from the attempts of a run: a save per interval and one at the end, and restores.

    0 where every machine is in the store's cloud; ``None`` when a job elsewhere does not say how
    large its checkpoint is.
    """
    store = None if state.spec is None else cloud_of_store(state.spec.store)
    if store is None:
        return 0.0
    total = 0.0
    for job in state.jobs.values():
        for attempt in job.attempts:
            machine = state.instances[attempt.instance_ids[0]].offer.provider
            if machine == store:
                continue
            gib = job.spec.checkpoint.size_gib
            if gib is None:
                return None
            total += traffic_usd(
                machine_cloud=machine,
                store_cloud=store,
                gib=gib,
                saves=_saves(attempt, state.at_s),
                restores=1 if attempt.restored_step else 0,
            )
    return total


def _saves(attempt: AttemptRecord, now_s: float) -> int:
    ended_at_s = now_s if attempt.ended_at_s is None else attempt.ended_at_s
    return int((ended_at_s - attempt.started_at_s) // attempt.save_every_s) + 1
