"""The planning LP written a second time, from the formulas, as dense rows for scipy's linprog.

Shares no code with cloudgavel/policies. Exact elementary intervals between all events, no column
generation, no scaling. Only for problems without ``after``.
"""

import itertools
import math

import numpy as np
from scipy.optimize import linprog

from cloudgavel.policies.problem import AllocationProblem


def hours_needed(problem: AllocationProblem, row: int, column: int, *, plan: bool) -> float:
    job, pool = problem.jobs[row], problem.pools[column]
    if not problem.feasible[row, column]:
        return math.inf
    if job.spot_only and pool.capacity_type != "spot":
        return math.inf
    machines = max(1, math.ceil(pool.gang_size / pool.accelerators_per_instance))
    for quota in problem.quotas:
        if quota.coefficients[column] * machines > quota.limit:
            return math.inf
    rate_cap = problem.max_usd_per_hour
    if rate_cap is not None and pool.price_usd_per_hour * machines > rate_cap:
        return math.inf
    hours = job.steps_left / problem.throughput_steps_per_s[row, column] / 3600
    if plan:
        change_h = problem.change_over_s[row, column] / 3600
        lost_h = float(problem.extra.get("lost_work_s", np.zeros(len(problem.jobs)))[row]) / 3600
        hours *= 1 + pool.interruption_rate_per_hour * machines * (change_h + lost_h)
        if job.held_pool != column:
            hours += change_h
    return hours


def paid(problem: AllocationProblem, column: int, *, plan: bool) -> float:
    pool = problem.pools[column]
    k, g = pool.gang_size, pool.accelerators_per_instance
    if not pool.shareable:
        return math.ceil(k / g)
    if k >= g or not plan:
        return k / g
    demand = 0
    for row in range(len(problem.jobs)):
        demand += max(
            (
                other.gang_size
                for c, other in enumerate(problem.pools)
                if other.offer_id == pool.offer_id
                and math.isfinite(hours_needed(problem, row, c, plan=plan))
            ),
            default=0,
        )
    return k / min(g, max(demand, k))


def oracle(
    problem: AllocationProblem,
    *,
    plan: bool = True,
    late: frozenset[int] = frozenset(),
    budget_usd: float | None = None,
    end_s: float | None = None,
) -> float | None:
    """Least cost, ``None`` if infeasible. Jobs in ``late`` have no deadline."""
    jobs, pools = problem.jobs, problem.pools
    m, columns = len(jobs), len(pools)
    need = np.array(
        [[hours_needed(problem, j, r, plan=plan) for r in range(columns)] for j in range(m)]
    ).reshape(m, columns)
    known = need[np.isfinite(need)]
    deadlines = [
        math.inf if job.deadline_s is None or j in late else job.deadline_s / 3600
        for j, job in enumerate(jobs)
    ]
    releases = [job.release_s / 3600 for job in jobs]
    if end_s is None:
        last = max([0.0, *releases, *(d for d in deadlines if math.isfinite(d))])
        end = last + 50 * float(known.sum()) + 1
    else:
        end = end_s / 3600
    cuts = {0.0, end, *(t for t in (*releases, *deadlines) if 0 < t < end)}
    bounds = sorted(cuts)
    spans = list(itertools.pairwise(bounds))

    names, cost, top = [], [], []
    for j, r, (i, (a, b)) in itertools.product(range(m), range(columns), enumerate(spans)):
        if not math.isfinite(need[j, r]) or a < releases[j] - 1e-12 or b > deadlines[j] + 1e-12:
            continue
        spot = pools[r].capacity_type == "spot"
        names.append((j, r, i))
        cost.append(pools[r].price_usd_per_hour * paid(problem, r, plan=plan))
        top.append((b - a) * (pools[r].availability_share if spot and plan else 1.0))
    if not names:
        return 0.0 if m == 0 else None
    rows, limits = [], []

    def add(coefficients: list[float], limit: float) -> None:
        rows.append(coefficients)
        limits.append(limit)

    for j in range(m):
        add([-1 / need[j, r] if jj == j else 0.0 for jj, r, _ in names], -1.0)
        for i, (a, b) in enumerate(spans):
            add([float(jj == j and ii == i) for jj, _, ii in names], b - a)
        if jobs[j].max_cost_left_usd is not None:
            add(
                [c * (n[0] == j) for c, n in zip(cost, names, strict=True)],
                jobs[j].max_cost_left_usd,
            )
    for i, (a, b) in enumerate(spans):
        for quota in problem.quotas:
            add(
                [
                    quota.coefficients[r] * paid(problem, r, plan=plan) * (ii == i)
                    for _, r, ii in names
                ],
                quota.limit * (b - a),
            )
        if problem.max_usd_per_hour is not None:
            add(
                [c * (n[2] == i) for c, n in zip(cost, names, strict=True)],
                problem.max_usd_per_hour * (b - a),
            )
    if budget_usd is not None:
        add(list(cost), budget_usd)
    found = linprog(
        cost,
        A_ub=np.array(rows),
        b_ub=np.array(limits),
        bounds=[(0, t) for t in top],
        method="highs",
    )
    return float(found.fun) if found.status == 0 else None


def least_late_weight(
    problem: AllocationProblem, *, budget_usd: float | None = None
) -> float | None:
    """Least total weight of deadlines that must go so that all work can still be done."""
    promised = [j for j, job in enumerate(problem.jobs) if job.deadline_s is not None]
    best: float | None = None
    for size in range(len(promised) + 1):
        for late in itertools.combinations(promised, size):
            if oracle(problem, late=frozenset(late), budget_usd=budget_usd) is None:
                continue
            weight = sum(problem.jobs[j].weight for j in late)
            best = weight if best is None else min(best, weight)
    return best
