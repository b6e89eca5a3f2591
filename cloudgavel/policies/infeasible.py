"""When not every promise can be kept: which go, by how much, and what would keep them.

Lexicographic, never silent. Money comes first: no answer spends more than the budget or a job's
``max_cost``. Then (1) a small integer program chooses the deadlines that go, ``min sum w_j
late_j``; (2) as much of all work as possible is done; (3) the lateness of what is late is least;
(4) ties go to the cheaper. A deadline that has passed stays a promise, late by as little as
possible.
"""

from dataclasses import dataclass

import numpy as np

from cloudgavel.policies.allocation import RelaxedPromise
from cloudgavel.policies.column_generation import ColumnGeneration
from cloudgavel.policies.least_cost import UNDONE_SHARE
from cloudgavel.policies.pair_terms import S_PER_H, PairTerms, Purpose
from cloudgavel.policies.planning_lp import PlanningModel, build_planning_model
from cloudgavel.policies.problem import AllocationProblem, BoolArray, FloatArray
from cloudgavel.policies.solve import LinearProgram, SolveStatus, solve_integer

RELAXED_INTERVAL_COUNT = 12
INTEGER_COLUMNS_UP_TO = 2500
"""Larger problems choose by rounding the LP: the integer program took minutes at 200 jobs."""
ROUNDING_TRIES = 20
EARLIEST_FINISH_COUNT = 5
"""For how many late jobs the earliest finish beside the others is worked out."""


@dataclass(frozen=True, kw_only=True)
class RelaxedPlan:
    """The best that can be kept."""

    model: PlanningModel
    values: FloatArray
    late: BoolArray
    """(m,): the deadline goes."""
    undone_share: FloatArray
    """(m,): share of the work left that is not done at all."""
    cost_usd: float
    row_duals: FloatArray
    finish_s: FloatArray
    """(m,): end of each job in the plan, seconds from now (nan: never)."""
    earliest_s: dict[int, float]
    """Row -> earliest finish with every other kept promise kept (late jobs, a few)."""
    chosen_exactly: bool
    """False: the choice of deadlines is the best found, not proved best."""


def relax(
    problem: AllocationProblem,
    terms: PairTerms,
    *,
    budget_usd: float | None,
    explain: bool = True,
) -> RelaxedPlan | None:
    """Find the best that ``budget_usd`` (``None``: any) can keep; ``None`` if a solver fails."""
    model = build_planning_model(
        problem, terms, Purpose.PLAN, with_late=True, interval_count=RELAXED_INTERVAL_COUNT
    )
    lp = ColumnGeneration(model)
    if budget_usd is not None:
        lp.set_row(model.rows.cost, -np.inf, max(budget_usd, 0.0) / model.cost_scale_usd)
    weight = np.array([max(job.weight, 1e-6) for job in problem.jobs], dtype=np.float64)
    weight = weight / weight.max()
    shortfall, late_columns = model.shortfall_columns, model.late_columns
    promised = model.active & np.isfinite(model.windows.deadline_s)
    lp.set_upper(shortfall, np.where(model.active, 1.0, 0.0))
    lp.set_upper(late_columns, np.where(promised, 1.0, 0.0))

    # 1. Which deadlines go. Undone work only breaks ties here: it must not outvote a deadline.
    choice = np.zeros(model.program.cost.size)
    choice[late_columns] = weight
    active_count = max(int(model.active.sum()), 1)
    choice[shortfall] = 1e-3 * weight.min() / active_count
    answer = lp.minimise(choice)
    if answer.values is None:
        return None
    late_share = answer.values[late_columns]
    exactly = True
    alone_h = model.terms.fastest_h * (1 - UNDONE_SHARE)
    window_h = (model.windows.deadline_s - model.windows.release_s) / S_PER_H
    hopeless = promised & (alone_h > window_h)
    late = promised & (late_share > 1e-6)
    if (late & ~hopeless).any() and (late_share[late & ~hopeless] < 1 - 1e-6).any():
        small = lp.columns_present.size <= INTEGER_COLUMNS_UP_TO
        chosen = _choose(model, lp, choice, hopeless, budget_usd) if small else None
        if chosen is None:
            late, exactly = _rounded(lp, model, choice, late, late_share), False
        else:
            late, exactly = chosen
    lp.set_upper(late_columns, np.where(late, 1.0, 0.0))

    # 2. As much of the work as possible.
    undone = np.zeros(choice.size)
    undone[shortfall] = weight
    answer = lp.minimise(undone)
    if answer.values is None:
        return None
    left = np.clip(answer.values[shortfall], 0.0, 1.0)
    lp.set_upper(shortfall, np.minimum(left + UNDONE_SHARE, 1.0))

    # 3. The least lateness, 4. the cheaper of equals.
    lateness = _lateness_cost(model, weight, late)
    total = float(answer.values[: model.cell_count] @ model.cell_usd) / model.cost_scale_usd
    lateness += 1e-4 * model.program.cost / max(total, 1e-9)
    best = lp.minimise(lateness)
    if best.values is None or best.row_duals is None:
        best = answer
    assert best.values is not None and best.row_duals is not None
    left = np.where(left > UNDONE_SHARE, left, 0.0)
    left[~model.active] = np.where(
        np.array([job.steps_left > 0 for job in problem.jobs])[~model.active], 1.0, 0.0
    )
    earliest: dict[int, float] = {}
    if explain:
        for row in np.flatnonzero(late & (left == 0.0))[:EARLIEST_FINISH_COUNT]:
            found = _earliest_finish_s(model, lp, int(row))
            if found is not None:
                earliest[int(row)] = found
    finish = _finish_s(model, best.values)
    finish[left > 0] = np.nan
    return RelaxedPlan(
        model=model,
        values=best.values,
        late=late,
        undone_share=left,
        cost_usd=model.cost_usd(best.values),
        row_duals=best.row_duals,
        finish_s=finish,
        earliest_s=earliest,
        chosen_exactly=exactly,
    )


