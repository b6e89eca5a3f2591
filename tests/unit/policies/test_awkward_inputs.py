"""Inputs nobody wishes for: always a clear status, never NaN, never an exception."""

from dataclasses import replace

import numpy as np
import pytest

from cloudgavel.policies import rented_plan
from cloudgavel.policies.allocation import Allocation, AllocationStatus
from cloudgavel.policies.least_cost import LeastCost
from cloudgavel.policies.min_cost import MinCost
from cloudgavel.policies.min_makespan import MinMakespan
from cloudgavel.policies.on_demand_only import OnDemandOnly
from cloudgavel.policies.problem import AllocationProblem, QuotaGroup
from cloudgavel.policies.solve import SolveStatus
from tests.unit.policies.problems import HOUR_S, a_job, a_pool, a_problem, a_spot_pool

POLICIES = (MinCost(), MinMakespan(), OnDemandOnly())
policies = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)


def numbers_of(answer: Allocation) -> list[float]:
    found = [*answer.shares.ravel()]
    for array in (answer.hours, answer.interval_bounds_s, answer.value_usd_per_step):
        found += [] if array is None else [*array.ravel()]
    single = (answer.objective_value, answer.cost_usd, answer.lower_bound_usd)
    found += [value for value in single if value is not None]
    found += [p.by_s for p in answer.relaxed if p.by_s is not None]
    return found


def solved(policy: MinCost | MinMakespan | OnDemandOnly, problem: AllocationProblem) -> Allocation:
    answer = policy.allocate(problem)
    assert np.isfinite(numbers_of(answer)).all()
    return answer


@policies
def test_no_jobs_is_empty_and_free(policy: MinCost) -> None:
    answer = solved(policy, a_problem([], [a_pool()]))
    assert answer.status is AllocationStatus.EMPTY
    assert answer.cost_usd == 0.0
    assert answer.relaxed == ()


@policies
def test_no_pools_names_every_job(policy: MinCost) -> None:
    answer = solved(policy, a_problem([a_job("a"), a_job("b", deadline_s=9.0)], []))
    assert answer.status is AllocationStatus.EMPTY
    assert [promise.job for promise in answer.relaxed] == ["a", "b"]
    assert all(promise.reason for promise in answer.relaxed)


@policies
def test_one_job_without_a_pool_does_not_stop_the_others(policy: MinCost) -> None:
    problem = a_problem([a_job("a"), a_job("b")], [a_pool()], [[1.0], [np.nan]])
    answer = solved(policy, problem)
    assert answer.status is AllocationStatus.RELAXED
    assert [(p.job, p.promise) for p in answer.relaxed] == [("b", "completion")]
    assert answer.shares[0, 0] > 0 and answer.shares[1, 0] == 0


@policies
def test_free_machines_cost_nothing(policy: MinCost) -> None:
    problem = a_problem([a_job(deadline_s=20 * HOUR_S)], [a_pool(price_usd_per_hour=0.0)])
    answer = solved(policy, problem)
    assert answer.status is AllocationStatus.OPTIMAL
    assert answer.cost_usd == 0.0 and answer.lower_bound_usd == 0.0
    assert answer.shares[0, 0] == 1.0, "nothing is won by waiting"


@policies
def test_no_work_left_is_empty(policy: MinCost) -> None:
    answer = solved(policy, a_problem([a_job(steps_left=0.0)], [a_pool()]))
    assert answer.status is AllocationStatus.EMPTY


@policies
@pytest.mark.parametrize("steps", [1e-3, 1e18])
def test_vast_and_tiny_work_beside_ordinary_work(policy: MinCost, steps: float) -> None:
    jobs = [a_job("odd", steps_left=steps), a_job("plain", deadline_s=12 * HOUR_S)]
    answer = solved(policy, a_problem(jobs, [a_pool()]))
    assert answer.status is AllocationStatus.OPTIMAL
    expected = (steps + 10 * HOUR_S) / HOUR_S
    assert answer.cost_usd == pytest.approx(expected, rel=1e-5)


@policies
def test_nine_orders_of_magnitude_between_pools(policy: MinCost) -> None:
    pools = [a_pool("slow", price_usd_per_hour=1e-3), a_pool("fast", price_usd_per_hour=5.0)]
    answer = solved(
        policy, a_problem([a_job(steps_left=1e9, deadline_s=10 * HOUR_S)], pools, [[1e-3, 1e6]])
    )
    assert answer.status is AllocationStatus.OPTIMAL
    assert answer.cost_usd == pytest.approx(5.0 * 1e3 / HOUR_S, rel=1e-4)


