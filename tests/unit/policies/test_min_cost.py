"""What min_cost promises, on problems small enough to see."""

from dataclasses import replace

import numpy as np
import pytest

from cloudgavel.policies.allocation import AllocationStatus
from cloudgavel.policies.min_cost import MinCost
from cloudgavel.policies.min_makespan import MinMakespan
from cloudgavel.policies.on_demand_only import OnDemandOnly
from cloudgavel.policies.problem import QuotaGroup
from tests.unit.policies.oracle import oracle
from tests.unit.policies.problems import HOUR_S, a_job, a_pool, a_problem, a_spot_pool


def test_spot_as_far_as_it_is_to_be_had_and_on_demand_for_the_rest() -> None:
    problem = a_problem(
        [a_job(deadline_s=12 * HOUR_S)], [a_pool(), a_spot_pool(availability_share=0.5)]
    )
    answer = MinCost().allocate(problem)
    assert answer.status is AllocationStatus.OPTIMAL
    assert answer.hours is not None
    on_demand_h, spot_h = answer.hours.sum(axis=2)[0]
    assert (on_demand_h, spot_h) == pytest.approx((4.0, 6.0), abs=1e-4)
    assert answer.cost_usd == pytest.approx(4.0 + 6.0 / 3, rel=1e-5)
    assert answer.lower_bound_usd == pytest.approx(10.0 / 3), "the bound grants spot throughout"


def test_nothing_waits_without_being_paid_for_it() -> None:
    answer = MinCost().allocate(a_problem([a_job(deadline_s=100 * HOUR_S)], [a_pool()]))
    assert answer.shares[0, 0] == 1.0
    assert answer.hours is not None and answer.interval_bounds_s is not None
    running = answer.hours.sum(axis=(0, 1)) > 0
    assert answer.interval_bounds_s[1:][running].max() <= 20 * HOUR_S


def test_a_lone_job_pays_for_the_whole_instance_and_two_share_it() -> None:
    pools = [
        a_pool("eight", accelerators_per_instance=8, price_usd_per_hour=4.0),
        a_pool("one", price_usd_per_hour=1.0),
    ]
    alone = MinCost().allocate(a_problem([a_job()], pools))
    assert alone.cost_usd == pytest.approx(10.0, rel=1e-5) and alone.shares[0, 0] == 0
    assert alone.lower_bound_usd == pytest.approx(5.0), "the fluid bound knows shares only"
    many = MinCost().allocate(a_problem([a_job(f"j{n}") for n in range(8)], pools))
    assert many.cost_usd == pytest.approx(8 * 5.0, rel=1e-5)
    assert (many.shares[:, 1] == 0).all()


def test_an_indivisible_slice_is_paid_whole() -> None:
    pool = a_pool(gang_size=2, accelerators_per_instance=4, shareable=False)
    answer = MinCost().allocate(a_problem([a_job("a"), a_job("b")], [pool]))
    assert answer.cost_usd == pytest.approx(20.0, rel=1e-5)
    assert answer.lower_bound_usd == pytest.approx(20.0)


def test_a_change_over_is_paid_unless_it_is_there_already() -> None:
    pools = [a_pool("here", price_usd_per_hour=1.0), a_pool("there", price_usd_per_hour=0.98)]
    moved = MinCost().allocate(a_problem([a_job()], pools, change_over_s=0.5 * HOUR_S))
    assert moved.cost_usd == pytest.approx(10.5 * 0.98, rel=1e-5)
    stays = MinCost().allocate(a_problem([a_job(held_pool=0)], pools, change_over_s=0.5 * HOUR_S))
    assert stays.cost_usd == pytest.approx(10.0, rel=1e-5)
    assert stays.shares[0, 0] == 1.0


def test_expected_interruptions_make_spot_dearer() -> None:
    pools = [
        a_pool(price_usd_per_hour=1.0),
        a_spot_pool(price_usd_per_hour=0.9, interruption_rate_per_hour=0.5),
    ]
    cheap = MinCost().allocate(a_problem([a_job()], pools))
    assert cheap.shares[0, 1] == 1.0
    lossy = MinCost().allocate(
        a_problem([a_job()], pools, extra={"lost_work_s": np.array([0.5 * HOUR_S])})
    )
    assert lossy.shares[0, 0] == 1.0, "0.9 x (1 + 0.5 x 0.5) is more than 1"


def test_what_comes_after_waits_and_leaves_time() -> None:
    jobs = [
        a_job("first", steps_left=4 * HOUR_S),
        a_job("second", steps_left=4 * HOUR_S, deadline_s=9 * HOUR_S, after=("first",)),
    ]
    answer = MinCost().allocate(a_problem(jobs, [a_pool()]))
    assert answer.status is AllocationStatus.OPTIMAL
    assert answer.hours is not None and answer.interval_bounds_s is not None
    begins = answer.interval_bounds_s[:-1][answer.hours[1, 0] > 1e-6].min()
    ends = answer.interval_bounds_s[1:][answer.hours[0, 0] > 1e-6].max()
    assert begins >= ends - 1e-6
    late = MinCost().allocate(
        a_problem([jobs[0], a_job("second", deadline_s=9 * HOUR_S, after=("first",))], [a_pool()])
    )
    assert "second" in {promise.job for promise in late.relaxed}


def test_money_of_one_job_binds_only_that_job() -> None:
    pools = [a_pool("slow"), a_pool("fast", price_usd_per_hour=4.0)]
    rates = [[1.0, 2.0], [1.0, 2.0]]
    jobs = [
        a_job("poor", deadline_s=6 * HOUR_S, max_cost_left_usd=15.0),
        a_job("rich", deadline_s=6 * HOUR_S),
    ]
    answer = MinCost().allocate(a_problem(jobs, pools, rates))
    assert [(p.job, p.promise) for p in answer.relaxed] == [("poor", "deadline")]
    assert answer.hours is not None
    prices = np.array([1.0, 4.0])
    spent = (answer.hours.sum(axis=2) * prices).sum(axis=1)
    assert spent[0] <= 15.0 * (1 + 1e-6)
    assert answer.smallest_sufficient_budget_usd is not None


