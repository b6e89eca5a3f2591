"""Policies of a rented fleet beyond cost: the least level whose due times the money can keep.

A level gives every job a due time (``due_times``). What the planning LP must leave undone by
those due times within the budget, ``undone(L)``, is convex in L between two changes in the order
of events and falls to zero at the optimum. It is found from below by secants, which never
overshoot where the function is convex, inside a bracket that is halved where it is not. The
plan is the cheapest one that keeps the due times of that level.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cloudgavel.policies.allocation import Allocation, AllocationStatus, LimitPrice
from cloudgavel.policies.column_generation import ALL_CELLS_UP_TO, ColumnGeneration
from cloudgavel.policies.due_times import (
    DueTimes,
    level_for,
    lowest_level,
    planned_ends_s,
    with_due_times,
)
from cloudgavel.policies.intervals import chain_windows
from cloudgavel.policies.least_cost import UNDONE_SHARE
from cloudgavel.policies.pair_terms import S_PER_H, PairTerms, Purpose, pair_terms
from cloudgavel.policies.planning_lp import (
    INTERVAL_COUNT,
    PlanningModel,
    build_planning_model,
    far_horizon_s,
)
from cloudgavel.policies.problem import AllocationProblem, FloatArray, IntArray
from cloudgavel.policies.rented_plan import cheapest_plan, money_left_usd

TOLERANCE_SHARE = 1e-6
LARGE_TOLERANCE_SHARE = 1e-3
"""Of the level, in problems too large to be solved whole."""
STEP_LIMIT = 60
FIRST_STEP = 1.05
"""From the lowest level to the next one looked at."""
SLACK_SHARES = (1e-6, 1e-3, 1e-2)
"""By how much the plan's level may exceed the least, tried in turn from the tolerance on: at the
very least level programs are degenerate (1,000 jobs: 28 s instead of 1)."""

DueOf = Callable[[AllocationProblem, PairTerms], DueTimes]


@dataclass(frozen=True, kw_only=True)
class Undone:
    """What cannot be done by the due times of one level, within the budget."""

    level: float
    share: float
    """Sum over jobs of the share of their work; 0 = the level can be kept."""
    model: PlanningModel | None = None
    row_duals: FloatArray | None = None
    """Change of ``share`` per unit of each scaled row's limit."""


@dataclass(frozen=True, kw_only=True)
class LevelSearch:
    """One problem with one rule for due times; counts its linear programs."""

    problem: AllocationProblem
    terms: PairTerms
    due: DueTimes
    purpose: Purpose = Purpose.PLAN
    """``BOUND`` with the terms of a bound: no schedule has a lower level."""

    @property
    def tolerance_share(self) -> float:
        """Of the level: how closely the least is found."""
        large = self.terms.usable.sum() * INTERVAL_COUNT > ALL_CELLS_UP_TO
        return LARGE_TOLERANCE_SHARE if large else TOLERANCE_SHARE

    def undone(self, level: float) -> Undone:
        """Solve for the least undone work at a level; an unsolved program counts as all of it."""
        model = build_planning_model(
            with_due_times(self.problem, self.terms, self.due(level)),
            self.terms,
            self.purpose,
            fill_intervals=False,
        )
        lp = ColumnGeneration(model)
        budget = money_left_usd(self.problem)
        if budget is not None:
            lp.set_row(model.rows.cost, -np.inf, max(budget, 0.0) / model.cost_scale_usd)
        shortfall = model.shortfall_columns
        lp.set_upper(shortfall, np.where(model.active, 1.0, 0.0))
        cost = np.zeros(model.program.cost.size)
        cost[shortfall] = 1.0
        answer = lp.minimise(cost)
        if answer.values is None:
            return Undone(level=level, share=float(model.active.sum()))
        left = answer.values[shortfall]
        share = float(left.sum()) if left.max(initial=0.0) > UNDONE_SHARE else 0.0
        return Undone(level=level, share=share, model=model, row_duals=answer.row_duals)

    def least(self) -> Undone | None:
        """Return the least level that leaves nothing undone; ``None`` if there is none."""
        lowest = lowest_level(self.problem, self.terms, self.due) * (1 + 1e-9)
        first = self.undone(lowest)
        if first.share == 0:
            return first
        able = np.isfinite(self.terms.fastest_h)
        windows = chain_windows(self.problem.jobs, self.terms.fastest_h * S_PER_H)
        end = np.full(able.size, far_horizon_s(self.terms, windows))
        high = level_for(self.due, end, able)
        return _root(self.undone, first, high, self.tolerance_share)


