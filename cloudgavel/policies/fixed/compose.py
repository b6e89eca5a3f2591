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
from dataclasses import replace

import numpy as np

from cloudgavel.errors import UsageError
from cloudgavel.policies.allocation import Allocation, AllocationStatus, RelaxedPromise
from cloudgavel.policies.fixed.answer import allocation_of, isolated_fallback, nothing
from cloudgavel.policies.fixed.cluster import Cluster, cluster_of
from cloudgavel.policies.fixed.columns import joined
from cloudgavel.policies.fixed.constraints import Constraint
from cloudgavel.policies.fixed.decision import Decision
from cloudgavel.policies.fixed.share_program import (
    Shares,
    goal,
    one_each,
    read_back,
    share_program,
)
from cloudgavel.policies.fixed.terms import Term
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.policies.solve import LinearAnswer, SolveStatus, solve_cvxpy

PAIR_LIMIT = 50_000


class ComposedPolicy:
    """A policy made of terms and constraints; see ``maximise`` and ``minimise``."""

    plans_for = "fixed cluster"

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
        import cvxpy
        from cvxpy.error import DCPError

        decision = self._decision(cluster)
        limits = [
            decision.use(limit.coefficients) <= limit.size
            for limit in cluster.limits
            if limit.coefficients.any()
        ]
        stated = [each.rows(decision) for each in self.subject_to]
        rows = [decision.time <= 1, *limits]
        rows.extend(row for added in stated for row in added.constraints)
        sense = cvxpy.Maximize if self.larger_is_better else cvxpy.Minimize
        whole = cvxpy.Problem(sense(self.objective.of(decision)), rows)
        try:
            status = solve_cvxpy(whole)
        except DCPError as error:
            wanted = "concave" if self.larger_is_better else "convex"
            raise UsageError(
                f"the objective or a constraint of policy `{self.name}` is not {wanted}",
                facts=[("objective", self.objective.formula), ("cvxpy", str(error).split("\n")[0])],
                hints=["probably a multiplier has the wrong sign"],
            ) from error
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
        shares = _shares(cluster, decision)
        throughput = shares.throughput()
        relaxed: list[RelaxedPromise] = []
        for added in stated:
            relaxed.extend(added.relaxed(throughput))
        value = float(whole.value)
        return allocation_of(
            cluster,
            shares,
            value=value if np.isfinite(value) else None,
            unit=self.unit,
            relaxed=tuple(relaxed),
        )

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
