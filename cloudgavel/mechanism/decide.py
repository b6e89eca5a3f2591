"""One round: ClusterState -> RoundPlan, pure, total and deterministic.

    arrange -> promises (budget) -> problem -> policy -> moves (churn) -> safety net
            -> places -> hard budget rule -> actions, leases, forecasts, next wake

The guards come before and after the policy, so that no policy can break them.
"""

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from cloudgavel.mechanism import reasons
from cloudgavel.mechanism.assign import assign
from cloudgavel.mechanism.build_problem import (
    PlannedDeadline,
    build_problem,
    is_certainly_late,
    money_left_usd,
    planned_deadlines,
)
from cloudgavel.mechanism.change_over import save_s, stop_s, useful_minimum_s
from cloudgavel.mechanism.checkpoint_costs import traffic_to_come, unknown_sizes
from cloudgavel.mechanism.fallback import greedy_allocation
from cloudgavel.mechanism.forecast import expected_cost_left_usd, forecasts
from cloudgavel.mechanism.guards.claims import Claim, claims_of, restart_claim
from cloudgavel.mechanism.guards.promises import (
    Promises,
    expected_way,
    next_decision_at_s,
    weigh_promises,
)
from cloudgavel.mechanism.guards.reserve import ROUNDING_S, committed_usd, worst_rate
from cloudgavel.mechanism.guards.safety_net import (
    NetAnswer,
    demand_now,
    kept_on_demand,
    latest_on_demand_start_at_s,
)
from cloudgavel.mechanism.idle import idle_machines
from cloudgavel.mechanism.packing import machines_of
from cloudgavel.mechanism.placement import Assignment, stays_on_demand
from cloudgavel.mechanism.plan import RoundPlan
from cloudgavel.mechanism.purse import Purse
from cloudgavel.mechanism.reconcile import LEAST_UNSAVED_S, reconcile
from cloudgavel.mechanism.settle import RUN_FLOOR_S, Cover, Settlement, settle
from cloudgavel.mechanism.situation import Situation, arrange, usd
from cloudgavel.mechanism.state import ClusterState, JobView, canonical_text
from cloudgavel.mechanism.wake import max_cost_left_s, max_cost_wake_s, next_wake_at_s
from cloudgavel.mechanism.wants import answers, wants_of, worthwhile_moves
from cloudgavel.mechanism.weigh_spot import weigh_spot
from cloudgavel.policies.allocation import Allocation, AllocationStatus, RelaxedPromise
from cloudgavel.policies.base import ChoosesCapacity, Policy
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.policies.spot.tables import TableShelf
from cloudgavel.policies.spot.verdict import SpotVerdict

_NO_NET = NetAnswer(finish_at_s={}, late_by_s={}, column={}, cost_usd=0.0)


