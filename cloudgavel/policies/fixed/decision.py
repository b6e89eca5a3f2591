"""What terms and constraints are written over: shares as cvxpy expressions, in named units."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sparse

from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.columns import Columns
from cloudgavel.policies.fixed.share_policy import per_rate
from cloudgavel.policies.fixed.share_program import Groups
from cloudgavel.policies.problem import FloatArray

if TYPE_CHECKING:
    import cvxpy


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The unknown shares of n able jobs; every vector has one entry per able job, in row order."""

    cluster: Cluster
    groups: Groups
    """One job each."""
    columns: Columns
    """True rates: every able job alone in every usable pool, and pairs if they may share."""
    amounts: cvxpy.Variable
    """(C,) share of time of each combination, non-negative."""

    @property
    def rows(self) -> Any:
        """(n,) row in the problem of each able job."""
        return self.groups.example

    def per_job(self, values: FloatArray) -> FloatArray:
        """(n,) of (m,): the able jobs' part of an array over all jobs."""
        mine: FloatArray = np.asarray(values, dtype=np.float64)[self.rows]
        return mine

    @cached_property
    def throughput(self) -> Any:
        """(n,) steps/s, thr_j(X)."""
        return self.weighted_throughput(np.ones(self.cluster.able.size))

    @cached_property
    def normalised(self) -> Any:
        """(n,) ``k_j thr_j / (w_j n_j)``."""
        weight = np.where(self.cluster.able, self.cluster.weight, 1.0)
        factor = per_rate(1 / weight, self.cluster.equal_rate, self.cluster)
        return self.weighted_throughput(factor)

    def weighted_throughput(self, factor: FloatArray) -> Any:
        """(n,) ``factor_j thr_j`` with the factors (m,) inside the matrix: well scaled."""
        columns, at = self.columns, self.columns.paired
        mine = self.per_job(factor)
        matrix = sparse.csr_matrix(
            (
                np.concatenate(
                    [
                        columns.rate_first * mine[columns.first],
                        columns.rate_second[at] * mine[columns.second[at]],
                    ]
                ),
                (
                    np.concatenate([columns.first, columns.second[at]]),
                    np.concatenate([np.arange(columns.count), at]),
                ),
            ),
            shape=(self.groups.count, columns.count),
        )
        return matrix @ self.amounts

    @cached_property
    def time(self) -> Any:
        """(n,) share of time in which a job runs at all, at most 1."""
        return self._time_matrix @ self.amounts

    @cached_property
    def _time_matrix(self) -> sparse.csr_matrix:
        columns, at = self.columns, self.columns.paired
        return sparse.csr_matrix(
            (
                np.ones(columns.count + at.size),
                (
                    np.concatenate([columns.first, columns.second[at]]),
                    np.concatenate([np.arange(columns.count), at]),
                ),
            ),
            shape=(self.groups.count, columns.count),
        )

    @cached_property
    def usd_per_hour(self) -> Any:
        """Scalar: what all shares cost; pools whose price is unknown count nothing here."""
        pools = self.cluster.problem.pools
        price = np.array([pool.price_usd_per_hour * pool.instances_per_job for pool in pools])
        return np.nan_to_num(price)[self.columns.pool] @ self.amounts

    def use(self, coefficients: FloatArray) -> Any:
        """Scalar: ``sum coefficient_r X_cr`` over pools (R,)."""
        return coefficients[self.columns.pool] @ self.amounts

    @cached_property
    def away(self) -> Any:
        """Scalar: share of time that running jobs spend away from the pool they hold."""
        held = np.full(self.groups.count, -1, dtype=np.int64)
        for number, row in enumerate(self.groups.example):
            pool = self.cluster.problem.jobs[row].held_pool
            held[number] = -1 if pool is None else pool
        columns = self.columns
        moved = (held[columns.first] >= 0) & (held[columns.first] != columns.pool)
        return moved.astype(np.float64) @ self.amounts
