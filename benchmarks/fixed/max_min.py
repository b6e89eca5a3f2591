"""Max-min fairness, all jobs different: target 2,048 jobs in 0.3 s, 30,000 in 10 s."""

from collections.abc import Iterator

from benchmarks.fixed.clusters import SEVERITIES, cluster_problem
from benchmarks.measuring import Case, allocating, benchmark
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness


@benchmark("max_min")
def cases() -> Iterator[Case]:
    for severity in SEVERITIES:
        sizes = (256, 2048, 30_000) if severity == "different" else (2048,)
        for m in sizes:
            yield Case(
                size=m,
                severity=severity,
                goal_s={2048: 0.3, 30_000: 10.0}.get(m),
                prepare=allocating(
                    MaxMinFairness(), lambda m=m, severity=severity: cluster_problem(m, severity)
                ),
            )
