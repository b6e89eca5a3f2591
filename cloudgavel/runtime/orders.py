"""What each machine should do, from the log alone: the same log always gives the same orders."""

from collections.abc import Mapping

from cloudgavel.messages.orders import JobOrder, Orders, RehearsalTerms, Verb
from cloudgavel.pricing.traffic import GIB
from cloudgavel.runtime.cluster_state import job_rates
from cloudgavel.runtime.settings import LoopSettings
from cloudgavel.store.records import AttemptRecord, JobRecord, RunState

ORDERS_PER_CONTROLLER = 1_000_000
"""Orders of a later controller are always numbered higher than those of an earlier one."""


def job_orders(
    state: RunState, instance_id: str, settings: LoopSettings, *, paced: bool
) -> tuple[JobOrder, ...]:
    """Return the orders of every job on an instance, by name.

    ``paced``: time is virtual; the orders tell what the rented accelerator would do.
    """
    orders = []
    for name in sorted(state.jobs_on(instance_id)):
        job = state.jobs[name]
        attempt = job.current
        if attempt is not None:
            orders.append(_order(state, job, attempt, instance_id, settings, paced=paced))
    return tuple(orders)


def numbered(
    state: RunState,
    instance_id: str,
    jobs: tuple[JobOrder, ...],
    settings: LoopSettings,
    *,
    count: int,
    seen: int,
) -> Orders:
    """Return the whole orders; ``count`` is how many this controller sent, ``seen`` what it saw."""
    sequence = max(state.controllers * ORDERS_PER_CONTROLLER + count, seen + 1)
    return Orders(
        run_id=state.run_id,
        instance_id=instance_id,
        sequence=sequence,
        lease_s=settings.agent_lease_s,
        jobs=jobs,
    )


def _order(
    state: RunState,
    job: JobRecord,
    attempt: AttemptRecord,
    instance_id: str,
    settings: LoopSettings,
    *,
    paced: bool,
) -> JobOrder:
    spec = job.spec
    offer = state.instances[instance_id].offer
    platform = "tpu" if offer.accelerator.startswith("tpu") else "gpu"
    addresses = [state.instances[each].address for each in attempt.instance_ids]
    command = spec.commands.get(platform) or spec.commands.get("any") or ""
    return JobOrder(
        job=spec.name,
        attempt=attempt.number,
        verb=Verb.STOP if job.stop_asked else Verb.RUN,
        command=command,
        env=_environment(spec.env, spec.secrets, settings.secrets),
        setup=spec.setup,
        workdir=spec.workdir,
        checkpoint_path=spec.checkpoint.path,
        accelerator_indices=attempt.accelerator_indices,
        platform=platform,
        rank=attempt.instance_ids.index(instance_id),
        world_size=len(attempt.instance_ids),
        peers=attempt.instance_ids,
        peer_addresses=tuple(each for each in addresses if each) if all(addresses) else (),
        steps_total=spec.steps_total,
        save_sequence=job.save_sequence,
        save_every_s=None if paced else attempt.save_every_s,
        progress_pattern=spec.progress_pattern,
        grace_s=spec.grace_s,
        rehearsal=_terms(job, attempt) if paced else None,
    )


def _terms(job: JobRecord, attempt: AttemptRecord) -> RehearsalTerms | None:
    rate = job_rates(job, measured_counts=False).steps_per_s.get(attempt.request_label)
    if rate is None:
        rate = attempt.steps_per_s_expected
    if rate is None:
        return None
    size_gib = job.spec.checkpoint.size_gib
    return RehearsalTerms(
        steps_per_s=rate,
        restore_s=job.spec.checkpoint.restore_s,
        save_s=job.spec.checkpoint.save_s,
        save_every_s=attempt.save_every_s,
        checkpoint_bytes=None if size_gib is None else round(size_gib * GIB),
    )


def _environment(
    env: Mapping[str, str], names: tuple[str, ...], secrets: Mapping[str, str]
) -> Mapping[str, str]:
    return {**env, **{name: secrets[name] for name in names if name in secrets}}
