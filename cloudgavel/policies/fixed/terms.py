"""Terms of objectives: sums and multiples of these, and of anyone's own, are policies.

| symbol | here | meaning |
|---|---|---|
| d | ``Decision`` | the unknown shares |
| thr_j, n_j, w_j | ``d.throughput``, ``d.normalised`` | steps/s; over w_j n_j / k_j |
| S_j | ``cluster.steps`` | steps left |

A term of one's own is a function of a ``Decision`` that returns a cvxpy expression::

    @term("spread over pools")
    def spread(d):
        return cvxpy.sum_squares(d.amounts)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cloudgavel.policies.fixed.decision import Decision
from cloudgavel.policies.fixed.share_policy import per_rate


@dataclass(frozen=True)
class Term:
    """A part of an objective; ``a + b``, ``a - b``, ``2 * a`` and ``-a`` are terms again."""

    formula: str
    of: Callable[[Decision], Any]
    """Returns a scalar cvxpy expression."""
    needs_steps: bool = False
    """Uses S_j: jobs whose steps are not finite are left out."""

    def __add__(self, other: Term) -> Term:
        """Return the sum."""
        return Term(
            f"{self.formula} + {other.formula}",
            lambda d: self.of(d) + other.of(d),
            self.needs_steps or other.needs_steps,
        )

    def __sub__(self, other: Term) -> Term:
        """Return the difference."""
        return Term(
            f"{self.formula} - {other.formula}",
            lambda d: self.of(d) - other.of(d),
            self.needs_steps or other.needs_steps,
        )

    def __rmul__(self, factor: float) -> Term:
        """Return a multiple."""
        return Term(f"{factor:g} * {self.formula}", lambda d: factor * self.of(d), self.needs_steps)

    def __neg__(self) -> Term:
        """Return the negative."""
        return -1.0 * self


def term(formula: str, *, needs_steps: bool = False) -> Callable[[Callable[[Decision], Any]], Term]:
    """Make a term of a function of a ``Decision`` (a decorator)."""
    return lambda function: Term(formula, function, needs_steps)


def least_normalised_throughput() -> Term:
    """``min_j k_j thr_j / (w_j n_j)``: max-min fairness (OSDI 2020, section 4.1). Concave."""

    def of(d: Decision) -> Any:
        cvxpy = _cvxpy()
        return cvxpy.min(d.normalised)

    return Term("min_j thr_j / (w_j n_j)", of)


def total_normalised_throughput() -> Term:
    """``sum_j w_j thr_j / n_j``. Linear."""

    def of(d: Decision) -> Any:
        cvxpy = _cvxpy()
        factor = per_rate(d.cluster.weight, d.cluster.equal_rate, d.cluster)
        return cvxpy.sum(d.weighted_throughput(factor))

    return Term("sum_j w_j thr_j / n_j", of)


def proportional_fairness() -> Term:
    """``sum_j w_j log(thr_j / n_j)``: nobody gains a percent where others lose more. Concave."""

    def of(d: Decision) -> Any:
        cvxpy = _cvxpy()
        factor = per_rate(np.ones(d.cluster.able.size), d.cluster.equal_rate, d.cluster)
        return d.per_job(d.cluster.weight) @ cvxpy.log(d.weighted_throughput(factor))

    return Term("sum_j w_j log(thr_j / n_j)", of)


def makespan_s() -> Term:
    """``max_j S_j / thr_j`` in seconds (OSDI 2020, section 4.2). Convex."""

    def of(d: Decision) -> Any:
        cvxpy = _cvxpy()
        longest = float((d.per_job(d.cluster.steps) / d.per_job(d.cluster.best_rate)).max())
        factor = per_rate(np.full(d.cluster.able.size, longest), d.cluster.steps, d.cluster)
        return longest * cvxpy.max(cvxpy.inv_pos(d.weighted_throughput(factor)))

    return Term("max_j S_j / thr_j", of, needs_steps=True)


def usd_per_hour() -> Term:
    """``sum_jr p_r (k_r / g_r) X_jr`` in USD/h. Linear."""
    return Term("USD/h", lambda d: d.usd_per_hour)


def moves() -> Term:
    """Share of time that running jobs spend away from the pool they hold. Linear."""
    return Term("share away from the pool held", lambda d: d.away)


def _cvxpy() -> Any:
    """Import on demand: cvxpy takes a second, and its atoms are not typed."""
    import cvxpy

    return cvxpy
