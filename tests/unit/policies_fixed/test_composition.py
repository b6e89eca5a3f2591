from dataclasses import replace
from pathlib import Path

import cvxpy
import numpy as np
import pytest

from cloudgavel.errors import UsageError
from cloudgavel.policies.allocation import AllocationStatus
from cloudgavel.policies.base import Policy
from cloudgavel.policies.fixed.compose import maximise, minimise
from cloudgavel.policies.fixed.constraints import (
    at_least_isolated,
    constraint,
    fits_quota,
    meets_deadlines,
    only_on,
    pays_for_all_work,
    spends_at_most,
    stays_within_budget,
)
from cloudgavel.policies.fixed.makespan import Makespan
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.fixed.terms import (
    least_normalised_throughput,
    makespan_s,
    moves,
    proportional_fairness,
    term,
    total_normalised_throughput,
    usd_per_hour,
)
from cloudgavel.policies.registry import policy_named
from tests.unit.policies_fixed.building import cluster_problem, random_problem
from tests.unit.policies_fixed.test_space_sharing import shared_problem

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("seed", range(3))
def test_sentences_agree_with_the_matrices(seed):
    problem = random_problem(12, [2, 3, 2], seed=seed)
    fair = maximise(least_normalised_throughput()).allocate(problem)
    assert fair.objective_value == pytest.approx(
        MaxMinFairness().allocate(problem).objective_value, rel=1e-6
    )
    fast = minimise(makespan_s()).allocate(problem)
    assert fast.objective_value == pytest.approx(
        Makespan().allocate(problem).objective_value, rel=1e-5
    )


def test_sentences_share_space_too():
    problem = shared_problem(10, [2, 2], seed=5)
    composed = maximise(least_normalised_throughput(), space_sharing=True).allocate(problem)
    bundled = MaxMinFairness(space_sharing=True).allocate(problem)
    assert composed.objective_value == pytest.approx(bundled.objective_value, rel=1e-6)
    assert composed.class_rows is not None


def test_a_penalty_trades_fairness_for_money():
    problem = random_problem(6, [2, 2, 2], seed=1, prices=[5.0, 2.0, 0.5])
    price = np.array([5.0, 2.0, 0.5])
    spent, fair = [], []
    for weight in (0.0, 0.05, 0.3, 5.0):
        policy = maximise(least_normalised_throughput() - weight * usd_per_hour())
        found = policy.allocate(problem)
        spent.append(float(found.shares.sum(axis=0) @ price))
        rates = np.where(problem.feasible, problem.throughput_steps_per_s, 0.0)
        fair.append(float(((found.shares * rates).sum(axis=1) / (rates.sum(axis=1) / 3)).min()))
    assert spent == sorted(spent, reverse=True) and fair == sorted(fair, reverse=True)
    assert spent[-1] == pytest.approx(0, abs=1e-6)


def test_each_constraint_holds():
    problem = random_problem(6, [2, 2, 2], seed=2, prices=[4.0, 2.0, 1.0])
    price = np.array([4.0, 2.0, 1.0])
    total = total_normalised_throughput()

    def shares(*rules):
        found = maximise(total, subject_to=rules).allocate(problem)
        assert found.status is AllocationStatus.OPTIMAL, found.message
        return found.shares

    assert shares().sum(axis=0) @ price > 10
    assert shares(spends_at_most(usd_per_hour=5)).sum(axis=0) @ price <= 5 + 1e-6
    budget = stays_within_budget(usd=20, over_s=7200)
    assert shares(budget).sum(axis=0) @ price <= 10 + 1e-6
    assert (shares(only_on("r1"))[:, [0, 2]] == 0).all()
    quota = fits_quota("fast", coefficients={"r0": 1.0, "r1": 1.0}, limit=1.5)
    assert shares(quota)[:, :2].sum() <= 1.5 + 1e-6
    rates = np.where(problem.feasible, problem.throughput_steps_per_s, 0.0)
    alone = np.where(rates > 0, 1 / 3, 0.0)
    got = (shares(at_least_isolated()) * rates).sum(axis=1)
    assert (got >= (alone * rates).sum(axis=1) * (1 - 1e-5)).all()


def test_deadlines_compose_with_a_spend_rate_and_are_released_by_name():
    problem = cluster_problem(
        [[1.0]] * 3,
        [3],
        steps=[1000.0] * 3,
        deadlines=[1100.0, 1100.0, None],
        prices=[1.0],
        weights=[1, 2, 1],
    )
    rich = maximise(least_normalised_throughput(), subject_to=[meets_deadlines()])
    found = rich.allocate(problem)
    assert found.status is AllocationStatus.OPTIMAL
    assert (found.shares[:2, 0] >= 10 / 11 - 1e-6).all()
    poor = maximise(
        least_normalised_throughput(),
        subject_to=[meets_deadlines(), spends_at_most(usd_per_hour=1.0)],
    )
    found = poor.allocate(problem)
    assert found.status is AllocationStatus.RELAXED
    assert [each.job for each in found.relaxed] == ["j0"]  # the lighter promise goes
    assert found.shares[1, 0] == pytest.approx(10 / 11, abs=1e-5)
    strict = maximise(least_normalised_throughput(), subject_to=[meets_deadlines(margin=0.2)])
    assert len(strict.allocate(problem).relaxed) == 2  # 880 s are too few for 1000 steps


