"""The named variants: every policy's type-blind twin, and its form with space sharing."""

from cloudgavel.policies.fixed.allox import AlloX
from cloudgavel.policies.fixed.fifo import Fifo
from cloudgavel.policies.fixed.finish_time_fairness import FinishTimeFairness
from cloudgavel.policies.fixed.makespan import Makespan
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.fixed.max_total_throughput import MaxTotalThroughput
from cloudgavel.policies.fixed.share_policy import SharePolicy
from cloudgavel.policies.fixed.shortest_remaining import ShortestRemaining
from cloudgavel.policies.fixed.throughput_per_usd import (
    ThroughputPerUsd,
    ThroughputPerUsdWithDeadlines,
)
from cloudgavel.policies.fixed.water_filling import HierarchicalWaterFilling, WaterFilling

_FAMILY: tuple[type[SharePolicy], ...] = (
    MaxMinFairness,
    WaterFilling,
    HierarchicalWaterFilling,
    FinishTimeFairness,
    Makespan,
    Fifo,
    ShortestRemaining,
    MaxTotalThroughput,
    ThroughputPerUsd,
    ThroughputPerUsdWithDeadlines,
)

TWINS: dict[str, SharePolicy] = {
    policy.name: policy
    for kind in _FAMILY
    for policy in (kind(agnostic=True), kind(space_sharing=True))
}
"""By name."""
TWINS[AlloX.name + "_agnostic"] = AlloX(agnostic=True)


def __getattr__(name: str) -> SharePolicy:
    """Let ``module:name`` point to a variant by its name."""
    try:
        return TWINS[name]
    except KeyError:
        raise AttributeError(name) from None
