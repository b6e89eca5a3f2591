"""The budget rules over a finished assignment: what no longer fits is dropped or stopped.

Hard: spent and committed stay within the budget. Beside it what covered promises claim is put
aside: others give way to it, then covered jobs go on demand, and only then a claim is given up.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from cloudgavel.mechanism import reasons
from cloudgavel.mechanism.change_over import restore_s, save_s, stop_s
from cloudgavel.mechanism.checkpoint_costs import (
    NO_TRAFFIC,
    WorstTraffic,
    traffic_there,
    traffic_to_come,
)
from cloudgavel.mechanism.fleet import Instance, InstanceState
from cloudgavel.mechanism.guards.claims import ENDING_S, Claim, is_safe, safe_span_s
from cloudgavel.mechanism.guards.reserve import (
    SMALLEST_WAKE_S,
    Liability,
    committed_usd,
    liability_of,
    storage_liability,
    with_traffic,
)
from cloudgavel.mechanism.guards.safety_net import worst_ready_at_s
from cloudgavel.mechanism.placement import Assignment, stay_of
from cloudgavel.mechanism.purse import Purse
from cloudgavel.mechanism.situation import Situation

RUN_FLOOR_S = ENDING_S
"""With money for less running time than this, a job is stopped rather than run on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cover:
    """The covered promises that the budget is to hold for."""

    names: tuple[str, ...] = ()
    """The first to be given up last."""
    fresh: frozenset[str] = frozenset()
    """Covered by this decision first."""
    claims: Mapping[str, Claim] = field(default_factory=lambda: MappingProxyType({}))
    """What each needs to start again on demand after the next decision."""
    sent: frozenset[str] = frozenset()
    """Sent on demand by this plan: they may not stay where they are."""


@dataclass(kw_only=True)
class Settlement:
    """What is ended by this plan, and how long the money lasts."""

    terminate: dict[str, str] = field(default_factory=dict)
    """Machines that this plan ends, and why."""
    wake_s: float = 0.0
    """Latest next decision, seconds from now."""
    committed_usd: float = 0.0
    reserve_usd: float = 0.0
    """What covered promises claim beyond that."""
    covered: frozenset[str] = frozenset()
    """Promises whose claim is put aside."""
    squeezed: str | None = None
    """A covered job that has to go on demand now; the plan has to be made again with it."""


def settle(
    situation: Situation,
    assignment: Assignment,
    purse: Purse,
    *,
    rank: Callable[[str], tuple[bool, float, str]],
    idle: dict[str, str],
    at_most_s: float,
    cover: Cover,
) -> Settlement:
    """Make ``spent + committed + claims <= budget`` hold, changing ``assignment`` in place.

    Claims that are new go first; then launches, arrivals on rented machines and running jobs of
    those not covered, by falling ``rank`` (least important first); then a covered job goes on
    demand (``squeezed``: the caller makes the plan again), then claims are given up. When not even
    the end of what is left can be waited for, machines are ended unsaved, dearest first. ``idle``:
    machines that the plan ends anyway.
    """
    answer = Settlement(terminate=dict(idle))
    covered = list(cover.names)
    while True:
        names = frozenset(covered)
        liabilities = _liabilities(situation, assignment, purse, answer, cover, names)
        wake_s = purse.wake_s(at_most_s, liabilities)
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
        floor_s = max(RUN_FLOOR_S if running else 1.0, _start_floor_s(situation, assignment))
        if wake_s is not None and wake_s >= min(at_most_s, floor_s):
            break
        fresh = [name for name in covered if name in cover.fresh]
        stoppable = [name for name in running if name not in names]
        # A covered job on demand may leave if its claim allows, and need not.
        bound = frozenset(
            name
            for name in names
            if name in cover.sent or not is_safe(situation, situation.job(name))
        )
        if fresh:
            covered.remove(fresh[-1])
        elif _drop_launch(situation, assignment, rank, bound) or _drop_arrival(
            situation, assignment, answer, rank, bound
        ):
            continue
        elif stoppable:
            _stop(assignment, max(stoppable, key=rank))
        elif covered:
            answer.squeezed = _squeezable(situation, assignment, cover, names)
            if answer.squeezed is not None:
                return answer
            covered.pop()
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
    hard = _liabilities(situation, assignment, purse, answer, cover, frozenset())
    answer.committed_usd = committed_usd(hard.values(), wake_s, purse.lag_s)
    answer.covered = frozenset(covered)
    everything = committed_usd(liabilities.values(), wake_s, purse.lag_s)
    answer.reserve_usd = max(0.0, everything - answer.committed_usd)
    return answer


