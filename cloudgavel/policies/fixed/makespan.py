"""Minimum makespan: all jobs done as early as can be."""

import numpy as np

from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.share_policy import LinearSharePolicy
from cloudgavel.policies.fixed.share_program import Goal, goal
from cloudgavel.policies.problem import FloatArray


class Makespan(LinearSharePolicy):
    """Minimise ``max_j S_j / thr_j(X)``: one linear program in ``z = 1 / makespan``.

    ``max z`` subject to ``thr_j(X) >= S_j z``. Jobs without a finite number of steps are left out
    and named. What the makespan leaves over goes to where it adds most normalised throughput.
    """

    name = "makespan"
    summary = "the last job ends as early as can be"
    source = "Narayanan et al., OSDI 2020, section 4.2; one LP in 1/makespan instead of bisection"
    unit = "s"
    with_steps = True
    larger_is_better = False
    work_conserving = True

    def goal(self, cluster: Cluster) -> Goal:
        """Demand S_j per unit of level."""
        return goal(cluster.able.size, demand=np.where(cluster.able, cluster.steps, 0.0))

    def value(self, cluster: Cluster, throughput: FloatArray) -> float:
        """Seconds until the last able job ends; infinite if one gets nothing."""
        rate = throughput[cluster.able]
        if not (rate > 0).all():
            return float("inf")
        return float((cluster.steps[cluster.able] / rate).max())

    def value_per_dual(self, value: float) -> float:
        """A change of 1/makespan is one of makespan times its square."""
        return value * value
