"""What a job costs and how long it takes on a pool: the numbers every rented-fleet LP is made of.

| symbol | here | meaning |
|---|---|---|
| T_jr | ``throughput_steps_per_s`` | steps/s of the whole gang |
| H_jr | ``hours_to_finish`` | hours on r for all steps left (S_j / T_jr, plus overheads in plans) |
| k/g | ``instances`` | instances one job takes |
| p_r k/g | ``usd_per_hour`` | what one job pays there an hour |
| t_jr | ``traffic_usd_per_hour`` | what its checkpoints cost an hour on their way (plans) |
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cloudgavel.policies.problem import AllocationProblem, BoolArray, FloatArray
from cloudgavel.pricing.offer import CapacityType

S_PER_H = 3600.0


class Purpose(StrEnum):
    """What the LP's answer is for."""

    BOUND = "bound"
    """No schedule may beat it: no overheads, spot always to be had, shares of instances."""
    PLAN = "plan"
    """To be carried out: change-overs, expected interruptions and availability are counted."""


@dataclass(frozen=True, kw_only=True)
class PairTerms:
    """Arrays over m jobs and R pools; ``hours_to_finish`` is inf where not ``usable``."""

    usable: BoolArray
    """(m, R): measured, feasible, allowed, and one gang fits every quota and the spend rate."""
    hours_to_finish: FloatArray
    """(m, R)."""
    instances: FloatArray
    """(R,): what part of an instance, or how many, one job pays for."""
    usd_per_hour: FloatArray
    """(R,): price of ``instances``."""
    traffic_usd_per_hour: FloatArray
    """(m, R): beside that, for checkpoints on their way to the store; 0 in bounds."""
    available_share: FloatArray
    """(R,): share of an interval in which the pool can be used (1 in bounds)."""

    @property
    def usd_to_finish(self) -> FloatArray:
        """(m, R): cost of doing all steps left on one pool, inf where not usable."""
        cost = np.full(self.usable.shape, np.inf)
        np.multiply(self.hours_to_finish, self.cost_usd_per_hour, out=cost, where=self.usable)
        return cost

    @property
    def cost_usd_per_hour(self) -> FloatArray:
        """(m, R): rent and traffic of one job."""
        return self.usd_per_hour[None, :] + self.traffic_usd_per_hour

    @property
    def fastest_h(self) -> FloatArray:
        """(m,): hours each job needs at the least, inf if it can run nowhere."""
        if self.hours_to_finish.shape[1] == 0:
            return np.full(self.hours_to_finish.shape[0], np.inf)
        return np.asarray(self.hours_to_finish.min(axis=1), dtype=np.float64)


