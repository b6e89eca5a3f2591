"""Least mean completion time: the job with the least work left first."""

import numpy as np

from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.ranked import RankedPolicy, falling_by
from cloudgavel.policies.problem import FloatArray


class ShortestRemaining(RankedPolicy):
    """Maximise ``sum_j k_j thr_j(X) / thr_j(best) (m - rank_j)``, rank by S_j / thr_j(best).

    The policy to choose when the mean completion time matters. Of jobs that need as long, the one
    with the smaller gang is first.
    """

    name = "shortest_remaining"
    summary = "least mean completion time: jobs with the least work left first"
    source = "Narayanan et al., OSDI 2020, section 4.2 (shortest job first), by remaining work"
    with_steps = True

    def coefficient(self, cluster: Cluster) -> FloatArray:
        """``m - rank_j``."""
        left_s = np.full(cluster.able.size, np.inf)
        np.divide(cluster.steps, cluster.best_rate, out=left_s, where=cluster.able)
        return falling_by(left_s, cluster, then=cluster.smallest_gang)