def _start_floor_s(situation: Situation, assignment: Assignment) -> float:
    """Running time below which a job that starts now on a rented machine gains nothing.

    It has to restore first, and then do more than one save costs, or all that is left of it.
    """
    longest_s = 0.0
    for name, placement in assignment.placements.items():
        job = situation.job(name)
        ready = all(assignment.machines[each].ready for each in placement.machine_ids)
        if placement.stays or job.instance_ids or not ready:
            continue
        rate = float(situation.rates[situation.row(name), placement.column])
        begin_s = restore_s(job) * situation.state.rules.change_over_quantile
        stay_s = begin_s + max(60.0, save_s(job))
        longest_s = max(longest_s, min(stay_s, begin_s + job.steps_left / rate))
    return longest_s


def _stop(assignment: Assignment, name: str) -> None:
    assignment.placements.pop(name, None)
    assignment.stops[name] = reasons.OUT_OF_MONEY
    assignment.short_of_money.add(name)


def _squeezable(
    situation: Situation, assignment: Assignment, cover: Cover, names: frozenset[str]
) -> str | None:
    """The covered job off on-demand whose machine or launch costs most."""
    best: tuple[float, str] | None = None
    for name in sorted(names - cover.sent):
        if name not in cover.claims or _safe_column(situation, assignment, name) is not None:
            continue
        job = situation.job(name)
        placement = assignment.placements.get(name)
        ids = {*job.instance_ids, *(placement.machine_ids if placement else ())}
        rent = sum(
            assignment.machines[each].usd_per_hour for each in ids if each in assignment.machines
        )
        if ids and (best is None or rent > best[0]):
            best = (rent, name)
    return None if best is None else best[1]


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
    covered: frozenset[str],
) -> bool:
    """Give up the launches of the least important job that waits for one; none left: false."""
    tokens = {each.machine_id for each in assignment.launches}
    owners = [
        name
        for name, each in assignment.placements.items()
        if not each.stays and tokens.intersection(each.machine_ids)
    ]
    able = [name for name in owners if name not in covered]
    if not able:
        if owners or not assignment.launches:
            return False
        assignment.launches.clear()
        return True
    least = max(able, key=rank)
    gone = tokens.intersection(assignment.placements[least].machine_ids)
    if any(
        gone.intersection(assignment.placements[name].machine_ids) for name in covered & set(owners)
    ):
        # A covered job shares it: only the other one goes.
        del assignment.placements[least]
        _back(situation, assignment, least)
        return True
    for name in owners:
        if gone.intersection(assignment.placements[name].machine_ids):
            del assignment.placements[name]
            _back(situation, assignment, name)
    assignment.launches = [each for each in assignment.launches if each.machine_id not in gone]
    for token in gone:
        assignment.machines.pop(token, None)
    return True


def _drop_arrival(
    situation: Situation,
    assignment: Assignment,
    answer: Settlement,
    rank: Callable[[str], tuple[bool, float, str]],
    covered: frozenset[str],
) -> bool:
    """Let the least important job that has yet to come to a rented machine wait; false = none."""
    able = [
        name
        for name, each in assignment.placements.items()
        if not each.stays and name not in covered
    ]
    if not able:
        return False
    least = max(able, key=rank)
    ids = assignment.placements.pop(least).machine_ids
    _back(situation, assignment, least)
    taken = {each for other in assignment.placements.values() for each in other.machine_ids}
    taken.update(each for job in situation.active for each in job.instance_ids)
    for machine_id in ids:
        machine = situation.instances.get(machine_id)
        if machine is None or machine_id in taken:
            continue
        if machine.state in (InstanceState.READY, InstanceState.BOOTING):
            answer.terminate[machine_id] = "the budget does not pay for a job on it"
    return True


def _back(situation: Situation, assignment: Assignment, name: str) -> None:
    """A job whose launch is given up stays where it is, or waits."""
    job = situation.job(name)
    if name in situation.held and not job.stopping:
        assignment.placements[name] = stay_of(situation, assignment.machines, job)
        return
    assignment.waits[name] = reasons.OUT_OF_MONEY
    assignment.short_of_money.add(name)


def _safe_column(situation: Situation, assignment: Assignment, name: str) -> int | None:
    """The on-demand column where a job is and may stay, or where this plan sends it."""
    job = situation.job(name)
    placement = assignment.placements.get(name)
    if placement is not None and not situation.columns[placement.column].spot:
        return placement.column
    if not is_safe(situation, job) or name in assignment.stops or placement is not None:
        return None
    return situation.held[name]


