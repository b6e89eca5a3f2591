"""Laws of the planning policies, against an oracle written separately."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from cloudgavel.policies.allocation import Allocation, AllocationStatus
from cloudgavel.policies.column_generation import ColumnGeneration
from cloudgavel.policies.least_cost import least_cost
from cloudgavel.policies.lower_bound import lower_bound
from cloudgavel.policies.min_cost import MinCost
from cloudgavel.policies.min_makespan import MinMakespan
from cloudgavel.policies.on_demand_only import OnDemandOnly
from cloudgavel.policies.pair_terms import Purpose, pair_terms
from cloudgavel.policies.planning_lp import build_planning_model
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.policies.rented_fairness import RentedFinishTimeFairness, RentedMaxMinFairness
from tests.unit.policies.oracle import hours_needed, least_late_weight, oracle, paid
from tests.unit.policies.random_problems import problems

few = settings(max_examples=40, deadline=None)
rare = settings(max_examples=8, deadline=None)
fewer = settings(max_examples=15, deadline=None)
QUICK = MinCost(explained_count=0)


def assert_sound(problem: AllocationProblem, answer: Allocation) -> None:
    """No NaN, capacities kept, exact zeros where infeasible."""
    assert answer.shares.shape == (len(problem.jobs), len(problem.pools))
    assert np.isfinite(answer.shares).all()
    assert (answer.shares >= 0).all() and (answer.shares <= 1).all()
    assert (answer.shares[~problem.feasible] == 0).all()
    for value in (answer.objective_value, answer.cost_usd, answer.lower_bound_usd):
        assert value is None or np.isfinite(value)
    if answer.hours is None:
        return
    hours = answer.hours
    assert answer.interval_bounds_s is not None
    length = np.diff(answer.interval_bounds_s) / 3600
    assert np.isfinite(hours).all() and (hours >= 0).all()
    assert (hours[~problem.feasible] == 0).all()
    assert (hours.sum(axis=1) <= length[None, :] * (1 + 1e-6) + 1e-9).all()
    for quota in problem.quotas:
        used = sum(
            quota.coefficients[r] * paid(problem, r, plan=True) * hours[:, r].sum(axis=0)
            for r in range(len(problem.pools))
        )
        assert (used <= quota.limit * length * (1 + 1e-6) + 1e-9).all()


@few
@given(problems())
def test_the_least_cost_is_the_oracles(problem: AllocationProblem) -> None:
    answer = QUICK.allocate(problem)
    assert_sound(problem, answer)
    expected = oracle(problem)
    if expected is None:
        assert answer.status in (
            AllocationStatus.RELAXED,
            AllocationStatus.INFEASIBLE,
            AllocationStatus.EMPTY,
        )
        assert answer.relaxed
    else:
        assert answer.status is AllocationStatus.OPTIMAL
        assert answer.objective_value == pytest.approx(expected, rel=1e-6, abs=1e-7)
        assert answer.cost_usd == pytest.approx(expected, rel=3e-6, abs=1e-6)


@few
@given(problems(tight=True))
def test_the_bound_is_the_oracles_and_below_the_plan(problem: AllocationProblem) -> None:
    expected = oracle(problem, plan=False)
    found = lower_bound(problem)
    if expected is None:
        assert found.usd is None or _has_homeless(problem)
    elif not _has_homeless(problem):
        assert found.usd == pytest.approx(expected, rel=1e-6, abs=1e-7)
    answer = QUICK.allocate(problem)
    if answer.status is AllocationStatus.OPTIMAL:
        assert found.usd is not None and answer.cost_usd is not None
        assert found.usd <= answer.cost_usd * (1 + 1e-6) + 1e-9


def _has_homeless(problem: AllocationProblem) -> bool:
    return any(
        not np.isfinite(
            [hours_needed(problem, j, r, plan=False) for r in range(len(problem.pools))]
        ).any()
        for j in range(len(problem.jobs))
    )


@fewer
@given(problems(tight=True))
def test_the_promises_that_go_weigh_least(problem: AllocationProblem) -> None:
    if _has_homeless(problem):
        return
    answer = QUICK.allocate(problem)
    assert_sound(problem, answer)
    late = {promise.job for promise in answer.relaxed if promise.promise == "deadline"}
    weight = sum(job.weight for job in problem.jobs if job.name in late)
    assert weight == pytest.approx(least_late_weight(problem))
    if late:
        assert answer.status is AllocationStatus.RELAXED
        for promise in answer.relaxed:
            assert promise.reason and promise.by_s is not None and promise.by_s >= 0


@few
@given(problems(tight=True))
def test_column_generation_equals_the_whole_problem(problem: AllocationProblem) -> None:
    terms = pair_terms(problem, Purpose.PLAN)
    model = build_planning_model(problem, terms, Purpose.PLAN)
    whole = least_cost(model, ColumnGeneration(model, whole=True))
    some = least_cost(model, ColumnGeneration(model, whole=False))
    assert some.status == whole.status
    assert some.cost_usd == (
        None if whole.cost_usd is None else pytest.approx(whole.cost_usd, rel=1e-6, abs=1e-8)
    )


@fewer
@given(problems())
def test_later_deadlines_and_dearer_money_obey_their_laws(problem: AllocationProblem) -> None:
    base = QUICK.allocate(problem)
    if base.status is not AllocationStatus.OPTIMAL:
        return
    assert base.objective_value is not None
    later = replace(
        problem,
        jobs=tuple(
            replace(j, deadline_s=None if j.deadline_s is None else j.deadline_s * 1.3)
            for j in problem.jobs
        ),
    )
    eased = QUICK.allocate(later)
    assert eased.objective_value is not None
    assert eased.objective_value <= base.objective_value * (1 + 1e-6) + 1e-9
    doubled = QUICK.allocate(
        replace(
            problem,
            pools=tuple(
                replace(p, price_usd_per_hour=2 * p.price_usd_per_hour) for p in problem.pools
            ),
            max_usd_per_hour=None
            if problem.max_usd_per_hour is None
            else 2 * problem.max_usd_per_hour,
        )
    )
    assert doubled.objective_value == pytest.approx(2 * base.objective_value, rel=1e-6)


@fewer
@given(problems())
def test_relabelling_and_absent_pairs_change_nothing(problem: AllocationProblem) -> None:
    base = QUICK.allocate(problem)
    jobs = np.arange(len(problem.jobs))[::-1]
    pools = np.arange(len(problem.pools))[::-1]
    turned = AllocationProblem(
        jobs=tuple(
            replace(
                problem.jobs[j],
                held_pool=None
                if problem.jobs[j].held_pool is None
                else len(pools) - 1 - problem.jobs[j].held_pool,
            )
            for j in jobs
        ),
        pools=tuple(problem.pools[r] for r in pools),
        throughput_steps_per_s=problem.throughput_steps_per_s[np.ix_(jobs, pools)],
        feasible=problem.feasible[np.ix_(jobs, pools)],
        change_over_s=problem.change_over_s[np.ix_(jobs, pools)],
        quotas=tuple(
            replace(q, coefficients=tuple(q.coefficients[r] for r in pools)) for q in problem.quotas
        ),
        max_usd_per_hour=problem.max_usd_per_hour,
        extra={"lost_work_s": problem.extra["lost_work_s"][jobs]},
    )
    other = QUICK.allocate(turned)
    assert other.status == base.status
    if base.status is AllocationStatus.OPTIMAL:
        assert other.objective_value == pytest.approx(base.objective_value, rel=1e-6)

    # A pool nobody was measured on is as good as absent.
    column = np.full((len(problem.jobs), 1), np.nan)
    wider = replace(
        problem,
        pools=(*problem.pools, replace(problem.pools[0], label="new", offer_id="new")),
        throughput_steps_per_s=np.hstack([problem.throughput_steps_per_s, column]),
        feasible=np.hstack([problem.feasible, np.zeros_like(column, dtype=bool)]),
        change_over_s=np.hstack([problem.change_over_s, column]),
        quotas=tuple(replace(q, coefficients=(*q.coefficients, 1.0)) for q in problem.quotas),
    )
    same = QUICK.allocate(wider)
    assert same.status == base.status
    if base.status is AllocationStatus.OPTIMAL:
        assert same.objective_value == pytest.approx(base.objective_value, rel=1e-6)


@fewer
@given(problems())
def test_no_money_beyond_the_budget_and_enough_is_enough(problem: AllocationProblem) -> None:
    free = QUICK.allocate(problem)
    if free.status is not AllocationStatus.OPTIMAL:
        return
    enough = free.smallest_sufficient_budget_usd
    assert enough is not None
    kept = QUICK.allocate(replace(problem, budget_left_usd=enough))
    assert kept.status is AllocationStatus.OPTIMAL
    previous = -1.0
    for share in (0.3, 0.6, 0.98):
        poor = QUICK.allocate(replace(problem, budget_left_usd=enough * share))
        assert_sound(problem, poor)
        assert poor.status in (AllocationStatus.RELAXED, AllocationStatus.INFEASIBLE)
        assert poor.relaxed
        assert poor.cost_usd is not None and poor.cost_usd <= enough * share * (1 + 1e-6) + 1e-6
        assert poor.smallest_sufficient_budget_usd == pytest.approx(enough, rel=1e-6)
        late = {p.job for p in poor.relaxed if p.promise == "deadline"}
        held = sum(j.weight for j in problem.jobs if j.deadline_s and j.name not in late)
        assert held >= previous - 1e-9, "a larger budget never keeps less"
        previous = held


@rare
@given(problems(max_jobs=3))
def test_makespan_is_the_earliest_end_the_budget_pays_for(problem: AllocationProblem) -> None:
    cheapest = QUICK.allocate(problem)
    if cheapest.status is not AllocationStatus.OPTIMAL:
        return
    assert cheapest.cost_usd is not None
    for budget in (None, 1.3 * cheapest.cost_usd):
        bounded = replace(problem, budget_left_usd=budget)
        answer = MinMakespan(explained_count=0).allocate(bounded)
        assert_sound(bounded, answer)
        assert answer.status is AllocationStatus.OPTIMAL
        assert answer.objective_unit == "s" and answer.objective_value is not None
        end = answer.objective_value
        assert oracle(problem, budget_usd=budget, end_s=end * (1 + 1e-5)) is not None
        assert oracle(problem, budget_usd=budget, end_s=end * (1 - 1e-4)) is None
        if budget is not None:
            assert answer.cost_usd is not None and answer.cost_usd <= budget * (1 + 1e-5)


@rare
@given(problems(max_jobs=3))
def test_more_money_never_makes_an_objective_worse(problem: AllocationProblem) -> None:
    enough = QUICK.allocate(problem).smallest_sufficient_budget_usd
    if enough is None or not enough > 0:
        return
    for policy, sign in (
        (MinMakespan(explained_count=0), 1),
        (RentedMaxMinFairness(explained_count=0), -1),
    ):
        previous = None
        for budget in (1.001 * enough, 1.2 * enough, 2 * enough, None):
            answer = policy.allocate(replace(problem, budget_left_usd=budget))
            assert_sound(problem, answer)
            if answer.due_s is None:
                continue
            assert answer.objective_value is not None and answer.cost_usd is not None
            assert budget is None or answer.cost_usd <= budget * (1 + 1e-6)
            level = sign * answer.objective_value
            assert previous is None or level <= previous + 1e-4 * abs(previous)
            previous = level


@rare
@given(problems(max_jobs=3))
def test_twice_the_prices_and_twice_the_money_is_the_same(problem: AllocationProblem) -> None:
    enough = QUICK.allocate(problem).smallest_sufficient_budget_usd
    if enough is None or not enough > 0:
        return
    poor = replace(problem, budget_left_usd=1.2 * enough)
    rate = problem.max_usd_per_hour
    rich = replace(
        poor,
        pools=tuple(
            replace(pool, price_usd_per_hour=2 * pool.price_usd_per_hour) for pool in problem.pools
        ),
        jobs=tuple(
            job
            if job.max_cost_left_usd is None
            else replace(job, max_cost_left_usd=2 * job.max_cost_left_usd)
            for job in problem.jobs
        ),
        budget_left_usd=2.4 * enough,
        max_usd_per_hour=None if rate is None else 2 * rate,
        standing_usd=2 * problem.standing_usd,
    )
    for policy in (MinMakespan(), RentedMaxMinFairness(), RentedFinishTimeFairness()):
        here, there = (replace(policy, explained_count=0).allocate(each) for each in (poor, rich))
        assert here.status is there.status
        if here.due_s is not None and here.objective_value is not None:
            assert there.objective_value == pytest.approx(here.objective_value, rel=1e-4)


@fewer
@given(problems())
def test_without_spot_it_never_costs_less(problem: AllocationProblem) -> None:
    with_spot = QUICK.allocate(problem)
    without = OnDemandOnly(explained_count=0).allocate(problem)
    assert_sound(problem, without)
    for column, pool in enumerate(problem.pools):
        if pool.capacity_type == "spot":
            assert (without.shares[:, column] == 0).all()
    if without.status is AllocationStatus.OPTIMAL and not any(j.spot_only for j in problem.jobs):
        assert with_spot.objective_value is not None and without.objective_value is not None
        assert with_spot.objective_value <= without.objective_value * (1 + 1e-6) + 1e-9
