import numpy as np
import pytest

from cloudgavel.policies import pair_pricing, space_sharing
from cloudgavel.policies.fixed.cluster import cluster_of
from cloudgavel.policies.fixed.fifo import Fifo
from cloudgavel.policies.fixed.finish_time_fairness import FinishTimeFairness
from cloudgavel.policies.fixed.makespan import Makespan
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.fixed.share_program import goal, solve_shares
from cloudgavel.policies.fixed.throughput_per_usd import ThroughputPerUsd
from cloudgavel.policies.fixed.water_filling import WaterFilling
from cloudgavel.policies.registry import policy_named
from cloudgavel.policies.sharing import PairSharing
from cloudgavel.policies.solve import SolveStatus
from tests.unit.policies_fixed.building import cluster_problem, measured_table
from tests.unit.policies_fixed.oracle import best_level


def shared_problem(m: int, accelerators, seed: int, kinds: int | None = None, **more):
    """Random rates and retained shares; ``kinds`` = how many kinds (``None``: one per job)."""
    dice = np.random.default_rng(seed)
    count = kinds or m
    kind_rates = np.exp(dice.normal(0, 1, (count, len(accelerators))))
    retained = dice.uniform(0.25, 0.95, (count, count, len(accelerators)))
    retained[dice.random(retained.shape) < 0.1] = np.nan
    of = np.arange(m) % count
    return cluster_problem(
        kind_rates[of],
        accelerators,
        sharing=PairSharing(kind_of_job=of, retained_share=retained),
        **more,
    )


def all_pairs(problem) -> list[tuple[int, int, int, float, float]]:
    sharing = problem.sharing
    found = []
    m, width = problem.feasible.shape
    for one in range(m):
        for other in range(one + 1, m):
            for r in range(width):
                if not (problem.feasible[one, r] and problem.feasible[other, r]):
                    continue
                a, b = sharing.kind_of_job[[one, other]]
                kept = sharing.retained_share[a, b, r], sharing.retained_share[b, a, r]
                if not np.isnan(kept).any():
                    rates = problem.throughput_steps_per_s[[one, other], r]
                    found.append((one, other, r, rates[0] * kept[0], rates[1] * kept[1]))
    return found