def decide(state: ClusterState, policy: Policy, shelf: TableShelf | None = None) -> RoundPlan:
    """Turn a snapshot into a plan.

    ``shelf``: where the tables of the spot decision process are kept between rounds; they follow
    from their keys, so it changes nothing but the time a decision takes.

    Every valid state gets a plan: when the policy fails, a greedy one that says so in ``notes``.
    The same state gives the same plan. Whatever the policy answers, ``spent + committed`` stays
    within the budget, promised deadlines go on demand while that can still keep them, and nothing
    is moved for less than a move costs.
    """
    digest = state.digest()
    state = _with_chosen_capacity(state, policy)
    situation = arrange(state)
    money = money_left_usd(situation)
    standing = _standing_usd(situation, money)
    promises = weigh_promises(situation, None if money is None else money - standing)
    if state.stopping or not situation.jobs:
        return _stop_or_wait(situation, promises, money, digest)
    planned = planned_deadlines(situation, promises)
    problem = build_problem(
        situation, planned, budget_left_usd=money, standing_usd=min(standing, money or standing)
    )
    allocation, notes = _ask(policy, problem, situation)
    policy_released = _released_by_policy(situation, promises, planned, allocation)
    wants = wants_of(situation, allocation)
    weighing = weigh_spot(
        situation, planned, wants, allocation, TableShelf() if shelf is None else shelf
    )
    wants = {**wants, **weighing.wants}
    aims = {name: each.at_s for name, each in planned.items()}
    moves = {**worthwhile_moves(situation, wants, aims), **weighing.leave}
    on_demand_now, net = _safety_net(situation, promises, policy_released, moves)
    free = math.inf if money is None else max(0.0, money - standing - promises.needs_usd)
    cover = replace(_cover(situation, promises, net), sent=frozenset(on_demand_now))
    for _ in range(len(cover.names) + 1):
        purse = Purse(situation, money, free, _unsent(situation, cover))
        assignment = assign(
            situation, wants, promises, moves=moves, on_demand_now=on_demand_now, purse=purse
        )
        _stop_at_limits(situation, assignment)
        settlement = _settle(situation, assignment, purse, promises, cover)
        name = settlement.squeezed
        if name is None:
            break
        # The money put aside for it lasts only if it goes on demand at once.
        now = restart_claim(situation, situation.row(name), state.now_s)
        if now is not None:
            on_demand_now = {**on_demand_now, name: now.column}
        cover = replace(cover, sent=cover.sent | {name})
    at_risk = _at_risk(situation, promises) | weighing.save_ahead
    if settlement.wake_s < min(state.round_s, _at_most_s(situation, assignment)):
        at_risk |= _unsaved(situation, settlement.covered)
    actions, leases = reconcile(situation, assignment, settlement, at_risk=at_risk)
    expected = forecasts(
        situation,
        assignment,
        promises,
        net,
        allocation,
        [each.job for each in policy_released],
        settlement.covered,
    )
    relaxed = (*promises.released.values(), *policy_released, *_max_cost_relaxed(allocation))
    if net.late_by_s:
        notes = (*notes, _net_note(net))
    notes = (*notes, *unknown_sizes(situation.state))
    return _plan(
        RoundPlan(
            plan_id="",
            round_number=state.round_number,
            state_digest=digest,
            actions=actions,
            leases=leases,
            forecasts=expected,
            relaxed=tuple(sorted(relaxed, key=lambda each: (each.job, each.promise))),
            shadow_prices=allocation.shadow_prices,
            next_wake_at_s=next_wake_at_s(situation, assignment, settlement),
            out_of_money=_out_of_money(situation, assignment, purse),
            status=allocation.status,
            notes=notes,
            committed_usd=settlement.committed_usd,
            reserve_usd=promises.reserve_usd if money is None else settlement.reserve_usd,
            lower_bound_usd=allocation.lower_bound_usd,
            expected_cost_left_usd=expected_cost_left_usd(expected),
            spot=tuple(_rounded(weighing.verdicts[name]) for name in sorted(weighing.verdicts)),
        )
    )


def _rounded(verdict: SpotVerdict) -> SpotVerdict:
    """Figures as they are told: to a hundredth of a cent, chances and seconds likewise."""
    return replace(
        verdict,
        wait_usd=None if verdict.wait_usd is None else round(verdict.wait_usd, 4),
        spot_usd={name: round(each, 4) for name, each in verdict.spot_usd.items()},
        on_demand_usd=round(verdict.on_demand_usd, 4),
        loss_chance={name: round(each, 4) for name, each in verdict.loss_chance.items()},
        latest_on_demand_start_s=round(verdict.latest_on_demand_start_s, 1),
        cap_usd=round(verdict.cap_usd, 4),
    )


def _with_chosen_capacity(state: ClusterState, policy: Policy) -> ClusterState:
    """Leave out offers that the policy never rents: neither guards nor places rent them instead.

    What runs on such machines already goes on there, or moves when the policy asks for it.
    """
    if not isinstance(policy, ChoosesCapacity):
        return state
    chosen = policy.capacity_types
    return replace(
        state, offers=tuple(each for each in state.offers if each.capacity_type in chosen)
    )