def _root(
    undone: Callable[[float], Undone], low: Undone, high: float, tolerance: float
) -> Undone | None:
    """Least level in (low, high] with nothing undone; ``None`` if even ``high`` leaves some."""
    best: Undone | None = None
    earlier: Undone | None = None
    halve = False
    for _ in range(STEP_LIMIT):
        if high - low.level <= tolerance * high:
            break
        guess = (low.level * high) ** 0.5 if high > 4 * low.level else (low.level + high) / 2
        secant = None
        if earlier is None:
            guess = min(guess, FIRST_STEP * low.level)
        elif not halve and earlier.share > low.share:
            slope = (earlier.share - low.share) / (low.level - earlier.level)
            # A hair beyond, so that a secant that hits the root also proves it.
            secant = (low.level + low.share / slope) * (1 + tolerance / 2)
            if secant < high:
                guess = secant
        found = undone(guess)
        if found.share > 0:
            low, earlier, halve = found, low, False
            continue
        best, high = found, guess
        if guess == secant:
            below = undone(guess * (1 - tolerance))
            if below.share > 0:
                break
            # Not convex here: look in the middle.
            best, high, halve = below, below.level, True
    return best or _kept(undone(high))


def _kept(found: Undone) -> Undone | None:
    return found if found.share == 0 else None


def plan_at_least_level(
    problem: AllocationProblem,
    due_of: DueOf,
    *,
    unit: str,
    value_of: Callable[[float], float] = lambda level: level,
    explained_count: int = 0,
) -> Allocation:
    """Plan the least level of a rule within deadlines, quotas, spend rate and budget.

    Money first, then deadlines, then the level, then cost. Deadlines that cannot be kept are
    released as ``min_cost`` releases them, and named; if the money does not even finish all
    work, its plan stands. ``value_of``: from level to objective. ``due_s`` of the answer are the
    due times. Prices (``limit_prices``) are in the objective's unit.
    """
    cheapest = cheapest_plan(problem, explained_count=0)
    if cheapest.status not in (AllocationStatus.OPTIMAL, AllocationStatus.RELAXED):
        return cheapest
    kept = _with_late_ends(problem, cheapest)
    if kept is None:
        return cheapest
    terms = pair_terms(kept, Purpose.PLAN)
    due = due_of(kept, terms)
    search = LevelSearch(problem=kept, terms=terms, due=due)
    found = search.least()
    if found is None:
        return _stand_in(cheapest, "the least level was not found")
    for slack in SLACK_SHARES:
        if slack < search.tolerance_share:
            continue
        level = found.level * (1 + slack)
        aimed = with_due_times(kept, terms, due(level))
        plan = cheapest_plan(aimed, explained_count=0, with_bound=False)
        if _is_whole(plan, cheapest):
            break
    else:
        return _stand_in(cheapest, "the plan at the least level was not solved")
    prices: tuple[LimitPrice, ...] = ()
    if explained_count and problem.wants_prices:
        prices = limit_prices(search, found, value_of)[:explained_count]
    return replace(
        plan,
        status=cheapest.status,
        objective_value=value_of(level if slack > SLACK_SHARES[0] else found.level),
        objective_unit=unit,
        lower_bound_usd=cheapest.lower_bound_usd,
        relaxed=cheapest.relaxed,
        smallest_sufficient_budget_usd=cheapest.smallest_sufficient_budget_usd,
        limit_prices=prices,
        due_s=planned_ends_s(aimed, terms),
        message=cheapest.message,
    )


def _is_whole(plan: Allocation, cheapest: Allocation) -> bool:
    """Whether the plan finishes everything in time that has a pool at all."""
    homeless = [each.job for each in cheapest.relaxed if each.promise == "completion"]
    return plan.status is AllocationStatus.OPTIMAL or (
        plan.status is AllocationStatus.RELAXED
        and all(each.promise == "completion" and each.job in homeless for each in plan.relaxed)
    )


