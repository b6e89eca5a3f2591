from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from cloudgavel.mechanism.b_matching import RoundRows, best_units
from cloudgavel.mechanism.credits import (
    Credits,
    Turn,
    next_round,
    realisable_level,
    rows_of_shares,
)
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.policies.sharing import ClassRows, PairSharing
from tests.unit.policies_fixed.building import cluster_problem, pool


def fits(problem: AllocationProblem, turns: tuple[Turn, ...]) -> None:
    jobs = [job for turn in turns for job in turn.jobs]
    assert len(jobs) == len(set(jobs))
    used: Counter[str] = Counter()
    size = {}
    for each, amount in zip(problem.pools, problem.cluster_accelerators, strict=True):
        size[each.offer_id] = amount
    for turn in turns:
        used[problem.pools[turn.pool].offer_id] += problem.pools[turn.pool].gang_size
    assert all(used[kind] <= size[kind] for kind in used)


def received(problem, rows: ClassRows, count: int) -> tuple[np.ndarray, list]:
    """Fraction of rounds each job had in each pool, and the rounds."""
    credits, held = Credits(), ()
    names = {job.name: at for at, job in enumerate(problem.jobs)}
    total = np.zeros((len(problem.jobs), len(problem.pools)))
    rounds = []
    for _ in range(count):
        found = next_round(problem, rows, credits, held=held)
        fits(problem, found.turns)
        for turn in found.turns:
            for job in turn.jobs:
                total[names[job], turn.pool] += 1
        credits, held = found.credits, found.turns
        rounds.append(found.turns)
    return total / count, rounds


def test_fractions_converge_where_shares_are_realisable():
    dice = np.random.default_rng(0)
    # Full rows and full types: nothing is idle, so received equals the share exactly.
    shares = dice.uniform(0.1, 1, (3, 3))
    for _ in range(200):
        shares /= shares.sum(axis=1, keepdims=True)
        shares /= shares.sum(axis=0, keepdims=True)
    problem = cluster_problem(np.ones((3, 3)), [1, 1, 1])
    fraction, _ = received(problem, rows_of_shares(shares), 3000)
    assert np.abs(fraction - shares).max() < 0.001


def test_idle_accelerators_are_given_on_and_nobody_gets_less_than_the_share():
    shares = np.array([[0.3, 0.2], [0.1, 0.4], [0.2, 0.1]])
    problem = cluster_problem(np.ones((3, 2)), [1, 1])
    fraction, rounds = received(problem, rows_of_shares(shares), 600)
    assert (fraction >= shares - 0.005).all()
    assert all(len(turns) == 2 for turns in rounds)


def test_mixed_gangs_get_their_shares():
    pools = [pool("V", 1), pool("V", 2), pool("V", 4)]
    rates = [[1, 0, 0]] * 4 + [[0, 1, 0]] * 2 + [[0, 0, 1]]
    problem = cluster_problem(np.array(rates, dtype=float), [4, 4, 4], pools=pools)
    # Half of the time the big gang, the other half 4 singles or 2 gangs of two.
    shares = np.array(rates) * np.array([[0.25] * 3] * 4 + [[0.25] * 3] * 2 + [[0.5] * 3])
    assert realisable_level(problem, rows_of_shares(shares))[0] == pytest.approx(1)
    fraction, _ = received(problem, rows_of_shares(shares), 300)
    assert np.abs(fraction - shares).max() < 0.012


def test_a_big_gang_is_not_starved_by_small_jobs():
    pools = [pool("V", 1), pool("V", 8)]
    rates = np.array([[1.0, 0]] * 20 + [[0, 1.0]])
    problem = cluster_problem(rates, [8, 8], pools=pools)
    shares = MaxMinFairness().allocate(problem).shares
    fraction, rounds = received(problem, rows_of_shares(shares), 400)
    assert fraction[20, 1] == pytest.approx(shares[20, 1], abs=0.01)
    waits = [at for at, turns in enumerate(rounds) if any("j20" in t.jobs for t in turns)]
    longest = max(np.diff(waits))
    assert longest <= 3 / shares[20, 1]


def test_what_cannot_be_realised_is_said():
    problem = cluster_problem([[1.0]] * 3, [3], pools=[pool("V", 2)])
    shares = np.full((3, 1), 0.5)
    level, _ = realisable_level(problem, rows_of_shares(shares))
    assert level == pytest.approx(2 / 3)  # a third of the time each instead of a half
    fraction, _ = received(problem, rows_of_shares(shares), 300)
    assert fraction == pytest.approx(np.full((3, 1), 1 / 3), abs=0.01)


def test_leases_are_extended_when_nothing_changes():
    problem = cluster_problem(np.ones((2, 2)), [1, 1])
    shares = np.array([[1.0, 0.0], [0.0, 1.0]])
    rows = rows_of_shares(shares)
    one = next_round(problem, rows, Credits())
    two = next_round(problem, rows, one.credits, held=one.turns)
    assert not any(turn.extended for turn in one.turns)
    assert all(turn.extended for turn in two.turns) and len(two.turns) == 2


