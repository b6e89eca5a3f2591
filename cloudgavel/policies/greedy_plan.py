"""A plan without a solver: each job on the cheapest pool that still makes its deadline."""

import numpy as np

from cloudgavel.policies.pair_terms import S_PER_H
from cloudgavel.policies.planning_lp import PlanningModel
from cloudgavel.policies.problem import AllocationProblem, BoolArray, FloatArray


def greedy_hours(
    problem: AllocationProblem, model: PlanningModel, budget_usd: float | None
) -> tuple[FloatArray, BoolArray]:
    """Place jobs one by one, the least slack first; ties by name.

    Returns (m, R, I) hours and (m,) whether the job is left unplaced. Quotas, the spend rate, the
    budget and ``max_cost`` hold; a job is placed whole or not at all.
    """
    terms, bounds = model.terms, model.bounds_s
    length_h = np.diff(bounds) / S_PER_H
    hours = np.zeros((*terms.usable.shape, length_h.size))
    unplaced = np.zeros(len(problem.jobs), dtype=bool)
    quota_left = [quota.limit * length_h for quota in problem.quotas]
    rate = problem.max_usd_per_hour
    rate_left = np.full(length_h.size, np.inf) if rate is None else rate * length_h
    money = np.inf if budget_usd is None else max(budget_usd, 0.0)
    window_h = (model.windows.deadline_s - model.windows.release_s) / S_PER_H
    slack = window_h - terms.fastest_h
    order = sorted(
        np.flatnonzero(model.active), key=lambda row: (slack[row], problem.jobs[row].name)
    )
    for row in order:
        job = problem.jobs[row]
        cap_h = np.zeros(length_h.size)
        own = (model.segments.job == row) & ~model.segments.late
        cap_h[model.segments.interval[own]] = model.segments.length_s[own] / S_PER_H
        allowed = min(
            money, np.inf if job.max_cost_left_usd is None else max(job.max_cost_left_usd, 0.0)
        )
        unplaced[row] = True
        for column in np.argsort(terms.usd_to_finish[row], kind="stable"):
            if not terms.usable[row, column]:
                break
            if terms.usd_to_finish[row, column] > allowed:
                break
            room = np.minimum(cap_h, terms.available_share[column] * cap_h)
            for left, quota in zip(quota_left, problem.quotas, strict=True):
                used = quota.coefficients[column] * terms.instances[column]
                if used > 0:
                    room = np.minimum(room, np.maximum(left, 0.0) / used)
            if terms.usd_per_hour[column] > 0:
                room = np.minimum(room, np.maximum(rate_left, 0.0) / terms.usd_per_hour[column])
            needed = float(terms.hours_to_finish[row, column])
            before = np.concatenate([[0.0], np.cumsum(room)[:-1]])
            taken = np.clip(needed - before, 0.0, room)
            if taken.sum() < needed * (1 - 1e-9):
                continue
            hours[row, column] = taken
            for left, quota in zip(quota_left, problem.quotas, strict=True):
                left -= quota.coefficients[column] * terms.instances[column] * taken
            rate_left = rate_left - terms.usd_per_hour[column] * taken
            money -= float(terms.usd_to_finish[row, column])
            unplaced[row] = False
            break
    return hours, unplaced
