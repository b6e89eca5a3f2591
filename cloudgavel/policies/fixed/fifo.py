"""First in, first out, each job where it is fastest among what earlier ones leave."""

import numpy as np

from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.ranked import RankedPolicy, falling_by
from cloudgavel.policies.problem import FloatArray


class Fifo(RankedPolicy):
    """Maximise ``sum_j k_j thr_j(X) / thr_j(best) (m - rank_j)``, rank by arrival.

    Arrival: the longest ``elapsed_s`` first, then the order of the rows.
    """

    name = "fifo"
    summary = "earlier jobs first, each where it is fastest"
    source = "Narayanan et al., OSDI 2020, section 4.2"

    def coefficient(self, cluster: Cluster) -> FloatArray:
        """``m - rank_j``."""
        elapsed = np.array([job.elapsed_s for job in cluster.problem.jobs], dtype=np.float64)
        return falling_by(-np.nan_to_num(elapsed), cluster)