def test_a_finished_jobs_place_is_given_on_within_the_round():
    problem = cluster_problem(np.ones((3, 1)), [2])
    rows = rows_of_shares(np.full((3, 1), 2 / 3))
    one = next_round(problem, rows, Credits())
    ended = one.turns[0].jobs[0]
    running = one.turns[1:]
    rest = replace_jobs(problem, [job for job in problem.jobs if job.name != ended])
    rows = rows_of_shares(np.full((2, 1), 1.0))
    again = next_round(rest, rows, one.credits, held=one.turns, running=running)
    assert len(again.turns) == 2 and again.turns[0] == running[0]
    waiting = {"j0", "j1", "j2"} - {ended} - set(running[0].jobs)
    assert set(again.turns[1].jobs) == waiting


def replace_jobs(problem: AllocationProblem, jobs) -> AllocationProblem:
    count = len(jobs)
    width = len(problem.pools)
    return replace(
        problem,
        jobs=tuple(jobs),
        throughput_steps_per_s=np.ones((count, width)),
        feasible=np.ones((count, width), dtype=bool),
        change_over_s=np.zeros((count, width)),
    )


def test_credits_survive_a_new_allocation_and_do_not_starve_a_rising_share():
    problem = cluster_problem(np.ones((2, 1)), [1])
    credits, held = Credits(), ()
    for _ in range(500):
        found = next_round(problem, rows_of_shares(np.array([[0.9], [0.1]])), credits, held=held)
        credits, held = found.credits, found.turns
    got = 0
    for _ in range(100):
        found = next_round(problem, rows_of_shares(np.array([[0.1], [0.9]])), credits, held=held)
        credits, held = found.credits, found.turns
        got += any("j1" in turn.jobs for turn in found.turns)
    assert 88 <= got <= 92  # lifetime fractions would give it every round, j0 none for 400 rounds


def test_departures_take_their_credit_along():
    problem = cluster_problem(np.ones((3, 1)), [1])
    found = next_round(problem, rows_of_shares(np.full((3, 1), 1 / 3)), Credits())
    rest = replace_jobs(problem, problem.jobs[:2])
    after = next_round(rest, rows_of_shares(np.full((2, 1), 0.5)), found.credits)
    assert all(key[0] != "j2" for key in after.credits.jobs)
    assert all("j2" not in key for key in after.credits.units)


def test_class_rows_are_realised_pair_by_pair():
    dice = np.random.default_rng(3)
    kinds = np.arange(12) % 3
    retained = dice.uniform(0.6, 0.9, (3, 3, 2))
    problem = cluster_problem(
        np.array([[2.0, 1.0], [1.0, 1.5], [3.0, 1.0]])[kinds],
        [2, 3],
        sharing=PairSharing(kind_of_job=kinds, retained_share=retained),
    )
    found = MaxMinFairness(space_sharing=True).allocate(problem)
    assert (found.class_rows.second >= 0).any()
    fraction, rounds = received(problem, found.class_rows, 150)
    assert (fraction >= found.shares - 0.04).all()
    assert any(len(turn.jobs) == 2 for turns in rounds for turn in turns)


def test_b_matching_is_the_best_of_all_sets():
    from itertools import product

    dice = np.random.default_rng(7)
    for _ in range(20):
        rows = RoundRows(
            first=dice.integers(0, 4, 8),
            second=np.where(dice.random(8) < 0.3, dice.integers(0, 4, 8), -1),
            pool=dice.integers(0, 3, 8),
            members=np.ones(4, dtype=np.int64),
            gang=np.array([1, 2, 3]),
            type_of_pool=np.array([0, 0, 1]),
            accelerators=np.array([3, 3]),
        )
        worth = dice.uniform(-0.2, 1, 8)
        counts = best_units(rows, worth, np.ones(8, dtype=np.int64))
        best = 0.0
        for chosen in product((0, 1), repeat=8):
            each = np.array(chosen)
            if rows.fit(each):
                best = max(best, float(worth @ each))
        assert float(worth @ counts) == pytest.approx(best)


def test_the_assignment_is_the_integer_program():
    from cloudgavel.mechanism import b_matching
    from cloudgavel.policies.solve import solve_integer

    dice = np.random.default_rng(1)
    for _ in range(10):
        rows = RoundRows(
            first=np.repeat(np.arange(6), 3),
            second=np.full(18, -1),
            pool=np.tile(np.arange(3), 6),
            members=np.ones(6, dtype=np.int64),
            gang=np.array([1, 2, 1]),
            type_of_pool=np.array([0, 1, 2]),
            accelerators=np.array([2, 3, 1]),
        )
        worth = dice.uniform(-0.2, 1, 18)
        kept = np.flatnonzero(worth > 0)
        most = np.ones(18, dtype=np.int64)
        fast = b_matching._assigned(rows, worth, kept)
        slow = solve_integer(b_matching._program(rows, worth, most, kept))
        assert rows.fit(fast)
        assert float(worth @ fast) == pytest.approx(-slow.objective)
