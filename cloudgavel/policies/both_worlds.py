"""Objectives that a rented fleet and a fixed cluster have in common, under one name.

A problem says itself which of the two it is (``cluster_accelerators``).
"""

from cloudgavel.policies.allocation import Allocation
from cloudgavel.policies.base import BOTH_WORLDS, Policy
from cloudgavel.policies.fixed.finish_time_fairness import FinishTimeFairness
from cloudgavel.policies.fixed.makespan import Makespan
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.min_makespan import MinMakespan
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.policies.rented_fairness import RentedFinishTimeFairness, RentedMaxMinFairness


class BothWorlds:
    """One objective, stated over hours of offers or over shares of a cluster."""

    plans_for = BOTH_WORLDS
    spends_budget = True

    def __init__(self, *, rented: Policy, fixed: Policy) -> None:
        self.rented = rented
        self.fixed = fixed
        self.name = fixed.name
        self.summary = fixed.summary
        self.source = f"{fixed.source}; rented: {rented.source}"

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Ask the one that the problem is for."""
        asked = self.rented if problem.cluster_accelerators is None else self.fixed
        return asked.allocate(problem)


max_min_fairness = BothWorlds(rented=RentedMaxMinFairness(), fixed=MaxMinFairness())
finish_time_fairness = BothWorlds(rented=RentedFinishTimeFairness(), fixed=FinishTimeFairness())
makespan = BothWorlds(rented=MinMakespan(), fixed=Makespan())
