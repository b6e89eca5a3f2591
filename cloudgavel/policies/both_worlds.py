"""Objectives that a rented fleet and a fixed cluster have in common, under one name.

A problem says itself which of the two it is (``cluster_accelerators``).
"""

from dataclasses import dataclass, replace

from cloudgavel.policies.allocation import Allocation
from cloudgavel.policies.base import BOTH_WORLDS, Policy
from cloudgavel.policies.fixed.finish_time_fairness import FinishTimeFairness
from cloudgavel.policies.fixed.makespan import Makespan
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.min_makespan import MinMakespan
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.policies.rented_fairness import RentedFinishTimeFairness, RentedMaxMinFairness
from cloudgavel.policies.rented_plan import EXPLAINED_COUNT


@dataclass(frozen=True, kw_only=True)
class BothWorlds:
    """One objective, stated over hours of offers or over shares of a cluster."""

    rented: MinMakespan | RentedMaxMinFairness | RentedFinishTimeFairness
    fixed: Policy
    explained_count: int = EXPLAINED_COUNT
    plans_for = BOTH_WORLDS
    spends_budget = True

    @property
    def name(self) -> str:
        """Name in both worlds."""
        return self.fixed.name

    @property
    def summary(self) -> str:
        """What it does, in words of the fixed cluster."""
        return self.fixed.summary

    @property
    def source(self) -> str:
        """Where the formula comes from, in both worlds."""
        return f"{self.fixed.source}; rented: {self.rented.source}"

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Ask the one that the problem is for."""
        if problem.cluster_accelerators is not None:
            return self.fixed.allocate(problem)
        return replace(self.rented, explained_count=self.explained_count).allocate(problem)


max_min_fairness = BothWorlds(rented=RentedMaxMinFairness(), fixed=MaxMinFairness())
finish_time_fairness = BothWorlds(rented=RentedFinishTimeFairness(), fixed=FinishTimeFairness())
makespan = BothWorlds(rented=MinMakespan(), fixed=Makespan())
