"""Constraints of composed policies. Job time, accelerators, quotas and spend rate always hold.

A constraint may restrict the cluster before anything is stated (``restrict``), so that deadlines
are judged against what is really there, and add rows over the shares (``rows``). One's own is a
class with these two methods, or ``constraint`` around a function of a ``Decision``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sparse

from cloudgavel.policies.allocation import RelaxedPromise
from cloudgavel.policies.fixed.cluster import Cluster, Limit
from cloudgavel.policies.fixed.decision import Decision
from cloudgavel.policies.fixed.promises import keep_promises
from cloudgavel.policies.problem import FloatArray


class Constraint(Protocol):
    """What ``subject_to`` takes."""

    @property
    def formula(self) -> str:
        """One line for messages."""
        ...

    def restrict(self, cluster: Cluster) -> Cluster:
        """Return the cluster with what may not be used taken away."""
        ...

    def rows(self, decision: Decision) -> Rows:
        """Return the rows to add, and the promises that cannot be kept."""
        ...


@dataclass(frozen=True, kw_only=True)
class Rows:
    """cvxpy constraints, and what had to be released to state them."""

    constraints: tuple[Any, ...] = ()
    relaxed: Callable[[FloatArray], tuple[RelaxedPromise, ...]] = lambda throughput: ()
    """From throughputs (m,) to the promises released."""


@dataclass(frozen=True, kw_only=True)
class _Limited:
    formula: str
    change: Callable[[Cluster], Cluster]

    def restrict(self, cluster: Cluster) -> Cluster:
        return self.change(cluster)

    def rows(self, decision: Decision) -> Rows:
        return Rows()


@dataclass(frozen=True, kw_only=True)
class _Stated:
    formula: str
    state: Callable[[Decision], Any]

    def restrict(self, cluster: Cluster) -> Cluster:
        return cluster

    def rows(self, decision: Decision) -> Rows:
        found = self.state(decision)
        return Rows(constraints=tuple(found) if isinstance(found, list | tuple) else (found,))


def constraint(formula: str) -> Callable[[Callable[[Decision], Any]], Constraint]:
    """Make a constraint of a function that returns cvxpy constraints (a decorator)."""
    return lambda function: _Stated(formula=formula, state=function)


def spends_at_most(*, usd_per_hour: float) -> Constraint:
    """``sum p_r (k_r / g_r) X_jr <= usd_per_hour``; pools of unknown price are not used."""

    def change(cluster: Cluster) -> Cluster:
        price = _price(cluster)
        known = cluster.without_pools(~np.isfinite(price))
        limit = Limit(
            name="spends_at_most",
            unit="USD/h",
            coefficients=np.nan_to_num(price),
            size=max(usd_per_hour, 0.0),
        )
        return replace(known, limits=(*known.limits, limit))

    return _Limited(formula=f"at most {usd_per_hour:g} USD/h", change=change)


def stays_within_budget(*, over_s: float, usd: float | None = None) -> Constraint:
    """Spend at most ``usd`` (default: the problem's ``budget_left_usd``) evenly over ``over_s``."""

    def change(cluster: Cluster) -> Cluster:
        left = cluster.problem.budget_left_usd if usd is None else usd
        if left is None:
            return cluster
        left = max(left - cluster.problem.standing_usd, 0.0)
        return spends_at_most(usd_per_hour=left / (over_s / 3600.0)).restrict(cluster)

    return _Limited(formula=f"the budget lasts {over_s / 3600.0:g} h", change=change)


def pays_for_all_work(*, usd: float | None = None) -> Constraint:
    """Finish all jobs for ``usd`` in total (default: the problem's ``budget_left_usd``).

    The money is divided in proportion to what each job costs at the least, b_j, so that it is
    linear: ``sum_r p_r (k_r / g_r) X_jr <= b_j / S_j thr_j``. Less than the least is not asked for:
    each job is then on its cheapest pool.
    """

    def state(d: Decision) -> Any:
        left = d.cluster.problem.budget_left_usd if usd is None else usd
        if left is None:
            return ()
        left = max(left - d.cluster.problem.standing_usd, 0.0)
        price, rate = np.nan_to_num(_price(d.cluster)), d.cluster.rate
        per_step = np.full(rate.shape, np.inf)
        np.divide(price[None, :] / 3600.0, rate, out=per_step, where=rate > 0)
        least = np.where(d.cluster.able, per_step.min(axis=1, initial=np.inf), 0.0)
        least_usd = float((least * np.where(d.cluster.able, d.cluster.steps, 0.0)).sum())
        if not 0 < least_usd < np.inf:
            return ()
        allowed = d.per_job(least) * max(left / least_usd, 1.0) * (1 + 1e-9)
        columns = d.columns
        over = price[columns.pool] - 3600.0 * allowed[columns.first] * columns.rate_first
        matrix = sparse.csr_matrix(
            (over, (columns.first, np.arange(columns.count))),
            shape=(d.groups.count, columns.count),
        )
        return matrix @ d.amounts <= 0

    return _Stated(formula="the budget pays for all work", state=state)


def fits_quota(name: str, *, coefficients: dict[str, float], limit: float) -> Constraint:
    """``sum_r a_r instances_r <= limit``, a_r by accelerator (0 where not named)."""

    def change(cluster: Cluster) -> Cluster:
        each = np.array(
            [
                coefficients.get(pool.accelerator, 0.0) * pool.instances_per_job
                for pool in cluster.problem.pools
            ]
        )
        added = Limit(name=f"quota {name}", unit="unit of quota", coefficients=each, size=limit)
        return replace(cluster, limits=(*cluster.limits, added))

    return _Limited(formula=f"quota {name} of {limit:g}", change=change)


def only_on(*accelerators: str) -> Constraint:
    """Use no pool of another accelerator."""

    def change(cluster: Cluster) -> Cluster:
        other = [pool.accelerator not in accelerators for pool in cluster.problem.pools]
        return cluster.without_pools(np.array(other, dtype=bool))

    return _Limited(formula=f"only on {', '.join(accelerators)}", change=change)


def at_least_isolated(share: float = 1.0) -> Constraint:
    """``thr_j >= share`` x what 1/n of every limit would give the job."""

    def state(d: Decision) -> Any:
        alone = (d.cluster.isolated_shares() * d.cluster.rate).sum(axis=1)
        factor = np.zeros(alone.size)
        np.divide(1.0, alone, out=factor, where=alone > 0)
        return d.weighted_throughput(factor) >= share * (1 - 1e-7)

    return _Stated(formula=f"thr_j >= {share:g} isolated_j", state=state)


@dataclass(frozen=True, kw_only=True)
class _Deadlines:
    formula: str
    margin: float

    def restrict(self, cluster: Cluster) -> Cluster:
        return cluster

    def rows(self, decision: Decision) -> Rows:
        cluster = decision.cluster
        jobs = tuple(
            job
            if job.deadline_s is None or job.deadline_s <= 0
            else replace(job, deadline_s=job.deadline_s * (1 - self.margin))
            for job in cluster.problem.jobs
        )
        earlier = replace(cluster, problem=replace(cluster.problem, jobs=jobs))
        promises = keep_promises(
            earlier,
            np.zeros(cluster.able.size),
            space_sharing=bool(decision.columns.paired.size),
        )
        floor = promises.floor
        scale = np.where(floor > 0, floor, 1.0)
        needed = decision.per_job(np.where(floor > 0, 1 - 1e-7, 0.0))
        return Rows(
            constraints=(decision.weighted_throughput(1 / scale) >= needed,),
            relaxed=lambda throughput: promises.relaxed(cluster, throughput),
        )


def meets_deadlines(*, margin: float = 0.0) -> Constraint:
    """``thr_j >= S_j / (D_j (1 - margin))``.

    Deadlines that do not fit what the other constraints on the cluster leave are released by
    weight, named with their lateness, and then missed by as little as can be (``keep_promises``).
    """
    return _Deadlines(formula=f"deadlines with {margin:.0%} to spare", margin=margin)


def _price(cluster: Cluster) -> FloatArray:
    pools = cluster.problem.pools
    return np.array(
        [pool.price_usd_per_hour * pool.instances_per_job for pool in pools], dtype=np.float64
    )
