"""Who holds accelerators next: a maximum-weight b-matching on credits, then what is left over.

The rule is that of ``cloudgavel.mechanism.credits`` (what is owed, times accelerators), on arrays
of jobs instead of named units. With gangs of one size and no pairs the matching is a transport
problem and exact; with mixed gangs or pairs it is greedy by what is owed per accelerator (measured
as good as the integer program on the reference workloads, for a quarter of the time), and
``exact`` asks the integer program of ``cloudgavel.mechanism.b_matching`` instead. A gang that is
owed most comes first in the greedy order, so small jobs cannot keep it waiting: what they take of
its accelerators within a round, they give back at the end of it.
"""

from dataclasses import dataclass

import numpy as np

from cloudgavel.mechanism.fixed_cluster.state import FixedClusterState, Standing
from cloudgavel.policies.problem import FloatArray

NOTHING = 1e-9
URGENT_WITHIN = 2.0
"""Rounds of slack below which a deadline is urgent."""
URGENT_ROUNDS = 10.0
"""Rounds of credit that urgency counts for."""


@dataclass(kw_only=True)
class Turns:
    """Pools by job (m), -1 = waits; the only mutable object of a decision, made inside it."""

    pool: list[int]
    partner: list[int]
    extra: list[int]
    free: list[int]
    """Accelerators left by type."""


def owed(state: FixedClusterState, standing: Standing) -> FloatArray:
    """(U,) rounds each unit is owed at the end of the coming round; staying counts a little more.

    A pair is owed what both jobs are: then serving the units with most keeps the sum of squares
    of what jobs are owed from growing, whenever the shares can be realised at all.
    """
    due = state.credits + standing.time_share
    value = due[standing.first, standing.pool]
    stays = state.leases.pool[standing.first] == standing.pool
    pairs = np.flatnonzero(standing.second >= 0)
    if pairs.size:
        value = value.copy()
        other = standing.second[pairs]
        value[pairs] += due[other, standing.pool[pairs]]
        stays[pairs] &= state.leases.partner[standing.first[pairs]] == other
    value = value + state.stay_bonus * stays
    if any(job.deadline_s is not None for job in state.jobs):
        value = value + URGENT_ROUNDS * _urgent(state)[standing.first] * standing.share
    return np.asarray(value, dtype=np.float64)


def _urgent(state: FixedClusterState) -> FloatArray:
    """(m,) 1 for jobs whose deadline can still be kept, but not if a round is lost."""
    best = state.rate.max(axis=1, initial=0.0)
    flat_out_s = np.divide(state.steps_left, best, out=np.full(best.size, np.inf), where=best > 0)
    due_s = np.array([np.inf if job.deadline_s is None else job.deadline_s for job in state.jobs])
    slack_s = due_s - state.now_s - flat_out_s
    return np.where((slack_s >= 0) & (slack_s < URGENT_WITHIN * state.round_s), 1.0, 0.0)


def take_turns(state: FixedClusterState, standing: Standing, *, exact: bool = False) -> Turns:
    """Choose the units of a round that begins, nobody holding anything by right."""
    count = len(state.jobs)
    turns = Turns(
        pool=[-1] * count,
        partner=[-1] * count,
        extra=[0] * count,
        free=[kind.count for kind in state.cluster.types],
    )
    if not standing.first.size:
        return turns
    worth = owed(state, standing)
    gangs = {state.jobs[row].gang_size for row in standing.first.tolist()}
    if exact and (len(gangs) > 1 or (standing.second >= 0).any()):
        _by_integer_program(state, standing, worth, turns)
    elif len(gangs) == 1 and not (standing.second >= 0).any():
        _transport(state, standing, worth, turns, next(iter(gangs)))
    else:
        _greedy(state, standing, worth, turns)
    return turns


def _greedy(state: FixedClusterState, standing: Standing, worth: FloatArray, turns: Turns) -> None:
    gang = state.cluster.gang
    per_accelerator = np.where(standing.second >= 0, worth * 0.5, worth)
    order = np.lexsort((standing.pool, standing.first, -standing.share, -per_accelerator))
    first, second, pool = standing.first.tolist(), standing.second.tolist(), standing.pool.tolist()
    kinds = state.cluster.type_of_pool.tolist()
    sizes = gang.tolist()
    for unit in order.tolist():
        if worth[unit] <= NOTHING:
            break
        row, other, at = first[unit], second[unit], pool[unit]
        if turns.pool[row] >= 0 or (other >= 0 and turns.pool[other] >= 0):
            continue
        if turns.free[kinds[at]] < sizes[at]:
            continue
        turns.free[kinds[at]] -= sizes[at]
        turns.pool[row] = at
        if other >= 0:
            turns.pool[other] = at
            turns.partner[row], turns.partner[other] = other, row


