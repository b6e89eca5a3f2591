"""``plan --frontier``: the earliest end against what it costs.

Every point is a whole run in virtual time under the makespan policy with its budget, whole
instances included, so giving that budget gives that makespan. Budgets reach from the smallest that
keeps every deadline to the one beyond which more money makes nothing earlier; between two
neighbours the widest gap in makespan is looked into first.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from cloudgavel.documents.encode import iso_utc
from cloudgavel.documents.frontier import FrontierDocument, FrontierPoint
from cloudgavel.jobs.spec import RunSpec
from cloudgavel.policies.allocation import Allocation
from cloudgavel.policies.base import Policy
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.base import Quota
from cloudgavel.runtime.account import deadline_met
from cloudgavel.runtime.assemble import bind_policy, expected_market, prices_as_of
from cloudgavel.runtime.cluster_state import deadline_at_s
from cloudgavel.runtime.loop import Decide
from cloudgavel.simulator.dry_run import DryRun
from cloudgavel.simulator.plan import (
    FIRST_STEP_SHARE,
    FRUGAL_POLICY,
    bundled_offers,
    keeps_every_promise,
    remembering,
    smallest_sufficient_usd,
    up_to_cent,
)
from cloudgavel.simulator.virtual_run import VirtualRun, virtual_run

MAKESPAN_POLICY = "makespan"
"""Its name in jobs.yaml."""
LADDER_RUNS = 6
"""Budgets tried at most."""
SMALLEST_STEP = 1.03
"""Budgets closer than this are one."""
SMALLEST_GAP = 1.005
"""Makespans closer than this are one: nothing is looked for between them."""


def cost_makespan_frontier(
    run: RunSpec,
    *,
    budget_usd: float | None = None,
    now_s: float,
    offers: Sequence[Offer] | None = None,
    dry: DryRun | None = None,
    decide_of: Callable[[Policy], Decide] = bind_policy,
) -> FrontierDocument:
    """Return the non-dominated points of cost and makespan; nothing is rented, deterministic.

    ``budget_usd``: the largest looked at. ``offers`` instead of the bundled catalogue's; ``dry``:
    clouds whose stock and limits are kept. If the deadlines cannot all be kept, points keep what
    they can (``feasible`` is false); below the smallest sufficient budget there are none.
    """
    from cloudgavel.policies.min_makespan import MinMakespan, makespan_lower_bound_s
    from cloudgavel.policies.registry import policy_named

    rentable = tuple(offers) if offers is not None else bundled_offers(run)
    quotas: tuple[Quota, ...] = ()
    if dry is not None:
        rentable, quotas = dry.sold(rentable), dry.quotas()
    first = _FirstProblem(MinMakespan(explained_count=0))
    early = remembering(decide_of(first))
    # As ``plan`` has it, prices and all: the same bound and the same smallest budget.
    frugal = remembering(decide_of(policy_named(FRUGAL_POLICY)))
    count = 0

    def simulate(decide: Decide, limit_usd: float | None, best_effort: bool) -> VirtualRun:
        nonlocal count
        count += 1
        return virtual_run(
            run,
            offers=rentable,
            market=expected_market(run),
            decide=decide,
            now_s=now_s,
            budget_usd=limit_usd,
            best_effort=best_effort,
            quotas=quotas,
        )

    free = simulate(frugal, None, False)
    feasible = keeps_every_promise(free)
    smallest = None
    if feasible:
        smallest = smallest_sufficient_usd(free, lambda usd: simulate(frugal, usd, False))
        feasible = smallest is not None
    if not feasible:
        free = simulate(frugal, None, True)
    low = smallest or up_to_cent(free.peak_exposure_usd * (1 + FIRST_STEP_SHARE))
    fastest = simulate(early, None, not feasible)
    # With what the unlimited run spends and commits, or else with its reserve for promises too.
    highs = [
        max(low, up_to_cent(peak * (1 + FIRST_STEP_SHARE)))
        for peak in (fastest.peak_exposure_usd, fastest.peak_reserve_usd)
    ]
    if budget_usd is not None:
        highs = [min(each, budget_usd) for each in highs]
    earliest = _point(fastest, highs[-1])

    def point(limit_usd: float) -> FrontierPoint | None:
        return _point(simulate(early, limit_usd, not feasible), limit_usd)

    tried = _ladder(low, highs, point, earliest) if highs[0] >= low else []
    if feasible:
        tried = [each for each in tried if each.deadlines_met == each.deadlines]
    problem = first.problem
    points = tuple(
        each
        if problem is None
        else replace(
            each,
            makespan_lower_bound_s=makespan_lower_bound_s(
                replace(problem, budget_left_usd=each.budget_usd)
            ),
        )
        for each in non_dominated(tried)
    )
    return FrontierDocument(
        name=run.name,
        policy=MAKESPAN_POLICY,
        rehearsal=not run.clouds,
        prices_as_of=prices_as_of(rentable),
        created_at=iso_utc(now_s),
        job_count=len(run.jobs),
        feasible=feasible,
        budget_usd=budget_usd,
        smallest_sufficient_budget_usd=smallest,
        cost_lower_bound_usd=free.plans[0].lower_bound_usd if free.plans else None,
        points=points,
        runs=count,
    )


def non_dominated(points: Sequence[FrontierPoint]) -> list[FrontierPoint]:
    """Points with rising budgets and costs and falling makespans; of equals the cheapest."""
    kept: list[FrontierPoint] = []
    for each in sorted(points, key=lambda point: (point.budget_usd, point.cost_usd)):
        if kept and each.makespan_s >= min(point.makespan_s for point in kept):
            continue
        kept = [point for point in kept if point.cost_usd < each.cost_usd]
        kept.append(each)
    return kept


def _ladder(
    low: float,
    highs: Sequence[float],
    point: Callable[[float], FrontierPoint | None],
    earliest: FrontierPoint | None,
) -> list[FrontierPoint]:
    """Try both ends, then budgets between the neighbours furthest apart in makespan.

    The upper end is the first of ``highs`` that has the makespan of ``earliest``, or the last.
    """
    tried = {low: point(low)}
    for high in highs:
        if high not in tried:
            tried[high] = point(high)
        found = tried[high]
        if found and earliest and found.makespan_s <= earliest.makespan_s * SMALLEST_GAP:
            break
    while len(tried) < LADDER_RUNS:
        rungs = sorted(tried)
        widest: tuple[float, float] | None = None
        for below, above in itertools.pairwise(rungs):
            one, other = tried[below], tried[above]
            if above < below * SMALLEST_STEP or other is None:
                continue
            gap = float("inf") if one is None else one.makespan_s / max(other.makespan_s, 1e-9)
            if gap > SMALLEST_GAP and (widest is None or gap > widest[0]):
                widest = (gap, up_to_cent((below * above) ** 0.5))
        if widest is None or widest[1] in tried:
            break
        tried[widest[1]] = point(widest[1])
    return [each for each in tried.values() if each is not None]


def _point(done: VirtualRun, limit_usd: float) -> FrontierPoint | None:
    """Return the point of one run; ``None`` if it does not finish its jobs."""
    state = done.state
    ends = [job.finished_at_s for job in state.jobs.values() if job.finished_at_s is not None]
    if not done.complete or not ends:
        return None
    promised = [
        job
        for job in state.jobs.values()
        if deadline_at_s(job.spec, state.created_at_s) is not None
    ]
    return FrontierPoint(
        budget_usd=limit_usd,
        cost_usd=state.spent_usd,
        makespan_s=max(ends) - state.created_at_s,
        makespan_lower_bound_s=None,
        deadlines_met=sum(deadline_met(job, state) is True for job in promised),
        deadlines=len(promised),
    )


class _FirstProblem:
    """A policy that remembers the problem it was first asked about."""

    def __init__(self, policy: Policy) -> None:
        self.name = policy.name
        self.summary = policy.summary
        self.source = policy.source
        self.problem: AllocationProblem | None = None
        self._policy = policy

    def allocate(self, problem: AllocationProblem) -> Allocation:
        """Answer as the policy does."""
        if self.problem is None:
            self.problem = problem
        return self._policy.allocate(problem)
