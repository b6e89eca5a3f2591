import numpy as np
import pytest

from cloudgavel.policies.allocation import AllocationStatus
from cloudgavel.policies.fixed.cluster import cluster_of
from cloudgavel.policies.fixed.fifo import Fifo
from cloudgavel.policies.fixed.makespan import Makespan
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.fixed.max_total_throughput import MaxTotalThroughput
from cloudgavel.policies.fixed.share_program import solve_shares
from cloudgavel.policies.fixed.shortest_remaining import ShortestRemaining
from tests.unit.policies_fixed.building import cluster_problem, pool, random_problem
from tests.unit.policies_fixed.oracle import best_level, best_sum

SIZES = [(1, 3), (3, 2), (12, 5), (40, 8), (400, 30)]


def true_rates(problem) -> np.ndarray:
    return np.where(problem.feasible, problem.throughput_steps_per_s, 0.0)


def keeps_the_cluster(problem, shares) -> None:
    assert np.isfinite(shares).all()
    assert (shares >= 0).all() and (shares <= 1).all()
    assert (shares.sum(axis=1) <= 1 + 1e-9).all()
    assert (shares[~problem.feasible] == 0).all()
    gangs = np.array([each.gang_size for each in problem.pools])
    types = [each.offer_id for each in problem.pools]
    for name in set(types):
        own = np.array([each == name for each in types])
        size = np.array(problem.cluster_accelerators)[own].max()
        assert (shares[:, own] @ gangs[own]).sum() <= size * (1 + 1e-9)


@pytest.mark.parametrize(("m", "each"), SIZES)
def test_max_min_fairness_equals_the_matrices(m, each):
    accelerators = [each, 2 * each, each]
    problem = random_problem(m, accelerators, seed=m)
    rates = true_rates(problem)
    equal = rates @ np.array(accelerators) / sum(accelerators)
    found = MaxMinFairness().allocate(problem)
    assert found.status is AllocationStatus.OPTIMAL
    assert found.objective_value == pytest.approx(
        best_level(rates, np.array(accelerators), equal), rel=1e-6
    )
    keeps_the_cluster(problem, found.shares)
    level = ((found.shares * rates).sum(axis=1) / equal).min()
    assert level == pytest.approx(found.objective_value, rel=1e-9)


@pytest.mark.parametrize(("m", "each"), SIZES)
def test_makespan_equals_the_matrices(m, each):
    accelerators = [each, each, 3 * each]
    problem = random_problem(m, accelerators, seed=m + 1)
    steps = np.array([job.steps_left for job in problem.jobs])
    found = Makespan().allocate(problem)
    level = best_level(true_rates(problem), np.array(accelerators), steps / steps.max())
    assert found.objective_value == pytest.approx(steps.max() / level, rel=1e-6)
    keeps_the_cluster(problem, found.shares)


