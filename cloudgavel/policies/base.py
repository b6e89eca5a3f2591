"""What every policy is: one signature for all."""

from typing import Protocol, runtime_checkable

from cloudgavel.policies.allocation import Allocation
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.pricing.offer import CapacityType


@runtime_checkable
class Policy(Protocol):
    """An optimisation problem over effective throughputs.

    ``allocate`` is pure, deterministic and total: it answers every valid problem with a status,
    never with NaN and never with a solver's exception.
    """

    name: str
    summary: str
    """One line for ``cloudgavel policies``."""
    source: str
    """Where the formula comes from."""

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Return the allocation of ``problem``."""
        ...


RENTED_FLEET = "rented fleet"
FIXED_CLUSTER = "fixed cluster"
BOTH_WORLDS = "rented fleet or a fixed cluster"


def world_of(policy: Policy) -> str:
    """What a policy plans for: ``plans_for`` if it says so, else a rented fleet."""
    return str(getattr(policy, "plans_for", RENTED_FLEET))


@runtime_checkable
class SpendsBudget(Protocol):
    """A policy that spends more where there is more: its dearest run says not what is enough."""

    spends_budget: bool


@runtime_checkable
class ChoosesCapacity(Protocol):
    """A policy that rents some capacity types only; rounds rent nothing else in its place."""

    capacity_types: frozenset[CapacityType]
