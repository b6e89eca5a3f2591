"""Policies as sentences: ``maximise(terms, subject_to=[constraints])``.

::

    CheapAndFair = maximise(
        least_normalised_throughput() - 0.05 * usd_per_hour(),
        subject_to=[meets_deadlines(margin=0.1), at_least_isolated(0.5)],
        name="cheap_and_fair",
        summary="fair, and cheaper where it costs little fairness",
    )

Stated in cvxpy with every combination at hand, so it suits up to some hundreds of jobs; the
bundled policies state the same problems as matrices and are tested to agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cloudgavel.errors import UsageError
from cloudgavel.policies.allocation import (
    Allocation,
    AllocationStatus,
    LimitPrice,
    RelaxedPromise,
)
from cloudgavel.policies.base import BOTH_WORLDS
from cloudgavel.policies.fixed.answer import (
    allocation_of,
    isolated_fallback,
    nothing,
    prices_of_limits,
)
from cloudgavel.policies.fixed.cluster import Cluster, cluster_of
from cloudgavel.policies.fixed.columns import joined
from cloudgavel.policies.fixed.constraints import Constraint, Rows
from cloudgavel.policies.fixed.decision import Decision
from cloudgavel.policies.fixed.share_program import (
    Shares,
    goal,
    one_each,
    read_back,
    share_program,
)
from cloudgavel.policies.fixed.terms import Term
from cloudgavel.policies.problem import AllocationProblem, FloatArray
from cloudgavel.policies.solve import LinearAnswer, SolveStatus, solve_cvxpy

if TYPE_CHECKING:
    import cvxpy

PAIR_LIMIT = 50_000


@dataclass(frozen=True, kw_only=True)
class _Stated:
    """A policy written down for one cluster."""

    decision: Decision
    problem: cvxpy.Problem
    limits: dict[int, Any]
    """The row of each of the cluster's limits, by number."""
    added: tuple[Rows, ...]
    """What each constraint of the policy adds."""


class ComposedPolicy:
    """A policy made of terms and constraints; see ``maximise`` and ``minimise``.

    On a rented fleet the shares say where jobs run now and, by the throughput they give, when each
    is due (``Allocation.due_s``); the rounds rent what keeps that.
    """

    plans_for = BOTH_WORLDS
    spends_budget = True

    def __init__(
        self,
        objective: Term,
        *,
        larger_is_better: bool,
        subject_to: Sequence[Constraint] = (),
        name: str = "composed",
        summary: str = "",
        source: str = "",
        unit: str = "",
        space_sharing: bool = False,
    ) -> None:
        verb = "maximise" if larger_is_better else "minimise"
        rules = "; ".join(each.formula for each in subject_to)
        formula = f"{verb} {objective.formula}" + (f", subject to {rules}" if rules else "")
        self.objective = objective
        self.larger_is_better = larger_is_better
        self.subject_to = tuple(subject_to)
        self.name = name
        self.summary = summary or formula
        self.source = source or formula
        self.unit = unit or objective.formula
        self.space_sharing = space_sharing

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """State and solve.

        INFEASIBLE names the constraints that do not go together; deadlines are released instead
        (RELAXED). Raises ``UsageError`` if the terms do not make a convex problem: that is a
        mistake of the policy, not of the problem.
        """
        cluster = cluster_of(problem, with_steps=self.objective.needs_steps)
        for each in self.subject_to:
            cluster = each.restrict(cluster)
        if not cluster.able.any():
            return nothing(cluster, AllocationStatus.EMPTY, "no job has a usable pool", self.unit)
        stated = self._state(cluster)
        status = self._solve(stated)
        if status is SolveStatus.INFEASIBLE:
            rules = "; ".join(each.formula for each in self.subject_to) or "the limits"
            return nothing(
                cluster,
                AllocationStatus.INFEASIBLE,
                f"these cannot all hold: {rules}",
                self.unit,
            )
        if status not in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE):
            return isolated_fallback(cluster, status, "cvxpy", self.unit)
        shares = _shares(cluster, stated.decision)
        throughput = shares.throughput()
        relaxed: list[RelaxedPromise] = []
        for added in stated.added:
            relaxed.extend(added.relaxed(throughput))
        value = float(stated.problem.value)
        found = allocation_of(
            cluster,
            shares,
            value=value if np.isfinite(value) else None,
            unit=self.unit,
            relaxed=tuple(relaxed),
            limit_prices=self._prices(cluster, stated, value) if np.isfinite(value) else (),
        )
        if problem.cluster_accelerators is not None:
            return found
        return replace(found, due_s=_due_s(cluster, found.shares, throughput))

    def _state(self, cluster: Cluster) -> _Stated:
        import cvxpy

        decision = self._decision(cluster)
        limits = {
            number: decision.use(limit.coefficients) <= limit.size
            for number, limit in enumerate(cluster.limits)
            if limit.coefficients.any()
        }
        added = tuple(each.rows(decision) for each in self.subject_to)
        rows = [decision.time <= 1, *limits.values()]
        rows.extend(row for each in added for row in each.constraints)
        sense = cvxpy.Maximize if self.larger_is_better else cvxpy.Minimize
        problem = cvxpy.Problem(sense(self.objective.of(decision)), rows)
        return _Stated(decision=decision, problem=problem, limits=limits, added=added)

    def _solve(self, stated: _Stated) -> SolveStatus:
        from cvxpy.error import DCPError

        try:
            return solve_cvxpy(stated.problem)
        except DCPError as error:
            wanted = "concave" if self.larger_is_better else "convex"
            raise UsageError(
                f"the objective or a constraint of policy `{self.name}` is not {wanted}",
                facts=[("objective", self.objective.formula), ("cvxpy", str(error).split("\n")[0])],
                hints=["probably a multiplier has the wrong sign"],
            ) from error

    def _prices(self, cluster: Cluster, stated: _Stated, value: float) -> tuple[LimitPrice, ...]:
        """What the limits that bind are worth, in the objective's unit."""
        duals = np.zeros(len(cluster.limits))
        for number, row in stated.limits.items():
            if row.dual_value is not None:
                duals[number] = abs(float(row.dual_value))
        return prices_of_limits(
            cluster, duals, value, self._value_with, larger_is_better=self.larger_is_better
        )

    def _value_with(self, cluster: Cluster) -> float | None:
        stated = self._state(cluster)
        if self._solve(stated) is not SolveStatus.OPTIMAL:
            return None
        return float(stated.problem.value)

    def _decision(self, cluster: Cluster) -> Decision:
        import cvxpy

        groups = one_each(cluster, space_sharing=self.space_sharing)
        program = share_program(cluster, goal(cluster.able.size), groups)
        columns = program.singles
        if groups.kind is not None and cluster.problem.sharing is not None:
            from cloudgavel.policies.space_sharing import worthwhile_pairs

            columns = joined(columns, worthwhile_pairs(cluster, program, PAIR_LIMIT))
        unit = program.scale.rate
        second = np.where(columns.second >= 0, unit[columns.second], 0.0)
        columns = replace(
            columns,
            rate_first=columns.rate_first * unit[columns.first],
            rate_second=columns.rate_second * second,
        )
        return Decision(
            cluster=cluster,
            groups=groups,
            columns=columns,
            amounts=cvxpy.Variable(columns.count, nonneg=True),
        )