@pytest.mark.parametrize("m", [5, 60, 600])
def test_ranked_goals_equal_the_matrices(m):
    accelerators = np.array([m // 5 + 1, m // 4 + 1, 2])
    problem = random_problem(m, accelerators.tolist(), seed=m, elapsed=list(range(m)))
    rates = true_rates(problem)
    best = rates.max(axis=1)
    rank_fifo = np.arange(m)[::-1]  # the longest elapsed is the last row
    left = np.array([job.steps_left for job in problem.jobs]) / best
    rank_short = np.argsort(np.argsort(left, kind="stable"), kind="stable")
    for policy, worth in (
        (Fifo(), m - rank_fifo),
        (ShortestRemaining(), m - rank_short),
        (MaxTotalThroughput(), np.ones(m)),
    ):
        found = policy.allocate(problem)
        assert found.objective_value == pytest.approx(
            best_sum(rates, accelerators, worth / best), rel=1e-6
        ), policy.name
        keeps_the_cluster(problem, found.shares)


def test_fifo_never_gives_more_than_a_type_has():
    # Everyone is fastest on r0: a policy that sends each job to its best type over-commits it.
    problem = cluster_problem([[9.0, 1.0]] * 8, [2, 3])
    found = Fifo().allocate(problem)
    assert found.shares[:, 0].sum() == pytest.approx(2)
    assert found.shares[:, 1].sum() == pytest.approx(3)
    assert found.shares[:2, 0] == pytest.approx([1, 1])


def test_gangs_count_their_accelerators_and_use_both_placements():
    pools = [pool("V", 1), pool("V", 4), pool("V", 4, spread=True), pool("K", 1)]
    rates = [[1.0, 0, 0, 0.5], [0, 3.6, 2.0, 0], [1.0, 0, 0, 0.25]]
    problem = cluster_problem(rates, [4, 4, 4, 2], pools=pools)
    found = MaxMinFairness().allocate(problem)
    keeps_the_cluster(problem, found.shares)
    # The consolidated column dominates the spread one, so the spread one stays empty.
    assert found.shares[1, 2] == pytest.approx(0, abs=1e-9)
    mix = {"V": 4 / 6, "K": 2 / 6}
    equal = np.array(
        [
            mix["V"] * 1 + mix["K"] * 0.5,
            mix["V"] * 3.6 / 4,
            mix["V"] * 1 + mix["K"] * 0.25,
        ]
    )
    level = best_level(
        np.array(rates),
        np.array([4, 2]),
        equal,
        gangs=np.array([1, 4, 4, 1]),
        type_of_pool=np.array([0, 0, 0, 1]),
    )
    assert found.objective_value == pytest.approx(level, rel=1e-7)


def test_weights_divide_what_is_scarce():
    problem = cluster_problem([[1.0]] * 3, [1], weights=[1, 2, 1])
    found = MaxMinFairness().allocate(problem)
    assert found.shares.ravel() == pytest.approx([0.25, 0.5, 0.25], abs=1e-7)


def test_collapsing_equal_jobs_changes_nothing():
    dice = np.random.default_rng(5)
    kinds = np.exp(dice.normal(0, 1, (6, 3)))
    rates = kinds[dice.integers(0, 6, 90)]
    problem = cluster_problem(rates, [10, 20, 5], weights=dice.integers(1, 3, 90).tolist())
    policy = MaxMinFairness()
    cluster = cluster_of(problem)
    whole = solve_shares(cluster, policy.goal(cluster), collapse=False)
    small = solve_shares(cluster, policy.goal(cluster))
    assert small.groups.count <= 12 < whole.groups.count
    assert policy.value(cluster, small.throughput()) == pytest.approx(
        policy.value(cluster, whole.throughput()), rel=1e-7
    )


def test_what_the_level_leaves_is_given_on():
    # j0 can only use r0 at a low rate; nothing else wants r1 than j1, which is above the level.
    problem = cluster_problem([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [1, 1])
    shares = MaxMinFairness().allocate(problem).shares
    assert shares[1, 1] == pytest.approx(1.0)


def test_the_agnostic_twin_is_blind_but_spreads_over_types():
    rates = [[10.0, 1.0], [1.0, 10.0]] * 3
    problem = cluster_problem(rates, [2, 2])
    blind = MaxMinFairness(agnostic=True)
    found = blind.allocate(problem)
    aware = MaxMinFairness().allocate(problem)
    assert blind.name == "max_min_fairness_agnostic"
    assert found.shares == pytest.approx(np.full((6, 2), 1 / 3), abs=1e-6)
    assert aware.objective_value > 1.4 * found.objective_value
    swapped = cluster_problem([row[::-1] for row in rates], [2, 2])
    assert blind.allocate(swapped).shares == pytest.approx(found.shares, abs=1e-6)


@pytest.mark.parametrize("policy", [MaxMinFairness(), Makespan(), Fifo(), ShortestRemaining()])
def test_prices_of_limits_lie_between_the_two_finite_differences(policy):
    from cloudgavel.policies.fixed.answer import with_limit

    problem = random_problem(20, [3, 4, 2], seed=11)
    cluster = cluster_of(problem, with_steps=True)
    found = policy.allocate(problem)
    assert found.limit_prices
    sign = 1 if policy.larger_is_better else -1
    base = policy.value(cluster, solve_shares(cluster, policy.goal(cluster)).throughput())
    duals = solve_shares(cluster, policy.goal(cluster)).limit_duals * policy.value_per_dual(base)
    for number, limit in enumerate(cluster.limits):
        step = 1e-4 * limit.size
        less, more = (
            policy.value(
                cluster,
                solve_shares(moved, policy.goal(moved)).throughput(),
            )
            for moved in (
                with_limit(cluster, number, limit.size - step),
                with_limit(cluster, number, limit.size + step),
            )
        )
        down, up = sign * (base - less) / step, sign * (more - base) / step
        noise = 1e-8 * abs(base) / step
        assert down >= up - 1e-3 * abs(up) - noise
        assert up * (1 - 2e-3) - noise <= duals[number] <= down * (1 + 2e-3) + noise
        shown = [each for each in found.limit_prices if each.constraint == limit.name]
        if shown:
            assert shown[0].exact
            assert shown[0].per_unit_up == pytest.approx(up, rel=0.01, abs=noise)
            assert shown[0].per_unit_down == pytest.approx(down, rel=0.01, abs=noise)
