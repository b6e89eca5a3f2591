"""Laws of the fixed-cluster policies, on generated clusters with gangs, placements and sharing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.mechanism.credits import Credits, next_round, rows_of_shares
from cloudgavel.policies.allocation import AllocationStatus
from cloudgavel.policies.base import world_of
from cloudgavel.policies.fixed.answer import with_limit
from cloudgavel.policies.fixed.cluster import cluster_of
from cloudgavel.policies.fixed.fifo import Fifo
from cloudgavel.policies.fixed.makespan import Makespan
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.fixed.max_total_throughput import MaxTotalThroughput
from cloudgavel.policies.fixed.share_program import solve_shares
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.policies.registry import policy_named, policy_names
from cloudgavel.policies.sharing import PairSharing
from tests.unit.policies_fixed.building import cluster_problem, pool

NAMES = [name for name in policy_names() if "fixed cluster" in world_of(policy_named(name))]
SMALL = settings(max_examples=12, deadline=None)
POOLS = (
    pool("V", 1, price=2.0),
    pool("V", 4, price=2.0),
    pool("V", 4, price=2.0, spread=True),
    pool("K", 1, price=0.5),
    pool("K", 2, price=0.5),
)


@st.composite
def problems(draw: st.DrawFn) -> AllocationProblem:
    m = draw(st.integers(1, 7))
    rate = st.one_of(st.just(0.0), st.floats(1e-3, 1e3))
    rates = np.array(draw(st.lists(st.lists(rate, min_size=5, max_size=5), min_size=m, max_size=m)))
    v, k = draw(st.integers(0, 6)), draw(st.integers(0, 4))
    kinds = draw(st.lists(st.integers(-1, 1), min_size=m, max_size=m))
    kept = draw(st.lists(st.floats(0.2, 1.0), min_size=4, max_size=4))
    due = st.one_of(st.none(), st.floats(-10, 1e5))
    return cluster_problem(
        rates,
        [v, v, v, k, k],
        pools=POOLS,
        steps=draw(st.lists(st.floats(0, 1e6), min_size=m, max_size=m)),
        weights=draw(st.lists(st.floats(0.1, 10), min_size=m, max_size=m)),
        elapsed=draw(st.lists(st.floats(0, 1e5), min_size=m, max_size=m)),
        deadlines=draw(st.lists(due, min_size=m, max_size=m)),
        entities=draw(st.lists(st.sampled_from([None, "a", "a/x", "b"]), min_size=m, max_size=m)),
        sharing=PairSharing(
            kind_of_job=np.array(kinds),
            retained_share=np.repeat(np.array(kept).reshape(2, 2, 1), 5, axis=2),
        ),
    )


def true_use(problem: AllocationProblem, found) -> np.ndarray:
    """Accelerators of V and K that an allocation takes; a pair takes them once."""
    gangs = np.array([each.gang_size for each in problem.pools])
    if found.class_rows is None:
        per_pool = found.shares.sum(axis=0)
    else:
        per_pool = np.bincount(found.class_rows.pool, weights=found.class_rows.amount, minlength=5)
    use = per_pool * gangs
    return np.array([use[:3].sum(), use[3:].sum()])


@pytest.mark.parametrize("name", NAMES)
@SMALL
@given(problem=problems())
def test_shares_are_shares_of_the_cluster(name, problem):
    found = policy_named(name).allocate(problem)
    assert found.status not in (AllocationStatus.INFEASIBLE, AllocationStatus.FALLBACK)
    shares = found.shares
    assert np.isfinite(shares).all() and (shares >= 0).all() and (shares <= 1).all()
    assert (shares.sum(axis=1) <= 1 + 1e-9).all()
    assert (shares[~problem.feasible] == 0).all()
    sizes = np.array(problem.cluster_accelerators)[[0, 3]]
    assert (true_use(problem, found) <= sizes * (1 + 1e-9) + 1e-12).all()
    assert found.objective_value is None or np.isfinite(found.objective_value)


@pytest.mark.parametrize(
    "name",
    [
        "max_min_fairness",
        "max_min_fairness_space_sharing",
        "makespan",
        "makespan_space_sharing",
        "finish_time_fairness",
        "finish_time_fairness_space_sharing",
        "max_total_throughput",
        "max_total_throughput_space_sharing",
        "throughput_per_usd",
        "throughput_per_price_linear",
        "water_filling",
        "water_filling_space_sharing",
        "hierarchical_water_filling",
        "isolated",
    ],
)
@SMALL
@given(problem=problems(), seed=st.integers(0, 1000))
def test_relabelling_jobs_leaves_the_objective(name, problem, seed):
    order = np.random.default_rng(seed).permutation(len(problem.jobs))
    other = replace(
        problem,
        jobs=tuple(problem.jobs[row] for row in order),
        throughput_steps_per_s=problem.throughput_steps_per_s[order],
        feasible=problem.feasible[order],
        change_over_s=problem.change_over_s[order],
        sharing=replace(problem.sharing, kind_of_job=problem.sharing.kind_of_job[order]),
    )
    one, two = (policy_named(name).allocate(each) for each in (problem, other))
    assert one.status is two.status
    if one.objective_value is None:
        assert two.objective_value is None
    else:
        assert two.objective_value == pytest.approx(one.objective_value, rel=1e-5)


@pytest.mark.parametrize("policy", [MaxMinFairness(), Makespan(), Fifo(), MaxTotalThroughput()])
@SMALL
@given(problem=problems(), more=st.integers(1, 4))
def test_more_accelerators_never_hurt_with_the_normaliser_held(policy, problem, more):
    cluster = cluster_of(problem, with_steps=True)
    if not cluster.able.any():
        return
    for number, limit in enumerate(cluster.limits):
        larger = with_limit(cluster, number, limit.size + more)
        before, after = (
            policy.value(each, solve_shares(each, policy.goal(each)).throughput())
            for each in (cluster, larger)
        )
        if policy.larger_is_better:
            assert after >= before * (1 - 1e-7)
        else:
            assert after <= before * (1 + 1e-7)


@SMALL
@given(problem=problems())
def test_a_job_that_can_run_nowhere_counts_as_absent(problem):
    absent = np.full((1, 5), np.nan)
    with_it = replace(
        problem,
        jobs=(*problem.jobs, replace(problem.jobs[0], name="stuck")),
        throughput_steps_per_s=np.vstack([problem.throughput_steps_per_s, absent]),
        feasible=np.vstack([problem.feasible, np.zeros((1, 5), dtype=bool)]),
        change_over_s=np.zeros((len(problem.jobs) + 1, 5)),
        sharing=replace(problem.sharing, kind_of_job=np.append(problem.sharing.kind_of_job, 0)),
    )
    for name in ("max_min_fairness", "isolated", "makespan"):
        one, two = policy_named(name).allocate(problem), policy_named(name).allocate(with_it)
        assert not two.shares[-1].any()
        if one.objective_value is not None:
            assert two.objective_value == pytest.approx(one.objective_value, rel=1e-7)


@SMALL
@given(problem=problems())
def test_sharing_and_water_filling_never_lower_the_least_served(problem):
    plain = policy_named("max_min_fairness").allocate(problem)
    if plain.objective_value is None:
        return
    for name in ("water_filling", "max_min_fairness_space_sharing"):
        found = policy_named(name).allocate(problem)
        assert found.objective_value >= plain.objective_value * (1 - 1e-6)


@SMALL
@given(problem=problems(), rounds=st.integers(1, 12))
def test_rounds_place_whole_gangs_within_the_cluster(problem, rounds):
    rows = rows_of_shares(MaxMinFairness().allocate(problem).shares)
    credits, held = Credits(), ()
    sizes = {"V": problem.cluster_accelerators[0], "K": problem.cluster_accelerators[3]}
    for _ in range(rounds):
        found = next_round(problem, rows, credits, held=held)
        jobs = [job for turn in found.turns for job in turn.jobs]
        assert len(jobs) == len(set(jobs))
        used = {"V": 0, "K": 0}
        for turn in found.turns:
            each = problem.pools[turn.pool]
            used[each.offer_id] += each.gang_size
            row = int(turn.jobs[0][1:])
            assert problem.feasible[row, turn.pool]
        assert used["V"] <= sizes["V"] and used["K"] <= sizes["K"]
        credits, held = found.credits, found.turns


@pytest.mark.parametrize("space_sharing", [False, True])
@pytest.mark.parametrize("policy", [MaxMinFairness(), Makespan(), MaxTotalThroughput()])
@SMALL
@given(problem=problems(), copies=st.integers(2, 3))
def test_classes_of_equal_jobs_change_no_objective(policy, space_sharing, problem, copies):
    rows = np.repeat(np.arange(len(problem.jobs)), copies)
    many = replace(
        problem,
        jobs=tuple(
            replace(problem.jobs[row], name=f"j{number}") for number, row in enumerate(rows)
        ),
        throughput_steps_per_s=problem.throughput_steps_per_s[rows],
        feasible=problem.feasible[rows],
        change_over_s=problem.change_over_s[rows],
        sharing=replace(problem.sharing, kind_of_job=problem.sharing.kind_of_job[rows]),
    )
    cluster = cluster_of(many, with_steps=True)
    if not cluster.able.any():
        return
    collapsed, full = (
        solve_shares(cluster, policy.goal(cluster), space_sharing=space_sharing, collapse=collapse)
        for collapse in (True, False)
    )
    assert collapsed.groups.count < full.groups.count
    values = [policy.value(cluster, each.throughput()) for each in (collapsed, full)]
    assert values[0] == pytest.approx(values[1], rel=1e-6)