def _put_aside(
    situation: Situation, assignment: Assignment, cover: Cover, names: frozenset[str]
) -> tuple[dict[str, float], dict[str, float], list[Liability]]:
    """Claims of the covered jobs ``names``.

    Returned: rent in seconds put aside for each machine, seconds by which each machine's end is
    put off by a job that leaves it later, and what is to be launched yet.
    """
    state = situation.state
    least_s: dict[str, float] = {}
    later_s: dict[str, float] = {}
    launches: list[Liability] = []
    for name in sorted(names):
        job = situation.job(name)
        placement = assignment.placements.get(name)
        column = _safe_column(situation, assignment, name)
        if column is None:
            claim = cover.claims.get(name)
            if claim is None:
                continue
            launches.append(claim.reserve(name))
            if not job.stopping:
                for each in job.instance_ids:
                    later_s[each] = max(later_s.get(each, 0.0), claim.beside_s)
            continue
        if placement is None or placement.stays or placement.column != column:
            ids, span_s = job.instance_ids, safe_span_s(situation, job, column)
        else:
            ids = placement.machine_ids
            ready_at_s = max(
                worst_ready_at_s(situation, situation.instances[each])
                if each in situation.instances
                else state.now_s
                + situation.columns[column].boot_s * state.rules.change_over_quantile
                for each in ids
            )
            span_s = safe_span_s(situation, job, column, ready_at_s)
            if not job.stopping:
                beside_s = ready_at_s - state.now_s + 2 * state.rules.wake_lag_s
                for each in job.instance_ids:
                    later_s[each] = max(later_s.get(each, 0.0), beside_s)
        for each in ids:
            least_s[each] = max(least_s.get(each, 0.0), span_s)
    return least_s, later_s, launches


def _liabilities(
    situation: Situation,
    assignment: Assignment,
    purse: Purse,
    answer: Settlement,
    cover: Cover,
    names: frozenset[str],
) -> dict[str, Liability]:
    """What all machines may cost, and what the covered jobs ``names`` claim beside it."""
    found = _machine_liabilities(situation, assignment, purse, answer)
    if not names or math.isinf(purse.money_usd):
        return found
    least_s, later_s, launches = _put_aside(situation, assignment, cover, names)
    for machine_id, liability in found.items():
        found[machine_id] = replace(
            liability,
            wind_down_s=liability.wind_down_s + later_s.get(machine_id, 0.0),
            least_s=least_s.get(machine_id, 0.0),
        )
    return found | {each.instance_id: each for each in launches}


def _machine_liabilities(
    situation: Situation, assignment: Assignment, purse: Purse, answer: Settlement
) -> dict[str, Liability]:
    """What all machines may cost, by machine."""
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
        ends = machine.instance_id in answer.terminate
        plain = liability_of(
            machine,
            state,
            situation.on_demand_usd_per_hour,
            stop_s=max(stops, default=0.0),
            terminate_now=ends,
        )
        traffic = _arriving(situation, assignment, machine.instance_id)
        for job in situation.active if state.store_cloud is not None else ():
            if machine.instance_id in job.instance_ids:
                stops_here = ends or job.stopping or job.spec.name in assignment.stops
                traffic += traffic_there(state, job, machine, goes_on=not stops_here)
        found[machine.instance_id] = with_traffic(plain, traffic)
    storage = storage_liability(state)
    if storage is not None:
        found[storage.instance_id] = storage
    for launch in assignment.launches:
        liability = purse.liabilities.get(launch.machine_id)
        if liability is not None:
            # With the stop of its job, as from the next decision on: nothing may grow till then.
            plain = replace(liability, least_s=0.0)
            arriving = _arriving(situation, assignment, launch.machine_id)
            found[launch.machine_id] = with_traffic(plain, arriving)
    return found


def _arriving(situation: Situation, assignment: Assignment, machine_id: str) -> WorstTraffic:
    """Checkpoints of the jobs that are to come to a machine."""
    found = NO_TRAFFIC
    if situation.state.store_cloud is None:
        return found
    for name, placement in assignment.placements.items():
        if not placement.stays and machine_id in placement.machine_ids:
            column = situation.columns[placement.column]
            leads = placement.machine_ids[0] == machine_id
            found += traffic_to_come(situation.state, situation.job(name), column, leads=leads)
    return found
