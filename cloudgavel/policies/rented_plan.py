"""From a problem of a rented fleet to its cheapest plan, whatever happens on the way."""

import numpy as np

from cloudgavel.policies.allocation import Allocation, AllocationStatus, RelaxedPromise, ShadowPrice
from cloudgavel.policies.greedy_plan import greedy_hours
from cloudgavel.policies.infeasible import RelaxedPlan, relax, relaxed_promises
from cloudgavel.policies.least_cost import UNDONE_SHARE, least_cost, without_delay
from cloudgavel.policies.lower_bound import lower_bound, without
from cloudgavel.policies.pair_terms import S_PER_H, PairTerms, Purpose, pair_terms
from cloudgavel.policies.planning_lp import PlanningModel, build_planning_model
from cloudgavel.policies.problem import AllocationProblem, BoolArray, FloatArray
from cloudgavel.policies.shadow_prices import (
    extra_usd_per_hour,
    shadow_prices,
    value_usd_per_step,
)
from cloudgavel.policies.solve import SolveStatus

EXPLAINED_COUNT = 5
EXACT_PRICES_UP_TO = 1500
"""Cells of the largest problem whose shadow prices are found by solving again."""


def cheapest_plan(
    problem: AllocationProblem,
    *,
    on_demand_only: bool = False,
    explained_count: int = EXPLAINED_COUNT,
    with_bound: bool = True,
) -> Allocation:
    """Plan all jobs at least cost within deadlines, quotas, budget and each job's ``max_cost``.

    ``explained_count``: how many binding limits get a shadow price; ``with_bound``: work out the
    lower bound. Statuses: OPTIMAL keeps every promise; RELAXED lists those that
    went; INFEASIBLE when no work at all can be paid or placed; EMPTY without work or pools;
    FALLBACK when a solver failed and the greedy plan stands in.
    """
    todo = [job.steps_left > 0 for job in problem.jobs]
    if not any(todo):
        return nothing(problem, AllocationStatus.EMPTY, "no work is left", cost_usd=0.0)
    terms = pair_terms(problem, Purpose.PLAN, on_demand_only=on_demand_only)
    has_pool = [bool(row.any()) for row in terms.usable]
    homeless = tuple(
        RelaxedPromise(job=job.name, promise="completion", reason="no pool can run it as asked")
        for job, is_usable, has_work in zip(problem.jobs, has_pool, todo, strict=True)
        if has_work and not is_usable
    )
    if not terms.usable.any():
        return nothing(
            problem, AllocationStatus.EMPTY, "no job has a feasible pool", relaxed=homeless
        )

    budget = money_left_usd(problem)
    model = build_planning_model(problem, terms, Purpose.PLAN)
    found = least_cost(model)
    if found.status is SolveStatus.FAILED:
        return _greedy(problem, terms, model, found.message)
    affordable = found.cost_usd is not None and (
        budget is None or found.cost_usd <= max(budget, 0.0) * (1 + 1e-9) + 1e-9
    )
    if found.status is not SolveStatus.OPTIMAL or found.cost_usd is None or not affordable:
        return _relaxed(problem, terms, budget, found.cost_usd, on_demand_only=on_demand_only)

    prices: tuple[ShadowPrice, ...] = ()
    if explained_count:
        prices = shadow_prices(
            problem,
            found,
            on_demand_only=on_demand_only,
            exact=model.cell_count <= EXACT_PRICES_UP_TO,
            count=explained_count,
        )
    values = without_delay(problem, found, at_most_usd=budget)
    bound = lower_bound(problem, on_demand_only=on_demand_only).usd if with_bound else None
    hours = model.hours(values)
    return Allocation(
        status=AllocationStatus.RELAXED if homeless else AllocationStatus.OPTIMAL,
        shares=first_shares(hours, model.bounds_s),
        hours=hours,
        interval_bounds_s=model.bounds_s,
        objective_value=found.cost_usd,
        objective_unit="USD",
        cost_usd=model.cost_usd(values),
        lower_bound_usd=None if bound is None else min(bound, found.cost_usd),
        relaxed=homeless,
        shadow_prices=prices,
        extra_usd_per_hour=extra_usd_per_hour(problem, found),
        value_usd_per_step=value_usd_per_step(problem, found),
        smallest_sufficient_budget_usd=found.cost_usd + problem.standing_usd,
    )


def money_left_usd(problem: AllocationProblem) -> float | None:
    """What may still be committed: the budget less what is committed already."""
    if problem.budget_left_usd is None:
        return None
    return problem.budget_left_usd - problem.standing_usd


