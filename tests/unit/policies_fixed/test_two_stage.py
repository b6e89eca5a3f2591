"""The second stage that goes on from the first, and deadlines planned over time."""

import numpy as np
import pytest
from scipy.optimize import linprog

from cloudgavel.policies.allocation import AllocationStatus
from cloudgavel.policies.fixed.cluster import cluster_of
from cloudgavel.policies.fixed.compose import maximise
from cloudgavel.policies.fixed.constraints import meets_deadlines, spends_at_most
from cloudgavel.policies.fixed.least_cost_deadlines import LeastCostWithDeadlines
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.fixed.share_policy import KEPT_SHARE, per_rate
from cloudgavel.policies.fixed.share_program import goal, refill, solve_shares
from cloudgavel.policies.fixed.terms import total_normalised_throughput
from cloudgavel.policies.fixed.throughput_per_usd import ThroughputPerUsdWithDeadlines
from tests.unit.policies_fixed.building import cluster_problem, random_problem


@pytest.mark.parametrize("seed", range(8))
def test_going_on_reaches_what_solving_again_reaches(seed: int) -> None:
    dice = np.random.default_rng(seed)
    count = int(dice.integers(2, 30))
    rates = 10.0 ** dice.uniform(-1, 2, size=(count, 3))
    rates[dice.random(rates.shape) < 0.1] = 0.0
    problem = cluster_problem(rates, [2, 3, 4], weights=list(dice.choice([1.0, 3.0], size=count)))
    cluster = cluster_of(problem)
    policy = MaxMinFairness()
    wanted = policy.goal(cluster)
    gain = per_rate(cluster.weight, cluster.equal_rate, cluster)
    once = solve_shares(cluster, wanted)
    again = refill(
        cluster,
        once,
        goal(count, floor=wanted.demand * max(once.level, 0.0) * KEPT_SHARE, gain=gain),
    )
    both = policy.solve(cluster)
    assert both.is_usable and again.is_usable
    level = policy.value(cluster, both.throughput())
    assert level == pytest.approx(policy.value(cluster, again.throughput()), rel=1e-6)
    assert gain @ both.throughput() == pytest.approx(gain @ again.throughput(), rel=1e-6)


def one_after_the_other(**more: object):
    """Two jobs of 100 s on one accelerator: due after 110 s and 220 s, so one after the other."""
    return cluster_problem(
        [[1.0], [1.0]], [1], steps=[100.0, 100.0], deadlines=[110.0, 220.0], **more
    )


def test_deadlines_that_fit_one_after_the_other_are_kept() -> None:
    planned = LeastCostWithDeadlines().allocate(one_after_the_other())
    assert planned.status is AllocationStatus.OPTIMAL
    assert planned.relaxed == ()
    assert planned.hours is not None and planned.interval_bounds_s is not None
    by_s = np.cumsum(planned.hours[:, 0, :], axis=1) * 3600
    ends = planned.interval_bounds_s[1:]
    assert by_s[0][ends <= 110.0 + 1e-6].max() == pytest.approx(100.0, rel=1e-6)
    # As a constant rate from now they do not fit: the other policy takes the rates of the plan.
    problem = one_after_the_other()
    steady = ThroughputPerUsdWithDeadlines().allocate(problem)
    assert steady.relaxed == ()
    first_s = planned.interval_bounds_s[1]
    got = (steady.shares * problem.throughput_steps_per_s).sum(axis=1)
    owed = (planned.hours[:, :, 0] * 3600 / first_s * problem.throughput_steps_per_s).sum(axis=1)
    assert (got >= owed * (1 - 1e-4)).all()


def test_a_deadline_that_nothing_can_keep_is_named_and_the_other_is_kept() -> None:
    problem = cluster_problem([[1.0], [1.0]], [2], steps=[100.0, 100.0], deadlines=[50.0, 220.0])
    planned = LeastCostWithDeadlines().allocate(problem)
    assert planned.status is AllocationStatus.RELAXED
    (promise,) = planned.relaxed
    assert (promise.job, promise.promise) == ("j0", "deadline")
    assert promise.by_s == pytest.approx(52.0, abs=1.0)


def test_the_cheaper_type_is_used_while_there_is_time() -> None:
    problem = cluster_problem(
        [[10.0, 1.0]], [1, 1], steps=[100.0], deadlines=[1_000.0], prices=[20.0, 1.0]
    )
    planned = LeastCostWithDeadlines().allocate(problem)
    assert planned.hours is not None
    assert planned.hours[0, 0].sum() == pytest.approx(0.0, abs=1e-6)
    assert planned.hours[0, 1].sum() * 3600 == pytest.approx(100.0, rel=1e-5)
    assert planned.cost_usd == pytest.approx(100 / 3600, rel=1e-5)


def test_a_plan_over_time_that_breaks_another_limit_is_not_taken() -> None:
    """The plan knows the problem's limits, not those that a sentence adds."""
    within = maximise(
        total_normalised_throughput(),
        subject_to=[meets_deadlines(), spends_at_most(usd_per_hour=0.4)],
    ).allocate(one_after_the_other())
    assert within.status is AllocationStatus.RELAXED
    assert within.shares.sum() <= 0.4 * (1 + 1e-6)
    assert len(within.relaxed) >= 1


@pytest.mark.parametrize("seed", range(4))
def test_the_least_cost_equals_the_matrices(seed: int) -> None:
    """Hours y_jri over intervals between the deadlines, as raw matrices for scipy."""
    dice = np.random.default_rng(seed)
    m, sizes, price = 7, np.array([2.0, 1.0, 2.0]), np.array([3.0, 1.0, 0.4])
    due_s = np.sort(dice.uniform(2_000, 20_000, m))
    problem = random_problem(
        m, sizes.astype(int).tolist(), seed, prices=price.tolist(), deadlines=due_s.tolist()
    )
    rates = np.nan_to_num(problem.throughput_steps_per_s)
    steps = np.array([job.steps_left for job in problem.jobs])
    length_s = np.diff(due_s, prepend=0.0)
    r, i = sizes.size, m
    cells = [(j, p, t) for j in range(m) for p in range(r) for t in range(i)]
    may_run = np.array([rates[j, p] > 0 and t <= j for j, p, t in cells])
    work, time, room = np.zeros((m, len(cells))), np.zeros((m * i, len(cells))), []
    for at, (j, p, t) in enumerate(cells):
        work[j, at] = rates[j, p]
        time[j * i + t, at] = 1.0
    for p in range(r):
        for t in range(i):
            room.append([float((each[1], each[2]) == (p, t)) for each in cells])
    oracle = linprog(
        [price[p] / 3600 for _, p, _ in cells],
        A_ub=np.vstack([-work, time, room]),
        b_ub=np.concatenate([-steps, np.tile(length_s, m), np.outer(sizes, length_s).ravel()]),
        bounds=[(0, None if may else 0) for may in may_run],
        method="highs",
    )
    found = LeastCostWithDeadlines().allocate(problem)
    if oracle.status == 2:
        assert found.relaxed
        return
    assert oracle.status == 0, oracle.message
    assert found.status is AllocationStatus.OPTIMAL
    assert found.cost_usd == pytest.approx(oracle.fun, rel=1e-5)


def test_doubled_prices_double_the_least_cost() -> None:
    once, twice = (
        LeastCostWithDeadlines().allocate(
            random_problem(5, [2, 1], 3, prices=[2.0 * by, 0.5 * by], deadlines=[2e4] * 5)
        )
        for by in (1.0, 2.0)
    )
    assert once.cost_usd is not None
    assert twice.cost_usd == pytest.approx(2 * once.cost_usd, rel=1e-6)
