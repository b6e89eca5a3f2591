"""The highest load that a cluster bears: above it queues grow without end, whatever the order."""

import numpy as np
from scipy.optimize import linprog

from cloudgavel.mechanism.fixed_cluster.cluster import fixed_cluster
from cloudgavel.simulator.clusters import parse_cluster
from cloudgavel.simulator.generate import GANGS, LONG_LOG_MINUTES, SHORT_LOG_MINUTES, SHORT_SHARE
from cloudgavel.simulator.throughputs import ThroughputTable


def mean_duration_s() -> float:
    """Of the published law, on the reference accelerator."""
    found = 0.0
    for part, (low, high) in (
        (SHORT_SHARE, SHORT_LOG_MINUTES),
        (1 - SHORT_SHARE, LONG_LOG_MINUTES),
    ):
        found += part * (10.0**high - 10.0**low) / (np.log(10.0) * (high - low))
    return 60.0 * found


def sustained_jobs_per_hour(
    table: ThroughputTable, cluster: str, *, several: bool, aware: bool
) -> float:
    """Jobs/h of the generator at which all accelerators are just busy.

    ``aware``: every kind's time is on the types that make the most of the cluster (a linear
    program); else in proportion to their numbers, as a policy that does not know them spreads it.
    """
    reference = table.alone["v100", False]
    gangs = [(size, part) for size, part in GANGS if several or size == 1]
    kinds = []
    for size, part in gangs:
        own = sorted(kind for kind, rate in reference.items() if kind[1] == size and rate > 0)
        kinds += [(kind, part / len(own)) for kind in own]
    total = sum(part for _, part in kinds)
    types = fixed_cluster(parse_cluster(cluster), tuple(size for size, _ in gangs))
    counts = np.array([kind.count for kind in types.types], dtype=np.float64)
    rate = np.array(
        [[table.rate(kind, each.accelerator) or 0.0 for each in types.types] for kind, _ in kinds]
    )
    steps_per_job = np.array([reference[kind] * mean_duration_s() for kind, _ in kinds])
    part = np.array([each for _, each in kinds]) / total
    gang = np.array([kind[1] for kind, _ in kinds], dtype=np.float64)
    if not aware:
        busy_s = gang * part * steps_per_job / (rate @ (counts / counts.sum()))
        return 3600.0 * float(counts.sum() / busy_s.sum())
    count, width = rate.shape
    # Variables: accelerators of each type that each kind has on average, and jobs/s.
    work = np.zeros((count, count * width + 1))
    for row in range(count):
        work[row, row * width : (row + 1) * width] = rate[row] / gang[row]
        work[row, -1] = -part[row] * steps_per_job[row]
    room = np.hstack([np.tile(np.eye(width), count), np.zeros((width, 1))])
    cost = np.zeros(count * width + 1)
    cost[-1] = -1.0
    answer = linprog(cost, A_ub=room, b_ub=counts, A_eq=work, b_eq=np.zeros(count))
    return 3600.0 * float(answer.x[-1])
