"""POP: split the jobs and the cluster into parts, solve each, and put the answers together."""

from dataclasses import replace

import numpy as np

from cloudgavel.policies.allocation import Allocation, AllocationStatus
from cloudgavel.policies.base import Policy
from cloudgavel.policies.problem import AllocationProblem, FloatArray, IntArray
from cloudgavel.policies.sharing import ClassRows, PairSharing


class Partitioned:
    """Another policy, solved in ``parts`` parts of jobs on equal parts of every limit.

    Jobs are dealt to the parts at random (``seed``); each part gets 1/parts of the accelerators,
    quotas and spend rate, so the parts together keep every limit. The objective suffers a little:
    a loss that falls with the number of jobs per part and is measured in ``benchmarks/``. Worth it
    where one solve is slow: the bundled policies mostly are not, so this is an option and no
    default. Accelerators are divided in whole numbers, so up to ``parts - 1`` of a type stay
    unused. If a gang does not fit a part the problem is solved whole.
    """

    def __init__(self, policy: Policy, *, parts: int = 4, seed: int = 0) -> None:
        self.policy = policy
        self.parts = parts
        self.seed = seed
        self.name = f"{policy.name}_partitioned"
        self.summary = f"{policy.summary}, solved in {parts} parts"
        self.source = f"Narayanan et al., POP, SOSP 2021; {policy.source}"
        self.plans_for = getattr(policy, "plans_for", "fixed cluster")

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Solve part by part.

        The status is the worst of the parts'. ``objective_value`` is ``None``: parts have
        normalisers and ranks of their own, so their values cannot be put together.
        """
        count = len(problem.jobs)
        parts = max(1, min(self.parts, count))
        if parts == 1 or not self._divisible(problem, parts):
            return self.policy.allocate(problem)
        order = np.random.default_rng(self.seed).permutation(count)
        dealt = [np.sort(order[number::parts]) for number in range(parts)]
        found = [self.policy.allocate(_part(problem, rows, parts)) for rows in dealt]
        shares = np.zeros((count, len(problem.pools)))
        for rows, each in zip(dealt, found, strict=True):
            shares[rows] = each.shares
        order_of_status = list(AllocationStatus)
        useful = [each for each in found if each.status is not AllocationStatus.EMPTY] or found
        worst = max(useful, key=lambda each: order_of_status.index(each.status))
        return Allocation(
            status=worst.status,
            shares=shares,
            objective_value=None,
            objective_unit=worst.objective_unit,
            relaxed=tuple(gone for each in found for gone in each.relaxed),
            class_rows=_joined(found, dealt, count),
            message=f"{parts} parts; {worst.message}".rstrip("; "),
        )

    def _divisible(self, problem: AllocationProblem, parts: int) -> bool:
        """Whether every usable gang fits a part: else the problem is solved whole."""
        if problem.cluster_accelerators is None:
            return False
        used = np.asarray(problem.feasible.any(axis=0), dtype=bool)
        return all(
            size // parts >= pool.gang_size or not use
            for size, pool, use in zip(
                problem.cluster_accelerators, problem.pools, used.tolist(), strict=True
            )
        )


def _part(problem: AllocationProblem, rows: IntArray, parts: int) -> AllocationProblem:
    """Return some jobs with 1/parts of everything (accelerators rounded down)."""
    assert problem.cluster_accelerators is not None
    sharing = problem.sharing
    if sharing is not None:
        sharing = PairSharing(
            kind_of_job=sharing.kind_of_job[rows], retained_share=sharing.retained_share
        )
    rate = problem.max_usd_per_hour
    return replace(
        problem,
        jobs=tuple(problem.jobs[row] for row in rows),
        throughput_steps_per_s=problem.throughput_steps_per_s[rows],
        feasible=problem.feasible[rows],
        change_over_s=problem.change_over_s[rows],
        cluster_accelerators=tuple(size // parts for size in problem.cluster_accelerators),
        quotas=tuple(replace(each, limit=each.limit / parts) for each in problem.quotas),
        max_usd_per_hour=None if rate is None else rate / parts,
        extra={
            name: _rows_of(array, rows, len(problem.jobs)) for name, array in problem.extra.items()
        },
        sharing=sharing,
    )


def _rows_of(array: FloatArray, rows: IntArray, count: int) -> FloatArray:
    return array[rows] if array.shape[:1] == (count,) else array


def _joined(found: list[Allocation], dealt: list[IntArray], count: int) -> ClassRows | None:
    """Class rows of all parts, classes numbered on."""
    if any(each.class_rows is None for each in found):
        return None
    class_of_job = np.full(count, -1, dtype=np.int64)
    firsts, seconds, pools, amounts = [], [], [], []
    start = 0
    for rows, each in zip(dealt, found, strict=True):
        own = each.class_rows
        assert own is not None
        class_of_job[rows] = np.where(own.class_of_job >= 0, own.class_of_job + start, -1)
        firsts.append(own.first + start)
        seconds.append(np.where(own.second >= 0, own.second + start, -1))
        pools.append(own.pool)
        amounts.append(own.amount)
        start += int(own.class_of_job.max(initial=-1)) + 1
    return ClassRows(
        class_of_job=class_of_job,
        first=np.concatenate(firsts),
        second=np.concatenate(seconds),
        pool=np.concatenate(pools),
        amount=np.concatenate(amounts),
    )