def _ask(
    policy: Policy, problem: AllocationProblem, situation: Situation
) -> tuple[Allocation, tuple[str, ...]]:
    """Ask the policy; a failure or a useless answer gets the greedy stand-in and a note."""
    try:
        allocation = policy.allocate(problem)
    except Exception as error:  # whatever a policy raises, the round goes on
        note = f"policy {policy.name} failed ({type(error).__name__}: {error}); greedy plan"
        return greedy_allocation(problem, note), (note,)
    if not answers(allocation, situation):
        note = (
            f"policy {policy.name} gave no usable answer ({allocation.status}"
            f"{': ' + allocation.message if allocation.message else ''}); greedy plan"
        )
        return greedy_allocation(problem, note), (note,)
    note = allocation.message
    return allocation, (note,) if note and allocation.status is not AllocationStatus.OPTIMAL else ()


def _standing_usd(situation: Situation, money: float | None) -> float:
    """What ending the machines that no job uses would still cost.

    The end of a machine in use is part of what its jobs cost.
    """
    used = {each for job in situation.active for each in (*job.instance_ids, *job.move_to)}
    names = set(situation.rows)
    used.update(
        each.instance_id for each in situation.state.instances if names & set(each.intended_jobs)
    )
    purse = Purse(situation, money, 0.0)
    return committed_usd(
        (each for key, each in purse.liabilities.items() if key not in used), 0.0, 0.0
    )


def _released_by_policy(
    situation: Situation,
    promises: Promises,
    planned: Mapping[str, PlannedDeadline],
    allocation: Allocation,
) -> tuple[RelaxedPromise, ...]:
    """Held promises that the policy proves lost: late beyond the margin taken off.

    Not those with their money put aside: the safety net looks after them, not the plan.
    """
    held = set(promises.held) - promises.covered
    return tuple(
        each
        for each in allocation.relaxed
        if each.promise == "deadline"
        and each.job in held
        and situation.job(each.job).deadline_at_s is not None
        and is_certainly_late(planned.get(each.job), each.by_s)
    )


def _max_cost_relaxed(allocation: Allocation) -> tuple[RelaxedPromise, ...]:
    return tuple(each for each in allocation.relaxed if each.promise == "max_cost")


def _safety_net(
    situation: Situation,
    promises: Promises,
    policy_released: tuple[RelaxedPromise, ...],
    moves: dict[str, int],
) -> tuple[dict[str, int], NetAnswer]:
    """Who has to go on demand now. Moves off on-demand that the net forbids are taken back."""
    state = situation.state
    gone = {each.job for each in policy_released}
    names = [
        name
        for name in promises.held
        if name not in gone
        and situation.deadlines[name] is not None
        and not situation.job(name).spec.spot_only
    ]
    if not names:
        return {}, _NO_NET
    start_at_s = state.now_s + state.round_s + state.rules.wake_lag_s
    sendable = _sendable(situation, promises, names)
    for _ in range(2):
        kept = stays_on_demand(situation, moves)
        now, net = demand_now(
            situation, names, kept=kept, start_at_s=start_at_s, may_be_sent=sendable
        )
        # A move away from on-demand that only an immediate return would repair is no move.
        undone = [name for name in moves if name in now and name in stays_on_demand(situation, {})]
        if not undone:
            break
        for name in undone:
            del moves[name]
    late = [name for name in net.late_by_s if name in kept]
    if late:
        # Where it is, on demand, it is too late: a faster on-demand column may not be.
        faster = {name: column for name, column in kept.items() if name not in late}
        other, better = demand_now(
            situation, names, kept=faster, start_at_s=start_at_s, may_be_sent=sendable
        )
        if len(better.late_by_s) < len(net.late_by_s):
            return other, better
    return now, net


