"""From shares to rounds: what is served goes to the shares, and nobody moves without need."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from cloudgavel.mechanism.fixed_cluster.cluster import AcceleratorType, fixed_cluster
from cloudgavel.mechanism.fixed_cluster.decide import credits_after, decide_leases
from cloudgavel.mechanism.fixed_cluster.shares import problem_of, standing_of
from cloudgavel.mechanism.fixed_cluster.state import ClusterJob, FixedClusterState, Leases
from cloudgavel.policies.allocation import Allocation, AllocationStatus
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.policies.sharing import ClassRows


class Given:
    """A policy that always answers the same."""

    name = summary = source = "given"

    def __init__(self, shares: Sequence[Sequence[float]], rows: ClassRows | None = None) -> None:
        self.shares = np.array(shares, dtype=np.float64)
        self.rows = rows

    def allocate(self, problem: AllocationProblem) -> Allocation:
        return Allocation(status=AllocationStatus.OPTIMAL, shares=self.shares, class_rows=self.rows)


def a_state(gangs: Sequence[int], counts: Sequence[int]) -> FixedClusterState:
    types = [
        AcceleratorType(accelerator=f"t{number}", count=count)
        for number, count in enumerate(counts)
    ]
    cluster = fixed_cluster(types, set(gangs))
    jobs = tuple(
        ClusterJob(name=f"j{row}", gang_size=size, arrives_s=0.0) for row, size in enumerate(gangs)
    )
    rate = (cluster.gang[None, :] == np.array(gangs)[:, None]) * 1.0
    return FixedClusterState(
        now_s=0.0,
        cluster=cluster,
        jobs=jobs,
        steps_left=np.full(len(jobs), 1e9),
        rate=rate,
        sharing=None,
        credits=np.zeros(rate.shape),
        leases=Leases.none(len(jobs)),
        standing=None,
        round_s=360.0,
        is_boundary=True,
        attained_service=np.zeros(len(jobs)),
    )


def served(state: FixedClusterState, policy: Given, rounds: int, *, exact: bool = False):
    """(m, R) part of the rounds each job had in each pool, and how often a lease changed."""
    had = np.zeros(state.rate.shape)
    changes = 0
    for _ in range(rounds):
        decision = decide_leases(state, policy, exact_rounds=exact)
        rows = np.flatnonzero(decision.leases.pool >= 0)
        had[rows, decision.leases.pool[rows]] += 1
        changes += sum(
            a != b
            for a, b in zip(state.leases.accelerators, decision.leases.accelerators, strict=True)
        )
        state = dataclasses.replace(
            state,
            leases=decision.leases,
            standing=decision.standing,
            credits=credits_after(state.credits, decision.standing, decision.leases, 1.0),
        )
    return had / rounds, changes


@pytest.mark.parametrize("seed", range(4))
def test_the_part_of_rounds_received_goes_to_the_share(seed: int) -> None:
    dice = np.random.default_rng(seed)
    count = 5
    # A mixture of permutations: shares that whole rounds can realise.
    shares = np.zeros((count, count))
    for weight in dice.dirichlet(np.ones(6)):
        shares[np.arange(count), dice.permutation(count)] += weight
    received, _ = served(a_state([1] * count, [1] * count), Given(shares), 400)
    assert np.abs(received - shares).max() < 3 / 400


@pytest.mark.parametrize("exact", [False, True])
def test_gangs_of_different_sizes_take_their_turns(exact: bool) -> None:
    # A gang of 4 half of the time, four single jobs in the other half.
    state = a_state([4, 1, 1, 1, 1], [4])
    pools = {pool.gang_size: number for number, pool in enumerate(state.cluster.pools)}
    shares = np.zeros((5, len(state.cluster.pools)))
    shares[0, pools[4]] = 0.5
    shares[1:, pools[1]] = 0.5
    received, _ = served(state, Given(shares), 200, exact=exact)
    assert received == pytest.approx(shares, abs=0.02)


def test_whoever_has_all_of_the_time_never_moves() -> None:
    shares = [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    _, changes = served(a_state([1, 1, 1], [1, 2]), Given(shares), 50)
    assert changes == 3


def test_a_waiting_job_gets_what_is_idle_without_paying_for_it() -> None:
    shares = [[1.0, 0.0], [0.0, 0.0]]
    state = a_state([1, 1], [1, 1])
    received, _ = served(state, Given(shares), 20)
    assert received[1, 1] == pytest.approx(1.0)


def test_class_rows_give_every_member_an_equal_part() -> None:
    rows = ClassRows(
        class_of_job=np.array([0, 0, 0, 1, 1]),
        first=np.array([0, 0, 1]),
        second=np.array([1, -1, 1]),
        pool=np.array([0, 0, 0]),
        amount=np.array([1.2, 0.6, 0.4]),
    )
    state = a_state([1] * 5, [3])
    shares = rows.shares(1)
    standing = standing_of(state, Given(shares, rows))
    assert standing.time_share == pytest.approx(shares, abs=1e-5)
    pairs = standing.second >= 0
    assert (standing.first[pairs] != standing.second[pairs]).all()
    # 3 x 2 members: at most 4 pairs instead of 6, and one pair inside the second class.
    assert pairs.sum() <= 5


def test_policies_see_deadlines_less_a_margin_that_leaves_tight_ones_possible() -> None:
    state = a_state([1, 1], [2])
    jobs = tuple(
        dataclasses.replace(job, deadline_s=due)
        for job, due in zip(state.jobs, (100_000.0, 3_600.0), strict=True)
    )
    far, near = problem_of(dataclasses.replace(state, jobs=jobs)).jobs
    assert far.deadline_s == pytest.approx(95_000.0)
    assert near.deadline_s == pytest.approx(3_600.0 * 0.92)