def _due_s(cluster: Cluster, shares: FloatArray, throughput: FloatArray) -> FloatArray:
    """(m,) seconds until each job ends at its throughput, begun where it has its shares."""
    jobs = cluster.problem.jobs
    steps = np.array([max(job.steps_left, 0.0) for job in jobs], dtype=np.float64)
    held = np.array([-1 if job.held_pool is None else job.held_pool for job in jobs])
    moved = np.arange(shares.shape[1])[None, :] != held[:, None]
    change_s = np.where(shares * moved > 0, np.nan_to_num(cluster.problem.change_over_s), 0.0)
    release_s = np.array([max(job.release_s, 0.0) for job in jobs], dtype=np.float64)
    due = np.full(steps.size, np.inf)
    np.divide(steps, throughput, out=due, where=throughput > 0)
    return np.asarray(due + release_s + change_s.max(axis=1, initial=0.0), dtype=np.float64)


def _shares(cluster: Cluster, decision: Decision) -> Shares:
    """Read the variable back, repaired to keep every limit exactly."""
    program = share_program(cluster, goal(cluster.able.size), decision.groups)
    unit = program.scale.rate
    columns = decision.columns
    second = np.where(columns.second >= 0, unit[columns.second], 1.0)
    scaled = replace(
        columns,
        rate_first=columns.rate_first / unit[columns.first],
        rate_second=columns.rate_second / second,
    )
    _, rows = program.build(scaled)
    values = np.append(np.asarray(decision.amounts.value) / program.scale.share, 0.0)
    answer = LinearAnswer(status=SolveStatus.OPTIMAL, values=values)
    return read_back(cluster, program, scaled, answer, rows, 1)


def maximise(
    objective: Term,
    *,
    subject_to: Sequence[Constraint] = (),
    name: str = "composed",
    summary: str = "",
    source: str = "",
    unit: str = "",
    space_sharing: bool = False,
) -> ComposedPolicy:
    """Return the policy that maximises a concave term."""
    return ComposedPolicy(
        objective,
        larger_is_better=True,
        subject_to=subject_to,
        name=name,
        summary=summary,
        source=source,
        unit=unit,
        space_sharing=space_sharing,
    )


def minimise(
    objective: Term,
    *,
    subject_to: Sequence[Constraint] = (),
    name: str = "composed",
    summary: str = "",
    source: str = "",
    unit: str = "",
    space_sharing: bool = False,
) -> ComposedPolicy:
    """Return the policy that minimises a convex term."""
    return ComposedPolicy(
        objective,
        larger_is_better=False,
        subject_to=subject_to,
        name=name,
        summary=summary,
        source=source,
        unit=unit,
        space_sharing=space_sharing,
    )