def _transport(
    state: FixedClusterState, standing: Standing, worth: FloatArray, turns: Turns, size: int
) -> None:
    """Give the places of all types to jobs of one gang size so that most of what is owed is served.

    Exact: a transport problem over (job, type), of two pools of a type the better one.
    """
    units = np.flatnonzero(worth > NOTHING)
    if not units.size:
        return
    kinds = len(turns.free)
    kind = state.cluster.type_of_pool[standing.pool[units]]
    best = np.zeros((len(state.jobs), kinds))
    which = np.full((len(state.jobs), kinds), -1, dtype=np.int64)
    first = standing.first[units]
    order = np.argsort(worth[units], kind="stable")
    best[first[order], kind[order]] = worth[units][order]
    which[first[order], kind[order]] = standing.pool[units][order]
    room = np.minimum(np.array(turns.free, dtype=np.int64) // size, len(state.jobs))
    wanted = best > NOTHING
    if (wanted.sum(axis=1) <= 1).all() and (wanted.sum(axis=0) <= room).all():
        rows, given = np.nonzero(wanted)
    else:
        from scipy.optimize import linear_sum_assignment

        place = np.repeat(np.arange(kinds), room)
        if not place.size:
            return
        rows, at = linear_sum_assignment(best[:, place], maximize=True)
        given = place[at]
    for row, number in zip(rows.tolist(), given.tolist(), strict=True):
        if wanted[row, number]:
            turns.pool[row] = int(which[row, number])
            turns.free[number] -= size


def _by_integer_program(
    state: FixedClusterState, standing: Standing, worth: FloatArray, turns: Turns
) -> None:
    """Ask the exact b-matching of ``cloudgavel.mechanism.b_matching``."""
    from cloudgavel.mechanism.b_matching import RoundRows, best_units

    gang = state.cluster.gang
    rows = RoundRows(
        first=standing.first,
        second=standing.second,
        pool=standing.pool,
        members=np.ones(len(state.jobs), dtype=np.int64),
        gang=gang,
        type_of_pool=state.cluster.type_of_pool,
        accelerators=np.array(turns.free, dtype=np.int64),
    )
    value = np.maximum(worth, 0.0) * gang[standing.pool].astype(np.float64)
    counts = best_units(rows, value, np.ones(worth.size, dtype=np.int64))
    for unit in np.flatnonzero(counts).tolist():
        row, other = int(standing.first[unit]), int(standing.second[unit])
        at = int(standing.pool[unit])
        turns.pool[row] = at
        if other >= 0:
            turns.pool[other] = at
            turns.partner[row], turns.partner[other] = other, row
        turns.free[int(state.cluster.type_of_pool[at])] -= int(gang[at])


def keep_turns(state: FixedClusterState) -> Turns:
    """The turns of a round that goes on: everybody keeps what is held."""
    leases = state.leases
    turns = Turns(
        pool=leases.pool.tolist(),
        partner=leases.partner.tolist(),
        extra=leases.is_extra.tolist(),
        free=[kind.count for kind in state.cluster.types],
    )
    for row, pool in enumerate(turns.pool):
        if pool >= 0 and not (0 <= turns.partner[row] < row):
            kind = int(state.cluster.type_of_pool[pool])
            turns.free[kind] -= int(state.cluster.gang[pool])
    return turns


def claim_free(state: FixedClusterState, standing: Standing, turns: Turns) -> None:
    """Within a round: what became free goes to waiting units with a share, most owed first."""
    if not any(turns.free) or not standing.first.size:
        return
    _greedy(state, standing, owed(state, standing) + NOTHING, turns)


def run_ahead(state: FixedClusterState, standing: Standing, turns: Turns) -> None:
    """Where idle accelerators stay idle to save money: let waiting jobs have their share early.

    Each only in the pool where it has most of its time, so that no step costs more for it. What a
    plan spreads over a long interval is so done at its beginning.
    """
    if not any(turns.free) or not standing.first.size:
        return
    kinds = state.cluster.type_of_pool.tolist()
    sizes = state.cluster.gang.tolist()
    seen: set[int] = set()
    for unit in np.lexsort((standing.pool, standing.first, -standing.share)).tolist():
        row, pool = int(standing.first[unit]), int(standing.pool[unit])
        if row in seen or turns.pool[row] >= 0 or standing.second[unit] >= 0:
            continue
        seen.add(row)
        if turns.free[kinds[pool]] >= sizes[pool]:
            turns.pool[row] = pool
            turns.extra[row] = 1
            turns.free[kinds[pool]] -= sizes[pool]


def fill_idle(state: FixedClusterState, standing: Standing, turns: Turns) -> None:
    """Give what no share claims to waiting jobs, each where it runs best of what is free.

    Most owed first, then the longest waiting. It costs them no credit. A policy that does not
    know types gets the pool with most left instead of the fastest.
    """
    if not any(turns.free):
        return
    waiting = [row for row, pool in enumerate(turns.pool) if pool < 0]
    if not waiting:
        return
    usable = state.rate > 0
    kinds = state.cluster.type_of_pool.tolist()
    sizes = state.cluster.gang.tolist()
    due = (state.credits + standing.time_share).sum(axis=1)
    waiting.sort(key=lambda row: (-round(float(due[row]), 6), state.jobs[row].arrives_s, row))
    for row in waiting:
        best, found = 0.0, -1
        for pool in np.flatnonzero(usable[row]).tolist():
            if turns.free[kinds[pool]] < sizes[pool]:
                continue
            value = float(turns.free[kinds[pool]] if standing.blind else state.rate[row, pool])
            if value > best:
                best, found = value, pool
        if found >= 0:
            turns.pool[row] = found
            turns.extra[row] = 1
            turns.free[kinds[found]] -= sizes[found]
            if not any(turns.free):
                return