def nothing(
    problem: AllocationProblem,
    status: AllocationStatus,
    message: str,
    *,
    relaxed: tuple[RelaxedPromise, ...] = (),
    cost_usd: float | None = None,
    smallest_sufficient_budget_usd: float | None = None,
) -> Allocation:
    """Allocate nothing, for a reason."""
    return Allocation(
        status=status,
        shares=np.zeros((len(problem.jobs), len(problem.pools))),
        objective_value=cost_usd,
        objective_unit="USD",
        cost_usd=cost_usd,
        lower_bound_usd=cost_usd,
        relaxed=relaxed,
        smallest_sufficient_budget_usd=smallest_sufficient_budget_usd,
        message=message,
    )


def first_shares(hours: FloatArray, bounds_s: FloatArray) -> FloatArray:
    """(m, R) share of the first interval, rounded to 1e-6 so that noise never ranks jobs."""
    share = hours[:, :, 0] / ((bounds_s[1] - bounds_s[0]) / S_PER_H)
    rounded: FloatArray = np.round(np.clip(share, 0.0, 1.0), 6)
    return rounded


def _relaxed(
    problem: AllocationProblem,
    terms: PairTerms,
    budget_usd: float | None,
    cost_with_all_kept_usd: float | None,
    *,
    on_demand_only: bool,
) -> Allocation:
    """Release what cannot be kept and plan the rest."""
    sufficient = cost_with_all_kept_usd
    plan: RelaxedPlan | None = None
    if sufficient is None:
        # First without the budget: which promises no money can keep, and what the others cost.
        plan = relax(problem, terms, budget_usd=None)
        if plan is None:
            return _greedy(problem, terms, None, "the relaxed problem was not solved")
        kept = without(terms, plan.undone_share > UNDONE_SHARE)
        freed = build_planning_model(problem, kept, Purpose.PLAN, free_deadlines=plan.late)
        cheapest = least_cost(freed)
        sufficient = cheapest.cost_usd if cheapest.cost_usd is not None else plan.cost_usd
    if plan is None or (budget_usd is not None and plan.cost_usd > max(budget_usd, 0.0)):
        plan = relax(problem, terms, budget_usd=budget_usd)
        if plan is None:
            return _greedy(problem, terms, None, "the relaxed problem was not solved")
    promises = relaxed_promises(problem, plan, budget_usd=budget_usd, sufficient_usd=sufficient)
    enough = sufficient + problem.standing_usd
    hours = plan.model.hours(plan.values)
    if not hours.any():
        return nothing(
            problem,
            AllocationStatus.INFEASIBLE,
            "the budget pays for no work" if budget_usd is not None else "no work can be placed",
            relaxed=promises,
            cost_usd=0.0,
            smallest_sufficient_budget_usd=enough,
        )
    undone: BoolArray = plan.undone_share > UNDONE_SHARE
    bound = lower_bound(
        problem, on_demand_only=on_demand_only, free_deadlines=plan.late, without_jobs=undone
    )
    work_value = np.zeros(len(problem.jobs))
    steps = np.array([job.steps_left for job in problem.jobs], dtype=np.float64)
    cost_per_step = plan.model.terms.usd_to_finish.min(axis=1, initial=np.inf)
    known = plan.model.active & np.isfinite(cost_per_step)
    work_value[known] = cost_per_step[known] / steps[known]
    return Allocation(
        status=AllocationStatus.RELAXED,
        shares=first_shares(hours, plan.model.bounds_s),
        hours=hours,
        interval_bounds_s=plan.model.bounds_s,
        objective_value=plan.cost_usd,
        objective_unit="USD",
        cost_usd=plan.cost_usd,
        lower_bound_usd=None if bound.usd is None else min(bound.usd, plan.cost_usd),
        relaxed=promises,
        extra_usd_per_hour=np.zeros(len(problem.pools)),
        value_usd_per_step=work_value,
        smallest_sufficient_budget_usd=enough,
        message="" if plan.chosen_exactly else "the choice of deadlines is not proved best",
    )


def _greedy(
    problem: AllocationProblem, terms: PairTerms, model: PlanningModel | None, message: str
) -> Allocation:
    """Stand in for a solver that failed."""
    model = model or build_planning_model(problem, terms, Purpose.PLAN)
    hours, undone = greedy_hours(problem, model, money_left_usd(problem))
    relaxed = tuple(
        RelaxedPromise(
            job=problem.jobs[row].name,
            promise="deadline" if problem.jobs[row].deadline_s is not None else "completion",
            reason="the greedy fall-back found no room for it",
        )
        for row in np.flatnonzero(undone)
    )
    cost = float((hours.sum(axis=2) * terms.cost_usd_per_hour).sum())
    return Allocation(
        status=AllocationStatus.FALLBACK,
        shares=first_shares(hours, model.bounds_s),
        hours=hours,
        interval_bounds_s=model.bounds_s,
        objective_value=cost,
        objective_unit="USD",
        cost_usd=cost,
        relaxed=relaxed,
        message=f"greedy plan, because the solver failed ({message})",
    )
