"""What every policy is: one signature for all."""

from typing import Protocol, runtime_checkable

from cloudgavel.policies.allocation import Allocation
from cloudgavel.policies.problem import AllocationProblem


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
