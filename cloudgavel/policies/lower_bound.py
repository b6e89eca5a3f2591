"""What no schedule can beat: the planning LP without overheads, with spot always to be had."""

from dataclasses import dataclass, replace

import numpy as np

from cloudgavel.policies.least_cost import least_cost
from cloudgavel.policies.pair_terms import PairTerms, Purpose, pair_terms
from cloudgavel.policies.planning_lp import build_planning_model
from cloudgavel.policies.problem import AllocationProblem, BoolArray
from cloudgavel.policies.solve import SolveStatus


@dataclass(frozen=True, kw_only=True)
class LowerBound:
    """The bound, or why there is none."""

    usd: float | None
    """``None``: the promises cannot be kept even so, or the solver failed."""
    status: SolveStatus


def lower_bound(
    problem: AllocationProblem,
    *,
    on_demand_only: bool = False,
    free_deadlines: BoolArray | None = None,
    without_jobs: BoolArray | None = None,
) -> LowerBound:
    """Cost that every schedule keeping the promises must reach, at the problem's prices.

    ``free_deadlines`` and ``without_jobs`` (m,) leave out promises that were released and jobs
    that are not finished; the budget is not looked at. No jobs to run: 0. Set a run against it by
    giving the problem as it was at the start, with the prices that were then paid.
    """
    terms = pair_terms(problem, Purpose.BOUND, on_demand_only=on_demand_only)
    if without_jobs is not None:
        terms = without(terms, without_jobs)
    model = build_planning_model(
        problem,
        terms,
        Purpose.BOUND,
        free_deadlines=free_deadlines,
        fill_intervals=False,
    )
    if not model.active.any():
        return LowerBound(usd=0.0, status=SolveStatus.OPTIMAL)
    found = least_cost(model)
    return LowerBound(usd=found.cost_usd, status=found.status)


def without(terms: PairTerms, jobs: BoolArray) -> PairTerms:
    """Take jobs out of the terms: no pool is usable for them."""
    return replace(
        terms,
        usable=terms.usable & ~jobs[:, None],
        hours_to_finish=np.where(jobs[:, None], np.inf, terms.hours_to_finish),
    )