def _sendable(situation: Situation, promises: Promises, names: list[str]) -> set[str]:
    """Jobs that may be launched on demand now: arrived, movable, and paid for.

    Covered promises have their on-demand money set aside; the others share what is left, least
    slack first.
    """
    left = promises.top_up_left_usd
    sendable = set()

    def slack(name: str) -> tuple[float, str]:
        latest = latest_on_demand_start_at_s(situation, name)
        return (math.inf if latest is None else latest, name)

    for name in sorted(names, key=slack):
        job = situation.job(name)
        if job.release_at_s > situation.state.now_s or job.waits_for:
            continue
        if job.save_error is not None and situation.usable_place(job):
            continue
        if name not in promises.covered:
            worst = promises.worst_usd.get(name)
            if worst is None:
                continue
            extra = max(0.0, worst - promises.expected_usd[name])
            if extra > left:
                continue
            left -= extra
        sendable.add(name)
    return sendable


def _stop_at_limits(situation: Situation, assignment: Assignment) -> None:
    """Jobs whose ``max_cost`` pays for no more running are saved and stopped."""
    for name in list(assignment.placements):
        left_s = max_cost_left_s(situation, name)
        if left_s is not None and left_s < RUN_FLOOR_S:
            del assignment.placements[name]
            assignment.stops[name] = reasons.MAX_COST
    tokens = {
        each for placement in assignment.placements.values() for each in placement.machine_ids
    }
    assignment.launches = [each for each in assignment.launches if each.machine_id in tokens]


def _cover(situation: Situation, promises: Promises, net: NetAnswer) -> Cover:
    """The covered promises, those first that were so before, and what they claim."""
    covered = [name for name in promises.held if name in promises.covered]
    late = {name for name in covered if name in net.late_by_s}
    before = {name for name in covered if name in promises.covered_before}
    names = [name for name in covered if name in before or name not in late]
    names.sort(key=lambda name: name not in before)
    claims = claims_of(situation, frozenset(names), next_decision_at_s(situation.state), net.column)
    return Cover(names=tuple(names), fresh=frozenset(names) - before, claims=claims)


def _unsent(situation: Situation, cover: Cover) -> dict[str, Claim]:
    """Claims of covered jobs that are not on demand and not on their way there."""
    return {
        name: claim
        for name, claim in cover.claims.items()
        if kept_on_demand(situation, situation.job(name)) is None
    }


def _at_most_s(situation: Situation, assignment: Assignment) -> float:
    """Longest time to the next decision that money has no say in."""
    longest_s = max(1.0, situation.state.round_s)
    limit_s = max_cost_wake_s(situation, assignment, RUN_FLOOR_S)
    if limit_s is not None:
        longest_s = min(longest_s, limit_s)
    return longest_s


def _settle(
    situation: Situation,
    assignment: Assignment,
    purse: Purse,
    promises: Promises,
    cover: Cover,
) -> Settlement:
    held = set(promises.held)
    weights = {job.spec.name: job.spec.weight for job in situation.active}

    def rank(name: str) -> tuple[bool, float, str]:
        return (name not in held, -weights.get(name, 0.0), name)

    return settle(
        situation,
        assignment,
        purse,
        rank=rank,
        idle=idle_machines(situation, assignment),
        at_most_s=_at_most_s(situation, assignment),
        cover=cover,
    )


def _at_risk(situation: Situation, promises: Promises) -> set[str]:
    """Jobs off on-demand whose slack lasts for one round, but not for the loss of this work."""
    state = situation.state
    risky = set()
    for name in _unsaved(situation, promises.held):
        latest = latest_on_demand_start_at_s(situation, name)
        if latest is not None and latest < state.now_s + 2 * state.round_s:
            risky.add(name)
    return risky


def _unsaved(situation: Situation, names: Collection[str]) -> set[str]:
    """Jobs off on-demand with work that is worth a save: saved, it claims no money any more."""
    found = set()
    for name in names:
        job = situation.job(name)
        here = situation.held.get(name)
        if here is None or not situation.columns[here].spot or job.save_error is not None:
            continue
        unsaved = max(0, job.steps_done - job.saved_steps)
        unsaved_s = unsaved / float(situation.rates[situation.row(name), here])
        if unsaved_s >= max(LEAST_UNSAVED_S, 2 * save_s(job)):
            found.add(name)
    return found


