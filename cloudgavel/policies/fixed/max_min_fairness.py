"""Max-min fairness: the heterogeneity-aware form of least attained service."""

import numpy as np

from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.share_policy import LinearSharePolicy, per_rate
from cloudgavel.policies.fixed.share_program import Goal, goal
from cloudgavel.policies.problem import FloatArray


class MaxMinFairness(LinearSharePolicy):
    """Maximise the least normalised throughput.

    ``max_X min_j k_j thr_j(X) / (w_j n_j)``, n_j = ``sum_r T_jr N_r / sum_r N_r``. What the level
    leaves over goes to where it adds most normalised throughput. A value of 1 is an accelerator of
    the cluster's type mix all of the time.
    """

    name = "max_min_fairness"
    summary = "the least-served job gets as much as can be"
    source = "Narayanan et al., OSDI 2020, section 4.1"
    unit = "normalised throughput of the least-served job"
    work_conserving = True

    def goal(self, cluster: Cluster) -> Goal:
        """Demand ``w_j n_j / k_j`` per unit of level."""
        return goal(
            cluster.able.size, demand=np.where(cluster.able, cluster.weight * cluster.equal_rate, 0)
        )

    def value(self, cluster: Cluster, throughput: FloatArray) -> float:
        """Least normalised throughput of the able jobs."""
        weight = np.where(cluster.able, cluster.weight, 1.0)
        normalised = throughput * per_rate(1 / weight, cluster.equal_rate, cluster)
        return float(normalised[cluster.able].min())
