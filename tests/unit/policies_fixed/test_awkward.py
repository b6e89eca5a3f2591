"""A clear status every time: never NaN, never an exception, never more than there is."""

import numpy as np
import pytest

from cloudgavel.policies.allocation import AllocationStatus
from cloudgavel.policies.base import Policy, world_of
from cloudgavel.policies.fixed.makespan import Makespan
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.fixed.water_filling import WaterFilling
from cloudgavel.policies.problem import AllocationProblem, JobRow
from cloudgavel.policies.registry import policy_named, policy_names
from cloudgavel.policies.sharing import PairSharing
from tests.unit.policies_fixed.building import cluster_problem, pool

NAMES = [name for name in policy_names() if "fixed cluster" in world_of(policy_named(name))]


def no_jobs() -> AllocationProblem:
    return AllocationProblem(
        jobs=(),
        pools=(pool("V"),),
        throughput_steps_per_s=np.zeros((0, 1)),
        feasible=np.zeros((0, 1), dtype=bool),
        change_over_s=np.zeros((0, 1)),
        cluster_accelerators=(4,),
    )


def no_pools() -> AllocationProblem:
    return AllocationProblem(
        jobs=(JobRow(name="a", steps_left=5.0),),
        pools=(),
        throughput_steps_per_s=np.zeros((1, 0)),
        feasible=np.zeros((1, 0), dtype=bool),
        change_over_s=np.zeros((1, 0)),
        cluster_accelerators=(),
    )


def sharing(m: int, width: int, kept: float = 0.7) -> PairSharing:
    return PairSharing(kind_of_job=np.arange(m) % 3, retained_share=np.full((3, 3, width), kept))


def nine_orders() -> AllocationProblem:
    rates = 10.0 ** np.linspace(-4, 5, 20)[:, None] * np.array([[1.0, 0.3]])
    return cluster_problem(
        rates, [3, 4], sharing=sharing(20, 2), deadlines=[1e4] * 20, prices=[2.0, 1.0]
    )


def nine_orders_in_one_row() -> AllocationProblem:
    rates = [[1e-4, 1e5], [1e5, 1e-4], [1.0, 1e-4], [1e-4, 1e-4]]
    return cluster_problem(rates, [1, 1], sharing=sharing(4, 2))