def _rounded(
    lp: ColumnGeneration,
    model: PlanningModel,
    choice: FloatArray,
    late: BoolArray,
    late_share: FloatArray,
) -> BoolArray:
    """Round the LP's choice: every deadline it bends goes, then those least bent are tried again.

    The LP bends few deadlines only partly (about one per limit that binds), so little is lost.
    """
    late = late.copy()
    partly = np.flatnonzero(late & (late_share < 1 - 1e-6))
    for row in partly[np.argsort(late_share[partly], kind="stable")][:ROUNDING_TRIES].tolist():
        late[row] = False
        lp.set_upper(model.late_columns, np.where(late, 1.0, 0.0))
        if lp.minimise(choice, price=False).values is None:
            late[row] = True
    return late


def _choose(
    model: PlanningModel,
    lp: ColumnGeneration,
    choice: FloatArray,
    hopeless: BoolArray,
    budget_usd: float | None,
) -> tuple[BoolArray, bool] | None:
    """Solve the integer program over the columns that the LP needed."""
    program = model.program
    columns = lp.columns_present
    row_upper = program.row_upper.copy()
    if budget_usd is not None:
        row_upper[model.rows.cost] = max(budget_usd, 0.0) / model.cost_scale_usd
    upper = program.upper.copy()
    promised = model.active & np.isfinite(model.windows.deadline_s)
    upper[model.shortfall_columns] = np.where(model.active, 1.0, 0.0)
    upper[model.late_columns] = np.where(promised, 1.0, 0.0)
    lower = program.lower.copy()
    lower[model.late_columns] = np.where(hopeless, 1.0, 0.0)
    integer = np.zeros(choice.size, dtype=bool)
    integer[model.late_columns] = True
    answer = solve_integer(
        LinearProgram(
            cost=choice[columns],
            matrix=program.matrix[:, columns],
            row_lower=program.row_lower,
            row_upper=row_upper,
            lower=lower[columns],
            upper=upper[columns],
            integer=integer[columns],
        ),
        relative_gap=1e-6,
        node_limit=500,
    )
    if answer.values is None:
        return None
    values = np.zeros(choice.size)
    values[columns] = answer.values
    return values[model.late_columns] > 0.5, answer.status is SolveStatus.OPTIMAL


def _lateness_cost(model: PlanningModel, weight: FloatArray, late: BoolArray) -> FloatArray:
    """(n,) weight x (middle of the segment - deadline) x share of the work, scaled to about 1."""
    cost = np.zeros(model.program.cost.size)
    segment = model.cell_segment
    middle = (model.bounds_s[1:] + model.bounds_s[:-1])[model.segments.interval[segment]] / 2
    deadline = np.where(np.isfinite(model.windows.deadline_s), model.windows.deadline_s, 0.0)
    after = np.maximum(middle - deadline[model.cell_job], 0.0) / model.bounds_s[-1]
    work = model.cell_hours / model.terms.hours_to_finish[model.cell_job, model.cell_pool]
    counted = late[model.cell_job] & model.segments.late[segment]
    cost[: model.cell_count] = np.where(counted, weight[model.cell_job] * after * work, 0.0)
    return cost


def _segment_start_s(model: PlanningModel) -> FloatArray:
    """(segments,) when each segment begins."""
    parts = model.segments
    start = np.maximum(model.bounds_s[parts.interval], model.windows.release_s[parts.job])
    return np.where(parts.late, np.maximum(start, model.windows.deadline_s[parts.job]), start)


