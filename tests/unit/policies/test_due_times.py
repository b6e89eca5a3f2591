"""Makespan and fairness on a rented fleet, against worked answers and a separate oracle."""

from dataclasses import replace

import numpy as np
import pytest

from cloudgavel.policies.allocation import Allocation, AllocationStatus
from cloudgavel.policies.both_worlds import max_min_fairness
from cloudgavel.policies.due_times import claims, finish_time_due, isolated_s, slowdown_due
from cloudgavel.policies.least_level import LevelSearch
from cloudgavel.policies.min_makespan import MinMakespan
from cloudgavel.policies.pair_terms import Purpose, pair_terms
from cloudgavel.policies.problem import AllocationProblem, QuotaGroup
from cloudgavel.policies.rented_fairness import RentedFinishTimeFairness, RentedMaxMinFairness
from tests.unit.policies.oracle import oracle
from tests.unit.policies.problems import HOUR_S, a_job, a_pool, a_problem

SLOW_AND_FAST = [a_pool("slow"), a_pool("fast", price_usd_per_hour=4.0)]
POLICIES = (MinMakespan(), RentedMaxMinFairness(), RentedFinishTimeFairness())


def two_jobs(**changes: object) -> AllocationProblem:
    """Two equal jobs of 10 h on slow (1 USD/h) or 5 h on fast (4 USD/h)."""
    jobs = changes.pop("jobs", [a_job("a"), a_job("b")])
    return a_problem(jobs, SLOW_AND_FAST, [[1.0, 2.0]] * 2, **changes)  # type: ignore[arg-type]


def ends_h(answer: Allocation) -> list[float]:
    """Due times in hours."""
    assert answer.due_s is not None
    return [float(each) / HOUR_S for each in answer.due_s]


def test_without_a_limit_everything_runs_at_top_speed() -> None:
    for policy, value in zip(POLICIES, (5 * HOUR_S, 1.0, 1.0), strict=True):
        answer = policy.allocate(two_jobs())
        assert answer.status is AllocationStatus.OPTIMAL
        assert answer.objective_value == pytest.approx(value, rel=1e-5)
        assert answer.cost_usd == pytest.approx(40.0, rel=1e-4)
        assert answer.limit_prices == ()


def test_the_money_is_divided_by_claims() -> None:
    # 30 USD: x hours slow and y fast per job, x + 4 y = 15, x + 2 y = 10: 7.5 h for both.
    even = RentedMaxMinFairness().allocate(two_jobs(budget_left_usd=30.0))
    assert even.objective_value == pytest.approx(5 / 7.5, rel=1e-5)
    assert even.cost_usd == pytest.approx(30.0, rel=1e-5)
    assert even.cost_usd is not None and even.cost_usd <= 30.0 * (1 + 1e-9)
    assert ends_h(even) == pytest.approx([7.5, 7.5], rel=1e-5)
    # Twice the claim: half the time. a in 5 h costs 20, and 10 are left for b: 10 h on slow.
    jobs = [a_job("a", weight=2.0), a_job("b")]
    heavy = RentedMaxMinFairness().allocate(two_jobs(jobs=jobs, budget_left_usd=30.0))
    assert ends_h(heavy) == pytest.approx([5.0, 10.0], rel=1e-5)
    assert heavy.objective_value == pytest.approx(0.5, rel=1e-5)


def test_an_owner_with_many_jobs_claims_no_more_than_one_with_one() -> None:
    jobs = [a_job("a", entity="x"), a_job("b", entity="x"), a_job("c", entity="y")]
    problem = a_problem(jobs, SLOW_AND_FAST, [[1.0, 2.0]] * 3, budget_left_usd=40.0)
    terms = pair_terms(problem, Purpose.PLAN)
    assert claims(problem, terms) == pytest.approx([0.5, 0.5, 1.0])
    answer = RentedMaxMinFairness().allocate(problem)
    # c in 5 h (20 USD); a and b in 10 h on slow (10 each).
    assert ends_h(answer) == pytest.approx([10.0, 10.0, 5.0], rel=1e-5)


def test_finish_times_are_set_against_ones_own_part() -> None:
    problem = two_jobs(
        jobs=[a_job("a", elapsed_s=5 * HOUR_S), a_job("b")],
        budget_left_usd=30.0,
        quotas=[QuotaGroup(name="gpus", coefficients=(1.0, 1.0), limit=1.0)],
    )
    terms = pair_terms(problem, Purpose.PLAN)
    # Half of 30 USD does not pay for fast (20): slow, half of the time.
    assert isolated_s(problem, terms) == pytest.approx([20 * HOUR_S] * 2)
    due = finish_time_due(problem, terms)
    assert due(1.0) == pytest.approx([20 * HOUR_S, 20 * HOUR_S])
    assert due(0.8) == pytest.approx([15 * HOUR_S, 16 * HOUR_S])
    answer = RentedFinishTimeFairness().allocate(problem)
    # One machine: 7.5 h each in a row, ends at 15 h; a is due 1 h before b: 15 = 20 rho.
    assert answer.objective_value == pytest.approx(0.75, rel=1e-5)


def test_a_spend_rate_bounds_what_is_rented() -> None:
    free = MinMakespan().allocate(two_jobs(max_usd_per_hour=4.0))
    # 5 h on slow and 2.5 on fast each: 7.5 h, 2 x 15 USD at 4 USD/h.
    assert free.objective_value == pytest.approx(7.5 * HOUR_S, rel=1e-5)
    assert free.hours is not None and free.interval_bounds_s is not None
    rent = np.einsum("jri,r->i", free.hours, [1.0, 4.0]) / np.diff(free.interval_bounds_s / HOUR_S)
    assert (rent <= 4.0 * (1 + 1e-6)).all()


