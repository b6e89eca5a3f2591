"""Goals that rank jobs: first come first served, shortest remaining work, total throughput."""

import numpy as np

from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.share_policy import LinearSharePolicy, per_rate
from cloudgavel.policies.fixed.share_program import Goal, goal
from cloudgavel.policies.problem import FloatArray


class RankedPolicy(LinearSharePolicy):
    """Maximise ``sum_j c_j k_j thr_j(X) / thr_j(best)``; c_j comes from the policy.

    k_j is the smallest gang of the job, so that a gang is worth as much as its accelerators would
    be to single jobs. Every able job is allocated within the limits: nothing is over-committed.
    """

    unit = "ranked accelerators at their best rate"

    def coefficient(self, cluster: Cluster) -> FloatArray:
        """(m,) c_j; only able jobs count."""
        raise NotImplementedError

    def goal(self, cluster: Cluster) -> Goal:
        """Gain ``c_j k_j / thr_j(best)`` per step/s."""
        return goal(cluster.able.size, gain=self._gain(cluster))

    def value(self, cluster: Cluster, throughput: FloatArray) -> float:
        """Sum over the able jobs."""
        return float(self._gain(cluster) @ throughput)

    def _gain(self, cluster: Cluster) -> FloatArray:
        worth = np.where(cluster.able, self.coefficient(cluster) * cluster.smallest_gang, 0.0)
        return per_rate(worth, cluster.best_rate, cluster)


def falling_by(key: FloatArray, cluster: Cluster, *, then: FloatArray | None = None) -> FloatArray:
    """(m,) m for the able job with the smallest key, m - 1 for the next, ..., 0 if not able.

    Equal keys are ordered by ``then``, and at last by position.
    """
    able = np.flatnonzero(cluster.able)
    second = np.zeros(able.size) if then is None else then[able]
    ranked = able[np.lexsort((second, key[able]))]
    falling = np.zeros(cluster.able.size)
    falling[ranked] = able.size - np.arange(able.size)
    return falling
