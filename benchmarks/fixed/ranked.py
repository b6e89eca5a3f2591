"""Makespan, FIFO, shortest remaining, AlloX (target 512 jobs in 1 s) and the baselines."""

from collections.abc import Iterator

from benchmarks.fixed.clusters import cluster_problem
from benchmarks.measuring import Case, allocating, benchmark
from cloudgavel.policies.registry import policy_named

NAMES = (
    "makespan",
    "fifo",
    "shortest_remaining",
    "max_total_throughput",
    "allox",
    "isolated",
    "las_queues",
    "random_packing",
)


@benchmark("ranked")
def cases() -> Iterator[Case]:
    for name in NAMES:
        for m in (512, 2048):
            yield Case(
                size=m,
                severity=name,
                goal_s=1.0 if (name, m) == ("allox", 512) else None,
                prepare=allocating(policy_named(name), lambda m=m: cluster_problem(m)),
            )