def _out_of_money(situation: Situation, assignment: Assignment, purse: Purse) -> bool:
    """Nothing goes on for want of money, and nothing can change that.

    While machines wind down: when not even the cheapest useful stay of any job is affordable. With
    no machine left: also when what is affordable was refused, unless a job has yet to arrive or a
    blocked offer may come back.
    """
    state = situation.state
    if assignment.placements or not assignment.short_of_money:
        return False
    able = {job.spec.name for job in situation.jobs if _affords_some_way(situation, purse, job)}
    if not able:
        return True
    # What comes after jobs that do not go on cannot change anything.
    hopeful = {name for name in able if not situation.job(name).waits_for}
    hopeful -= assignment.short_of_money
    blocked = any(each.until_s > state.now_s for each in state.blocked)
    return not state.instances and not hopeful and not blocked


def _affords_some_way(situation: Situation, purse: Purse, job: JobView) -> bool:
    """Whether the money pays for a useful stay of the job somewhere, all that lives ended now."""
    rules = situation.state.rules
    winding_down = committed_usd(purse.liabilities.values(), 0.0, 0.0)
    for column in situation.options(situation.row(job.spec.name)):
        each = situation.columns[column]
        if not each.offers:
            continue
        rate = worst_rate(
            each.sample,
            each.pool.price_usd_per_hour,
            rules,
            situation.on_demand_usd_per_hour,
        )
        span_s = min(
            useful_minimum_s(situation.state, each.sample, job),
            expected_way(situation, situation.row(job.spec.name), column).seconds,
        )
        span_s += rules.terminate_confirm_s + stop_s(job, rules) + 2 * rules.wake_lag_s
        traffic = traffic_to_come(situation.state, job, each, machines=each.instance_count)
        rent = rate * each.instance_count + traffic.usd_per_hour
        cost = usd(rent, span_s + ROUNDING_S) + traffic.once_usd
        if winding_down + cost <= purse.money_usd:
            return True
    return False


def _stop_or_wait(
    situation: Situation, promises: Promises, money: float | None, digest: str
) -> RoundPlan:
    """Nothing to place: everything is stopped, or no job can be worked on now."""
    state = situation.state
    assignment = Assignment(machines=machines_of(situation))
    for job in situation.active:
        name = job.spec.name
        reason = situation.refused.get(name, reasons.STOPPING)
        if state.stopping and job.instance_ids:
            assignment.stops[name] = reasons.STOPPING
        else:
            assignment.waits[name] = reasons.STOPPING if state.stopping else reason
    purse = Purse(situation, money, 0.0)
    settlement = _settle(situation, assignment, purse, promises, Cover())
    actions, leases = reconcile(situation, assignment, settlement, at_risk=())
    empty = Allocation(
        status=AllocationStatus.EMPTY,
        shares=np.zeros((len(situation.jobs), len(situation.columns))),
    )
    expected = forecasts(
        situation,
        assignment,
        promises,
        _NO_NET,
        empty,
        (),
        () if state.stopping else promises.covered,
    )
    return _plan(
        RoundPlan(
            plan_id="",
            round_number=state.round_number,
            state_digest=digest,
            actions=actions,
            leases=leases,
            forecasts=expected,
            relaxed=() if state.stopping else tuple(promises.released.values()),
            next_wake_at_s=next_wake_at_s(situation, assignment, settlement),
            out_of_money=False,
            status=AllocationStatus.EMPTY,
            committed_usd=settlement.committed_usd,
            expected_cost_left_usd=expected_cost_left_usd(expected),
        )
    )


def _net_note(net: NetAnswer) -> str:
    late = ", ".join(sorted(net.late_by_s))
    return f"if spot vanished now, on-demand machines could not keep the deadline of {late}"


def _plan(draft: RoundPlan) -> RoundPlan:
    """Give a plan its id: a digest of everything else in it."""
    digest = hashlib.sha256(canonical_text(draft).encode()).hexdigest()[:12]
    return replace(draft, plan_id=digest)
