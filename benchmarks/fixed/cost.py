"""Throughput per USD, without deadlines, with loose ones, and with a third impossible."""

from collections.abc import Iterator

from benchmarks.fixed.clusters import cluster_problem
from benchmarks.measuring import Case, allocating, benchmark
from cloudgavel.policies.fixed.throughput_per_usd import (
    ThroughputPerUsd,
    ThroughputPerUsdWithDeadlines,
)


@benchmark("cost")
def cases() -> Iterator[Case]:
    for name, policy, deadlines in (
        ("no deadlines", ThroughputPerUsd(), None),
        ("loose deadlines", ThroughputPerUsdWithDeadlines(), "loose"),
        ("a third impossible", ThroughputPerUsdWithDeadlines(), "impossible"),
    ):
        for m in (64, 256, 1024):
            yield Case(
                size=m,
                severity=name,
                prepare=allocating(
                    policy,
                    lambda m=m, deadlines=deadlines: cluster_problem(m, deadlines=deadlines),
                ),
            )
