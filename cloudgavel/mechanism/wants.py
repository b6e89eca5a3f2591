"""What the policy's answer asks for in this round, and which running jobs it pays to move."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from cloudgavel.mechanism.guards.churn import is_worth_moving, may_be_moved
from cloudgavel.mechanism.guards.promises import expected_way
from cloudgavel.mechanism.guards.safety_net import machines_intended
from cloudgavel.mechanism.packing import Machine, fits_on, machines_of
from cloudgavel.mechanism.situation import Situation
from cloudgavel.policies.allocation import Allocation, AllocationStatus

SMALLEST_SHARE = 1e-6
"""Shares are rounded to this before anything is ranked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Want:
    """One job in the policy's eyes."""

    columns: tuple[int, ...]
    """Where it is to run now, cheapest per step first; empty = not now."""
    later: bool
    """The plan gives it time in a later interval."""
    due_at_s: float | None = None
    """When the policy means it to end, for its objective; ``None`` = its deadline alone says."""
    waits_until_at_s: float | None = None
    """It waits for spot, at the latest until then, where ``columns`` is empty or has no room."""
    instead: tuple[int, ...] = ()
    """Where it goes when there is no room in ``columns``."""


def wants_of(situation: Situation, allocation: Allocation) -> dict[str, Want]:
    """Read the first interval of a plan (or the shares) job by job.

    A block of hours in the first interval begins now: the plan is indifferent within an interval,
    and what is begun runs on.
    """
    if allocation.hours is not None and allocation.hours.size:
        now = allocation.hours[:, :, 0]
        total = allocation.hours.sum(axis=(1, 2))
    else:
        now = allocation.shares
        total = now.sum(axis=1)
    now = np.asarray(np.round(np.nan_to_num(now), 6), dtype=np.float64)
    due_s = allocation.due_s
    wants: dict[str, Want] = {}
    for row, job in enumerate(situation.jobs):
        columns = [each for each in situation.options(row) if now[row, each] > SMALLEST_SHARE]
        columns.sort(
            key=lambda each: (
                (situation.usd_per_hour(each) + situation.traffic_usd_per_hour[row, each])
                / situation.rates[row, each],
                each,
            )
        )
        wants[job.spec.name] = Want(
            columns=tuple(columns),
            later=bool(total[row] > SMALLEST_SHARE),
            due_at_s=(
                situation.state.now_s + float(due_s[row])
                if due_s is not None and math.isfinite(due_s[row])
                else None
            ),
        )
    return wants


def answers(allocation: Allocation, situation: Situation) -> bool:
    """Whether an allocation can be used: the right shape, finite, and not a refusal."""
    shape = (len(situation.jobs), len(situation.columns))
    if allocation.shares.shape != shape or not np.isfinite(allocation.shares).all():
        return False
    if allocation.due_s is not None and (
        allocation.due_s.shape != shape[:1] or np.isnan(allocation.due_s).any()
    ):
        return False
    if allocation.hours is not None and (
        allocation.hours.ndim != 3
        or allocation.hours.shape[:2] != shape
        or not np.isfinite(allocation.hours).all()
    ):
        return False
    return allocation.status not in (AllocationStatus.INFEASIBLE, AllocationStatus.EMPTY)


def worthwhile_moves(
    situation: Situation, wants: Mapping[str, Want], aims: Mapping[str, float]
) -> dict[str, int]:
    """Running jobs that should leave for another column, and which one.

    The policy must ask for the other column and not for the present one, and the move must pay;
    or the job misses its planned deadline (``aims``, at_s) where it is and meets it there. A due
    time of the policy alone moves nobody: it says where a job begins.
    """
    movable = {
        name: here
        for name, here in situation.held.items()
        if name in wants
        and here not in wants[name].columns
        and may_be_moved(situation.job(name))
        and not machines_intended(situation, situation.job(name))
    }
    machines = machines_of(situation).values()
    moves: dict[str, int] = {}
    for name, here in movable.items():
        job = situation.job(name)
        row = situation.row(name)
        traffic = situation.traffic_usd_per_hour[row]
        rent = situation.place_usd_per_hour(job) + float(traffic[here])
        for to in wants[name].columns:
            aim_at_s = aims.get(name)
            if not situation.columns[to].offers:
                continue
            if aim_at_s is not None:
                left_s = aim_at_s - situation.state.now_s
                there_s = expected_way(situation, row, to).seconds
                here_s = expected_way(situation, row, here).seconds
                if here_s > left_s >= there_s:
                    moves[name] = to
                    break
                if there_s > left_s >= here_s:
                    continue
            moving = sum(to in wants[each].columns for each in movable)
            there = _rent_there(situation, machines, to, moving) + float(traffic[to])
            if is_worth_moving(situation, job, here, rent, to, there):
                moves[name] = to
                break
    return moves


def earliest(*instants_s: float | None) -> float | None:
    """The first of the instants that are given."""
    return min((each for each in instants_s if each is not None), default=None)


def _rent_there(
    situation: Situation, machines: Iterable[Machine], column: int, moving: int
) -> float:
    """What a place in a column really costs a job that moves there, in USD per hour.

    The plan counts a part of an instance at its part of the rent. That is so on a machine that
    works already and has room; a new one is paid whole by the ``moving`` jobs that would fill it.
    """
    each = situation.columns[column]
    used = each.accelerators_used
    rooms = sum(
        (machine.size - sum(len(indices) for indices in machine.seats.values())) // used
        for machine in machines
        if not machine.idle and fits_on(each, machine)
    )
    if each.seats > 1 and rooms >= moving:
        return situation.usd_per_hour(column)
    return each.alone_usd_per_hour / max(1, min(each.seats, moving))
