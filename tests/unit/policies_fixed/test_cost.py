from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy.optimize import linprog

from cloudgavel.policies.allocation import AllocationStatus
from cloudgavel.policies.fixed.throughput_per_usd import (
    ThroughputPerPriceLinear,
    ThroughputPerUsd,
    ThroughputPerUsdWithDeadlines,
)
from tests.unit.policies_fixed.building import cluster_problem, measured_table, random_problem
from tests.unit.policies_fixed.oracle import constraints

ACCELERATORS = np.array([3, 2, 4])
PRICES = np.array([2.5, 1.5, 0.45])


def pieces(problem):
    rates = np.where(problem.feasible, problem.throughput_steps_per_s, 0.0)
    accelerators = np.array(problem.cluster_accelerators)
    width = rates.shape[1]
    throughput, rows, sides = constraints(rates, np.ones(width), np.arange(width), accelerators, [])
    equal = rates @ accelerators / accelerators.sum()
    cost = np.tile([each.price_usd_per_hour for each in problem.pools], rates.shape[0])
    alone = np.where(rates > 0, np.minimum(1.0, accelerators / rates.shape[0]), 0.0)
    alone /= np.maximum(alone.sum(axis=1, keepdims=True), 1)
    return rates, throughput, rows, sides, equal, cost, (alone * rates).sum(axis=1)


def best_ratio(problem, floor: np.ndarray) -> float:
    """The ratio by bisection: is ``gain - ratio * cost >= 0`` within reach?"""
    _, throughput, rows, sides, equal, cost, _ = pieces(problem)
    low, high = 0.0, 1e6
    for _ in range(80):
        middle = (low + high) / 2
        found = linprog(
            -((1 / equal) @ throughput) + middle * cost,
            A_ub=np.vstack([rows, -throughput]),
            b_ub=np.concatenate([sides, -floor]),
            method="highs",
        )
        assert found.status == 0
        low, high = (middle, high) if -found.fun >= 0 else (low, middle)
    return low


@pytest.mark.parametrize("seed", range(5))
def test_the_ratio_is_the_best_with_everybody_at_the_isolated_share(seed):
    problem = random_problem(8, ACCELERATORS.tolist(), seed=seed, prices=PRICES.tolist())
    rates, *_, alone = pieces(problem)
    found = ThroughputPerUsd().allocate(problem)
    assert found.status is AllocationStatus.OPTIMAL
    assert found.objective_value == pytest.approx(best_ratio(problem, alone), rel=1e-5)
    assert ((found.shares * rates).sum(axis=1) >= alone * (1 - 1e-7)).all()


def test_of_equal_ratios_the_largest_scale_is_taken():
    problem = cluster_problem([[1.0], [1.0]], [2], prices=[3.0])
    found = ThroughputPerUsd().allocate(problem)
    assert found.shares.ravel() == pytest.approx([1, 1], abs=1e-6)


def test_doubled_prices_halve_the_ratio_and_change_nothing_else():
    one = random_problem(6, [2, 2, 2], seed=3, prices=[3, 2, 1])
    two = random_problem(6, [2, 2, 2], seed=3, prices=[6, 4, 2])
    policy = ThroughputPerUsd()
    assert policy.allocate(one).objective_value == pytest.approx(
        2 * policy.allocate(two).objective_value, rel=1e-6
    )


def test_prices_of_zero_and_unknown_prices():
    rates = [[2.0, 1.0], [2.0, 1.0]]
    free = ThroughputPerUsd().allocate(cluster_problem(rates, [1, 1], prices=[0, 0]))
    assert free.status is AllocationStatus.OPTIMAL and free.objective_value is None
    assert "free" in free.message and free.shares.sum() == pytest.approx(2)
    half = ThroughputPerUsd().allocate(cluster_problem(rates, [1, 2], prices=[1, 0]))
    assert half.status in (AllocationStatus.OPTIMAL, AllocationStatus.FALLBACK)
    assert np.isfinite(half.shares).all()
    unknown = cluster_problem(rates, [2, 2], prices=[float("nan"), 1])
    found = ThroughputPerUsd().allocate(unknown)
    assert (found.shares[:, 0] == 0).all() and found.shares[:, 1].sum() == pytest.approx(2)
    nobody = ThroughputPerUsd().allocate(cluster_problem([[1.0]], [1], prices=[float("nan")]))
    assert nobody.status is AllocationStatus.EMPTY


