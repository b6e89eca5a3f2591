"""Random packing of pairs, kept only where measured to be worth it: Gandiva's, done fairly."""

import numpy as np

from cloudgavel.policies.allocation import Allocation, AllocationStatus
from cloudgavel.policies.fixed.answer import without_a_pool
from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.share_policy import SharePolicy, per_rate, throughput_of
from cloudgavel.policies.problem import FloatArray, IntArray
from cloudgavel.policies.sharing import ClassRows


class RandomPacking(SharePolicy):
    """Jobs are paired at random; a pair that loses by sharing is split up again.

    When jobs need more accelerators than there are, jobs are drawn in a random order (``seed``;
    the same seed gives the same pairs) and put beside a waiting job of the same gang size. A pair
    stays only if together they keep more than one accelerator's worth, in the mean over the types
    that both can use: a bad pair is dropped, as its throughput would be measured. Every unit (a
    pair or a single job) then gets an equal share of every type, the fastest first until its time
    is full: what that leaves over are the slowest accelerators, as when jobs migrate to better
    ones that are free.
    """

    name = "random_packing"
    summary = "baseline: random pairs on shared accelerators, bad ones dropped"
    source = "Xiao et al., Gandiva, OSDI 2018 (packing by trial)"
    unit = "normalised throughput of the least-served job"

    def __init__(self, *, seed: int = 0, agnostic: bool = False) -> None:
        super().__init__(agnostic=agnostic)
        self.seed = seed

    def decide(self, seen: Cluster, cluster: Cluster) -> Allocation:
        """Pair, split what loses, and share time equally."""
        able = np.flatnonzero(seen.able)
        dice = np.random.default_rng(self.seed)
        partner = np.full(seen.able.size, -1, dtype=np.int64)
        room = float(seen.limit_sizes.sum()) if seen.problem.cluster_accelerators else np.inf
        if seen.problem.sharing is not None and seen.smallest_gang.sum() > room:
            self._pair(seen, dice.permutation(able), partner)
        heads = np.array([row for row in able if partner[row] < 0 or row < partner[row]])
        rows = self._units(seen, heads, partner)
        shares = rows.shares(seen.gang.size)
        throughput = throughput_of(cluster, rows)
        weight = np.where(cluster.able, cluster.weight, 1.0)
        normalised = throughput * per_rate(1 / weight, cluster.equal_rate, cluster)
        gone = without_a_pool(cluster)
        return Allocation(
            status=AllocationStatus.RELAXED if gone else AllocationStatus.OPTIMAL,
            shares=np.minimum(shares, 1.0),
            objective_value=float(normalised[cluster.able].min()),
            objective_unit=self.unit,
            relaxed=gone,
            class_rows=rows,
        )

    def _pair(self, cluster: Cluster, order: IntArray, partner: IntArray) -> None:
        waiting: dict[float, int] = {}
        for row in order.tolist():
            size = float(cluster.smallest_gang[row])
            other = waiting.pop(size, None)
            if other is None:
                waiting[size] = row
            elif self._gains(cluster, row, other):
                partner[row], partner[other] = other, row

    def _gains(self, cluster: Cluster, one: int, other: int) -> bool:
        """Whether a pair can share wherever both can run, and gains by it in the mean over types.

        A pair that is kept from some types would lose more by that than it gains on the others.
        """
        both = cluster.usable[one] & cluster.usable[other]
        mine, theirs = _kept(cluster, one, other)
        runs = (mine > 0) & (theirs > 0)
        return bool(both.any() and runs[both].all() and (mine + theirs)[both].mean() > 1.0)

    def _units(self, cluster: Cluster, heads: IntArray, partner: IntArray) -> ClassRows:
        """Equal shares of every type for every unit, within every limit."""
        count = max(heads.size, 1)
        first: list[int] = []
        second: list[int] = []
        pool: list[int] = []
        amount: list[float] = []
        matrix, sizes = cluster.limit_matrix, cluster.limit_sizes
        number = np.full(cluster.able.size, -1, dtype=np.int64)
        number[cluster.able] = np.arange(int(cluster.able.sum()))
        for head in heads.tolist():
            other = int(partner[head])
            speed = _relative(cluster, head)
            if other >= 0:
                mine, theirs = _kept(cluster, head, other)
                speed = speed * mine + _relative(cluster, other) * theirs
            parts = np.zeros(cluster.gang.size)
            for kind in range(cluster.mix_share.size):
                own = np.flatnonzero((cluster.type_of_pool == kind) & (speed > 0))
                if not own.size:
                    continue
                column = own[np.lexsort((own, cluster.gang[own]))[0]]
                counted = matrix[:, column] > 0
                parts[column] = (sizes[counted] / matrix[counted, column]).min(initial=np.inf)
            left = 1.0
            for column in np.lexsort((np.arange(parts.size), -speed)).tolist():
                parts[column] = min(parts[column] / count, left)
                left -= parts[column]
            for column in np.flatnonzero(parts):
                first.append(int(number[head]))
                second.append(int(number[other]) if other >= 0 else -1)
                pool.append(int(column))
                amount.append(float(parts[column]))
        return ClassRows(
            class_of_job=number,
            first=np.array(first, dtype=np.int64),
            second=np.array(second, dtype=np.int64),
            pool=np.array(pool, dtype=np.int64),
            amount=np.array(amount, dtype=np.float64),
        )


def _relative(cluster: Cluster, row: int) -> FloatArray:
    """(R,) a job's rates over its best one."""
    rate = np.where(cluster.usable[row], cluster.rate[row], 0.0)
    return np.asarray(rate / max(float(rate.max(initial=0.0)), 1e-300), dtype=np.float64)


def _kept(cluster: Cluster, one: int, other: int) -> tuple[FloatArray, FloatArray]:
    """(R,) what each of two jobs keeps of its rate beside the other; 0 where that is not known."""
    sharing = cluster.problem.sharing
    assert sharing is not None
    a, b = sharing.kind_of_job[one], sharing.kind_of_job[other]
    if a < 0 or b < 0:
        nothing = np.zeros(cluster.gang.size)
        return nothing, nothing
    both = cluster.usable[one] & cluster.usable[other]
    mine, theirs = sharing.retained_share[a, b], sharing.retained_share[b, a]
    return np.where(both, np.nan_to_num(mine), 0.0), np.where(both, np.nan_to_num(theirs), 0.0)
