"""Figures measured on the original scheduler, and those of the paper, to set beside ours.

One seed, 360 s rounds, no start-up cost, CPU seconds on two cores. Costs are accelerator-seconds in
use at the prices of ``cloudgavel.simulator.clusters.PUBLISHED_USD_PER_HOUR``.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Reference:
    """What the original scheduler reached with a policy on a workload; ``None`` = not measured."""

    workload: str
    policy: str
    original_name: str
    jct_h: float | None = None
    makespan_h: float | None = None
    cost_usd: float | None = None
    late: int | None = None
    serves: tuple[str, ...] = ()
    """What the policy is meant to be good at, of ``jct``, ``makespan``, ``cost``, ``late``."""


WORKLOADS = {
    "A": ("physical_cluster/max_min_fairness.trace", "v100=8,p100=16,k80=24"),
    "B": ("physical_cluster/minimize_makespan.trace", "v100=8,p100=16,k80=24"),
    "C": ("generated_200_static.csv", "v100=25,p100=25,k80=25"),
    "D": ("generated_4_per_hour.csv", "v100=36,p100=36,k80=36"),
}
MEASURED = {"D": (400, 499)}

REFERENCES = (
    Reference(
        "A", "max_min_fairness_agnostic", "max_min_fairness", 5.55, 21.43, 256, None, ("jct",)
    ),
    Reference(
        "A",
        "max_min_fairness",
        "max_min_fairness_perf, immediate",
        3.96,
        17.33,
        244,
        None,
        ("jct",),
    ),
    Reference(
        "A",
        "max_min_fairness_space_sharing",
        "max_min_fairness_packed",
        3.91,
        17.69,
        248,
        None,
        ("jct",),
    ),
    Reference("A", "water_filling", "water_filling_perf", 3.99, 17.94, 239, None, ("jct",)),
    Reference(
        "A",
        "finish_time_fairness_agnostic",
        "finish_time_fairness",
        5.44,
        20.98,
        255,
        None,
        ("jct",),
    ),
    Reference(
        "A", "finish_time_fairness", "finish_time_fairness_perf", 4.17, 18.05, 237, None, ("jct",)
    ),
    Reference(
        "A", "makespan_agnostic", "min_total_duration", 5.86, 20.93, None, None, ("makespan",)
    ),
    Reference("A", "makespan", "min_total_duration_perf", 6.38, 17.09, None, None, ("makespan",)),
    Reference(
        "A", "max_total_throughput", "max_sum_throughput_perf", 4.74, 17.76, 241, None, ("jct",)
    ),
    Reference(
        "A", "throughput_per_usd", "throughput per cost, perf", 4.43, 17.97, 235, None, ("cost",)
    ),
    Reference("A", "random_packing", "gandiva", 4.83, 18.72, 281, None, ("jct",)),
    Reference("A", "fifo", "fifo_perf", 5.42, 20.09, 245, None, ("jct",)),
    Reference("A", "isolated", "isolated", 5.52, 21.71, 255, None, ("jct",)),
    Reference("B", "makespan", "min_total_duration_perf", None, 17.98, None, None, ("makespan",)),
    Reference(
        "B", "makespan_agnostic", "min_total_duration", None, 21.29, None, None, ("makespan",)
    ),
    Reference(
        "B", "max_min_fairness", "max_min_fairness_perf", None, 19.03, None, None, ("makespan",)
    ),
    Reference("B", "fifo", "fifo_perf", None, 25.19, None, None, ("makespan",)),
    Reference("B", "random_packing", "gandiva", None, 21.11, None, None, ("makespan",)),
    Reference("C", "shortest_remaining", "allox", 17.79, None, 1912, 34, ("jct",)),
    Reference("C", "allox", "allox", 17.79, None, 1912, 34, ("jct",)),
    Reference("C", "max_min_fairness", "max_min_fairness_perf", 18.95, None, 1838, 82, ("jct",)),
    Reference(
        "C", "max_min_fairness_agnostic", "max_min_fairness", 25.03, None, 1779, 92, ("jct",)
    ),
    Reference(
        "C", "finish_time_fairness", "finish_time_fairness_perf", 20.02, None, None, 85, ("jct",)
    ),
    Reference(
        "C", "throughput_per_usd", "throughput per cost, perf", 19.51, None, 1842, 61, ("cost",)
    ),
    Reference(
        "C",
        "throughput_per_usd_deadlines",
        "... with deadlines",
        19.46,
        None,
        1837,
        61,
        ("cost", "late"),
    ),
    Reference(
        "C", "least_cost_deadlines", "... with deadlines", 19.46, None, 1837, 61, ("cost", "late")
    ),
    Reference("C", "fifo", "fifo_perf", 21.49, None, 1764, 76, ("jct",)),
    Reference("C", "isolated", "isolated", 25.04, None, 1780, 92, ("jct",)),
    Reference(
        "D",
        "max_min_fairness",
        "max_min_fairness_perf, immediate",
        12.20,
        None,
        8579,
        None,
        ("jct",),
    ),
    Reference(
        "D", "max_min_fairness_agnostic", "max_min_fairness", 18.31, None, 10267, None, ("jct",)
    ),
    Reference("D", "shortest_remaining", "allox", 12.40, None, 8604, None, ("jct",)),
    Reference("D", "allox", "allox", 12.40, None, 8604, None, ("jct",)),
    Reference("D", "fifo", "fifo_perf", 12.28, None, 8318, None, ("jct",)),
    Reference("D", "isolated", "isolated", 18.31, None, 10268, None, ("jct",)),
)
