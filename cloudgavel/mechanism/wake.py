"""When to decide again: the next instant at which the answer may change."""

from collections.abc import Iterator

from cloudgavel.mechanism.change_over import boot_s, stop_s
from cloudgavel.mechanism.checkpoint_costs import (
    NO_TRAFFIC,
    WorstTraffic,
    traffic_there,
    traffic_to_come,
)
from cloudgavel.mechanism.fleet import InstanceState
from cloudgavel.mechanism.guards.promises import expected_way
from cloudgavel.mechanism.placement import Assignment
from cloudgavel.mechanism.settle import Settlement
from cloudgavel.mechanism.situation import Situation
from cloudgavel.mechanism.state import JobView
from cloudgavel.units import HOUR_S

SOONEST_S = 5.0
"""Nothing but money asks for a decision sooner than this."""
UNKNOWN_S = 30.0
"""How soon to look again at a launch whose outcome is unknown, and at machines that end."""


def next_wake_at_s(
    situation: Situation, assignment: Assignment, settlement: Settlement
) -> float | None:
    """Earliest of round, money, limits, arrivals, deadlines, back-offs, boots, stops and finishes.

    ``None`` when no job is active and no machine lives. Money may ask for less than ``SOONEST_S``.
    """
    state = situation.state
    if not state.instances and not assignment.launches and not situation.active:
        return None
    soonest_at_s = state.now_s + SOONEST_S
    wanted_at_s = min(at_s for at_s in _instants(situation, assignment) if at_s > state.now_s)
    return min(max(wanted_at_s, soonest_at_s), state.now_s + settlement.wake_s)


def _instants(situation: Situation, assignment: Assignment) -> Iterator[float]:
    state = situation.state
    yield state.now_s + state.round_s
    for job in situation.active:
        spec = job.spec
        if job.release_at_s > state.now_s:
            yield job.release_at_s
        if job.deadline_at_s is not None:
            yield job.deadline_at_s
        if spec.max_duration_s is not None and job.started_at_s is not None:
            yield job.started_at_s + spec.max_duration_s
        if job.instance_ids and (job.stopping or spec.name in assignment.stops):
            yield state.now_s + stop_s(job, state.rules)
    yield from assignment.waits_until_at_s.values()
    for blocked in state.blocked:
        yield blocked.until_s
    for instance in state.instances:
        if instance.state in (InstanceState.REQUESTED, InstanceState.TERMINATING):
            yield state.now_s + UNKNOWN_S
        elif instance.state is InstanceState.BOOTING:
            ready_at_s = instance.expected_ready_at_s
            if ready_at_s is None:
                ready_at_s = instance.launched_at_s + boot_s(state, instance.offer)
            yield ready_at_s
    for launch in assignment.launches:
        yield state.now_s + boot_s(state, launch.offer)
    for name, placement in assignment.placements.items():
        if placement.stays:
            way = expected_way(situation, situation.row(name), placement.column)
            yield state.now_s + way.seconds


def max_cost_wake_s(
    situation: Situation, assignment: Assignment, at_least_s: float
) -> float | None:
    """Seconds until a job has to be told to stop so that its ``max_cost`` holds; ``None`` = never.

    Of jobs that stay and of jobs that start now; those with less than ``at_least_s`` left are told
    to stop by this very plan. A job is charged the whole rent of its machines here: what its
    neighbours pay may change.
    """
    found = []
    for name, placement in assignment.placements.items():
        rent = sum(assignment.machines[each].usd_per_hour for each in placement.machine_ids)
        job = situation.job(name)
        if placement.stays:
            traffic = _traffic_there(situation, job)
        else:
            column = situation.columns[placement.column]
            count = len(placement.machine_ids)
            traffic = traffic_to_come(situation.state, job, column, machines=count)
        left_s = _left_s(situation, job, rent, traffic)
        if left_s is not None and left_s >= at_least_s:
            found.append(left_s)
    return min(found, default=None)


def max_cost_left_s(situation: Situation, name: str) -> float | None:
    """Seconds a placed job may run on before it must be told to stop; ``None`` without a limit."""
    job = next((each for each in situation.active if each.spec.name == name), None)
    if job is None or job.stopping:
        return None
    rent = sum(
        situation.instances[each].price_usd_per_hour
        for each in job.instance_ids
        if each in situation.instances
    )
    return _left_s(situation, job, rent, _traffic_there(situation, job))


def _traffic_there(situation: Situation, job: JobView) -> WorstTraffic:
    machines = [situation.instances.get(each) for each in job.instance_ids]
    state = situation.state
    found = [traffic_there(state, job, each, goes_on=True) for each in machines if each is not None]
    return sum(found, NO_TRAFFIC)


def _left_s(
    situation: Situation, job: JobView, rent_usd_per_hour: float, traffic: WorstTraffic
) -> float | None:
    if job.spec.max_cost_usd is None or rent_usd_per_hour <= 0:
        return None
    rules = situation.state.rules
    left_usd = job.spec.max_cost_usd - job.spent_usd - traffic.once_usd
    whole_s = left_usd / (rent_usd_per_hour + traffic.usd_per_hour) * HOUR_S
    return whole_s - stop_s(job, rules) - rules.wake_lag_s