def _finish_s(model: PlanningModel, values: FloatArray) -> FloatArray:
    """(m,) end of each job when every segment's hours are used from its start (nan: no hours)."""
    used_h = np.zeros(model.segments.job.size)
    np.add.at(used_h, model.cell_segment, values[: model.cell_count] * model.cell_hours)
    start = _segment_start_s(model)
    finish = np.full(model.active.size, np.nan)
    worth = used_h * S_PER_H > 1e-6 * model.segments.length_s
    for segment in np.flatnonzero(worth):
        job = model.segments.job[segment]
        end = float(start[segment] + used_h[segment] * S_PER_H)
        finish[job] = end if np.isnan(finish[job]) else max(finish[job], end)
    return finish


def _earliest_finish_s(model: PlanningModel, lp: ColumnGeneration, row: int) -> float | None:
    """Earliest end of one late job while all other promises that are still held are kept.

    Its segments are closed from the last one backwards until its work no longer fits; the hours
    it needs in the last one that had to stay open are then minimised.
    """
    own = np.flatnonzero((model.segments.job == row) & model.segments.late)
    own = own[np.argsort(model.segments.interval[own], kind="stable")][::-1]
    start = _segment_start_s(model)
    closed: list[int] = []
    found: float | None = None
    for segment in own.tolist():
        hours = np.zeros(model.program.cost.size)
        cells = np.flatnonzero(model.cell_segment == segment)
        hours[cells] = model.cell_hours[cells] / (model.segments.length_s[segment] / S_PER_H)
        answer = lp.minimise(hours)
        if answer.values is None:
            break
        needed = float(hours @ answer.values)
        found = float(start[segment] + needed * model.segments.length_s[segment])
        if needed > 1e-6:
            break
        lp.set_row(int(model.rows.time[segment]), -np.inf, 0.0)
        closed.append(segment)
    for segment in closed:
        lp.set_row(int(model.rows.time[segment]), -np.inf, 1.0)
    return found


def relaxed_promises(
    problem: AllocationProblem,
    plan: RelaxedPlan,
    *,
    budget_usd: float | None,
    sufficient_usd: float | None,
) -> tuple[RelaxedPromise, ...]:
    """Name every promise that went: the job, by how much, and why."""
    promises = []
    model = plan.model
    fastest_h = model.terms.fastest_h
    cheapest = model.terms.usd_to_finish.min(axis=1, initial=np.inf)
    short_of_money = (
        budget_usd is not None
        and sufficient_usd is not None
        and sufficient_usd > max(budget_usd, 0.0) * (1 + 1e-9)
    )
    for row, job in enumerate(problem.jobs):
        if not job.steps_left > 0:
            continue
        if not model.active[row]:
            promises.append(
                RelaxedPromise(
                    job=job.name, promise="completion", reason="no pool can run it as asked"
                )
            )
            continue
        money = "the budget" if job.max_cost_left_usd is None else "its max_cost or the budget"
        if plan.late[row]:
            own = job.deadline_s is not None
            deadline = float(model.windows.deadline_s[row] if not own else job.deadline_s or 0.0)
            end = plan.earliest_s.get(row, float(plan.finish_s[row]))
            if deadline <= 0:
                reason = "the deadline has passed"
            elif fastest_h[row] * S_PER_H > deadline - model.windows.release_s[row]:
                reason = (
                    f"needs {_hours(fastest_h[row])} on its fastest pool and "
                    f"{_hours(max(deadline - model.windows.release_s[row], 0) / S_PER_H)} are left"
                )
            elif short_of_money:
                reason = f"{money} does not pay for keeping it"
            elif job.max_cost_left_usd is not None:
                reason = "quotas, expected spot or its max_cost do not allow it"
            else:
                reason = "quotas or expected spot do not allow it beside the others"
            if not own:
                reason += "; what comes after it is due"
            if np.isfinite(end):
                reason += f"; earliest end {_hours(end / S_PER_H)} from now"
            promises.append(
                RelaxedPromise(
                    job=job.name,
                    promise="deadline",
                    by_s=max(end - deadline, 0.0) if np.isfinite(end) else None,
                    reason=reason,
                )
            )
        if plan.undone_share[row] > 0:
            promises.append(
                RelaxedPromise(
                    job=job.name,
                    promise="completion",
                    by_usd=float(plan.undone_share[row] * cheapest[row]),
                    reason=f"{money} ends with {plan.undone_share[row]:.1%} of its work undone",
                )
            )
    return tuple(promises)


def _hours(hours: float) -> str:
    """Write a duration for a reason."""
    return f"{hours * 60:.0f} min" if hours < 1 else f"{hours:.1f} h"
