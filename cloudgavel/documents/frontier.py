"""``cloudgavel/frontier``: what an earlier end of the whole run costs."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class FrontierPoint:
    """One plan that no other one beats in both cost and makespan."""

    budget_usd: float
    """The budget to give for it."""
    cost_usd: float
    """Expected cost of the whole instances that it rents."""
    makespan_s: float
    """End of the last job, from the run's start."""
    makespan_lower_bound_s: float | None
    """Before this no schedule within the budget ends; ``None`` = not known."""
    deadlines_met: int
    deadlines: int
    """Jobs that have one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FrontierDocument:
    """Non-dominated points: budgets and costs rise, makespans fall."""

    schema: str = "cloudgavel/frontier"
    schema_version: int = 1
    name: str
    policy: str
    """The policy that has this makespan with a point's budget."""
    rehearsal: bool
    prices_as_of: str
    created_at: str
    job_count: int
    feasible: bool
    """Whether every deadline can be kept; if not, the points keep what they can."""
    budget_usd: float | None
    """No point has a larger one; ``None`` = no limit was given."""
    smallest_sufficient_budget_usd: float | None
    cost_lower_bound_usd: float | None
    """No schedule that keeps the promises costs less."""
    points: tuple[FrontierPoint, ...]
    runs: int
    """Whole runs in virtual time behind the points."""
