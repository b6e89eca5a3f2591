"""Finish-time fairness: target 1,024 jobs in 0.5 s."""

from collections.abc import Iterator

from benchmarks.fixed.clusters import SEVERITIES, cluster_problem
from benchmarks.measuring import Case, allocating, benchmark
from cloudgavel.policies.fixed.finish_time_fairness import FinishTimeFairness


@benchmark("finish_time")
def cases() -> Iterator[Case]:
    for severity in SEVERITIES:
        for m in (64, 1024) if severity == "different" else (1024,):
            yield Case(
                size=m,
                severity=severity,
                goal_s=0.5 if m == 1024 else None,
                prepare=allocating(
                    FinishTimeFairness(),
                    lambda m=m, severity=severity: cluster_problem(m, severity),
                ),
            )
