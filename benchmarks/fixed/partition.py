"""POP: what solving in parts loses in the least normalised throughput, and what it takes."""

from collections.abc import Callable, Iterator

from benchmarks.fixed.clusters import cluster_problem
from benchmarks.measuring import Case, benchmark
from cloudgavel.policies.fixed.cluster import cluster_of
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.partition import Partitioned


def comparing(m: int, parts: int) -> Callable[[], Callable[[], str]]:
    def prepare() -> Callable[[], str]:
        problem = cluster_problem(m)
        whole = MaxMinFairness().allocate(problem).objective_value
        policy = Partitioned(MaxMinFairness(), parts=parts)

        def call() -> str:
            cluster = cluster_of(problem)
            shares = policy.allocate(problem).shares
            found = MaxMinFairness().value(cluster, (shares * cluster.rate).sum(axis=1))
            return f"{1 - found / whole:.2%} below the whole solve"

        return call

    return prepare


@benchmark("partition")
def cases() -> Iterator[Case]:
    for m in (512, 2048, 8192):
        for parts in (2, 4, 8, 16):
            yield Case(size=m, severity=f"{parts} parts", prepare=comparing(m, parts))
