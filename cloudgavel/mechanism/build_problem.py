"""From an arranged state to the problem a policy solves."""

import math
from dataclasses import dataclass

import numpy as np

from cloudgavel.mechanism.change_over import restore_s
from cloudgavel.mechanism.guards.promises import Promises, expected_way
from cloudgavel.mechanism.situation import Situation
from cloudgavel.policies.problem import AllocationProblem, JobRow, QuotaGroup

NARROW_SHARE = 1.05
"""A planned deadline leaves at least this many times the fastest way's time, where there is it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedDeadline:
    """A deadline as plans see it."""

    at_s: float
    margin_s: float
    """How much earlier than the true one."""


def planned_deadlines(situation: Situation, promises: Promises) -> dict[str, PlannedDeadline]:
    """Deadlines that the policy is to meet: promised or wished, margin taken off.

    The margin is ``deadline_margin_share`` of the time from release to deadline. It shrinks when
    the job would have no way in time otherwise. A deadline that cannot be met any more becomes the
    earliest finish, as long as there is money for it.
    """
    state = situation.state
    aimed = set(promises.held) | promises.wished
    planned: dict[str, PlannedDeadline] = {}
    for row, job in enumerate(situation.jobs):
        name = job.spec.name
        true_at_s = situation.deadlines[name]
        if name not in aimed or true_at_s is None:
            continue
        fastest_s = min(
            expected_way(situation, row, each).seconds for each in situation.options(row)
        )
        begin_at_s = max(state.now_s, job.release_at_s)
        least_at_s = begin_at_s + fastest_s * NARROW_SHARE
        span_s = max(0.0, true_at_s - max(job.release_at_s, state.created_at_s))
        wanted_at_s = true_at_s - state.deadline_margin_share * span_s
        at_s = min(true_at_s, max(wanted_at_s, least_at_s))
        if begin_at_s + fastest_s > true_at_s:
            at_s = least_at_s
        planned[name] = PlannedDeadline(at_s=at_s, margin_s=true_at_s - at_s)
    return planned


def build_problem(
    situation: Situation,
    planned: dict[str, PlannedDeadline],
    *,
    budget_left_usd: float | None,
    standing_usd: float,
) -> AllocationProblem:
    """Put an arranged state into the one input of every policy; instants count from now."""
    state = situation.state
    names = set(situation.rows)
    rows = []
    for job in situation.jobs:
        name = job.spec.name
        aim = planned.get(name)
        cap = job.spec.max_cost_usd
        rows.append(
            JobRow(
                name=name,
                steps_left=float(
                    max(1, job.steps_left if name in situation.held else job.steps_left_if_moved)
                ),
                release_s=max(0.0, job.release_at_s - state.now_s),
                deadline_s=None if aim is None else aim.at_s - state.now_s,
                weight=job.spec.weight,
                max_cost_left_usd=None if cap is None else max(0.0, cap - job.spent_usd),
                entity=job.spec.entity,
                spot_only=job.spec.spot_only,
                held_pool=situation.held.get(name),
                elapsed_s=max(0.0, state.now_s - max(job.release_at_s, state.created_at_s)),
                after=tuple(each for each in job.waits_for if each in names),
            )
        )
    change_over = np.array(
        [[each.boot_s + restore_s(job) for each in situation.columns] for job in situation.jobs],
        dtype=np.float64,
    ).reshape(len(situation.jobs), len(situation.columns))
    quotas = tuple(
        QuotaGroup(
            name=quota.name,
            limit=quota.limit,
            coefficients=tuple(
                quota.units_per_instance.get(each.pool.offer_id, 0.0) for each in situation.columns
            ),
        )
        for quota in state.quotas
    )
    return AllocationProblem(
        jobs=tuple(rows),
        pools=tuple(each.pool for each in situation.columns),
        throughput_steps_per_s=situation.rates.copy(),
        feasible=np.isfinite(situation.rates),
        change_over_s=change_over,
        quotas=tuple(each for each in quotas if any(each.coefficients)),
        budget_left_usd=budget_left_usd,
        max_usd_per_hour=state.max_usd_per_hour,
        standing_usd=standing_usd,
        extra={}
        if state.store_cloud is None
        else {"traffic_usd_per_hour": situation.traffic_usd_per_hour},
    )


def money_left_usd(situation: Situation) -> float | None:
    """Budget less what is spent; ``None`` without a budget."""
    budget = situation.state.budget_usd
    return None if budget is None else max(0.0, budget - situation.state.spent_usd)


def is_certainly_late(planned: PlannedDeadline | None, by_s: float | None) -> bool:
    """Whether a policy's lateness goes beyond the margin, so that the true deadline is missed."""
    if planned is None or by_s is None or not math.isfinite(by_s):
        return False
    return by_s > max(0.0, planned.margin_s) + 60.0
