"""Least attained service with discrete queues: what Tiresias does, blind to types."""

from collections.abc import Sequence

import numpy as np

from cloudgavel.policies.allocation import Allocation, AllocationStatus
from cloudgavel.policies.fixed.answer import without_a_pool
from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.share_policy import SharePolicy


class LasQueues(SharePolicy):
    """Jobs fall to lower queues as they attain service; queues and arrivals decide who runs.

    Attained service in accelerator-seconds comes from ``problem.extra["attained_service"]`` (m,),
    or is ``elapsed_s`` times the gang. A job is in queue q once it has passed ``thresholds[q-1]``;
    within a queue the longest ``elapsed_s`` is first. Whole jobs are placed in that order, on the
    pool they hold if it has room, else on the usable pool with most accelerators left: the rates
    are not looked at.
    """

    name = "las_queues"
    summary = "baseline: least attained service first, in discrete queues, blind to types"
    source = "Gu et al., Tiresias, NSDI 2019 (discretised two-dimensional LAS)"
    unit = "jobs running"

    def __init__(
        self,
        *,
        thresholds: Sequence[float] = (3_600.0 * 2, 3_600.0 * 20),
        agnostic: bool = False,
        space_sharing: bool = False,
    ) -> None:
        super().__init__(agnostic=agnostic, space_sharing=space_sharing)
        self.thresholds = tuple(thresholds)

    def decide(self, seen: Cluster, cluster: Cluster) -> Allocation:
        """Place whole jobs in queue order."""
        jobs = seen.problem.jobs
        elapsed = np.array([job.elapsed_s for job in jobs], dtype=np.float64)
        elapsed = np.where(np.isfinite(elapsed), np.maximum(elapsed, 0.0), 0.0)
        given = seen.problem.extra.get("attained_service")
        attained = elapsed * seen.smallest_gang if given is None else np.asarray(given)
        queue = np.searchsorted(np.array(self.thresholds), np.nan_to_num(attained), side="right")
        shares = np.zeros(seen.rate.shape)
        left = seen.limit_sizes.copy()
        matrix = seen.limit_matrix
        for row in np.lexsort((np.arange(len(jobs)), -elapsed, queue)):
            if not seen.able[row]:
                continue
            pools = np.flatnonzero(seen.usable[row])
            room = [float(left[matrix[:, pool] > 0].min(initial=np.inf)) for pool in pools]
            held = np.array([0 if pool == jobs[row].held_pool else 1 for pool in pools])
            for at in np.lexsort((pools, -np.array(room), seen.gang[pools], held)):
                pool = pools[at]
                if (matrix[:, pool] <= left + 1e-9).all():
                    left -= matrix[:, pool]
                    shares[row, pool] = 1.0
                    break
        gone = without_a_pool(cluster)
        return Allocation(
            status=AllocationStatus.RELAXED if gone else AllocationStatus.OPTIMAL,
            shares=shares,
            objective_value=float(shares.sum()),
            objective_unit=self.unit,
            relaxed=gone,
        )