def test_what_cannot_hold_is_named():
    problem = cluster_problem([[1.0]] * 2, [1], prices=[1.0])

    @constraint("everybody runs all of the time")
    def always(d):
        return d.time >= 1

    found = maximise(least_normalised_throughput(), subject_to=[always]).allocate(problem)
    assert found.status is AllocationStatus.INFEASIBLE
    assert "everybody runs all of the time" in found.message
    assert not found.shares.any()


def test_a_term_of_ones_own():
    @term("uneven use")
    def uneven(d):
        return cvxpy.sum_squares(d.amounts)

    problem = cluster_problem([[1.0, 1.0]] * 2, [2, 2])
    found = maximise(total_normalised_throughput() - 0.01 * uneven).allocate(problem)
    assert found.shares == pytest.approx(np.full((2, 2), 0.5), abs=1e-4)


def test_proportional_fairness_and_moves():
    problem = cluster_problem([[1.0]] * 3, [1], weights=[1, 1, 2])
    found = maximise(proportional_fairness()).allocate(problem)
    assert found.shares.ravel() == pytest.approx([0.25, 0.25, 0.5], abs=1e-5)
    jobs = tuple(replace(job, held_pool=number) for number, job in enumerate(problem.jobs[:2]))
    two = cluster_problem([[1.0, 1.0]] * 2, [1, 1], jobs=jobs)
    stay = maximise(least_normalised_throughput() - 0.01 * moves()).allocate(two)
    assert stay.shares == pytest.approx(np.eye(2), abs=1e-6)


def test_a_wrong_sign_is_explained():
    policy = maximise(makespan_s(), name="slow")
    with pytest.raises(UsageError) as caught:
        policy.allocate(cluster_problem([[1.0]], [1]))
    assert "slow" in str(caught.value.message) and "wrong sign" in caught.value.hints[0]


def test_awkward_inputs_of_a_sentence():
    policy = maximise(least_normalised_throughput(), subject_to=[meets_deadlines()])
    assert policy.allocate(cluster_problem([[0.0]], [1])).status is AllocationStatus.EMPTY
    gone = maximise(least_normalised_throughput(), subject_to=[only_on("none")])
    assert gone.allocate(cluster_problem([[1.0]], [1])).status is AllocationStatus.EMPTY


def test_the_example_policy_is_short_loads_by_name_and_runs(monkeypatch):
    source = (EXAMPLES / "custom_policy.py").read_text()
    policy_part = source.split('"""')[2]
    assert len([line for line in policy_part.splitlines() if line.strip()]) <= 20
    monkeypatch.syspath_prepend(str(EXAMPLES))
    policy = policy_named("custom_policy:CheapAndFair")
    assert isinstance(policy, Policy) and policy.name == "cheap_and_fair"
    found = policy.allocate(random_problem(5, [2, 2, 1], seed=0))
    assert found.status is AllocationStatus.OPTIMAL and found.shares.any()


def rented(**changes):
    """Two jobs of 10 h on slow (1 USD/h) or 5 h on fast (4 USD/h), rented."""
    problem = cluster_problem([[1.0, 2.0]] * 2, [1, 1], prices=[1.0, 4.0], steps=[36_000.0] * 2)
    return replace(problem, cluster_accelerators=None, **changes)


def test_on_a_rented_fleet_the_shares_say_when_a_job_is_due():
    found = maximise(least_normalised_throughput()).allocate(rented())
    assert found.due_s == pytest.approx([5 * 3600.0] * 2, rel=1e-5)
    names = [pool.accelerator for pool in rented().pools]
    slow = maximise(least_normalised_throughput(), subject_to=[only_on(names[0])])
    assert slow.allocate(rented()).due_s == pytest.approx([10 * 3600.0] * 2, rel=1e-5)
    assert (
        maximise(least_normalised_throughput())
        .allocate(replace(rented(), cluster_accelerators=(1, 1)))
        .due_s
        is None
    )


def test_the_budget_pays_for_all_work():
    fair = maximise(least_normalised_throughput(), subject_to=[pays_for_all_work()])
    # x of the time slow, y fast: (x + 4 y) / (x + 2 y) = 1.5 with x + y = 1: 2/3 and 1/3.
    found = fair.allocate(rented(budget_left_usd=30.0))
    assert found.shares == pytest.approx(np.array([[2 / 3, 1 / 3]] * 2), abs=1e-5)
    rate = found.shares @ [1.0, 2.0]
    rent = found.shares @ [1.0, 4.0]
    assert (rent / rate * 10).sum() <= 30.0 * (1 + 1e-6)
    # Too little is the cheapest way, not a refusal; no budget is no limit.
    assert fair.allocate(rented(budget_left_usd=5.0)).shares[:, 1] == pytest.approx(
        [0.0, 0.0], abs=1e-6
    )
    assert fair.allocate(rented()).shares[:, 1] == pytest.approx([1.0, 1.0], abs=1e-6)


def test_a_composed_policy_keeps_spend_rate_and_quota_on_a_rented_fleet():
    policy = minimise(
        makespan_s(), subject_to=[spends_at_most(usd_per_hour=4.0), meets_deadlines(margin=0.1)]
    )
    found = policy.allocate(rented())
    assert (found.shares @ [1.0, 4.0]).sum() <= 4.0 * (1 + 1e-6)
    # As much as the planning LP finds: 7.5 h.
    assert found.objective_value == pytest.approx(7.5 * 3600, rel=1e-4)