def _with_late_ends(problem: AllocationProblem, cheapest: Allocation) -> AllocationProblem | None:
    """Return the problem with released deadlines moved to where the relaxed plan keeps them.

    ``None`` if the money leaves work undone that has a pool to run on.
    """
    if not cheapest.relaxed:
        return problem
    assert cheapest.hours is not None and cheapest.interval_bounds_s is not None
    worked = cheapest.hours.sum(axis=1) > 0
    jobs = list(problem.jobs)
    rows = {job.name: row for row, job in enumerate(jobs)}
    for each in cheapest.relaxed:
        row = rows[each.job]
        if each.promise == "deadline" and worked[row].any():
            end = float(cheapest.interval_bounds_s[1 + int(np.flatnonzero(worked[row])[-1])])
            if jobs[row].deadline_s is not None:
                jobs[row] = replace(jobs[row], deadline_s=end)
        elif problem.feasible[row].any():
            return None
    return replace(problem, jobs=tuple(jobs))


def _stand_in(cheapest: Allocation, message: str) -> Allocation:
    return replace(
        cheapest,
        status=AllocationStatus.FALLBACK,
        message=f"{message}; the cheapest plan stands in",
    )


PRICE_STEP_SHARE = 1e-4
"""How far below the optimum its duals are read."""


def limit_prices(
    search: LevelSearch, found: Undone, value_of: Callable[[float], float]
) -> tuple[LimitPrice, ...]:
    """Say what the budget and every quota, spend rate, ``max_cost`` and deadline are worth.

    Just below the optimum a little work is left undone; the duals of that program say how much of
    it each limit would do, and the step between two levels how much the level would. The ratio is
    the change of the level per unit, due times' own parts of the limits held fixed. One number for
    both sides (``exact`` is false): at a kink the two one-sided prices lie around it.
    """
    near = search.undone(found.level * (1 - PRICE_STEP_SHARE))
    far = search.undone(found.level * (1 - 2 * PRICE_STEP_SHARE))
    model, duals = near.model, near.row_duals
    slope = (far.share - near.share) / (near.level - far.level)
    if model is None or duals is None or not near.share > 0 or not slope > 0:
        return ()
    problem, level = search.problem, found.level
    value_per_level = abs(value_of(level * (1 + 1e-6)) - value_of(level * (1 - 1e-6))) / (
        2e-6 * level
    )
    worth: list[tuple[str, str, float, float]] = []

    def rows_of(rows: IntArray) -> float:
        return float(-duals[rows[rows >= 0]].sum())

    budget = money_left_usd(problem)
    if budget is not None and budget > 0:
        relief = float(-duals[model.rows.cost]) / model.cost_scale_usd
        worth.append(("budget", "USD", budget, relief))
    for number, quota in enumerate(problem.quotas):
        relief = rows_of(model.rows.quota[number])
        worth.append((f"quota {quota.name}", "unit of quota", quota.limit, relief / quota.limit))
    if problem.max_usd_per_hour:
        relief = rows_of(model.rows.rate) / problem.max_usd_per_hour
        worth.append(("max_usd_per_hour", "USD/h", problem.max_usd_per_hour, relief))
    for row, job in enumerate(problem.jobs):
        at = model.rows.job_cost[row]
        if at >= 0 and job.max_cost_left_usd:
            relief = rows_of(model.rows.job_cost[row : row + 1]) * model.program.row_upper[at]
            worth.append(
                (f"max_cost of {job.name}", "USD", job.max_cost_left_usd,
                 relief / job.max_cost_left_usd)
            )  # fmt: skip
    worth = [each for each in worth if each[2] * each[3] > 1e-6 * slope * level]
    worth.sort(key=lambda each: (-each[2] * each[3], each[0]))
    return tuple(
        LimitPrice(
            constraint=name,
            unit=unit,
            per_unit_down=relief / slope * value_per_level,
            per_unit_up=relief / slope * value_per_level,
            exact=False,
        )
        for name, unit, _, relief in worth
    )
