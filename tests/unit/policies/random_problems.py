"""Hypothesis strategies for small problems of rented fleets."""

import numpy as np
from hypothesis import strategies as st

from cloudgavel.policies.problem import AllocationProblem, JobRow, Pool, QuotaGroup
from cloudgavel.pricing.offer import CapacityType


@st.composite
def problems(
    draw: st.DrawFn, *, tight: bool = False, max_jobs: int = 4, max_pools: int = 5
) -> AllocationProblem:
    m = draw(st.integers(1, max_jobs))
    count = draw(st.integers(1, max_pools))
    dice = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pools = []
    for column in range(count):
        g = int(dice.choice([1, 1, 2, 4, 8]))
        k = int(dice.choice([k for k in (1, 2, 4, 8, 16) if k <= 2 * g]))
        spot = bool(dice.random() < 0.5)
        pools.append(
            Pool(
                label=f"o{column}*{k}",
                offer_id=f"o{column}",
                accelerator="X",
                capacity_type=CapacityType.SPOT if spot else CapacityType.ON_DEMAND,
                gang_size=k,
                accelerators_per_instance=g,
                shareable=bool(dice.random() < 0.8),
                price_usd_per_hour=float(dice.uniform(0.2, 4.0)) * g * (0.3 if spot else 1.0),
                interruption_rate_per_hour=float(dice.uniform(0, 0.2)) if spot else 0.0,
                availability_share=float(dice.uniform(0.3, 1.0)) if spot else 1.0,
            )
        )
    rates = dice.uniform(0.5, 5.0, (m, count)) * np.array([p.gang_size for p in pools]) ** 0.8
    feasible = dice.random((m, count)) < 0.85
    feasible[np.arange(m), dice.integers(0, count, m)] = True
    rates[~feasible] = np.nan
    instants = dice.uniform(2, 30, 3) * 3600
    jobs = []
    for row in range(m):
        hours = float(dice.uniform(0.5, 8.0))
        best = float(np.nanmax(rates[row]))
        release = float(dice.choice([0.0, 0.0, 3600.0]))
        deadline: float | None = None
        if dice.random() < 0.8:
            deadline = release + float(dice.choice(instants)) * (0.3 if tight else 1.0)
        jobs.append(
            JobRow(
                name=f"j{row}",
                steps_left=best * 3600 * hours * (1.0 if tight else 0.4),
                release_s=release,
                deadline_s=deadline,
                weight=float(dice.integers(1, 5)),
                held_pool=int(dice.integers(0, count)) if dice.random() < 0.3 else None,
            )
        )
    quotas = []
    if dice.random() < 0.6:
        counted = (dice.random(count) < 0.7).astype(float)
        limit = float(dice.uniform(1.0, 6.0))
        quotas.append(QuotaGroup(name="family", coefficients=tuple(counted), limit=limit))
    return AllocationProblem(
        jobs=tuple(jobs),
        pools=tuple(pools),
        throughput_steps_per_s=rates,
        feasible=feasible,
        change_over_s=np.full((m, count), float(dice.choice([0.0, 180.0]))),
        quotas=tuple(quotas),
        max_usd_per_hour=float(dice.uniform(4.0, 40.0)) if dice.random() < 0.3 else None,
        extra={"lost_work_s": dice.uniform(0, 600, m)},
    )