@pytest.mark.parametrize(("m", "kinds"), [(6, None), (14, None), (24, 3), (30, 4)])
def test_equals_all_pairs_as_matrices(m, kinds):
    accelerators = [m // 4 + 1, m // 5 + 1]
    problem = shared_problem(m, accelerators, seed=m, kinds=kinds)
    rates = problem.throughput_steps_per_s
    equal = rates @ np.array(accelerators) / sum(accelerators)
    found = MaxMinFairness(space_sharing=True).allocate(problem)
    level = best_level(rates, np.array(accelerators), equal, pairs=all_pairs(problem))
    assert found.objective_value == pytest.approx(level, rel=1e-6)
    alone = MaxMinFairness().allocate(problem)
    assert found.objective_value > 1.05 * alone.objective_value
    assert (found.shares.sum(axis=1) <= 1 + 1e-9).all()


def test_column_generation_equals_all_pairs(monkeypatch):
    monkeypatch.setattr(space_sharing, "ALL_PAIRS_UP_TO", 0)
    problem = shared_problem(16, [4, 3], seed=2)
    rates = problem.throughput_steps_per_s
    steps = np.linspace(100, 2000, 16)
    problem = shared_problem(16, [4, 3], seed=2, steps=steps.tolist())
    found = Makespan(space_sharing=True).allocate(problem)
    level = best_level(rates, np.array([4, 3]), steps, pairs=all_pairs(problem))
    assert found.objective_value == pytest.approx(1 / level, rel=1e-6)
    policy = MaxMinFairness(space_sharing=True)
    cluster = cluster_of(problem)
    priced = solve_shares(cluster, policy.goal(cluster), space_sharing=True)
    assert priced.iterations > 1


@pytest.mark.parametrize(
    "name",
    [
        "fifo",
        "makespan",
        "max_min_fairness",
        "max_total_throughput",
        "throughput_per_usd",
        "throughput_per_usd_deadlines",
        "water_filling",
        "hierarchical_water_filling",
    ],
)
def test_pricing_reaches_what_stating_all_pairs_does(monkeypatch, name):
    problem = shared_problem(
        18,
        [3, 3],
        seed=5,
        prices=[2.0, 0.5],
        deadlines=[2e3 + 5e2 * row if row % 2 else None for row in range(18)],
        entities=["ab"[row % 2] for row in range(18)],
    )
    policy = policy_named(f"{name}_space_sharing")
    stated = policy.allocate(problem)
    monkeypatch.setattr(space_sharing, "ALL_PAIRS_UP_TO", 0)
    monkeypatch.setattr(pair_pricing, "TILE_CELLS", 40)
    priced = policy.allocate(problem)
    assert priced.status is stated.status
    assert priced.objective_value == pytest.approx(stated.objective_value, rel=2e-6)
    assert len(priced.relaxed) == len(stated.relaxed)


def test_floors_that_only_pairs_can_reach(monkeypatch):
    """Pricing starts from single jobs, with which these floors cannot be kept."""
    kept = np.full((8, 8, 1), 0.9)
    sharing = PairSharing(kind_of_job=np.arange(8), retained_share=kept)
    problem = cluster_problem([[1.0]] * 8, [4], sharing=sharing)
    cluster = cluster_of(problem)
    wanted = goal(8, floor=np.full(8, 0.85), gain=np.arange(8.0))
    stated = solve_shares(cluster, wanted, space_sharing=True, collapse=False)
    monkeypatch.setattr(space_sharing, "ALL_PAIRS_UP_TO", 0)
    priced = solve_shares(cluster, wanted, space_sharing=True, collapse=False)
    assert priced.status is stated.status is SolveStatus.OPTIMAL
    assert (priced.throughput() >= 0.85 * (1 - 1e-7)).all()
    worth = [np.arange(8.0) @ each.throughput() for each in (priced, stated)]
    assert worth[0] == pytest.approx(worth[1], rel=1e-6)


def test_class_rows_add_up_to_the_shares_and_keep_the_cluster():
    problem = shared_problem(40, [8, 6], seed=9, kinds=5)
    found = MaxMinFairness(space_sharing=True).allocate(problem)
    rows = found.class_rows
    assert rows is not None and rows.first.size < 60
    assert rows.shares(2) == pytest.approx(found.shares)
    assert (rows.second >= 0).any()
    for r, size in enumerate((8, 6)):
        # A pair takes the accelerator once.
        assert rows.amount[rows.pool == r].sum() <= size * (1 + 1e-9)
    members = np.bincount(rows.class_of_job)
    for one, other, amount in zip(rows.first, rows.second, rows.amount, strict=True):
        if one == other:
            assert members[one] >= 2 and amount <= members[one] / 2 * (1 + 1e-9)


def test_a_lone_job_of_a_kind_never_shares_with_itself():
    retained = np.full((1, 1, 1), 0.9)
    one = cluster_problem(
        [[1.0]], [1], sharing=PairSharing(kind_of_job=np.array([0]), retained_share=retained)
    )
    assert MaxMinFairness(space_sharing=True).allocate(one).shares == pytest.approx(1)
    two = cluster_problem(
        [[1.0]] * 2,
        [1],
        sharing=PairSharing(kind_of_job=np.array([0, 0]), retained_share=retained),
    )
    found = MaxMinFairness(space_sharing=True).allocate(two)
    assert found.objective_value == pytest.approx(0.9)
    assert found.shares.ravel() == pytest.approx([1, 1])


def test_mixed_gangs_share_only_with_their_equals():
    from tests.unit.policies_fixed.building import pool

    pools = [pool("V", 1), pool("V", 2)]
    problem = cluster_problem(
        [[1.0, 0], [1.0, 0], [0, 1.8], [0, 1.8]],
        [3, 3],
        pools=pools,
        sharing=PairSharing(
            kind_of_job=np.array([0, 0, 1, 1]), retained_share=np.full((2, 2, 2), 0.9)
        ),
    )
    found = MaxMinFairness(space_sharing=True).allocate(problem)
    pairs = [(0, 1, 0, 0.9, 0.9), (2, 3, 1, 1.8 * 0.9, 1.8 * 0.9)]
    level = best_level(
        np.array([[1.0, 0], [1.0, 0], [0, 1.8], [0, 1.8]]),
        np.array([3]),
        np.array([1.0, 1.0, 0.9, 0.9]),
        gangs=np.array([1, 2]),
        type_of_pool=np.array([0, 0]),
        pairs=pairs,
    )
    assert found.objective_value == pytest.approx(level, rel=1e-7)
    assert found.class_rows is not None
    for one, other in zip(found.class_rows.first, found.class_rows.second, strict=True):
        assert other in (-1, one)


@pytest.mark.parametrize(
    "policy",
    [Fifo, Makespan, FinishTimeFairness, WaterFilling, ThroughputPerUsd],
)
def test_every_policy_gains_or_keeps_with_sharing(policy):
    problem = shared_problem(12, [2, 2], seed=4, steps=np.linspace(500, 900, 12).tolist())
    alone = policy().allocate(problem)
    shared = policy(space_sharing=True).allocate(problem)
    smaller = policy in (Makespan, FinishTimeFairness)
    if smaller:
        assert shared.objective_value <= alone.objective_value * (1 + 1e-6)
    else:
        assert shared.objective_value >= alone.objective_value * (1 - 1e-6)
    assert shared.class_rows is not None


def test_the_published_optimum_at_64_and_256_jobs():
    # The same objective as in the original scheduler's benchmark, over its measured table.
    _, rates, retained = measured_table()
    usable = np.flatnonzero((rates > 0).any(axis=1))
    of = usable[np.arange(256) % usable.size]
    problem = cluster_problem(
        rates[of],
        [64, 64, 64],
        sharing=PairSharing(kind_of_job=of, retained_share=retained),
    )
    found = MaxMinFairness(space_sharing=True).allocate(problem)
    alone = MaxMinFairness().allocate(problem)
    assert found.objective_value > 1.1 * alone.objective_value
    assert found.class_rows is not None and found.class_rows.first.size < 200
