"""One number for a whole rented fleet: from a level to a due time for every job.

Every objective beyond cost is a rule that makes all due times later as its level L grows:

| policy | due time of job j, from now | level at the best |
|---|---|---|
| makespan | ``L`` | the last end F, s |
| max-min fairness | ``arrival_j + L H_j / w_j`` | 1 / (least share of top speed) |
| finish-time fairness | ``L iso_j - elapsed_j`` | rho, worst finish over finish in isolation |

H_j is the time on the fastest pool, ``arrival_j`` its release or the due time of what it comes
after, iso_j the time with its own part of every limit. The least level whose due times
the planning LP can keep within the budget is the optimum (``least_level``).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cloudgavel.policies.intervals import chain_windows, rows_before, topological
from cloudgavel.policies.pair_terms import S_PER_H, PairTerms
from cloudgavel.policies.problem import AllocationProblem, FloatArray

DueTimes = Callable[[float], FloatArray]
"""Level -> (m,) due times in seconds from now, each growing with the level."""


def makespan_due(problem: AllocationProblem, terms: PairTerms) -> DueTimes:
    """Everything is due at the level itself, in seconds."""
    return lambda level: np.full(len(problem.jobs), level)


def slowdown_due(problem: AllocationProblem, terms: PairTerms) -> DueTimes:
    """Job j is due ``level / w_j`` times its least time after it can begin.

    Its mean rate until then is then ``w_j / level`` of its top speed. With claims w_j of
    ``claims``; jobs that can run nowhere are due at once and are not looked at.
    """
    span_s = _finite(terms.fastest_h) * S_PER_H / claims(problem, terms)
    return _chained(problem, span_s)


def finish_time_due(problem: AllocationProblem, terms: PairTerms) -> DueTimes:
    """Job j is due at ``level x iso_j`` after its arrival, of which ``elapsed_j`` has gone by.

    ``iso_j`` (Themis) is what its work so far would have taken alone (``extra`` key
    ``isolated_so_far_s`` (m,); ``elapsed_s`` if not given) plus what is left alone; for what comes
    ``after`` other jobs, after their isolated end.
    """
    jobs = problem.jobs
    alone_s = isolated_s(problem, terms)
    elapsed_s = np.array([job.elapsed_s for job in jobs], dtype=np.float64)
    so_far_s = np.asarray(problem.extra.get("isolated_so_far_s", elapsed_s), dtype=np.float64)
    before = rows_before(jobs)
    own_s = so_far_s + alone_s
    for row in topological(before):
        own_s[row] += max((own_s[earlier] for earlier in before[row]), default=0.0)
    arrival_s = np.array([max(job.release_s, 0.0) for job in jobs], dtype=np.float64)
    return lambda level: arrival_s + level * own_s - elapsed_s


def isolated_s(problem: AllocationProblem, terms: PairTerms) -> FloatArray:
    """(m,) seconds each job needs alone with its part of the budget and of every limit.

    On the best single pool it can pay for (or, if none, on its cheapest): part ``w_j / sum w`` of
    the money, of every quota and of the spend rate; where a gang needs more of a limit than that
    part, it runs in turns.
    """
    share = claims(problem, terms)
    able = np.isfinite(terms.fastest_h)
    share = share / max(float(share[able].sum()), 1e-300)
    stretch = np.ones(terms.usable.shape)

    def in_turns(used: FloatArray, limit: float) -> None:
        part = np.maximum(share[:, None] * max(limit, 0.0), 1e-300)
        np.maximum(stretch, used[None, :] / part, out=stretch)

    for quota in problem.quotas:
        in_turns(np.array(quota.coefficients) * terms.instances, quota.limit)
    if problem.max_usd_per_hour is not None:
        in_turns(terms.usd_per_hour, problem.max_usd_per_hour)
    hours = np.where(terms.usable, terms.hours_to_finish * stretch, np.inf)
    cost = terms.usd_to_finish
    money = np.full(len(problem.jobs), np.inf)
    if problem.budget_left_usd is not None:
        money = share * max(problem.budget_left_usd - problem.standing_usd, 0.0)
    affordable = np.where(cost <= money[:, None] * (1 + 1e-9), hours, np.inf)
    best = affordable.min(axis=1, initial=np.inf)
    if hours.shape[1]:
        cheapest = hours[np.arange(len(hours)), np.argmin(cost, axis=1)]
        best = np.where(np.isfinite(best), best, cheapest)
    return _finite(best) * S_PER_H


def claims(problem: AllocationProblem, terms: PairTerms) -> FloatArray:
    """(m,) w_j: a job's weight; jobs of one ``entity`` divide a claim of 1 by their weights.

    An owner with ten jobs therefore claims as much as one with a single job of weight 1. Weights
    that are not positive count as one millionth.
    """
    weight = np.array([max(job.weight, 1e-6) for job in problem.jobs], dtype=np.float64)
    able = np.isfinite(terms.fastest_h)
    total: dict[str, float] = {}
    for row, job in enumerate(problem.jobs):
        if job.entity is not None and able[row]:
            total[job.entity] = total.get(job.entity, 0.0) + float(weight[row])
    return np.array(
        [
            weight[row] if job.entity is None else weight[row] / total.get(job.entity, 1.0)
            for row, job in enumerate(problem.jobs)
        ],
        dtype=np.float64,
    )


def with_due_times(
    problem: AllocationProblem, terms: PairTerms, due_s: FloatArray
) -> AllocationProblem:
    """Return the problem with every due time as a deadline, where the deadline is not earlier."""
    able = np.isfinite(terms.fastest_h)
    jobs = tuple(
        replace(job, deadline_s=float(due_s[row]))
        if able[row] and (job.deadline_s is None or due_s[row] < job.deadline_s)
        else job
        for row, job in enumerate(problem.jobs)
    )
    return replace(problem, jobs=jobs)


def planned_ends_s(problem: AllocationProblem, terms: PairTerms) -> FloatArray:
    """(m,) deadlines of a problem with due times, chains divided as plans divide them."""
    fastest_s = terms.fastest_h * S_PER_H
    return chain_windows(problem.jobs, fastest_s, milestones=True).deadline_s


def lowest_level(problem: AllocationProblem, terms: PairTerms, due: DueTimes) -> float:
    """Least level at which every job alone, on its fastest pools, would be in time."""
    fastest_s = terms.fastest_h * S_PER_H
    able = np.isfinite(fastest_s)
    before = rows_before(problem.jobs)
    ends = np.array([max(job.release_s, 0.0) for job in problem.jobs]) + fastest_s
    for row in topological(before):
        starts = [ends[earlier] for earlier in before[row] if able[earlier]]
        ends[row] = max(ends[row], max(starts, default=0.0) + fastest_s[row])
    return level_for(due, ends, able)


def level_for(due: DueTimes, ends_s: FloatArray, able: Sequence[bool] | FloatArray) -> float:
    """Least level, to 1e-12 of itself, whose due times are not before ``ends_s``."""
    mask = np.asarray(able, dtype=bool)

    def enough(level: float) -> bool:
        return bool((due(level)[mask] >= ends_s[mask]).all())

    high = 1.0
    while not enough(high) and high < 1e18:
        high *= 4.0
    low = 0.0
    for _ in range(200):
        if high - low <= 1e-12 * high:
            break
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _chained(problem: AllocationProblem, span_s: FloatArray) -> DueTimes:
    """``arrival_j + level span_j``, the arrival being the due time of what it comes after."""
    release_s = np.array([max(job.release_s, 0.0) for job in problem.jobs])
    before = rows_before(problem.jobs)
    order = topological(before) if any(before) else []

    def due(level: float) -> FloatArray:
        due_s = release_s + level * span_s
        for row in order:
            for earlier in before[row]:
                due_s[row] = max(due_s[row], due_s[earlier] + level * span_s[row])
        return np.asarray(due_s, dtype=np.float64)

    return due


def _finite(hours: FloatArray) -> FloatArray:
    return np.where(np.isfinite(hours), hours, 0.0)
