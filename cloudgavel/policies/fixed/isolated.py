"""The isolated share: what a job would have with 1/n of the cluster to itself."""

import numpy as np

from cloudgavel.policies.allocation import Allocation, AllocationStatus
from cloudgavel.policies.fixed.answer import without_a_pool
from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.share_policy import SharePolicy, per_rate


class Isolated(SharePolicy):
    """Every job gets ``min(1, N_r / (n k_r))`` of each type; a row adds to at most 1."""

    name = "isolated"
    summary = "baseline: 1/n of every type for each job"
    source = "Narayanan et al., OSDI 2020, section 4.1 (X_isolated)"
    unit = "normalised throughput of the least-served job"

    def decide(self, seen: Cluster, cluster: Cluster) -> Allocation:
        """Return the shares; nothing is optimised."""
        shares = seen.isolated_shares()
        throughput = (shares * cluster.rate).sum(axis=1)
        weight = np.where(cluster.able, cluster.weight, 1.0)
        normalised = throughput * per_rate(1 / weight, cluster.equal_rate, cluster)
        gone = without_a_pool(cluster)
        return Allocation(
            status=AllocationStatus.RELAXED if gone else AllocationStatus.OPTIMAL,
            shares=shares,
            objective_value=float(normalised[cluster.able].min()),
            objective_unit=self.unit,
            relaxed=gone,
        )