def fewest(problem, floor: np.ndarray, needed: np.ndarray, weight: np.ndarray) -> float:
    """Least weight of deadlines given up, over all subsets."""
    _, throughput, rows, sides, _, _, _ = pieces(problem)
    best = np.inf
    m = floor.size
    for count in range(m + 1):
        for gone in combinations(range(m), count):
            kept = np.maximum(floor, needed)
            kept[list(gone)] = floor[list(gone)]
            found = linprog(
                np.zeros(throughput.shape[1]),
                A_ub=np.vstack([rows, -throughput]),
                b_ub=np.concatenate([sides, -kept * (1 - 1e-9)]),
                method="highs",
            )
            if found.status == 0:
                best = min(best, weight[list(gone)].sum())
    return best


@pytest.mark.parametrize("seed", range(4))
def test_missed_deadlines_are_the_lightest_set(seed):
    dice = np.random.default_rng(seed)
    weights = dice.integers(1, 5, 6)
    deadlines = dice.uniform(300, 4000, 6)
    problem = random_problem(
        6,
        [1, 1, 1],
        seed=seed,
        prices=[3, 2, 1],
        steps=[1000.0] * 6,
        weights=weights.tolist(),
        deadlines=deadlines.tolist(),
    )
    rates, *_ = pieces(problem)
    found = ThroughputPerUsdWithDeadlines().allocate(problem)
    needed = 1000.0 / deadlines
    missed = [
        row
        for row, job in enumerate(problem.jobs)
        if job.name in {each.job for each in found.relaxed}
    ]
    got = (found.shares * rates).sum(axis=1)
    kept = np.setdiff1d(np.arange(6), missed)
    assert (got[kept] >= needed[kept] * (1 - 1e-6)).all()
    assert weights[missed].sum() == fewest(problem, np.zeros(6), needed, weights)
    for each in found.relaxed:
        row = int(each.job[1:])
        assert each.promise == "deadline"
        assert each.by_s == pytest.approx(1000 / got[row] - deadlines[row], rel=1e-6)
    assert bool(missed) == (found.status is AllocationStatus.RELAXED)


def test_a_passed_deadline_is_named_and_the_others_stay():
    problem = cluster_problem(
        [[1.0]] * 3, [3], prices=[1.0], steps=[100.0] * 3, deadlines=[-5.0, 200.0, None]
    )
    found = ThroughputPerUsdWithDeadlines().allocate(problem)
    assert [each.job for each in found.relaxed] == ["j0"]
    assert "passed" in found.relaxed[0].reason
    assert found.relaxed[0].by_s == pytest.approx(105, rel=1e-3)  # a whole accelerator, at once
    assert found.shares[1, 0] >= 0.5 - 1e-6


def test_one_impossible_deadline_does_not_drop_the_rest():
    problem = cluster_problem(
        [[1.0]] * 4,
        [2],
        prices=[1.0],
        steps=[1000.0] * 4,
        deadlines=[10.0, 1500.0, 1500.0, None],
    )
    found = ThroughputPerUsdWithDeadlines().allocate(problem)
    assert [each.job for each in found.relaxed] == ["j0"]
    assert found.relaxed[0].by_s > 0
    got = found.shares[:, 0]
    assert got[1] >= 2 / 3 - 1e-6 and got[2] >= 2 / 3 - 1e-6
    assert "at the earliest" in found.relaxed[0].reason


def test_a_later_deadline_never_hurts():
    missed, ratios = [], []
    fastest_s = 500.0 / random_problem(5, [2, 2, 2], seed=2).throughput_steps_per_s[:, 0].max()
    for times in (0.5, 1.05, 1.2, 1.5, 2.0, 4.0, 8.0):
        problem = random_problem(
            5,
            [2, 2, 2],
            seed=2,
            prices=[3, 2, 1],
            steps=[500.0] * 5,
            deadlines=[times * fastest_s] * 5,
        )
        found = ThroughputPerUsdWithDeadlines().allocate(problem)
        missed.append(len(found.relaxed))
        if not found.relaxed and not found.message:
            ratios.append(found.objective_value)
    assert missed[0] > 0 == missed[-1] and ratios
    assert all(earlier >= later for earlier, later in pairwise(missed))
    assert all(earlier <= later * (1 + 1e-6) for earlier, later in pairwise(ratios))


