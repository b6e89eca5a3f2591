"""Most total throughput, each job measured against its own best."""

import numpy as np

from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.ranked import RankedPolicy
from cloudgavel.policies.problem import FloatArray


class MaxTotalThroughput(RankedPolicy):
    """Maximise ``sum_j w_j k_j thr_j(X) / thr_j(best)``.

    Says nothing about fairness: jobs may get nothing.
    """

    name = "max_total_throughput"
    summary = "as much normalised throughput in total as can be; may starve jobs"
    source = "Narayanan et al., OSDI 2020, section 4.2 (max sum throughput), normalised"
    unit = "accelerators at their best rate"

    def coefficient(self, cluster: Cluster) -> FloatArray:
        """w_j."""
        return np.where(cluster.able, cluster.weight, 0.0)
