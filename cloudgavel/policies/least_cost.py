"""Solve a planning LP for least cost, then for getting on with it.

Two stages. First the least cost. It leaves open *when*, and a simplex basis likes to put things
off; so second, within that cost (1 + 1e-6), the least ``sum w_j (midpoint of the interval) (share
of the job's work done in it)``: nothing waits without being paid for waiting.
"""

from dataclasses import dataclass

import numpy as np

from cloudgavel.policies.column_generation import ALL_CELLS_UP_TO, ColumnGeneration
from cloudgavel.policies.planning_lp import PlanningModel
from cloudgavel.policies.problem import AllocationProblem, FloatArray
from cloudgavel.policies.solve import SolveStatus

COST_SLACK_SHARE = 1e-6
"""What the second stage may spend above the least cost."""
LARGE_ITERATION_LIMIT = 3000
"""Of the second stage in large problems, over the columns of the first: it may stop early."""
UNDONE_SHARE = 1e-7
"""A job with less than this undone counts as finished (the solver's tolerance)."""


@dataclass(frozen=True, kw_only=True)
class LeastCost:
    """The first stage's answer, with the model still warm."""

    status: SolveStatus
    """OPTIMAL; INFEASIBLE (some work cannot be done in time); FAILED."""
    lp: ColumnGeneration
    values: FloatArray | None = None
    cost_usd: float | None = None
    row_duals: FloatArray | None = None
    """In USD per unit of each (scaled) row."""
    message: str = ""


def least_cost(model: PlanningModel, lp: ColumnGeneration | None = None) -> LeastCost:
    """Find the cheapest hours that finish every active job inside its window.

    Work may be left undone at a high price first, which keeps every LP feasible; if any is, a
    second pass minimises the undone work alone, and only then is "infeasible" said.
    """
    lp = lp or ColumnGeneration(model)
    shortfall = model.shortfall_columns
    lp.set_upper(shortfall, np.where(model.active, 1.0, 0.0))
    cost = model.program.cost.copy()
    cheapest = model.terms.usd_to_finish
    dearest = np.where(np.isfinite(cheapest), cheapest, 0.0).max(axis=1, initial=0.0)
    least = cheapest.min(axis=1, initial=np.inf)
    dear = np.minimum(2 * dearest, 1000 * np.where(np.isfinite(least), least, 0.0))
    cost[shortfall] = 10.0 + dear / model.cost_scale_usd
    answer = lp.minimise(cost)
    if answer.values is None:
        return LeastCost(status=answer.status, lp=lp, message=answer.message)
    left = answer.values[shortfall]
    if left.max(initial=0.0) > UNDONE_SHARE:
        undone = np.zeros(cost.size)
        undone[shortfall] = 1.0
        answer = lp.minimise(undone)
        if answer.values is None:
            return LeastCost(status=answer.status, lp=lp, message=answer.message)
        left = answer.values[shortfall]
        if left.max(initial=0.0) > UNDONE_SHARE:
            return LeastCost(status=SolveStatus.INFEASIBLE, lp=lp, message="work left undone")
    # What remains undone now is within the tolerance; it may stay, and never grow.
    lp.set_upper(shortfall, np.clip(left, 0.0, UNDONE_SHARE))
    answer = lp.minimise(model.program.cost)
    if answer.values is None:
        lp.set_upper(shortfall, np.full(shortfall.size, UNDONE_SHARE))
        answer = lp.minimise(model.program.cost)
    if answer.values is None or answer.row_duals is None:
        return LeastCost(status=answer.status, lp=lp, message=answer.message)
    return LeastCost(
        status=SolveStatus.OPTIMAL,
        lp=lp,
        values=answer.values,
        cost_usd=model.cost_usd(answer.values),
        row_duals=answer.row_duals * model.cost_scale_usd,
    )


def without_delay(
    problem: AllocationProblem, found: LeastCost, *, at_most_usd: float | None = None
) -> FloatArray:
    """Second stage: the same cost, as early as it goes, and never above ``at_most_usd``.

    Returns the first stage's answer if it fails.
    """
    assert found.values is not None and found.cost_usd is not None
    model = found.lp.model
    scaled = found.cost_usd / model.cost_scale_usd
    limit = scaled * (1 + COST_SLACK_SHARE) + 1e-9
    if at_most_usd is not None:
        limit = max(min(limit, at_most_usd / model.cost_scale_usd), scaled)
    found.lp.set_row(model.rows.cost, -np.inf, limit)
    large = model.cell_count > ALL_CELLS_UP_TO
    answer = found.lp.minimise(
        delay_cost(problem, model),
        price=not large,
        iteration_limit=LARGE_ITERATION_LIMIT if large else None,
    )
    return found.values if answer.values is None else answer.values


def delay_cost(problem: AllocationProblem, model: PlanningModel) -> FloatArray:
    """(n,) weight x midpoint of the interval x share of the job's work, scaled to about 1."""
    cost = np.zeros(model.program.cost.size)
    middle = (model.bounds_s[1:] + model.bounds_s[:-1]) / 2
    weight = np.array([job.weight for job in problem.jobs], dtype=np.float64)
    work = model.cell_hours / model.terms.hours_to_finish[model.cell_job, model.cell_pool]
    when = middle[model.segments.interval[model.cell_segment]] / middle[-1]
    cost[: model.cell_count] = weight[model.cell_job] * when * work
    return cost / max(float(weight.max(initial=0.0)), 1e-300)
