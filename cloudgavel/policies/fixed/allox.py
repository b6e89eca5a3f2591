"""AlloX: least mean completion time as a matching of jobs to places in machines' queues."""

import numpy as np

from cloudgavel.policies.allocation import Allocation, AllocationStatus
from cloudgavel.policies.fixed.answer import without_a_pool
from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.share_policy import SharePolicy
from cloudgavel.policies.problem import FloatArray, IntArray

DEAREST_S = 1e15


class AlloX(SharePolicy):
    """Minimise the sum of completion times by a minimum-cost bipartite matching.

    A job that is p-th from the end of a machine's queue delays p jobs (itself and those behind
    it), so placing job j there costs ``p S_j / T_jr``; elapsed times are constants. Machines of a
    type are alike, so position p of a type has N_r places and no queue is longer than
    ``ceil(m / N_r)``: about m + N_r places a type instead of m N_r. Exact for jobs of one
    accelerator that run to the end where they start. A gang of k counts as k times its length on a
    machine of its own width (``floor(N_r / k)`` of them); this is a heuristic. The answer is whole:
    the first of every queue runs, and what fits of the next ones fills what is left.
    """

    name = "allox"
    summary = "least mean completion time by matching jobs to places in queues"
    source = "Le et al., AlloX, EuroSys 2020"
    unit = "s, sum of completion times from now"
    with_steps = True

    def decide(self, seen: Cluster, cluster: Cluster) -> Allocation:
        """Match, then start the heads of the queues."""
        able = np.flatnonzero(seen.able)
        column, length_s = _columns_by_type(seen, able)
        position, kind = _places(seen, column)
        cost = np.full((able.size, position.size), DEAREST_S)
        usable = length_s[:, kind] < np.inf
        widths = np.maximum(_gangs(seen, column), 1.0)[:, kind]
        whole = position[None, :] * np.where(usable, length_s[:, kind], 0.0) * widths
        np.copyto(cost, np.minimum(whole, DEAREST_S), where=usable)
        from scipy.optimize import linear_sum_assignment

        matched, place = linear_sum_assignment(cost)
        total = float(cost[matched, place].sum())
        order = np.lexsort((length_s[matched, kind[place]], -position[place]))
        shares = np.zeros(cluster.rate.shape)
        left = seen.limit_sizes.copy()
        matrix = seen.limit_matrix
        for own_queue in (True, False):
            for at in order:
                row = able[matched[at]]
                if shares[row].any():
                    continue
                wanted = [int(column[matched[at], kind[place[at]]])]
                if not own_queue:
                    wanted = list(np.argsort(-seen.rate[row], kind="stable"))
                for pool in wanted:
                    if pool < 0 or seen.rate[row, pool] <= 0:
                        continue
                    if (matrix[:, pool] <= left + 1e-9).all():
                        left -= matrix[:, pool]
                        shares[row, pool] = 1.0
                        break
        gone = without_a_pool(cluster)
        return Allocation(
            status=AllocationStatus.RELAXED if gone else AllocationStatus.OPTIMAL,
            shares=shares,
            objective_value=total if total < DEAREST_S else None,
            objective_unit=self.unit,
            relaxed=gone,
        )


def _columns_by_type(cluster: Cluster, able: IntArray) -> tuple[IntArray, FloatArray]:
    """(jobs, types): each job's fastest pool of a type (-1: none), and its length there in s."""
    types = cluster.mix_share.size
    column = np.full((able.size, types), -1, dtype=np.int64)
    length_s = np.full((able.size, types), np.inf)
    for number in range(types):
        own = np.flatnonzero(cluster.type_of_pool == number)
        rates = cluster.rate[np.ix_(able, own)]
        best = own[rates.argmax(axis=1)]
        rate = rates.max(axis=1)
        column[:, number] = np.where(rate > 0, best, -1)
        np.divide(cluster.steps[able], rate, out=length_s[:, number], where=rate > 0)
    return column, length_s


def _gangs(cluster: Cluster, column: IntArray) -> FloatArray:
    """(jobs, types) accelerators of the job's gang on a type; 0 where it cannot run."""
    return np.where(column >= 0, cluster.gang[np.maximum(column, 0)], 0.0)


def _places(cluster: Cluster, column: IntArray) -> tuple[FloatArray, IntArray]:
    """Places in queues: position from the end, and type."""
    gangs = _gangs(cluster, column)
    position: list[FloatArray] = []
    kind: list[IntArray] = []
    for number in range(cluster.mix_share.size):
        here = gangs[gangs[:, number] > 0, number]
        machines = _machines(cluster, number, here)
        if not here.size or machines < 1:
            continue
        depth = int(np.ceil(here.size / machines))
        position.append(np.repeat(np.arange(1, depth + 1, dtype=np.float64), machines))
        kind.append(np.full(depth * machines, number, dtype=np.int64))
    return (
        np.concatenate(position) if position else np.zeros(0),
        np.concatenate(kind) if kind else np.zeros(0, dtype=np.int64),
    )


def _machines(cluster: Cluster, number: int, gangs: FloatArray) -> int:
    """How many jobs a type holds at a time: its accelerators, or what its limits allow."""
    if not gangs.size:
        return 0
    own = cluster.type_of_pool == number
    room = np.inf
    for limit in cluster.limits:
        per_accelerator = np.where(own, limit.coefficients / cluster.gang, 0.0).max(initial=0.0)
        if per_accelerator > 0:
            room = min(room, limit.size / per_accelerator)
    return int(min(room, 10.0 * gangs.sum())) if room >= 1 else 0
