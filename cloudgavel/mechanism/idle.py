"""Machines that nobody needs any more."""

from collections.abc import Mapping

from cloudgavel.mechanism import reasons
from cloudgavel.mechanism.change_over import stop_s
from cloudgavel.mechanism.columns import column_of_instance
from cloudgavel.mechanism.fleet import Instance, InstanceState
from cloudgavel.mechanism.guards.promises import expected_way
from cloudgavel.mechanism.placement import Assignment
from cloudgavel.mechanism.situation import Situation

NOTICE_OVERDUE_S = 300.0
"""An announced interruption that is this late is not waited for any longer."""


def idle_machines(situation: Situation, assignment: Assignment) -> dict[str, str]:
    """Machines to give back, and why.

    Nobody is on them and nobody is to come. Kept: what is still being requested (whether it exists
    is not known yet), what the cloud takes anyway (an interrupted first hour may be waived; the end
    is near), and what a job of the plan will use sooner than a new machine would boot.
    """
    state = situation.state
    idle: dict[str, str] = {}
    soon = () if state.stopping else _soon(situation, assignment)
    overdue = _overdue(situation, assignment)
    for instance in sorted(state.instances, key=lambda each: each.instance_id):
        if instance.state in (InstanceState.REQUESTED, InstanceState.TERMINATING):
            continue
        notice = instance.notice_ends_at_s
        if notice is not None and state.now_s < notice + NOTICE_OVERDUE_S:
            continue
        if instance.instance_id in overdue:
            idle[instance.instance_id] = overdue[instance.instance_id]
            continue
        machine = assignment.machines[instance.instance_id]
        used = {
            name
            for name in machine.seats
            if name not in assignment.placements
            or instance.instance_id in assignment.placements[name].machine_ids
            or _is_on(situation, name, instance.instance_id)
        }
        if used or any(_will_use(situation, name, instance) for name in soon):
            continue
        idle[instance.instance_id] = "nobody is on it and nobody is to come"
    return idle


def _overdue(situation: Situation, assignment: Assignment) -> dict[str, str]:
    """Machines on which everybody was told to stop and did not in time, and who.

    A machine that works for others is not ended because of one that hangs.
    """
    state = situation.state
    hanging: dict[str, list[str]] = {}
    others: set[str] = set()
    for job in situation.active:
        asked_at_s = job.stop_asked_at_s
        grace_s = state.rules.stop_grace_quantile * stop_s(job, state.rules)
        is_late = job.stopping and asked_at_s is not None and state.now_s > asked_at_s + grace_s
        for instance_id in job.instance_ids:
            if is_late and asked_at_s is not None:
                reason = reasons.does_not_stop(job.spec.name, state.now_s - asked_at_s)
                hanging.setdefault(instance_id, []).append(reason)
            else:
                others.add(instance_id)
    for placement in assignment.placements.values():
        if not placement.stays:
            others.update(placement.machine_ids)
    return {
        instance_id: "; ".join(sorted(found))
        for instance_id, found in hanging.items()
        if instance_id not in others
    }


def _is_on(situation: Situation, name: str, instance_id: str) -> bool:
    return name in situation.rows and instance_id in situation.job(name).instance_ids


def _soon(situation: Situation, assignment: Assignment) -> tuple[str, ...]:
    """Jobs without a place that start before a new machine would be ready."""
    state = situation.state
    finishes: Mapping[str, float] = {
        name: state.now_s + expected_way(situation, situation.row(name), each.column).seconds
        for name, each in assignment.placements.items()
    }
    soon = []
    for job in situation.jobs:
        name = job.spec.name
        if name in assignment.placements or name in assignment.stops:
            continue
        start_at_s = max(
            job.release_at_s, *(finishes.get(each, float("inf")) for each in job.waits_for), 0.0
        )
        if state.now_s < start_at_s <= state.now_s + state.rules.boot_s:
            soon.append(name)
    return tuple(soon)


def _will_use(situation: Situation, name: str, instance: Instance) -> bool:
    row = situation.row(name)
    requests = {situation.columns[each].request for each in situation.options(row)}
    return any(
        column_of_instance(situation.columns, instance, each) is not None
        for each in sorted(requests)
    )
