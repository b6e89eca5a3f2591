"""Which accelerators: a lease is extended where it was; gangs are kept on one machine."""

import numpy as np

from cloudgavel.mechanism.fixed_cluster.cluster import AcceleratorType
from cloudgavel.mechanism.fixed_cluster.state import FixedClusterState, Leases
from cloudgavel.mechanism.fixed_cluster.turns import Turns


def place(state: FixedClusterState, turns: Turns) -> Leases:
    """Turn pools into accelerators.

    Whoever stays in its pool with the same partner keeps its accelerators. The others are placed
    by size, big gangs first; where the free accelerators lie too scattered for a gang that is to
    be on one machine, the type is packed anew, and what still does not fit waits.
    """
    held = state.leases
    count = len(state.jobs)
    given: list[tuple[int, ...]] = [()] * count
    kinds = state.cluster.type_of_pool.tolist()
    new: dict[int, list[int]] = {}
    for row, pool in enumerate(turns.pool):
        if pool < 0 or 0 <= turns.partner[row] < row:
            continue
        stays = held.pool[row] == pool and held.partner[row] == turns.partner[row]
        if stays and held.accelerators[row]:
            given[row] = held.accelerators[row]
        else:
            new.setdefault(kinds[pool], []).append(row)
    for number, rows in sorted(new.items()):
        kind = state.cluster.types[number]
        taken = {
            each
            for row, pool in enumerate(turns.pool)
            if pool >= 0 and kinds[pool] == number
            for each in given[row]
        }
        if not _seat(state, turns, kind, rows, given, taken):
            everybody = [
                row
                for row, pool in enumerate(turns.pool)
                if pool >= 0 and kinds[pool] == number and not 0 <= turns.partner[row] < row
            ]
            for row in everybody:
                given[row] = ()
            _seat(state, turns, kind, everybody, given, set())
    for row, other in enumerate(turns.partner):
        if 0 <= other < row:
            given[row] = given[other]
    for row in range(count):
        if turns.pool[row] >= 0 and not given[row]:
            turns.pool[row], turns.partner[row], turns.extra[row] = -1, -1, 0
    return Leases(
        pool=np.array(turns.pool, dtype=np.int64),
        partner=np.array(turns.partner, dtype=np.int64),
        accelerators=tuple(given),
        is_extra=np.array(turns.extra, dtype=np.int64),
    )


def _seat(
    state: FixedClusterState,
    turns: Turns,
    kind: AcceleratorType,
    rows: list[int],
    given: list[tuple[int, ...]],
    taken: set[int],
) -> bool:
    """Seat gangs on free accelerators; False if one that must be on one machine found none."""
    per_instance = kind.accelerators_per_instance
    free = [number for number in range(kind.count) if number not in taken]
    pools = state.cluster.pools
    if per_instance is None:
        at = 0
        for row in rows:
            size = pools[turns.pool[row]].gang_size
            given[row] = tuple(free[at : at + size])
            at += size
        return True
    machines: dict[int, list[int]] = {}
    for number in free:
        machines.setdefault(number // per_instance, []).append(number)
    whole = True
    ordered = sorted(
        rows,
        key=lambda row: (pools[turns.pool[row]].spread, -pools[turns.pool[row]].gang_size, row),
    )
    for row in ordered:
        pool = pools[turns.pool[row]]
        size = pool.gang_size
        if not pool.spread:
            fitting = [key for key, left in machines.items() if len(left) >= size]
            if not fitting:
                whole = False
                continue
            best = min(fitting, key=lambda key: (len(machines[key]), key))
            given[row], machines[best] = tuple(machines[best][:size]), machines[best][size:]
            continue
        seats: list[int] = []
        for key in sorted(machines, key=lambda key: (len(machines[key]), key)):
            part = machines[key][: size - len(seats)]
            machines[key] = machines[key][len(part) :]
            seats += part
            if len(seats) == size:
                break
        given[row] = tuple(sorted(seats)) if len(seats) == size else ()
    return whole
