"""Max-min fairness with pairs: targets 0.15 s (256), 1 s (2,048), 10 s (2,048, all different)."""

from collections.abc import Iterator

from benchmarks.fixed.clusters import cluster_problem
from benchmarks.measuring import Case, allocating, benchmark
from cloudgavel.policies.fixed.makespan import Makespan
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness

GOALS_S = {(26, 256): 0.15, (26, 2048): 1.0, (None, 256): 0.15, (None, 2048): 10.0}
"""By kinds (``None``: all differ) and jobs."""


@benchmark("space_sharing")
def cases() -> Iterator[Case]:
    fair, fast = MaxMinFairness(space_sharing=True), Makespan(space_sharing=True)
    for name, policy, kinds, severity, sizes in (
        ("26 kinds", fair, 26, "different", (256, 2048)),
        ("26 kinds, roomy", fair, 26, "roomy", (2048,)),
        ("26 kinds, equal", fair, 26, "equal", (2048,)),
        ("all different", fair, None, "different", (256, 512, 1024, 2048)),
        ("all different, roomy", fair, None, "roomy", (1024,)),
        ("all different, equal rates", fair, None, "equal", (256,)),
        ("all different, near-ties", fair, None, "near-ties", (256, 512)),
        ("all different, nine orders", fair, None, "nine orders", (256, 512)),
        ("26 kinds, makespan", fast, 26, "different", (512,)),
    ):
        for m in sizes:
            yield Case(
                size=m,
                severity=name,
                goal_s=GOALS_S.get((kinds, m)) if policy is fair else None,
                goal_mb=500.0 if policy is fair else None,
                prepare=allocating(
                    policy,
                    lambda m=m, kinds=kinds, severity=severity: cluster_problem(
                        m, severity, kinds=kinds, sharing=True
                    ),
                ),
            )
