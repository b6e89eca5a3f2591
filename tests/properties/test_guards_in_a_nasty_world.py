"""The sentences that hold in every history the tiny world can produce."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.jobs.spec import CheckpointPlan
from cloudgavel.mechanism.actions import Launch, Move, Start
from cloudgavel.mechanism.fleet import InstanceState
from cloudgavel.mechanism.plan import RoundPlan
from cloudgavel.mechanism.state import ClusterState, QuotaLimit
from tests.builders import NOW_S, GreedyPolicy, a_job, a_state, an_offer
from tests.properties.tiny_world import World

OFFERS = (
    an_offer(),
    an_offer(spot=True, price=1.0),
    an_offer(spot=True, price=1.05, zone="use1-az2"),
    an_offer("T4", price=0.6),
    an_offer("T4", spot=True, price=0.2),
    an_offer("A100", size=8, price=30.0),
    an_offer("A100", size=8, price=10.0, spot=True),
)
EASY = settings(max_examples=15, deadline=None, derandomize=True)


def a_world(seed: int, *, budgets: tuple[float | None, ...], soonest_s: float = 3000) -> World:
    """One to five jobs of up to five hours on three kinds of accelerators, all from the seed."""
    dice = Random(seed)
    jobs = tuple(
        a_job(
            f"j{number}",
            steps=dice.randint(2_000, 60_000),
            on=dice.choice(["V100", "V100 T4", "T4", "V100 A100 A100:8"]),
            deadline_in_s=dice.choice([None, dice.uniform(soonest_s, 30_000)]),
            spec={"weight": dice.choice([1.0, 2.0, 5.0])},
        )
        for number in range(dice.randint(1, 5))
    )
    state = a_state(*jobs, offers=OFFERS, budget_usd=dice.choice(budgets))
    return World(state=state, policy=GreedyPolicy(), dice=dice)


@EASY
@given(seed=st.integers(0, 10**6))
def test_no_history_costs_a_cent_more_than_the_budget(seed: int) -> None:
    world = a_world(seed, budgets=(0.3, 0.5, 1.0, 3.0, 5.0))
    budget = world.state.budget_usd
    assert budget is not None
    world.run()
    assert world.bill_usd() <= budget + 1e-9
    for state, plan in world.plans:
        assert state.spent_usd + plan.committed_usd <= budget + 1e-6


@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), every_s=st.sampled_from([60.0, 200.0, 900.0, None]))
def test_what_checkpoints_cost_on_their_way_is_within_the_budget_too(
    seed: int, every_s: float | None
) -> None:
    world = a_world(seed, budgets=(0.8, 1.5, 3.0, 6.0, 15.0))
    plan = CheckpointPlan(save_s=30.0, restore_s=60.0, every_s=every_s)
    jobs = tuple(
        replace(job, spec=replace(job.spec, checkpoint=plan), checkpoint_gib=0.25 + number)
        for number, job in enumerate(world.state.jobs)
    )
    world.state = replace(world.state, jobs=jobs, store_cloud="gcp")
    budget = world.state.budget_usd
    assert budget is not None
    world.run(1500)
    assert world.bill_usd() <= budget + 1e-9
    for state, decided in world.plans:
        assert state.spent_usd + decided.committed_usd <= budget + 1e-6


def test_that_world_s_checkpoints_do_cost_something() -> None:
    world = a_world(3, budgets=(50.0,))
    jobs = tuple(replace(job, checkpoint_gib=1.0) for job in world.state.jobs)
    world.state = replace(world.state, jobs=jobs, store_cloud="gcp")
    world.run(1500)
    assert world.saves > 0
    assert world.traffic_usd > 0


@EASY
@given(seed=st.integers(0, 10**6))
def test_every_plan_of_a_history_is_safe(seed: int) -> None:
    world = a_world(seed, budgets=(None, 1.0, 5.0, 100.0))
    limit = 2 + seed % 4
    quota = QuotaLimit(
        name="instances",
        limit=limit,
        units_per_instance={each.offer_id: 1.0 for each in OFFERS},
    )
    world.state = replace(world.state, quotas=(quota,))
    world.run(800)
    for state, plan in world.plans:
        check_plan(state, plan, limit)


def check_plan(state: ClusterState, plan: RoundPlan, limit: int) -> None:
    jobs = {job.spec.name: job for job in state.jobs}
    machines = {each.instance_id: each for each in state.instances}
    launches = [each for each in plan.actions if isinstance(each, Launch)]
    leased = [each.job for each in plan.leases]
    assert len(leased) == len(set(leased)), "a job is leased twice"
    assert len(launches) + len(machines) <= limit or not launches, "a quota is exceeded"
    asked = [name for each in launches for name in each.for_jobs]
    for name in asked:
        assert jobs[name].active, "a machine for a job that is done"
    taken: dict[str, list[int]] = {}
    for job in jobs.values():
        for instance_id in job.instance_ids if job.active else ():
            taken.setdefault(instance_id, []).extend(job.accelerator_indices)
    for action in plan.actions:
        if isinstance(action, Start):
            assert not jobs[action.job].instance_ids, "started while it is somewhere"
            assert action.attempt == jobs[action.job].attempt + 1
            for instance_id in action.instance_ids:
                assert machines[instance_id].state is InstanceState.READY
                assert machines[instance_id].usable, "started on a machine that is being taken"
                taken.setdefault(instance_id, []).extend(action.accelerator_indices)
        if isinstance(action, Move):
            assert jobs[action.job].instance_ids
            assert not set(action.to_instance_ids) & set(jobs[action.job].instance_ids)
            assert all(
                machines[each].state is InstanceState.READY for each in action.to_instance_ids
            )
    for instance_id, indices in taken.items():
        assert len(indices) == len(set(indices)), "two jobs on one accelerator"
        if instance_id in machines:
            size = machines[instance_id].offer.accelerators_per_instance
            assert all(0 <= each < size for each in indices)


BUDGETS = (None, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0)


def check_covered(world: World) -> int:
    """Play a history; whatever any decision in it called covered is in time. How many were."""
    world.failures = False
    world.run(1500)
    deadlines = {job.spec.name: job.deadline_at_s for job in world.state.jobs}
    covered = {
        forecast.job
        for _, plan in world.plans
        for forecast in plan.forecasts
        if forecast.promise == "covered"
    }
    for name in sorted(covered):
        at_s = deadlines[name]
        assert at_s is not None
        assert name in world.finished_at_s, f"{name} was covered and is not finished"
        assert world.finished_at_s[name] <= at_s + 1.0, f"{name} was covered and is late"
    budget = world.state.budget_usd
    assert budget is None or world.bill_usd() <= budget + 1e-9
    return len(covered)


@EASY
@given(seed=st.integers(0, 10**6))
def test_what_a_decision_called_covered_is_kept_when_spot_vanishes(seed: int) -> None:
    world = a_world(seed, budgets=BUDGETS, soonest_s=4000)
    world.spot_gone_at_s = NOW_S + 10 + seed % 9000
    check_covered(world)


@pytest.mark.parametrize("seed", [10, 18, 45, 54, 63, 142])
def test_setbacks_that_once_broke_a_covered_promise(seed: int) -> None:
    """A dear machine taken for a small part, an idle machine taken again, a move for money."""
    world = a_world(seed, budgets=(5.0, 8.0, 12.0, 20.0, 30.0), soonest_s=4000)
    world.spot_gone_at_s = NOW_S + 10 + seed % 9000
    assert check_covered(world) > 0


@pytest.mark.parametrize("seed", range(6))
def test_what_is_covered_is_kept_in_chains_under_a_quota_and_with_interruptions(seed: int) -> None:
    world = a_world(seed, budgets=(8.0, 12.0, 20.0, 30.0), soonest_s=4000)
    jobs = list(world.state.jobs)
    for number in range(1, len(jobs), 2):
        jobs[number] = replace(jobs[number], waits_for=(jobs[number - 1].spec.name,))
    quota = QuotaLimit(
        name="instances",
        limit=2 + seed % 3,
        units_per_instance={each.offer_id: 1.0 for each in OFFERS},
    )
    world.state = replace(world.state, jobs=tuple(jobs), quotas=(quota,))
    check_covered(world)


@EASY
@given(seed=st.integers(0, 10**6))
def test_with_money_and_time_every_job_finishes_and_nothing_is_left_running(seed: int) -> None:
    world = a_world(seed, budgets=(None, 1000.0))
    world.run(600)
    assert not any(job.active for job in world.state.jobs)
    assert not world.state.instances
    assert world.plans[-1][1].next_wake_at_s is None


@pytest.mark.parametrize("seed", [1, 4, 9])
def test_the_planning_lp_keeps_the_budget_too(seed: int) -> None:
    from cloudgavel.policies.registry import policy_named

    world = a_world(seed, budgets=(1.0, 3.0))
    world.policy = policy_named("min_cost")
    world.run()
    assert world.state.budget_usd is not None
    assert world.bill_usd() <= world.state.budget_usd + 1e-9
