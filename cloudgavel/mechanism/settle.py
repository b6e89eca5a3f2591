"""The hard budget rule over a finished assignment: what no longer fits is dropped or stopped."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cloudgavel.mechanism import reasons
from cloudgavel.mechanism.assign import Assignment, stay_of
from cloudgavel.mechanism.change_over import stop_s
from cloudgavel.mechanism.fleet import Instance, InstanceState
from cloudgavel.mechanism.guards.promises import ENDING_S
from cloudgavel.mechanism.guards.reserve import (
    SMALLEST_WAKE_S,
    Liability,
    committed_usd,
    liability_of,
)
from cloudgavel.mechanism.purse import Purse
from cloudgavel.mechanism.situation import Situation

RUN_FLOOR_S = ENDING_S
"""With money for less running time than this, a job is stopped rather than run on."""


@dataclass(kw_only=True)
class Settlement:
    """What is ended by this plan, and how long the money lasts."""

    terminate: dict[str, str] = field(default_factory=dict)
    """Machines that this plan ends, and why."""
    wake_s: float = 0.0
    """Latest next decision, seconds from now."""
    committed_usd: float = 0.0


def settle(
    situation: Situation,
    assignment: Assignment,
    purse: Purse,
    *,
    rank: Callable[[str], tuple[bool, float, str]],
    idle: dict[str, str],
    at_most_s: float,
) -> Settlement:
    """Make ``spent + committed <= budget`` hold for the plan, changing ``assignment`` in place.

    First launches go, then running jobs are saved and stopped, by falling ``rank`` (least
    important first); when not even that can be waited for, machines are ended unsaved, dearest
    first. ``idle``: machines that the plan ends anyway.
    """
    answer = Settlement(terminate=dict(idle))
    while True:
        wake_s = purse.wake_s(at_most_s, _liabilities(situation, assignment, purse, answer))
        patience_s = [
            stop_s(job, situation.state.rules)
            for job in situation.active
            if job.instance_ids and (job.stopping or job.spec.name in assignment.stops)
        ]
        if wake_s is not None and patience_s:
            at_most_s = min(at_most_s, max(SMALLEST_WAKE_S, *patience_s))
            wake_s = min(wake_s, at_most_s)
        running = [
            job.spec.name
            for job in situation.active
            if job.instance_ids
            and not job.stopping
            and job.spec.name not in assignment.stops
            and not set(job.instance_ids) <= set(answer.terminate)
        ]
        if wake_s is not None and wake_s >= min(at_most_s, RUN_FLOOR_S if running else 1.0):
            break
        if assignment.launches:
            _drop_launch(situation, assignment, rank)
        elif running:
            name = max(running, key=rank)
            assignment.placements.pop(name, None)
            assignment.stops[name] = reasons.OUT_OF_MONEY
            assignment.short_of_money.add(name)
        elif wake_s is not None and wake_s >= SMALLEST_WAKE_S:
            break
        else:
            open_ones = _open(situation, answer)
            if not open_ones:
                wake_s = SMALLEST_WAKE_S if wake_s is None else max(wake_s, SMALLEST_WAKE_S)
                break
            dearest = max(open_ones, key=lambda each: (each.price_usd_per_hour, each.instance_id))
            answer.terminate[dearest.instance_id] = (
                "the budget does not pay for another second of it"
            )
            _forget(assignment, dearest.instance_id)
    answer.wake_s = wake_s
    answer.committed_usd = committed_usd(
        _liabilities(situation, assignment, purse, answer).values(), wake_s, purse.lag_s
    )
    return answer


def _open(situation: Situation, answer: Settlement) -> list[Instance]:
    return [
        each
        for each in situation.state.instances
        if each.state is not InstanceState.TERMINATING and each.instance_id not in answer.terminate
    ]


def _forget(assignment: Assignment, machine_id: str) -> None:
    """Nobody is placed on a machine that ends."""
    for name in list(assignment.placements):
        if machine_id in assignment.placements[name].machine_ids:
            del assignment.placements[name]
            assignment.waits[name] = reasons.OUT_OF_MONEY
            assignment.short_of_money.add(name)


def _drop_launch(
    situation: Situation,
    assignment: Assignment,
    rank: Callable[[str], tuple[bool, float, str]],
) -> None:
    """Give up the launches of the least important job that waits for one."""
    tokens = {each.machine_id for each in assignment.launches}
    owners = [
        name
        for name, each in assignment.placements.items()
        if not each.stays and tokens.intersection(each.machine_ids)
    ]
    if not owners:
        assignment.launches.clear()
        return
    least = max(owners, key=rank)
    gone = tokens.intersection(assignment.placements[least].machine_ids)
    for name in owners:
        if gone.intersection(assignment.placements[name].machine_ids):
            del assignment.placements[name]
            job = situation.job(name)
            if name in situation.held and not job.stopping:
                assignment.placements[name] = stay_of(situation, assignment.machines, job)
                continue
            assignment.waits[name] = reasons.OUT_OF_MONEY
            assignment.short_of_money.add(name)
    assignment.launches = [each for each in assignment.launches if each.machine_id not in gone]
    for token in gone:
        assignment.machines.pop(token, None)


def _liabilities(
    situation: Situation, assignment: Assignment, purse: Purse, answer: Settlement
) -> dict[str, Liability]:
    state = situation.state
    ready = {
        machine_id for each in assignment.placements.values() for machine_id in each.machine_ids
    }
    found = {}
    for machine in state.instances:
        stops = [
            stop_s(job, state.rules)
            for job in situation.active
            if (
                machine.instance_id in job.instance_ids
                and not job.stopping
                and job.spec.name not in assignment.stops
            )
            or (
                machine.instance_id in ready
                and job.spec.name in assignment.placements
                and machine.instance_id in assignment.placements[job.spec.name].machine_ids
            )
        ]
        found[machine.instance_id] = liability_of(
            machine,
            state,
            situation.on_demand_usd_per_hour,
            stop_s=max(stops, default=0.0),
            terminate_now=machine.instance_id in answer.terminate,
        )
    for launch in assignment.launches:
        liability = purse.liabilities.get(launch.machine_id)
        if liability is not None:
            found[launch.machine_id] = replace(
                liability, wind_down_s=state.rules.terminate_confirm_s
            )
    return found
