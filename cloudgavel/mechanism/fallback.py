"""The plan of last resort: every job on its cheapest way in time, one after the other."""

import numpy as np

from cloudgavel.policies.allocation import Allocation, AllocationStatus
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.units import HOUR_S


def greedy_allocation(problem: AllocationProblem, message: str) -> Allocation:
    """Give each job, earliest deadline first, the cheapest column that is in time and has room.

    Total and deterministic. Where nothing is in time the fastest column is taken; what it runs on
    now is kept when it is in time. Status ``FALLBACK`` with ``message``.
    """
    shape = (len(problem.jobs), len(problem.pools))
    shares = np.zeros(shape)
    used = [0.0 for _ in problem.quotas]
    rent = 0.0
    cost = 0.0
    order = sorted(
        range(len(problem.jobs)),
        key=lambda row: (
            problem.jobs[row].deadline_s is None,
            problem.jobs[row].deadline_s or 0.0,
            -problem.jobs[row].weight,
            problem.jobs[row].name,
        ),
    )
    for row in order:
        job = problem.jobs[row]
        ways = []
        for column in np.flatnonzero(problem.feasible[row]):
            index = int(column)
            pool = problem.pools[index]
            held = job.held_pool == index
            start_s = 0.0 if held else float(problem.change_over_s[row, index])
            span_s = start_s + job.steps_left / float(problem.throughput_steps_per_s[row, index])
            hourly = pool.price_usd_per_hour * pool.instances_per_job
            if "traffic_usd_per_hour" in problem.extra:
                hourly += float(problem.extra["traffic_usd_per_hour"][row, index])
            usd = hourly * span_s / HOUR_S
            late = job.deadline_s is not None and job.release_s + span_s > job.deadline_s
            ways.append((late, span_s if late else 0.0, usd, index))
        for _, _, usd, index in sorted(ways):
            pool = problem.pools[index]
            part = pool.instances_per_job
            if any(
                used[number] + quota.coefficients[index] * part > quota.limit + 1e-9
                for number, quota in enumerate(problem.quotas)
            ):
                continue
            hourly = pool.price_usd_per_hour * part
            if problem.max_usd_per_hour is not None and rent + hourly > problem.max_usd_per_hour:
                continue
            for number, quota in enumerate(problem.quotas):
                used[number] += quota.coefficients[index] * part
            rent += hourly
            cost += usd
            shares[row, index] = 1.0
            break
    return Allocation(
        status=AllocationStatus.FALLBACK,
        shares=shares,
        objective_value=cost,
        objective_unit="USD",
        cost_usd=cost,
        message=message,
    )