def test_money_already_committed_is_not_spent_twice() -> None:
    problem = a_problem(
        [a_job(deadline_s=20 * HOUR_S)], [a_pool()], budget_left_usd=12.0, standing_usd=3.0
    )
    answer = MinCost().allocate(problem)
    assert answer.status is AllocationStatus.RELAXED
    assert answer.cost_usd == pytest.approx(9.0, rel=1e-5)
    assert answer.smallest_sufficient_budget_usd == pytest.approx(13.0)


def test_the_lightest_deadline_goes_and_says_why() -> None:
    jobs = [a_job(n, deadline_s=10 * HOUR_S, weight=w) for n, w in (("a", 3), ("b", 1), ("c", 2))]
    quota = QuotaGroup(name="gpus", coefficients=(1.0,), limit=2.0)
    answer = MinCost().allocate(a_problem(jobs, [a_pool()], quotas=[quota]))
    (promise,) = answer.relaxed
    assert promise.job == "b"
    assert promise.by_s == pytest.approx(10 * HOUR_S, rel=1e-3)
    assert "quotas" in promise.reason and "earliest end 20.0 h" in promise.reason


def test_spot_only_is_kept_by_min_cost_and_ignored_by_the_baseline() -> None:
    problem = a_problem([a_job(spot_only=True)], [a_pool(), a_spot_pool(availability_share=0.5)])
    assert MinCost().allocate(problem).shares[0, 0] == 0
    assert OnDemandOnly().allocate(problem).cost_usd == pytest.approx(10.0, rel=1e-5)


def test_makespan_spends_what_it_may() -> None:
    pools = [a_pool("slow"), a_pool("fast", price_usd_per_hour=4.0)]
    rates = [[1.0, 2.0]]
    free = MinMakespan().allocate(a_problem([a_job()], pools, rates))
    assert free.objective_value == pytest.approx(5 * HOUR_S, rel=1e-5)
    bound = MinMakespan().allocate(a_problem([a_job()], pools, rates, budget_left_usd=15.0))
    # x hours slow, y fast: x + 2 y = 10, x + 4 y = 15.
    assert bound.objective_value == pytest.approx(7.5 * HOUR_S, rel=1e-5)
    assert bound.cost_usd is not None and bound.cost_usd <= 15.0 + 1e-6


def test_shadow_prices_are_the_slopes_on_both_sides() -> None:
    pools = [a_pool("slow"), a_pool("mid", price_usd_per_hour=3.0)]
    pools.append(a_pool("fast", price_usd_per_hour=8.0))
    rates = [[1.0, 2.0, 4.0], [1.0, 2.0, 4.0]]
    quota = QuotaGroup(name="gpus", coefficients=(1.0, 1.0, 1.0), limit=1.5)

    def problem(deadline_h: float, limit: float = 1.5):
        jobs = [a_job("a", deadline_s=deadline_h * HOUR_S), a_job("b", deadline_s=8 * HOUR_S)]
        return a_problem(jobs, pools, rates, quotas=[replace(quota, limit=limit)])

    for deadline_h in (5.0, 4.3, 7.1):
        answer = MinCost().allocate(problem(deadline_h))
        assert answer.status is AllocationStatus.OPTIMAL
        step = 1e-3
        base = oracle(problem(deadline_h))
        assert base is not None
        found = {price.constraint: price for price in answer.shadow_prices}
        for name, less, more in (
            ("deadline of a", problem(deadline_h - step), problem(deadline_h + step)),
            ("quota gpus", problem(deadline_h, 1.5 - step), problem(deadline_h, 1.5 + step)),
        ):
            below, above = oracle(less), oracle(more)
            assert below is not None and above is not None
            if below - base < 1e-6 and name not in found:
                continue
            assert found[name].exact
            assert found[name].usd_per_unit_down == pytest.approx((below - base) / step, rel=1e-2)
            assert found[name].usd_per_unit_up == pytest.approx(
                (base - above) / step, rel=1e-2, abs=1e-4
            )


def test_one_more_step_is_worth_what_it_costs() -> None:
    pools = [a_pool("slow"), a_pool("fast", price_usd_per_hour=4.0)]

    def problem(steps: float):
        return a_problem([a_job(steps_left=steps, deadline_s=8 * HOUR_S)], pools, [[1.0, 2.0]])

    answer = MinCost().allocate(problem(10 * HOUR_S))
    assert answer.value_usd_per_step is not None
    below, above = oracle(problem(10 * HOUR_S - 1)), oracle(problem(10 * HOUR_S + 1))
    assert below is not None and above is not None
    assert answer.value_usd_per_step[0] == pytest.approx((above - below) / 2, rel=1e-4)


def test_the_same_problem_gives_the_same_answer() -> None:
    problem = a_problem(
        [a_job(f"j{n}", deadline_s=(9 + n) * HOUR_S) for n in range(5)],
        [a_pool("a"), a_pool("b"), a_spot_pool(availability_share=0.7)],
        quotas=[QuotaGroup(name="q", coefficients=(1.0, 1.0, 0.0), limit=3.0)],
    )
    one, other = MinCost().allocate(problem), MinCost().allocate(problem)
    assert one.hours is not None and other.hours is not None
    assert (one.hours == other.hours).all()
    assert one.shadow_prices == other.shadow_prices
