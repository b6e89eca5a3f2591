"""Water filling, single level and through two levels of entities: target 512 jobs in 1 s."""

from collections.abc import Iterator

from benchmarks.fixed.clusters import SEVERITIES, cluster_problem
from benchmarks.measuring import Case, allocating, benchmark
from cloudgavel.policies.fixed.water_filling import HierarchicalWaterFilling, WaterFilling


@benchmark("water_filling")
def cases() -> Iterator[Case]:
    queues = {f"team{number}/group0": "fifo" for number in range(7)}
    for name, policy in (
        ("single", WaterFilling()),
        ("entities", HierarchicalWaterFilling(entity_weights={"team1": 3.0})),
        ("entities, some FIFO", HierarchicalWaterFilling(inside=queues)),
    ):
        for severity in SEVERITIES:
            for m in (128, 512) if severity in ("different", "roomy") else (512,):
                yield Case(
                    size=m,
                    severity=f"{name}, {severity}",
                    goal_s=1.0 if m == 512 else None,
                    prepare=allocating(
                        policy, lambda m=m, severity=severity: cluster_problem(m, severity)
                    ),
                )
