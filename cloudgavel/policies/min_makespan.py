"""Earliest end of everything under a budget: min F, with quota and spot rows scaled by F too.

Within one interval between events (releases, deadlines) the LP in F is exact: its last interval
has a length theta L, and every limit of that interval is theta times its own. Which interval F
falls into is found by halving, for the smallest one with theta <= 1. Then the cheapest plan that
ends by F (1 + 1e-6).
"""

from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np

from cloudgavel.policies.allocation import Allocation, AllocationStatus
from cloudgavel.policies.pair_terms import Purpose, pair_terms
from cloudgavel.policies.planning_lp import PlanningModel, build_planning_model
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.policies.rented_plan import EXPLAINED_COUNT, cheapest_plan, money_left_usd
from cloudgavel.policies.solve import SolveStatus, solve_cvxpy

END_SLACK_SHARE = 1e-6
EVENT_COUNT_LIMIT = 24


@dataclass(frozen=True, kw_only=True)
class MinMakespan:
    """Finish all jobs as early as the budget, the quotas and the deadlines allow."""

    explained_count: int = EXPLAINED_COUNT
    name = "min_makespan"
    summary = "earliest end of all jobs that the budget pays for"
    source = (
        "min F s.t. sum y/H >= 1, time and quota rows <= F, cost <= budget: "
        "Lawler and Labetoulle 1978"
    )

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Plan the earliest end; what the budget cannot keep is relaxed as ``min_cost`` does."""
        cheapest = cheapest_plan(problem, explained_count=0)
        if cheapest.status is not AllocationStatus.OPTIMAL:
            return cheapest
        end_s = earliest_end_s(problem)
        if end_s is None:
            return replace(
                cheapest,
                status=AllocationStatus.FALLBACK,
                message="the earliest end was not solved; the cheapest plan stands in",
            )
        for slack in (END_SLACK_SHARE, 1e-4, 1e-2):
            plan = cheapest_plan(
                problem, end_s=end_s * (1 + slack), explained_count=self.explained_count
            )
            if plan.status is AllocationStatus.OPTIMAL:
                return replace(plan, objective_value=end_s, objective_unit="s")
        return replace(
            cheapest,
            status=AllocationStatus.FALLBACK,
            message="the plan at the earliest end was not solved; the cheapest plan stands in",
        )


def earliest_end_s(problem: AllocationProblem) -> float | None:
    """Least F, in seconds from now, by which the fluid plan ends; ``None`` if unsolved."""
    terms = pair_terms(problem, Purpose.PLAN)
    events = sorted(
        {job.release_s for job in problem.jobs}
        | {job.deadline_s for job in problem.jobs if job.deadline_s is not None}
    )
    inner = len([event for event in events if event > 0])
    count = min(inner + 1, EVENT_COUNT_LIMIT)
    # Whole time first: its bounds are the events, and its last one lies far enough out.
    whole = build_planning_model(problem, terms, Purpose.PLAN, interval_count=count)
    bounds = whole.bounds_s
    low, high = 0, bounds.size - 2
    best: float | None = None
    while low <= high:
        middle = (low + high) // 2
        end = float(bounds[middle + 1])
        model = whole
        if middle < bounds.size - 2:
            model = build_planning_model(
                problem, terms, Purpose.PLAN, interval_count=middle + 1, end_s=end
            )
        theta = _least_share_of_last(problem, model)
        last = middle == bounds.size - 2
        if theta is not None and (theta <= 1 + 1e-9 or last):
            start, stop = model.bounds_s[-2], model.bounds_s[-1]
            best = float(start + theta * (stop - start))
            high = middle - 1
        else:
            low = middle + 1
    return best


def _least_share_of_last(problem: AllocationProblem, model: PlanningModel) -> float | None:
    """Least theta >= 0 such that all work fits when the last interval is theta of its length."""
    program, rows, cells = model.program, model.rows, model.cell_count
    last = model.bounds_s.size - 2
    scaled = np.zeros(program.row_upper.size)
    scaled[rows.time[model.segments.interval == last]] = 1.0
    for row in [*rows.quota[:, last].tolist(), int(rows.rate[last])]:
        if row >= 0:
            scaled[row] = 1.0
    limit = program.row_upper.copy()
    budget = money_left_usd(problem)
    if budget is not None:
        limit[rows.cost] = max(budget, 0.0) / model.cost_scale_usd
    at_most = np.flatnonzero(np.isfinite(limit))
    work = rows.work[model.active]
    matrix = program.matrix.tocsr()[:, :cells]
    if np.diff(matrix[work].indptr).min(initial=1) == 0:
        return None  # a job has no hour to run in before this end

    share_of_column = program.upper[:cells]
    capped = np.flatnonzero(np.isfinite(share_of_column))
    in_last = model.segments.interval[model.cell_segment[capped]] == last
    y = cp.Variable(cells, nonneg=True)
    theta = cp.Variable(nonneg=True)
    fixed = np.where(scaled[at_most] > 0, 0.0, limit[at_most])
    constraints = [
        matrix[work] @ y >= 1,
        matrix[at_most] @ y <= fixed + scaled[at_most] * theta,
    ]
    if capped.size:
        most = share_of_column[capped]
        constraints.append(
            y[capped] <= np.where(in_last, 0.0, most) + np.where(in_last, most, 0.0) * theta
        )
    cp_problem = cp.Problem(cp.Minimize(theta), constraints)
    status = solve_cvxpy(cp_problem)
    if status not in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE) or theta.value is None:
        return None
    return max(float(theta.value), 0.0)
