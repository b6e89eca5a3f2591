"""From places to ordered actions: what has to happen so that the fleet becomes the plan."""

from collections.abc import Collection

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.mechanism import reasons
from cloudgavel.mechanism.actions import Action, Launch, Move, Save, Start, Terminate, Wait
from cloudgavel.mechanism.checkpoint_costs import interval_s
from cloudgavel.mechanism.packing import Machine
from cloudgavel.mechanism.placement import Assignment, Placement
from cloudgavel.mechanism.plan import Lease
from cloudgavel.mechanism.settle import Settlement
from cloudgavel.mechanism.situation import Situation
from cloudgavel.mechanism.state import JobView

LEAST_UNSAVED_S = 60.0
"""Less work than this is not worth a save ahead of a risk."""


def reconcile(
    situation: Situation,
    assignment: Assignment,
    settlement: Settlement,
    *,
    at_risk: Collection[str],
) -> tuple[tuple[Action, ...], tuple[Lease, ...]]:
    """Actions in order (saves and moves, launches, starts, terminations, waits) and leases.

    A move takes two steps: the target is launched first and the job works on where it is; once
    the target is ready it saves and stops; once it is nowhere it starts there. So a job is never
    on two sets of machines. ``at_risk``: jobs whose unsaved work a deadline cannot afford to lose.
    """
    saves: list[Action] = []
    starts: list[Action] = []
    waits: list[Action] = []
    leases: list[Lease] = []
    for job in situation.active:
        name = job.spec.name
        stop = assignment.stops.get(name) or _limit(situation, name)
        on_machine = bool(job.instance_ids) and not job.stopping
        ended = bool(job.instance_ids) and set(job.instance_ids) <= set(settlement.terminate)
        if stop is not None:
            if on_machine and not ended:
                saves.append(Move(job=name, to_instance_ids=(), reason=stop))
            waits.append(Wait(job=name, reason=stop))
            continue
        placement = assignment.placements.get(name)
        if placement is None:
            if on_machine and not ended and _is_being_taken(situation, job):
                saves.extend(_save(job, reasons.MACHINE_TAKEN))
            waits.append(
                Wait(
                    job=name,
                    reason=assignment.waits.get(name, reasons.HELD_BACK),
                    until_at_s=assignment.waits_until_at_s.get(name),
                )
            )
            continue
        machines = [assignment.machines[each] for each in placement.machine_ids]
        if placement.stays:
            if name in at_risk and job.phase is JobPhase.RUNNING:
                saves.extend(_save(job, "its deadline cannot afford to lose this work"))
            leases.append(_lease(situation, placement, machines, extended=True))
        elif not all(each.ready and not each.new for each in machines):
            if on_machine and _is_being_taken(situation, job):
                saves.extend(_save(job, reasons.MACHINE_TAKEN))
            elif on_machine and name in at_risk:
                saves.extend(_save(job, "its deadline cannot afford to lose this work"))
            leases.append(_lease(situation, placement, machines, extended=False))
        else:
            if not job.instance_ids:
                starts.append(_start(situation, job, placement))
            elif on_machine:
                saves.append(
                    Move(job=name, to_instance_ids=placement.machine_ids, reason=placement.reason)
                )
            leases.append(_lease(situation, placement, machines, extended=False))
    launches = [_launch(assignment, each) for each in assignment.launches]
    launches = [each for each in launches if each.for_jobs]
    ends = [
        Terminate(instance_id=instance_id, reason=reason)
        for instance_id, reason in sorted(settlement.terminate.items())
    ]
    return (*saves, *launches, *starts, *ends, *waits), tuple(leases)


def _limit(situation: Situation, name: str) -> str | None:
    reason = situation.refused.get(name)
    return reason if reason in (reasons.MAX_DURATION, reasons.MAX_COST) else None


def _is_being_taken(situation: Situation, job: JobView) -> bool:
    return any(
        situation.instances[each].notice_ends_at_s is not None
        for each in job.instance_ids
        if each in situation.instances
    )


def _save(job: JobView, reason: str) -> list[Action]:
    """A save, unless there is nothing to save or one is under way."""
    if job.phase is not JobPhase.RUNNING or job.steps_done <= job.saved_steps:
        return []
    return [Save(job=job.spec.name, reason=reason)]


def _start(situation: Situation, job: JobView, placement: Placement) -> Start:
    column = situation.columns[placement.column]
    return Start(
        job=job.spec.name,
        attempt=job.attempt + 1,
        instance_ids=placement.machine_ids,
        request_label=column.request.label,
        accelerator_indices=placement.indices,
        save_every_s=interval_s(situation.state, job, column),
        reason=placement.reason,
    )


def _lease(
    situation: Situation, placement: Placement, machines: list[Machine], *, extended: bool
) -> Lease:
    return Lease(
        job=placement.job,
        instance_ids=placement.machine_ids,
        offer_id=machines[0].offer.offer_id,
        request_label=situation.columns[placement.column].request.label,
        extended=extended,
    )


def _launch(assignment: Assignment, machine: Machine) -> Launch:
    owners = tuple(
        sorted(
            name
            for name in machine.seats
            if name in assignment.placements
            and machine.machine_id in assignment.placements[name].machine_ids
        )
    )
    first = assignment.placements[owners[0]].reason if owners else ""
    return Launch(
        token=machine.machine_id,
        offer_ids=tuple(each.offer_id for each in machine.offers),
        for_jobs=owners,
        price_limit_usd_per_hour=machine.usd_per_hour,
        reason=first,
    )