def pair_terms(
    problem: AllocationProblem, purpose: Purpose, *, on_demand_only: bool = False
) -> PairTerms:
    """Derive the terms of one problem.

    Plans add to S_j/T_jr one change-over (not where the job is already), and per hour of work on a
    pool that loses machines at rate h, ``h n (change-over + lost work)`` hours, n the machines of
    the gang; expected lost work comes from ``problem.extra["lost_work_s"]`` (m,), 0 if not given.
    What checkpoints cost on their way comes from ``problem.extra["traffic_usd_per_hour"]`` (m, R).
    A price that is not a number, a rate that is not known and steps that are not finite make a
    pair unusable, as if it were absent. ``on_demand_only`` also ignores ``spot_only``: it answers
    what the same jobs would cost without spot.
    """
    jobs, pools = problem.jobs, problem.pools
    price = np.array([pool.price_usd_per_hour for pool in pools], dtype=np.float64)
    spot = np.array([pool.capacity_type is CapacityType.SPOT for pool in pools], dtype=bool)
    whole = np.array([math.ceil(pool.instances_per_job - 1e-9) for pool in pools], dtype=np.float64)
    steps = np.array([job.steps_left for job in jobs], dtype=np.float64)
    plan = purpose is Purpose.PLAN
    available = np.array(
        [
            pool.availability_share if is_spot and plan else 1.0
            for pool, is_spot in zip(pools, spot, strict=True)
        ],
        dtype=np.float64,
    )

    fits = np.isfinite(price) & (price >= 0) & (available > 0)
    for quota in problem.quotas:
        used = np.array(quota.coefficients, dtype=np.float64) * whole
        fits &= used <= quota.limit * (1 + 1e-9)
    if problem.max_usd_per_hour is not None:
        fits &= price * whole <= problem.max_usd_per_hour * (1 + 1e-9)
    usable = np.array(problem.feasible, dtype=bool) & fits[None, :]
    usable &= (np.isfinite(steps) & (steps > 0))[:, None]
    if on_demand_only:
        usable &= ~spot[None, :]
    else:
        spot_only = np.array([job.spot_only for job in jobs], dtype=bool)
        usable &= ~spot_only[:, None] | spot[None, :]

    hours = np.full(usable.shape, np.inf)
    np.divide(
        np.broadcast_to(steps[:, None] / S_PER_H, usable.shape),
        problem.throughput_steps_per_s,
        out=hours,
        where=usable,
    )
    usable &= np.isfinite(hours) & (hours > 0)
    if plan:
        change_h = np.where(usable, problem.change_over_s, 0.0) / S_PER_H
        change_h = np.where(np.isfinite(change_h), change_h, 0.0)
        lost_h = np.asarray(problem.extra.get("lost_work_s", np.zeros(len(jobs)))) / S_PER_H
        rate = np.array([pool.interruption_rate_per_hour for pool in pools], dtype=np.float64)
        rate = np.where(np.isfinite(rate), rate, 0.0) * np.maximum(whole, 1.0)
        overhead = 1.0 + rate[None, :] * (change_h + lost_h[:, None])
        held = np.array([-1 if job.held_pool is None else job.held_pool for job in jobs])
        elsewhere = np.arange(len(pools))[None, :] != held[:, None]
        hours = np.where(usable, hours * overhead + np.where(elsewhere, change_h, 0.0), np.inf)
    else:
        hours = np.where(usable, hours, np.inf)

    instances = _paid_instances(problem, usable, whole, plan=plan)
    return PairTerms(
        usable=usable,
        hours_to_finish=hours,
        instances=instances,
        usd_per_hour=np.where(fits, price * instances, 0.0),
        traffic_usd_per_hour=_traffic_usd_per_hour(problem, plan=plan),
        available_share=available,
    )


def _traffic_usd_per_hour(problem: AllocationProblem, *, plan: bool) -> FloatArray:
    given = problem.extra.get("traffic_usd_per_hour")
    if given is None or not plan:
        return np.zeros((len(problem.jobs), len(problem.pools)))
    return np.asarray(given, dtype=np.float64)


def _paid_instances(
    problem: AllocationProblem, usable: BoolArray, whole: FloatArray, *, plan: bool
) -> FloatArray:
    """(R,) instances one job pays for.

    What cannot be shared is paid whole. A gang smaller than a shareable instance pays k/g; in
    plans k/f, f the accelerators that the jobs at hand can fill at most, so that a lone job pays
    for the whole instance it would be alone on.
    """
    pools = problem.pools
    paid = np.array([pool.instances_per_job for pool in pools], dtype=np.float64)
    shareable = np.array([pool.shareable for pool in pools], dtype=bool)
    paid = np.where(shareable, paid, whole)
    if not plan or not pools:
        return paid
    gang = np.array([pool.gang_size for pool in pools], dtype=np.float64)
    full = np.array([pool.accelerators_per_instance for pool in pools], dtype=np.float64)
    by_offer: dict[str, list[int]] = {}
    for column, pool in enumerate(pools):
        by_offer.setdefault(pool.offer_id, []).append(column)
    for columns in by_offer.values():
        gangs = np.where(usable[:, columns], gang[columns][None, :], 0.0)
        demand = float(gangs.max(axis=1).sum()) if gangs.size else 0.0
        for column in columns:
            if shareable[column] and 0 < gang[column] < full[column] and demand > 0:
                filled = min(full[column], max(demand, gang[column]))
                paid[column] = gang[column] / filled
    return paid
