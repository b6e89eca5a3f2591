"""Builders of allocation problems: defaults for all but what a test is about."""

from collections.abc import Sequence

import numpy as np

from cloudgavel.policies.problem import AllocationProblem, JobRow, Pool, QuotaGroup
from cloudgavel.pricing.offer import CapacityType

HOUR_S = 3600.0


def a_job(name: str = "train", **changes: object) -> JobRow:
    """Ten hours of work at 1 step/s, no deadline."""
    return JobRow(**{"name": name, "steps_left": 10 * HOUR_S, **changes})  # type: ignore[arg-type]


def a_pool(label: str = "v100", **changes: object) -> Pool:
    """A one-accelerator on-demand instance at 1 USD/h."""
    fields: dict[str, object] = {
        "label": label,
        "offer_id": label,
        "accelerator": "V100",
        "capacity_type": CapacityType.ON_DEMAND,
        "gang_size": 1,
        "accelerators_per_instance": 1,
        "shareable": True,
        "price_usd_per_hour": 1.0,
    }
    return Pool(**{**fields, **changes})  # type: ignore[arg-type]


def a_spot_pool(label: str = "v100-spot", **changes: object) -> Pool:
    """The same on spot at a third of the price."""
    return a_pool(
        label, **{"capacity_type": CapacityType.SPOT, "price_usd_per_hour": 1 / 3, **changes}
    )


def a_problem(
    jobs: Sequence[JobRow] = (),
    pools: Sequence[Pool] = (),
    throughput: Sequence[Sequence[float]] | None = None,
    *,
    change_over_s: float = 0.0,
    quotas: Sequence[QuotaGroup] = (),
    **changes: object,
) -> AllocationProblem:
    """All rates 1 step/s unless given; NaN marks a pair that is not feasible."""
    shape = (len(jobs), len(pools))
    rates = np.ones(shape) if throughput is None else np.array(throughput, dtype=float)
    rates = rates.reshape(shape)
    return AllocationProblem(
        jobs=tuple(jobs),
        pools=tuple(pools),
        throughput_steps_per_s=rates,
        feasible=np.isfinite(rates),
        change_over_s=np.full(shape, change_over_s),
        quotas=tuple(quotas),
        **changes,  # type: ignore[arg-type]
    )