@policies
def test_steps_that_are_not_finite_and_prices_that_are_not_numbers_are_absent(
    policy: MinCost,
) -> None:
    jobs = [a_job("endless", steps_left=np.inf), a_job("plain")]
    pools = [a_pool("priced"), a_pool("unpriced", price_usd_per_hour=np.nan)]
    answer = solved(policy, a_problem(jobs, pools))
    assert [p.job for p in answer.relaxed] == ["endless"]
    assert (answer.shares[:, 1] == 0).all()


@policies
def test_a_gang_larger_than_the_quota_has_no_pool(policy: MinCost) -> None:
    pool = a_pool(gang_size=16, accelerators_per_instance=8, price_usd_per_hour=8.0)
    quota = QuotaGroup(name="p4d", coefficients=(1.0,), limit=1.0)
    answer = solved(policy, a_problem([a_job()], [pool], quotas=[quota]))
    assert answer.status is AllocationStatus.EMPTY
    assert answer.relaxed[0].reason == "no pool can run it as asked"


@policies
def test_a_deadline_that_has_passed_stays_a_promise(policy: MinCost) -> None:
    jobs = [a_job("old", deadline_s=-HOUR_S), a_job("new", deadline_s=11 * HOUR_S)]
    answer = solved(policy, a_problem(jobs, [a_pool()]))
    assert answer.status is AllocationStatus.RELAXED
    (promise,) = answer.relaxed
    assert promise.job == "old" and promise.promise == "deadline"
    assert promise.by_s == pytest.approx(11 * HOUR_S, rel=1e-3)
    assert "passed" in promise.reason
    assert answer.shares[0, 0] == 1.0, "late by as little as possible: it starts now"


@policies
@pytest.mark.parametrize("budget", [0.0, -5.0])
def test_no_money_pays_for_nothing_and_says_what_would_do(policy: MinCost, budget: float) -> None:
    problem = a_problem([a_job(deadline_s=20 * HOUR_S)], [a_pool()], budget_left_usd=budget)
    answer = solved(policy, problem)
    assert answer.status is AllocationStatus.INFEASIBLE
    assert (answer.shares == 0).all()
    assert answer.smallest_sufficient_budget_usd == pytest.approx(10.0)
    assert {p.promise for p in answer.relaxed} == {"deadline", "completion"}


@policies
def test_equal_jobs_on_equal_pools(policy: MinCost) -> None:
    jobs = [a_job(f"j{n}", deadline_s=20 * HOUR_S) for n in range(12)]
    pools = [a_pool(f"p{n}") for n in range(4)]
    quota = QuotaGroup(name="all", coefficients=(1.0,) * 4, limit=6.0)
    answer = solved(policy, a_problem(jobs, pools, quotas=[quota]))
    assert answer.status is AllocationStatus.OPTIMAL
    assert answer.cost_usd == pytest.approx(120.0, rel=1e-5)


def test_a_failing_solver_is_replaced_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: object) -> LeastCost:
        return LeastCost(status=SolveStatus.FAILED, lp=None, message="out of luck")  # type: ignore[arg-type]

    monkeypatch.setattr(rented_plan, "least_cost", broken)
    jobs = [a_job("a", deadline_s=12 * HOUR_S), a_job("b", deadline_s=12 * HOUR_S)]
    quota = QuotaGroup(name="one", coefficients=(1.0, 1.0), limit=1.0)
    pools = [a_pool(), a_spot_pool(availability_share=0.5)]
    answer = MinCost().allocate(a_problem(jobs, pools, quotas=[quota]))
    assert answer.status is AllocationStatus.FALLBACK
    assert "out of luck" in answer.message
    assert answer.cost_usd == pytest.approx(10.0)
    assert [p.job for p in answer.relaxed] == ["b"], "the quota holds one at a time"
    rich = MinCost().allocate(a_problem(jobs, pools))
    assert rich.relaxed == () and rich.cost_usd == pytest.approx(20.0)
    poor = MinCost().allocate(replace(a_problem(jobs, pools), budget_left_usd=15.0))
    assert poor.cost_usd == pytest.approx(10.0)