CASES = {
    "no jobs": (no_jobs(), {AllocationStatus.EMPTY}),
    "no pools": (no_pools(), {AllocationStatus.EMPTY}),
    "no feasible pool": (cluster_problem([[0.0]], [1]), {AllocationStatus.EMPTY}),
    "nothing left": (cluster_problem([[1.0]], [1], steps=[0.0]), {AllocationStatus.EMPTY}),
    "zero capacity": (cluster_problem([[1.0]], [0]), {AllocationStatus.EMPTY}),
    "one type empty": (cluster_problem([[1.0, 2.0]] * 2, [0, 1]), {AllocationStatus.OPTIMAL}),
    "one job": (cluster_problem([[1.0, 2.0]], [1, 1]), {AllocationStatus.OPTIMAL}),
    "one job without a pool among others": (
        cluster_problem([[1.0], [0.0], [1.0]], [1]),
        {AllocationStatus.RELAXED},
    ),
    "equal jobs": (
        cluster_problem([[1.0, 2.0]] * 50, [3, 4], sharing=sharing(50, 2)),
        {AllocationStatus.OPTIMAL},
    ),
    "a gang larger than the cluster": (
        cluster_problem([[8.0, 0], [0, 1.0]], [4, 4], pools=[pool("V", 8), pool("V", 1)]),
        {AllocationStatus.RELAXED},
    ),
    "vast steps": (
        cluster_problem([[1.0]] * 3, [1], steps=[1e18, 1.0, 1e9]),
        {AllocationStatus.OPTIMAL},
    ),
    "endless steps": (
        cluster_problem([[1.0]] * 2, [1], steps=[float("inf"), 10.0]),
        {AllocationStatus.OPTIMAL, AllocationStatus.RELAXED},
    ),
    "a weight of nothing": (
        cluster_problem([[1.0]] * 3, [1], weights=[0.0, float("nan"), 1.0]),
        {AllocationStatus.RELAXED},
    ),
    "nine orders of magnitude": (
        nine_orders(),
        {AllocationStatus.OPTIMAL, AllocationStatus.RELAXED},
    ),
    "nine orders in one row": (nine_orders_in_one_row(), {AllocationStatus.OPTIMAL}),
    "free machines": (
        cluster_problem([[1.0, 2.0]] * 3, [1, 1], prices=[0.0, 0.0]),
        {AllocationStatus.OPTIMAL, AllocationStatus.EMPTY},
    ),
    "passed deadlines": (
        cluster_problem([[1.0]] * 2, [1], deadlines=[-1.0, 0.0]),
        {AllocationStatus.OPTIMAL, AllocationStatus.RELAXED},
    ),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", list(CASES))
def test_a_clear_answer(name, case):
    problem, expected = CASES[case]
    policy = policy_named(name)
    assert isinstance(policy, Policy) and policy.name == name
    assert policy.summary and policy.source
    found = policy.allocate(problem)
    assert found.status in expected, found.message
    shares = found.shares
    assert shares.shape == problem.feasible.shape
    assert np.isfinite(shares).all()
    assert (shares >= 0).all() and (shares <= 1).all()
    assert (shares[~problem.feasible] == 0).all()
    assert (shares.sum(axis=1) <= 1 + 1e-9).all()
    assert found.objective_value is None or np.isfinite(found.objective_value)
    if found.status is AllocationStatus.EMPTY:
        assert not shares.any() and found.message
    if found.class_rows is None:
        for kind in {each.offer_id for each in problem.pools}:
            own = np.array([each.offer_id == kind for each in problem.pools])
            gangs = np.array([each.gang_size for each in problem.pools])[own]
            size = np.array(problem.cluster_accelerators)[own].max()
            assert (shares[:, own] @ gangs).sum() <= size * (1 + 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_problem_gets_the_same_answer(name):
    problem, _ = CASES["equal jobs"]
    one, other = (policy_named(name).allocate(problem) for _ in range(2))
    assert np.array_equal(one.shares, other.shares)


def test_a_job_that_can_run_nowhere_is_named():
    problem, _ = CASES["one job without a pool among others"]
    found = policy_named("max_min_fairness").allocate(problem)
    assert [each.job for each in found.relaxed] == ["j1"]
    assert found.shares[[0, 2], 0] == pytest.approx([0.5, 0.5])


def test_vast_steps_leave_the_small_jobs_their_due():
    problem, _ = CASES["vast steps"]
    found = policy_named("makespan").allocate(problem)
    assert found.objective_value == pytest.approx(1e18, rel=1e-6)
    assert (found.shares > 0).all()


@pytest.mark.parametrize("policy", [MaxMinFairness, Makespan, WaterFilling])
def test_a_fleet_is_bounded_by_quota_and_spend_rate(policy):
    from dataclasses import replace

    from cloudgavel.policies.problem import QuotaGroup

    fixed = cluster_problem([[1.0, 3.0]] * 4, [9, 9], prices=[1.0, 2.0])
    fleet = replace(
        fixed,
        cluster_accelerators=None,
        quotas=(QuotaGroup(name="q", coefficients=(0.0, 1.0), limit=1.0),),
        max_usd_per_hour=4.0,
    )
    found = policy().allocate(fleet)
    assert found.status is AllocationStatus.OPTIMAL
    used = found.shares.sum(axis=0)
    assert used[1] <= 1 + 1e-9 and used @ [1.0, 2.0] <= 4 + 1e-9
    # 1 share of the fast pool and 2 of the slow one: 5 steps/s for four jobs.
    assert (found.shares @ [1.0, 3.0]) == pytest.approx([5 / 4] * 4, rel=1e-6)
    assert {each.constraint for each in found.limit_prices} <= {"quota q", "max_usd_per_hour"}
