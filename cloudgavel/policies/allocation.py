"""The one output of every policy: shares or hours, with status, relaxed promises and prices."""

from dataclasses import dataclass
from enum import StrEnum

from cloudgavel.policies.problem import FloatArray
from cloudgavel.policies.sharing import ClassRows


class AllocationStatus(StrEnum):
    """What an allocation claims about itself."""

    OPTIMAL = "optimal"
    RELAXED = "relaxed"
    """Optimal after releasing the promises listed in ``relaxed``."""
    INFEASIBLE = "infeasible"
    """Nothing can be allocated as asked; shares are zero."""
    EMPTY = "empty"
    """No jobs, or no job with a feasible pool."""
    FALLBACK = "fallback"
    """The solver failed; a greedy answer stands in and ``message`` says so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RelaxedPromise:
    """A promise that was released: named, with its size."""

    job: str
    promise: str
    """``deadline``, ``max_cost``, ``share`` or ``completion`` (it cannot be finished at all)."""
    by_s: float | None = None
    by_usd: float | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShadowPrice:
    """What one more or one less unit of a constraint's limit would change in the objective."""

    constraint: str
    unit: str
    usd_per_unit_down: float | None
    """Objective increase per unit by which the limit is tightened; ``None`` = unknown."""
    usd_per_unit_up: float | None
    """Objective decrease per unit by which the limit is loosened."""
    exact: bool = True
    """False: both are the solver's dual, which lies between the two one-sided prices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitPrice:
    """Like ``ShadowPrice``, of a policy whose objective is not money.

    Both sides are in ``Allocation.objective_unit`` per ``unit`` of the limit, and positive when
    more of the limit makes the objective better.
    """

    constraint: str
    unit: str
    per_unit_down: float | None
    """What one unit less costs; ``None`` = unknown, or the problem has no answer with less."""
    per_unit_up: float | None
    """What one unit more brings."""
    exact: bool = True
    """False: both are the solver's dual, which lies between the two one-sided prices."""


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """An answer to an ``AllocationProblem`` with m jobs and R pools.

    Fixed cluster: ``shares`` (m, R) of time in [0, 1]. Rented fleet: ``hours`` (m, R, I) over the
    intervals bounded by ``interval_bounds_s`` (I + 1 instants from now), and ``shares`` holds the
    first interval's hours over its length.
    """

    status: AllocationStatus
    shares: FloatArray
    hours: FloatArray | None = None
    interval_bounds_s: FloatArray | None = None
    objective_value: float | None = None
    objective_unit: str = ""
    cost_usd: float | None = None
    """Expected cost of the plan (rented fleet)."""
    lower_bound_usd: float | None = None
    """No schedule that keeps the promises can cost less."""
    relaxed: tuple[RelaxedPromise, ...] = ()
    shadow_prices: tuple[ShadowPrice, ...] = ()
    extra_usd_per_hour: FloatArray | None = None
    """(R,) what an hour of one job in each pool costs others now: the shadow prices of quotas and
    of the spend rate. Given = each job with a deadline may weigh waiting, spot and on-demand by
    itself at prices raised by this (``mechanism.weigh_spot``); ``None`` = the shares stand."""
    value_usd_per_step: FloatArray | None = None
    """(m,): marginal cost of one more step of each job."""
    smallest_sufficient_budget_usd: float | None = None
    message: str = ""
    class_rows: ClassRows | None = None
    """Fixed cluster with space sharing: which combinations make up ``shares``."""
    limit_prices: tuple[LimitPrice, ...] = ()
    """What binds, and what it costs in ``objective_unit``."""
    due_s: FloatArray | None = None
    """(m,) when each job is meant to end, seconds from now, so that the objective is reached
    (inf = whenever); ``None`` = the deadlines alone say."""
