import numpy as np
import pytest
from scipy.optimize import linprog

from cloudgavel.policies.allocation import AllocationStatus
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.fixed.water_filling import HierarchicalWaterFilling, WaterFilling
from tests.unit.policies_fixed.building import cluster_problem, random_problem
from tests.unit.policies_fixed.oracle import constraints


def lexicographic_levels(rates: np.ndarray, accelerators: np.ndarray, unit: np.ndarray):
    """Levels ``thr / unit`` by one linear program per job and level: slow, and nobody's dual."""
    m, width = rates.shape
    throughput, rows, sides = constraints(rates, np.ones(width), np.arange(width), accelerators, [])
    count = throughput.shape[1]
    level = np.zeros(m)
    open_jobs = np.ones(m, dtype=bool)
    while open_jobs.any():
        demand = np.where(open_jobs, unit, 0.0)
        upper = np.vstack(
            [
                np.hstack([rows, np.zeros((rows.shape[0], 1))]),
                np.hstack([-throughput, demand[:, None]]),
            ]
        )
        side = np.concatenate([sides, np.where(open_jobs, 0.0, -level * unit * (1 - 1e-9))])
        cost = np.zeros(count + 1)
        cost[-1] = -1
        found = linprog(cost, A_ub=upper, b_ub=side, method="highs")
        assert found.status == 0
        height = -found.fun
        level = np.where(open_jobs, height, level)
        floor = -level * unit * (1 - 1e-8)
        for job in np.flatnonzero(open_jobs):
            more = linprog(
                -throughput[job],
                A_ub=np.vstack([rows, -throughput]),
                b_ub=np.concatenate([sides, floor]),
                method="highs",
            )
            if -more.fun <= height * unit[job] * (1 + 1e-5):
                open_jobs[job] = False
    return level


@pytest.mark.parametrize("seed", range(8))
def test_levels_are_lexicographically_optimal(seed):
    dice = np.random.default_rng(seed)
    m = int(dice.integers(3, 14))
    accelerators = dice.integers(1, 4, 3)
    problem = random_problem(
        m, accelerators.tolist(), seed=seed, weights=dice.integers(1, 4, m).tolist()
    )
    rates = np.where(problem.feasible, problem.throughput_steps_per_s, 0.0)
    unit = rates @ accelerators / accelerators.sum() * [job.weight for job in problem.jobs]
    found = WaterFilling().allocate(problem)
    assert found.status is AllocationStatus.OPTIMAL
    mine = (found.shares * rates).sum(axis=1) / unit
    assert mine == pytest.approx(lexicographic_levels(rates, accelerators, unit), rel=2e-5)


def test_one_type_divides_by_weight_and_passes_on_what_is_not_needed():
    # 3 accelerators; a1 + a2 share weight 1, b (weight 2) can use one accelerator at most.
    problem = cluster_problem([[1.0]] * 3, [3], entities=["a", "a", "b"])
    found = HierarchicalWaterFilling(entity_weights={"b": 2}).allocate(problem)
    assert found.shares.ravel() == pytest.approx([1, 1, 1])
    problem = cluster_problem([[1.0]] * 4, [2], entities=["a", "a", "a", "b"])
    found = HierarchicalWaterFilling(entity_weights={"b": 2}).allocate(problem)
    # b is due 4/3 and takes 1; the rest is a's.
    assert found.shares.ravel() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1])


def test_three_levels_of_entities():
    # lab: vision {v1, v2} and text {t1}; shop: s1. One accelerator.
    problem = cluster_problem(
        [[1.0]] * 4, [1], entities=["lab/vision", "lab/vision", "lab/text", "shop"]
    )
    found = HierarchicalWaterFilling(entity_weights={"lab/vision": 3}).allocate(problem)
    assert found.shares.ravel() == pytest.approx([3 / 16, 3 / 16, 1 / 8, 1 / 2])


def test_fifo_inside_an_entity_serves_the_oldest_first():
    problem = cluster_problem(
        [[1.0]] * 5, [3], entities=["q", "q", "q", "f", "f"], elapsed=[10, 30, 20, 0, 0]
    )
    found = HierarchicalWaterFilling(inside={"q": "fifo"}).allocate(problem)
    # Each entity is due 1.5: q's oldest takes 1, the next one half; f's two share 1.5.
    assert found.shares.ravel() == pytest.approx([0, 1, 0.5, 0.75, 0.75], abs=1e-6)


def test_fifo_at_the_top_over_entities():
    problem = cluster_problem([[1.0]] * 3, [1], entities=["a", "b", "a"], elapsed=[1, 5, 0])
    found = HierarchicalWaterFilling(inside={"": "fifo"}).allocate(problem)
    assert found.shares.ravel() == pytest.approx([0, 1, 0], abs=1e-6)


@pytest.mark.parametrize("each", [5, 15, 60])
def test_nobody_stops_early_at_128_jobs(each):
    # The one-by-one filling is the reference: only jobs with a positive price are frozen, one
    # linear program per level, no bisection.
    problem = random_problem(128, [each, each, each], seed=3)
    rates = np.where(problem.feasible, problem.throughput_steps_per_s, 0.0)
    unit = rates.sum(axis=1) / 3
    found = WaterFilling().allocate(problem)
    mine = (found.shares * rates).sum(axis=1) / unit
    # No job can be raised at the cost of better-off jobs only: the definition of max-min.
    throughput, rows, sides = constraints(rates, np.ones(3), np.arange(3), np.full(3, each), [])
    for job in range(0, 128, 9):
        worse_or_equal = mine <= mine[job] * (1 + 1e-6)
        floor = np.where(worse_or_equal, mine * unit * (1 - 1e-7), 0.0)
        floor[job] = 0.0
        more = linprog(
            -throughput[job],
            A_ub=np.vstack([rows, -throughput]),
            b_ub=np.concatenate([sides, -floor]),
            method="highs",
        )
        assert -more.fun <= mine[job] * unit[job] * (1 + 1e-4)


def test_the_agnostic_twin_spreads_over_types():
    problem = cluster_problem([[10.0, 1.0], [1.0, 10.0]] * 2, [1, 1])
    found = WaterFilling(agnostic=True).allocate(problem)
    assert found.shares == pytest.approx(np.full((4, 2), 0.25), abs=1e-5)


def test_prices_are_those_of_the_least_served_job():
    problem = random_problem(10, [2, 1, 2], seed=5)
    mine = WaterFilling().allocate(problem).limit_prices
    assert mine and mine == MaxMinFairness().allocate(problem).limit_prices
    assert WaterFilling(agnostic=True).allocate(problem).limit_prices == ()
