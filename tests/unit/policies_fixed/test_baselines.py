from itertools import permutations, product

import numpy as np
import pytest

from cloudgavel.policies.allocation import AllocationStatus
from cloudgavel.policies.fixed.allox import AlloX
from cloudgavel.policies.fixed.isolated import Isolated
from cloudgavel.policies.fixed.las_queues import LasQueues
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.fixed.random_packing import RandomPacking
from cloudgavel.policies.sharing import PairSharing
from tests.unit.policies_fixed.building import cluster_problem, pool, random_problem


def least_sum_of_completions(length: np.ndarray, machines: list[int]) -> float:
    """All assignments to machines and all orders: ``length[j, type]`` seconds."""
    owners = [number for number, count in enumerate(machines) for _ in range(count)]
    best = np.inf
    for to in product(range(len(owners)), repeat=length.shape[0]):
        total = 0.0
        for machine, kind in enumerate(owners):
            mine = [job for job, place in enumerate(to) if place == machine]
            times = sorted(length[job, kind] for job in mine)
            total += sum((len(times) - at) * each for at, each in enumerate(times))
        best = min(best, total)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_allox_minimises_the_sum_of_completion_times(seed):
    problem = random_problem(5, [1, 2], seed=seed)
    rates = np.where(problem.feasible, problem.throughput_steps_per_s, 1e-12)
    length = np.array([[job.steps_left] for job in problem.jobs]) / rates
    found = AlloX().allocate(problem)
    assert found.objective_value == pytest.approx(
        least_sum_of_completions(length, [1, 2]), rel=1e-9
    )
    assert set(np.unique(found.shares)) <= {0.0, 1.0}
    assert found.shares.sum(axis=0).tolist() == [1, 2]


def test_allox_leaves_no_machine_idle_that_a_waiting_job_could_use():
    problem = cluster_problem([[10.0, 1.0]] * 3, [1, 4], steps=[10.0, 11.0, 12.0])
    found = AlloX().allocate(problem)
    assert found.shares.sum() == 3


def test_allox_places_gangs_whole():
    pools = [pool("V", 1), pool("V", 2)]
    problem = cluster_problem([[0, 2.0], [0, 2.0], [1.0, 0]], [3, 3], pools=pools)
    found = AlloX().allocate(problem)
    assert found.shares.sum() == 2 and found.shares[2, 0] == 1


def test_isolated_never_exceeds_a_full_row_or_the_cluster():
    problem = cluster_problem([[1.0, 2.0], [1.0, 2.0]], [4, 4])
    found = Isolated().allocate(problem)
    assert found.shares == pytest.approx(np.full((2, 2), 0.5))
    crowded = cluster_problem([[1.0, 2.0]] * 8, [4, 2])
    assert Isolated().allocate(crowded).shares == pytest.approx(np.tile([4 / 8, 2 / 8], (8, 1)))


def test_las_serves_the_least_attained_first_and_then_the_oldest():
    problem = cluster_problem([[1.0]] * 4, [2], elapsed=[50_000, 100, 300, 0], steps=[10.0] * 4)
    # j0 is in the second queue; of the first, j2 and j1 have waited longest.
    assert LasQueues().allocate(problem).shares.ravel().tolist() == [0, 1, 1, 0]
    measured = cluster_problem(
        [[1.0]] * 2, [1], elapsed=[9_000, 8_000], extra={"attained_service": np.array([1e6, 5.0])}
    )
    assert LasQueues().allocate(measured).shares.ravel().tolist() == [0, 1]


def sharing_everywhere(m: int, kept: float) -> PairSharing:
    return PairSharing(
        kind_of_job=np.zeros(m, dtype=np.int64), retained_share=np.full((1, 1, 2), kept)
    )


def test_random_packing_drops_bad_pairs_and_keeps_good_ones():
    rates = [[2.0, 1.0]] * 8
    good = cluster_problem(rates, [2, 2], sharing=sharing_everywhere(8, 0.8))
    bad = cluster_problem(rates, [2, 2], sharing=sharing_everywhere(8, 0.45))
    alone = Isolated().allocate(bad)
    packed, dropped = RandomPacking().allocate(good), RandomPacking().allocate(bad)
    assert (packed.class_rows.second >= 0).all()
    assert (dropped.class_rows.second < 0).all()
    assert dropped.objective_value == pytest.approx(alone.objective_value)
    assert packed.objective_value == pytest.approx(1.6 * alone.objective_value)
    best = MaxMinFairness(space_sharing=True).allocate(good)
    assert best.objective_value >= packed.objective_value * (1 - 1e-9)


def test_random_packing_leaves_the_slowest_accelerators_over():
    # 6 jobs in 3 pairs on 2 + 3 accelerators: 3 are enough, the two fast ones and a slow one.
    rates = [[2.0, 1.0]] * 6
    problem = cluster_problem(rates, [2, 3], sharing=sharing_everywhere(6, 0.8))
    rows = RandomPacking().allocate(problem).class_rows
    assert (rows.second >= 0).all()
    for at, used in ((0, 2.0), (1, 1.0)):
        assert rows.amount[rows.pool == at].sum() == pytest.approx(used)


def test_random_packing_splits_a_pair_that_cannot_share_everywhere():
    kept = np.full((1, 1, 2), 0.9)
    kept[0, 0, 0] = np.nan
    sharing = PairSharing(kind_of_job=np.zeros(8, dtype=np.int64), retained_share=kept)
    problem = cluster_problem([[2.0, 1.0]] * 8, [2, 2], sharing=sharing)
    assert (RandomPacking().allocate(problem).class_rows.second < 0).all()


def test_random_packing_is_repeatable_and_a_seed_changes_it():
    dice = np.random.default_rng(1)
    kept = dice.uniform(0.4, 0.9, (10, 10, 2))
    problem = cluster_problem(
        dice.uniform(1, 3, (10, 2)),
        [2, 3],
        sharing=PairSharing(kind_of_job=np.arange(10), retained_share=kept),
    )
    one, again = RandomPacking().allocate(problem), RandomPacking().allocate(problem)
    other = RandomPacking(seed=1).allocate(problem)
    assert np.array_equal(one.class_rows.second, again.class_rows.second)
    assert not np.array_equal(one.class_rows.second, other.class_rows.second)
    assert one.status is AllocationStatus.OPTIMAL


def test_random_packing_keeps_the_cluster():
    dice = np.random.default_rng(2)
    problem = cluster_problem(
        dice.uniform(1, 3, (20, 2)),
        [2, 3],
        sharing=PairSharing(
            kind_of_job=np.arange(20), retained_share=dice.uniform(0.3, 0.9, (20, 20, 2))
        ),
    )
    rows = RandomPacking().allocate(problem).class_rows
    for r, size in enumerate((2, 3)):
        assert rows.amount[rows.pool == r].sum() <= size * (1 + 1e-9)


def test_orders_do_not_matter_for_the_oracle():
    # Guards the oracle itself: shortest first is the best order on one machine.
    length = np.array([[3.0], [1.0], [2.0]])
    best = min(sum(np.cumsum(length[list(order), 0])) for order in permutations(range(3)))
    assert least_sum_of_completions(length, [1]) == best