def test_the_linear_form_starves_what_counts_few_steps():
    problem = cluster_problem([[100.0], [1.0], [1.0]], [1], prices=[2.0])
    found = ThroughputPerPriceLinear().allocate(problem)
    assert found.shares.ravel() == pytest.approx([1, 0, 0], abs=1e-9)
    assert found.objective_value == pytest.approx(50)
    assert (ThroughputPerUsd().allocate(problem).shares > 0.3).all()


def test_no_kind_of_the_measured_table_starves():
    _, rates, _ = measured_table()
    kept = np.flatnonzero((rates > 0).any(axis=1))
    problem = cluster_problem(rates[kept], [4, 4, 4], prices=[0.74, 0.43, 0.135])
    fair = ThroughputPerUsd().allocate(problem)
    linear = ThroughputPerPriceLinear().allocate(problem)
    served = (fair.shares.sum(axis=1) > 1e-6).sum()
    assert served == kept.size
    assert (linear.shares.sum(axis=1) > 1e-6).sum() < 0.6 * kept.size


def test_deadlines_within_the_isolated_share_cost_nothing():
    # Each job's third of both types is more than its deadline asks for.
    rates = [[10.0, 1.0], [4.0, 2.0], [3.0, 2.0]]
    due = cluster_problem(rates, [1, 1], prices=[2.48, 0.45], deadlines=[None, None, 1000.0])
    free = cluster_problem(rates, [1, 1], prices=[2.48, 0.45])
    found = ThroughputPerUsdWithDeadlines().allocate(due)
    assert found.message == ""
    assert found.objective_value == pytest.approx(
        ThroughputPerUsd().allocate(free).objective_value, rel=1e-6
    )


def test_isolated_shares_are_cut_as_little_as_deadlines_need():
    # One type, 2 accelerators, 4 jobs: j0 is due at a full accelerator; 1 is left for the others.
    problem = cluster_problem(
        [[1.0]] * 4, [2], prices=[1.0], steps=[1000.0] * 4, deadlines=[1000.0, None, None, None]
    )
    found = ThroughputPerUsdWithDeadlines().allocate(problem)
    assert "cut to 67%" in found.message
    assert found.shares.ravel() == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3], abs=1e-6)


def moved(problem, row: int, by_s: float):
    job = problem.jobs[row]
    later = replace(job, deadline_s=job.deadline_s + by_s)
    return replace(problem, jobs=(*problem.jobs[:row], later, *problem.jobs[row + 1 :]))


def test_prices_of_deadlines_and_limits_are_slopes():
    problem = cluster_problem(
        [[10.0, 1.0], [4.0, 2.0], [3.0, 2.0]],
        [1, 1],
        prices=[2.48, 0.45],
        steps=[36_000.0, 18_000.0, 7_200.0],
        deadlines=[None, None, 4_000.0],
    )
    policy = ThroughputPerUsdWithDeadlines()
    found = policy.allocate(problem)
    price = next(each for each in found.limit_prices if each.constraint == "deadline of j2")
    step_s = 4.0
    earlier = policy.allocate(moved(problem, 2, -step_s)).objective_value
    later = policy.allocate(moved(problem, 2, step_s)).objective_value
    down = (found.objective_value - earlier) / (step_s / 3600)
    up = (later - found.objective_value) / (step_s / 3600)
    assert up * (1 - 5e-3) <= price.per_unit_up <= down * (1 + 5e-3)
    assert price.unit == "h" and up > 0
    limits = [each for each in found.limit_prices if each.constraint.startswith("accelerators")]
    assert limits
    for each in limits:
        # A ratio is not quite concave in its limits: one step of a thousandth may bend up a little.
        assert each.exact and each.per_unit_down >= each.per_unit_up * (1 - 1e-2)
