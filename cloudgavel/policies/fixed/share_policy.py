"""What the policies over shares have in common: twins, space sharing, statuses, prices."""

from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np

from cloudgavel.policies.allocation import Allocation, AllocationStatus, LimitPrice
from cloudgavel.policies.fixed.answer import (
    allocation_of,
    isolated_fallback,
    nothing,
    prices_of_limits,
)
from cloudgavel.policies.fixed.cluster import Cluster, cluster_of
from cloudgavel.policies.fixed.share_program import Goal, Shares, goal, refill, solve_shares
from cloudgavel.policies.fixed.two_stage import solve_level_then_gain
from cloudgavel.policies.problem import AllocationProblem, FloatArray
from cloudgavel.policies.sharing import ClassRows

BINDING_SHARE = 1e-5
"""A group's part of the level's price, relative to an even part, above which it binds."""
KEPT_SHARE = 1 - 1e-9
"""Of a level reached, what a second stage must keep."""


class SharePolicy(ABC):
    """A policy that answers with shares of time.

    ``agnostic``: decide as if every type gave a job the same rate (the heterogeneity-agnostic
    twin, for comparison; of its many optima the one that treats types alike); the objective
    reported is that of the true rates. ``space_sharing``: use the problem's ``sharing`` table, if
    it has one.
    """

    name: str
    summary: str
    source: str
    unit: str = ""
    plans_for: str = "fixed cluster"
    with_steps: bool = False
    """Whether the formula needs finite steps."""

    def __init__(self, *, agnostic: bool = False, space_sharing: bool = False) -> None:
        self.agnostic = agnostic
        self.space_sharing = space_sharing
        if agnostic:
            self.name += "_agnostic"
            self.summary += ", blind to accelerator types"
        if space_sharing:
            self.name += "_space_sharing"
            self.summary += ", pairs of jobs on the same accelerators"

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return the shares of ``problem``; total: every valid problem gets a status."""
        cluster = cluster_of(problem, with_steps=self.with_steps)
        if not any(job.steps_left > 0 for job in problem.jobs):
            return nothing(cluster, AllocationStatus.EMPTY, "no work is left", self.unit)
        if not cluster.able.any():
            return nothing(cluster, AllocationStatus.EMPTY, "no job has a usable pool", self.unit)
        return self.decide(cluster.without_types() if self.agnostic else cluster, cluster)

    @abstractmethod
    def decide(self, seen: Cluster, cluster: Cluster) -> Allocation:
        """Allocate by the rates of ``seen``; judge by those of ``cluster``."""

    def true_throughput(self, cluster: Cluster, shares: Shares) -> FloatArray:
        """(m,) steps/s of the shares at the rates of ``cluster``."""
        columns = shares.columns
        return throughput_of(
            cluster,
            ClassRows(
                class_of_job=shares.groups.group_of_job,
                first=columns.first,
                second=columns.second,
                pool=columns.pool,
                amount=shares.amounts,
            ),
        )


class LinearSharePolicy(SharePolicy):
    """A policy that is one linear program: a goal, and the value its answer is judged by."""

    larger_is_better: bool = True
    work_conserving: bool = False
    """After the level is reached, give what is left to where it adds most."""

    @abstractmethod
    def goal(self, cluster: Cluster) -> Goal:
        """State what is maximised, in true units."""

    @abstractmethod
    def value(self, cluster: Cluster, throughput: FloatArray) -> float:
        """Judge throughputs (m,) by the objective."""

    def value_per_dual(self, value: float) -> float:
        """Factor from the program's objective to ``value`` for small changes."""
        return 1.0

    def solve(self, cluster: Cluster) -> Shares:
        """Solve, and fill what is left if the policy is work conserving."""
        wanted = replace(self.goal(cluster), centred=self.agnostic)
        gain = per_rate(cluster.weight, cluster.equal_rate, cluster)
        if self.work_conserving and not (self.agnostic or self.space_sharing):
            both = solve_level_then_gain(
                cluster,
                wanted,
                gain,
                kept_share=KEPT_SHARE,
                is_enough=lambda found: _all_bind(found, wanted),
            )
            if both is not None:
                return _with_duals_of(*both)
        shares = solve_shares(cluster, wanted, space_sharing=self.space_sharing)
        if not (self.work_conserving and shares.is_usable) or _all_bind(shares, wanted):
            return shares
        kept = goal(
            cluster.able.size,
            floor=wanted.demand * max(shares.level, 0.0) * KEPT_SHARE,
            gain=gain,
        )
        filled = refill(cluster, shares, replace(kept, centred=self.agnostic))
        return _with_duals_of(shares, filled if filled.is_usable else None)

    def decide(self, seen: Cluster, cluster: Cluster) -> Allocation:
        """Solve the goal and wrap the answer."""
        shares = self.solve(seen)
        if not shares.is_usable:
            return isolated_fallback(cluster, shares.status, shares.message, self.unit)
        value = self.value(cluster, self.true_throughput(cluster, shares))
        prices = () if self.agnostic else self.prices(cluster, shares, value)
        return allocation_of(
            cluster,
            shares,
            value=value if np.isfinite(value) else None,
            unit=self.unit,
            limit_prices=prices,
        )

    def prices(
        self, cluster: Cluster, shares: Shares, value: float | None = None
    ) -> tuple[LimitPrice, ...]:
        """Price the limits that bind a solved goal, in the policy's unit."""
        if not shares.is_usable or shares.limit_duals is None:
            return ()
        if value is None:
            value = self.value(cluster, self.true_throughput(cluster, shares))
        if not np.isfinite(value):
            return ()
        return prices_of_limits(
            cluster,
            shares.limit_duals * self.value_per_dual(value),
            value,
            self._value_with,
            larger_is_better=self.larger_is_better,
        )

    def _value_with(self, cluster: Cluster) -> float | None:
        shares = solve_shares(cluster, self.goal(cluster), space_sharing=self.space_sharing)
        return self.value(cluster, shares.throughput()) if shares.is_usable else None


