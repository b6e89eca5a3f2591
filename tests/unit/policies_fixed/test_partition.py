import numpy as np
import pytest

from cloudgavel.policies.fixed.cluster import cluster_of
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.partition import Partitioned
from tests.unit.policies_fixed.building import cluster_problem, pool, random_problem
from tests.unit.policies_fixed.test_space_sharing import shared_problem


def level(problem, shares) -> float:
    cluster = cluster_of(problem)
    return MaxMinFairness().value(cluster, (shares * cluster.rate).sum(axis=1))


def test_parts_keep_the_cluster_and_lose_little():
    problem = random_problem(400, [48, 40, 64], seed=1)
    whole = MaxMinFairness().allocate(problem)
    split = Partitioned(MaxMinFairness(), parts=4).allocate(problem)
    assert (split.shares.sum(axis=0) <= np.array([48, 40, 64]) + 1e-9).all()
    assert (split.shares.sum(axis=1) <= 1 + 1e-9).all()
    found = level(problem, split.shares)
    assert 0.85 * whole.objective_value < found <= whole.objective_value * (1 + 1e-6)


def test_one_part_is_the_policy_itself():
    problem = random_problem(20, [4, 4, 4], seed=2)
    whole = MaxMinFairness().allocate(problem)
    assert np.array_equal(
        Partitioned(MaxMinFairness(), parts=1).allocate(problem).shares, whole.shares
    )


def test_a_gang_that_fits_no_part_is_solved_whole():
    problem = cluster_problem([[0, 4.0], [1.0, 0]], [4, 4], pools=[pool("V", 1), pool("V", 4)])
    found = Partitioned(MaxMinFairness(), parts=2).allocate(problem)
    assert found.shares[0, 1] > 0.5


def test_class_rows_of_parts_are_put_together():
    problem = shared_problem(40, [8, 8], seed=1, kinds=4)
    found = Partitioned(MaxMinFairness(space_sharing=True), parts=4).allocate(problem)
    assert found.class_rows is not None
    assert found.class_rows.shares(2) == pytest.approx(found.shares)
    for r in (0, 1):
        assert found.class_rows.amount[found.class_rows.pool == r].sum() <= 8 + 1e-9