def test_a_chain_is_due_link_by_link() -> None:
    jobs = [a_job("a"), a_job("b", after=("a",), deadline_s=1000 * HOUR_S)]
    answer = MinMakespan().allocate(two_jobs(jobs=jobs))
    assert answer.objective_value == pytest.approx(10 * HOUR_S, rel=1e-5)
    assert ends_h(answer) == pytest.approx([5.0, 10.0], rel=1e-5)
    fair = RentedMaxMinFairness().allocate(two_jobs(jobs=jobs, budget_left_usd=30.0))
    assert ends_h(fair) == pytest.approx([7.5, 15.0], rel=1e-4)


def test_promises_come_before_the_objective_and_are_named() -> None:
    jobs = [a_job("a", deadline_s=4 * HOUR_S), a_job("b", deadline_s=6 * HOUR_S)]
    for policy in POLICIES:
        answer = policy.allocate(two_jobs(jobs=jobs))
        assert answer.status is AllocationStatus.RELAXED
        assert [(each.job, each.promise) for each in answer.relaxed] == [("a", "deadline")]
        assert answer.relaxed[0].by_s == pytest.approx(HOUR_S, rel=1e-3)
        assert answer.due_s is not None and answer.due_s[1] <= 6 * HOUR_S
    # Kept deadlines bind the objective: b in 6 h costs 4 x 4 + 2 = 18, 12 are left for a: 9 h.
    jobs = [a_job("a"), a_job("b", deadline_s=6 * HOUR_S)]
    late = MinMakespan().allocate(two_jobs(jobs=jobs, budget_left_usd=30.0))
    assert late.objective_value == pytest.approx(9 * HOUR_S, rel=1e-5)


def test_too_little_money_is_what_min_cost_makes_of_it() -> None:
    for policy in POLICIES:
        answer = policy.allocate(two_jobs(budget_left_usd=15.0))
        assert answer.status is AllocationStatus.RELAXED
        assert {each.promise for each in answer.relaxed} == {"completion"}
        assert answer.cost_usd is not None and answer.cost_usd <= 15.0 * (1 + 1e-6)
        assert answer.due_s is None


def test_one_name_serves_both_worlds() -> None:
    fleet = two_jobs(budget_left_usd=30.0)
    assert max_min_fairness.allocate(fleet).hours is not None
    cluster = replace(fleet, cluster_accelerators=(1, 1))
    shared = max_min_fairness.allocate(cluster)
    assert shared.hours is None and shared.shares.sum() == pytest.approx(2.0)


def test_prices_lie_between_the_slopes_on_both_sides() -> None:
    quota = QuotaGroup(name="gpus", coefficients=(1.0, 1.0), limit=1.5)
    problem = two_jobs(budget_left_usd=29.0, max_usd_per_hour=5.0, quotas=[quota])
    step = 1e-3
    moved = {
        "budget": lambda by: replace(problem, budget_left_usd=29.0 + by),
        "max_usd_per_hour": lambda by: replace(problem, max_usd_per_hour=5.0 + by),
        "quota gpus": lambda by: replace(problem, quotas=(replace(quota, limit=1.5 + by),)),
    }
    priced = set()
    for policy, due_of in (
        (MinMakespan(), None),
        (RentedMaxMinFairness(), slowdown_due),
        (RentedFinishTimeFairness(), finish_time_due),
    ):
        found = policy.allocate(problem)
        terms = pair_terms(problem, Purpose.PLAN)

        def value(other: AllocationProblem, policy=policy, due_of=due_of, terms=terms) -> float:  # type: ignore[no-untyped-def]
            if due_of is not finish_time_due:
                answer = policy.allocate(other).objective_value
                assert answer is not None
                return float(answer)
            # What a job would take alone is held fixed.
            search = LevelSearch(problem=other, terms=terms, due=due_of(problem, terms))
            least = search.least()
            assert least is not None
            return least.level

        assert found.limit_prices
        for price in found.limit_prices:
            change = moved[price.constraint]
            slopes = [
                abs(value(change(step)) - value(problem)) / step,
                abs(value(problem) - value(change(-step))) / step,
            ]
            assert price.per_unit_down is not None and not price.exact
            assert min(slopes) * 0.98 - 1e-6 <= price.per_unit_down <= max(slopes) * 1.02 + 1e-6
            assert max(slopes) > 0
            priced.add(price.constraint)
        # Nothing that matters is left out.
        for name, change in moved.items():
            if name not in {price.constraint for price in found.limit_prices}:
                gain = abs(value(change(step)) - value(problem)) / step
                loss = abs(value(problem) - value(change(-step))) / step
                assert min(gain, loss) <= 1e-3 * abs(value(problem))
    assert len(priced) >= 2


def test_the_level_is_the_oracles_on_a_quota() -> None:
    quota = QuotaGroup(name="gpus", coefficients=(1.0, 1.0), limit=1.0)
    problem = two_jobs(jobs=[a_job("a", weight=2.0), a_job("b")], quotas=[quota])
    answer = RentedMaxMinFairness().allocate(problem)
    assert answer.objective_value is not None
    level = 1 / answer.objective_value

    def at(factor: float) -> AllocationProblem:
        due = slowdown_due(problem, pair_terms(problem, Purpose.PLAN))(level * factor)
        jobs = [replace(job, deadline_s=float(d)) for job, d in zip(problem.jobs, due, strict=True)]
        return replace(problem, jobs=tuple(jobs))

    assert oracle(at(1 + 1e-5)) is not None
    assert oracle(at(1 - 1e-4)) is None