def _with_duals_of(first: Shares, second: Shares | None) -> Shares:
    """Return the second stage's shares with what the first one says about limits."""
    if second is None:
        return first
    return replace(second, level_duals=first.level_duals, limit_duals=first.limit_duals)


def _all_bind(shares: Shares, wanted: Goal) -> bool:
    """Whether every group's demand has a price: then nobody can get more than the level."""
    if shares.level_duals is None:
        return False
    worth = shares.level_duals * wanted.demand[shares.groups.example] * shares.groups.members
    return bool((worth * worth.size > BINDING_SHARE).all())


def per_rate(weight: FloatArray, rate: FloatArray, cluster: Cluster) -> FloatArray:
    """(m,) ``weight / rate`` where the job is able, else 0."""
    out = np.zeros(weight.size)
    np.divide(weight, rate, out=out, where=cluster.able & (rate > 0))
    return out


def throughput_of(cluster: Cluster, rows: ClassRows) -> FloatArray:
    """(m,) steps/s of class rows at the rates of a cluster, job by job.

    Members of a class have their own rates here (they may differ where a type-blind policy did
    not see it); each gets an equal part of the class's amounts.
    """
    count, pools = cluster.rate.shape
    class_count = int(rows.class_of_job.max(initial=-1)) + 1
    members = np.bincount(rows.class_of_job[rows.class_of_job >= 0], minlength=max(class_count, 1))
    able = np.flatnonzero(rows.class_of_job >= 0)
    kind_of_class = np.full(max(class_count, 1), -1, dtype=np.int64)
    sharing = cluster.problem.sharing
    if sharing is not None:
        kind_of_class[rows.class_of_job[able]] = sharing.kind_of_job[able]
    effective = np.zeros((max(class_count, 1), pools))
    alone = rows.second < 0
    np.add.at(effective, (rows.first[alone], rows.pool[alone]), rows.amount[alone])
    at = np.flatnonzero(~alone)
    if at.size and sharing is not None:
        one, other = rows.first[at], rows.second[at]
        kept = sharing.retained_share
        a, b, pool = kind_of_class[one], kind_of_class[other], rows.pool[at]
        np.add.at(effective, (one, pool), rows.amount[at] * kept[a, b, pool])
        np.add.at(effective, (other, pool), rows.amount[at] * kept[b, a, pool])
    effective /= np.maximum(members, 1)[:, None]
    throughput = np.zeros(count)
    mine = effective[rows.class_of_job[able]]
    throughput[able] = (mine * cluster.rate[able]).sum(axis=1)
    return throughput
