"""Planning LP and covering: whole calls (build, solve, read back) by size and by severity.

``python -m benchmarks.table planning covering``: 6, 50, 200 and 1,000 jobs on 20 to 60 offers.
Severities: ``mild`` quotas rarely bind; ``hard`` quotas bind; ``tight`` also quarters the
deadlines; ``half budget`` pays for half; makespan and fairness with any budget and with 1.3 times
the least cost.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from benchmarks.measuring import Call, Case, allocating, benchmark
from cloudgavel.policies.base import Policy
from cloudgavel.policies.cover_request import CoverCandidate, CoverJob, CoverOffer, CoverRequest
from cloudgavel.policies.covering import cover, reservation_usd_per_s
from cloudgavel.policies.min_cost import MinCost
from cloudgavel.policies.min_makespan import MinMakespan
from cloudgavel.policies.on_demand_only import OnDemandOnly
from cloudgavel.policies.problem import AllocationProblem, JobRow, Pool, QuotaGroup
from cloudgavel.policies.rented_fairness import RentedFinishTimeFairness, RentedMaxMinFairness
from cloudgavel.pricing.offer import CapacityType

POOLS = {6: 20, 50: 40, 200: 40, 1000: 60}
GOALS_S = {(1000, "mild"): 4.0, (1000, "hard"): 4.0}


def fleet_problem(job_count: int, pool_count: int, severity: str = "mild") -> AllocationProblem:
    """Random jobs of 2-20 h with deadlines of 20-80 h on offers of 1, 4 and 8 accelerators."""
    dice = np.random.default_rng(7)
    speed = dice.uniform(0.5, 8, pool_count)
    pools = []
    for column in range(pool_count):
        g = [1, 4, 8][column % 3]
        k = g if dice.random() < 0.5 else 1
        spot = column % 2 == 0
        price = speed[column] * g * dice.uniform(0.5, 1.5) * (0.35 if spot else 1.0)
        pools.append(
            Pool(
                label=f"o{column}*{k}",
                offer_id=f"o{column}",
                accelerator=f"a{column % 5}",
                capacity_type=CapacityType.SPOT if spot else CapacityType.ON_DEMAND,
                gang_size=k,
                accelerators_per_instance=g,
                shareable=True,
                price_usd_per_hour=float(price),
                interruption_rate_per_hour=0.05 if spot else 0.0,
                availability_share=0.8 if spot else 1.0,
            )
        )
    gangs = np.array([pool.gang_size for pool in pools])
    rates = speed * gangs**0.9 * dice.uniform(0.7, 1.3, (job_count, pool_count))
    feasible = dice.random((job_count, pool_count)) < 0.8
    steps = dice.uniform(2, 20, job_count) * 3600 * np.median(rates, axis=1)
    rates[~feasible] = np.nan
    slack = 0.25 if severity == "tight" else 1.0
    jobs = tuple(
        JobRow(
            name=f"j{row:04d}",
            steps_left=float(steps[row]),
            deadline_s=None
            if dice.random() < 0.2
            else float(dice.choice(np.linspace(20, 80, 40))) * 3600 * slack,
            weight=float(dice.integers(1, 4)),
        )
        for row in range(job_count)
    )
    limit = 2 + job_count * (0.5 if severity == "mild" else 0.06)
    quotas = tuple(
        QuotaGroup(
            name=f"q{number}",
            coefficients=tuple(float(column % 4 == number) for column in range(pool_count)),
            limit=limit,
        )
        for number in range(4)
    )
    return AllocationProblem(
        jobs=jobs,
        pools=tuple(pools),
        throughput_steps_per_s=rates,
        feasible=feasible,
        change_over_s=np.full((job_count, pool_count), 180.0),
        quotas=quotas,
    )


def cover_request(job_count: int, offer_count: int, *, limited: bool) -> CoverRequest:
    """Half of the jobs must progress; offers of 1, 4 and 8 accelerators."""
    dice = np.random.default_rng(7)
    offers = tuple(
        CoverOffer(
            offer_id=f"o{n:02d}",
            usd_per_hour=float(dice.uniform(0.5, 3)) * g,
            accelerators=g,
            shareable=True,
            vcpus=8.0 * g,
            new_limit=max(2, job_count // 20) if limited else None,
        )
        for n, g in enumerate([1, 4, 8][n % 3] for n in range(offer_count))
    )
    jobs = []
    for row in range(job_count):
        k = int(dice.choice([1, 1, 2, 4, 8]))
        rates = {n: float(dice.uniform(1, 5)) for n in range(offer_count)}
        rents = {n: o.usd_per_hour * -(-k // o.accelerators) for n, o in enumerate(offers)}
        values = reservation_usd_per_s(rents, rates)
        jobs.append(
            CoverJob(
                name=f"j{row:04d}",
                candidates=tuple(
                    CoverCandidate(
                        pool=n,
                        offer_id=offer.offer_id,
                        gang_size=k,
                        value_usd_per_s=values[n],
                        change_over_usd=0.05,
                        vcpus=4.0 * min(k, offer.accelerators),
                    )
                    for n, offer in enumerate(offers)
                ),
                must_progress=row % 2 == 0,
            )
        )
    return CoverRequest(jobs=tuple(jobs), offers=offers, horizon_s=3600.0)


def planning(
    policy: Policy, job_count: int, severity: str, budget_share: float | None = None
) -> Callable[[], Call]:
    """Prepare a whole call, with part of what the mild problem's cheapest plan costs."""

    def problem() -> AllocationProblem:
        asked = fleet_problem(job_count, POOLS[job_count], severity)
        if budget_share is None:
            return asked
        mild = fleet_problem(job_count, POOLS[job_count])
        enough = MinCost(explained_count=0).allocate(mild).smallest_sufficient_budget_usd
        assert enough is not None
        return replace(asked, budget_left_usd=enough * budget_share)

    return allocating(policy, problem)


def placing(job_count: int, *, limited: bool) -> Callable[[], Call]:
    """Prepare a covering."""

    def prepare() -> Call:
        request = cover_request(job_count, POOLS[job_count], limited=limited)

        def call() -> str:
            placed = cover(request)
            return f"{placed.status} {placed.objective_usd:.2f} USD"

        return call

    return prepare


@benchmark("planning")
def cases() -> Iterator[Case]:
    for job_count in POOLS:
        for policy in (MinCost(), OnDemandOnly()):
            for severity in ("mild", "hard", "tight"):
                is_timed = policy.name == "min_cost"
                yield Case(
                    size=job_count,
                    severity=f"{policy.name} {severity}",
                    goal_s=GOALS_S.get((job_count, severity)) if is_timed else None,
                    prepare=planning(policy, job_count, severity),
                )
        yield Case(
            size=job_count,
            severity="min_cost half budget",
            prepare=planning(MinCost(), job_count, "mild", 0.5),
        )


@benchmark("rented_levels")
def level_cases() -> Iterator[Case]:
    for job_count in POOLS:
        for level in (MinMakespan(), RentedMaxMinFairness(), RentedFinishTimeFairness()):
            asked = (("mild", None), ("mild", 1.3), ("hard", 1.3))
            for severity, share in asked if job_count <= 200 else asked[:1]:
                money = "any budget" if share is None else f"{share} x least"
                yield Case(
                    size=job_count,
                    severity=f"{level.name} {severity} {money}",
                    prepare=planning(level, job_count, severity, share),
                )


@benchmark("covering")
def covering_cases() -> Iterator[Case]:
    for job_count in POOLS:
        for limited in (False, True):
            yield Case(
                size=job_count,
                severity="limited" if limited else "free",
                prepare=placing(job_count, limited=limited),
            )
