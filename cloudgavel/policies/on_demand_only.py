"""The baseline without spot: what the same promises cost on machines nobody takes away."""

from dataclasses import dataclass

from cloudgavel.policies.allocation import Allocation
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.policies.rented_plan import EXPLAINED_COUNT, cheapest_plan
from cloudgavel.pricing.offer import CapacityType


@dataclass(frozen=True, kw_only=True)
class OnDemandOnly:
    """``min_cost`` over on-demand and reserved pools; a job's ``spot_only`` is not looked at."""

    explained_count: int = EXPLAINED_COUNT
    capacity_types = frozenset({CapacityType.ON_DEMAND, CapacityType.RESERVED})
    name = "on_demand_only"
    summary = "min_cost without spot: the baseline that savings are measured against"
    source = "min_cost restricted to on-demand columns"

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Plan at least cost without spot."""
        return cheapest_plan(problem, on_demand_only=True, explained_count=self.explained_count)
