"""Problems by size and severity; every one is made from a seed."""

import numpy as np

from cloudgavel.policies.problem import AllocationProblem, JobRow, Pool
from cloudgavel.policies.sharing import PairSharing
from cloudgavel.pricing.offer import CapacityType

TYPES = ("V100", "P100", "K80")
PRICES = (0.74, 0.43, 0.135)
SEVERITIES = ("different", "roomy", "equal", "near-ties", "nine orders")


def cluster_problem(
    m: int,
    severity: str = "different",
    *,
    kinds: int | None = None,
    sharing: bool = False,
    deadlines: str | None = None,
) -> AllocationProblem:
    """m one-accelerator jobs on three types with m/8 accelerators each (``roomy``: m/3 each).

    ``kinds``: how many different jobs there are (default: all differ). ``deadlines``: ``loose``,
    or ``impossible`` for a third of the jobs.
    """
    dice = np.random.default_rng(7)
    count = kinds or m
    speed = np.exp(dice.normal(0, 0.7, (count, 3))) * np.array([3.0, 1.5, 0.5])
    if severity == "equal":
        speed = np.tile(speed[:1], (count, 1))
    elif severity == "near-ties":
        speed = speed[:1] * (1 + 1e-7 * dice.random((count, 3)))
    elif severity == "nine orders":
        speed *= 10.0 ** dice.uniform(-4, 5, (count, 1))
    of = np.arange(m) % count
    rates = speed[of]
    steps = np.exp(dice.normal(11, 1, m)) * np.median(rates, axis=1)
    best_s = steps / rates.max(axis=1)
    due: list[float | None] = [None] * m
    if deadlines is not None:
        due = (best_s * dice.uniform(20, 60, m)).tolist()
        if deadlines == "impossible":
            due = [each if row % 3 else 0.5 * best_s[row] for row, each in enumerate(due)]
    size = max(1, m // 3 if severity == "roomy" else m // 8)
    retained = dice.uniform(0.3, 0.95, (count, count, 3)) if sharing else np.zeros((1, 1, 3))
    return AllocationProblem(
        jobs=tuple(
            JobRow(
                name=f"j{row}",
                steps_left=float(steps[row]),
                deadline_s=due[row],
                elapsed_s=float(dice.exponential(1e4)),
                entity=f"team{row % 7}/group{row % 3}",
            )
            for row in range(m)
        ),
        pools=tuple(
            Pool(
                label=name,
                offer_id=name,
                accelerator=name,
                capacity_type=CapacityType.RESERVED,
                gang_size=1,
                accelerators_per_instance=1,
                shareable=True,
                price_usd_per_hour=price,
            )
            for name, price in zip(TYPES, PRICES, strict=True)
        ),
        throughput_steps_per_s=rates,
        feasible=np.ones((m, 3), dtype=bool),
        change_over_s=np.zeros((m, 3)),
        cluster_accelerators=(size,) * 3,
        sharing=PairSharing(kind_of_job=of, retained_share=retained) if sharing else None,
    )
