"""Policies beyond least cost, through the loop that runs them: objective, promises, money."""

import itertools
from dataclasses import replace

import pytest

from cloudgavel.documents.frontier import FrontierPoint
from cloudgavel.documents.plan import PlanDocument
from cloudgavel.errors import UsageError
from cloudgavel.jobs.spec import AcceleratorRequest, JobSpec, RunSpec
from cloudgavel.policies.registry import policy_named, policy_of_run
from cloudgavel.simulator.frontier import cost_makespan_frontier, non_dominated
from cloudgavel.simulator.plan import plan_run
from tests.unit.runtime.scripted import START_S, a_job, a_run, an_offer

FAST = 3.0
"""Times the rate of a V100, at 5 times its price."""
OFFERS = [
    an_offer("z1", price=3.0),
    replace(an_offer("z1", price=15.0), accelerator="A100", instance_type="a100"),
]


def slow_or_fast(name: str, hours: float, **changes: object) -> JobSpec:
    return a_job(
        name,
        steps=int(hours * 3600),
        accelerators=(
            AcceleratorRequest(accelerator="V100", count=1),
            AcceleratorRequest(accelerator="A100", count=1),
        ),
        throughput_steps_per_s={"V100": 1.0, "A100": FAST},
        **changes,
    )


def plan(policy: str, budget_usd: float | None, *jobs: JobSpec) -> PlanDocument:
    run = a_run(*jobs, policy=policy, round_s=1800.0)
    return plan_run(run, budget_usd=budget_usd, now_s=START_S, offers=OFFERS)


def jobs() -> tuple[JobSpec, ...]:
    return (
        slow_or_fast("short", 2.0, deadline_s=12 * 3600.0),
        slow_or_fast("long", 6.0, deadline_s=12 * 3600.0),
    )


@pytest.fixture(scope="module")
def cheap() -> PlanDocument:
    return plan("min_cost", 500.0, *jobs())


def test_with_money_the_last_end_is_early_and_the_rest_saves(cheap: PlanDocument) -> None:
    found = plan("min_makespan", 500.0, *jobs())
    ends = {job.name: job for job in found.jobs}
    assert found.feasible and found.makespan_s is not None and cheap.makespan_s is not None
    assert found.makespan_s < 2.3 * 3600 < 6 * 3600 < cheap.makespan_s
    assert ends["long"].segments[0].accelerator == "A100"
    # The short job would gain nothing for the last end by being faster.
    assert ends["short"].segments[0].accelerator == "V100"
    assert found.smallest_sufficient_budget_usd == cheap.smallest_sufficient_budget_usd


def test_fairness_gives_every_job_its_speed() -> None:
    for name in ("max_min_fairness", "finish_time_fairness"):
        found = plan(name, 500.0, *jobs())
        assert found.feasible
        assert {job.segments[0].accelerator for job in found.jobs} == {"A100"}


@pytest.mark.parametrize("name", ["makespan", "max_min_fairness", "finish_time_fairness"])
def test_no_promise_is_spent_on_the_objective(name: str, cheap: PlanDocument) -> None:
    smallest = cheap.smallest_sufficient_budget_usd
    assert smallest is not None
    for budget in (smallest, 1.3 * smallest):
        found = plan(name, budget, *jobs())
        assert found.feasible and found.relaxed == ()
        assert found.cost.expected_usd <= budget
    poor = plan(name, 0.9 * smallest, *jobs())
    assert not poor.feasible and poor.relaxed
    assert poor.cost.expected_usd <= 0.9 * smallest


def test_who_wants_its_cheapest_machine_does_not_wait_for_the_money_of_others() -> None:
    spot = [
        an_offer("z1", spot=True, price=0.6, rate_per_hour=0.1),
        replace(
            an_offer("z1", spot=True, price=3.5, rate_per_hour=0.1),
            accelerator="A100",
            instance_type="a100",
        ),
    ]
    hopeless = slow_or_fast("hopeless", 10.0, deadline_s=1.5 * 3600)
    promised = slow_or_fast("promised", 3.0, deadline_s=12 * 3600.0)
    ends = {}
    for policy in ("makespan", "min_cost"):
        run = a_run(hopeless, promised, policy=policy, round_s=1800.0)
        found = plan_run(run, budget_usd=20.0, now_s=START_S, offers=[*OFFERS, *spot])
        if policy == "makespan":
            first = {job.name: job.segments[0] for job in found.jobs}["promised"]
            assert first.accelerator == "V100" and first.start_s < 600
        ends[policy] = found.makespan_s or 0.0
    assert 0 < ends["makespan"] <= 1.001 * ends["min_cost"]


def test_the_frontier_falls_and_every_point_can_be_had() -> None:
    # Nobody fast, the long one fast, both fast.
    both = [slow_or_fast(f"j{hours}", hours, deadline_s=12 * 3600.0) for hours in (4, 6)]
    run = a_run(*both, round_s=1800.0)
    found = cost_makespan_frontier(run, now_s=START_S, offers=OFFERS)
    points = found.points
    assert found.feasible and len(points) >= 3
    assert points[0].budget_usd == found.smallest_sufficient_budget_usd
    for cheaper, earlier in itertools.pairwise(points):
        assert cheaper.budget_usd < earlier.budget_usd
        assert cheaper.cost_usd < earlier.cost_usd
        assert cheaper.makespan_s > earlier.makespan_s
    for point in points:
        assert point.cost_usd <= point.budget_usd
        assert point.deadlines_met == point.deadlines == 2
        assert point.makespan_lower_bound_s is not None
        assert point.makespan_lower_bound_s <= point.makespan_s
    bounds = [point.makespan_lower_bound_s or 0.0 for point in points]
    assert bounds == sorted(bounds, reverse=True)
    for point in (points[1], points[-1]):
        asked = plan("makespan", point.budget_usd, *both)
        assert asked.feasible and asked.makespan_s == point.makespan_s
        assert asked.cost.expected_usd == pytest.approx(point.cost_usd)
    few = cost_makespan_frontier(run, budget_usd=1.0, now_s=START_S, offers=OFFERS)
    assert few.points == () and few.smallest_sufficient_budget_usd is not None


def test_without_a_way_to_keep_all_the_frontier_keeps_what_it_can() -> None:
    run = a_run(slow_or_fast("late", 6.0, deadline_s=1800.0), round_s=1800.0)
    found = cost_makespan_frontier(run, now_s=START_S, offers=OFFERS)
    assert not found.feasible and found.smallest_sufficient_budget_usd is None
    assert found.points and {point.deadlines_met for point in found.points} == {0}


def test_dominated_points_are_left_out() -> None:
    def at(budget: float, cost: float, hours: float) -> FrontierPoint:
        return FrontierPoint(
            budget_usd=budget,
            cost_usd=cost,
            makespan_s=hours,
            makespan_lower_bound_s=None,
            deadlines_met=0,
            deadlines=0,
        )

    one, two, late, dear, best = at(1, 1, 9), at(2, 2, 8), at(3, 2, 8.5), at(4, 5, 6), at(5, 4, 5)
    assert non_dominated([best, dear, late, two, one]) == [one, two, best]


def test_what_divides_a_cluster_is_refused_for_a_run() -> None:
    for name in ("fifo", "max_min_fairness_agnostic", "isolated"):
        with pytest.raises(UsageError) as caught:
            policy_of_run(RunSpec(name="r", jobs=(), policy=name))
        assert "divides a fixed cluster" in caught.value.message
        assert "max_min_fairness" in dict(caught.value.facts)["for a rented fleet"]
        assert policy_named(name).name == name


def test_an_owner_with_two_jobs_gets_no_more_speed_than_one_with_one() -> None:
    three = [
        slow_or_fast("a", 4.0, entity="x"),
        slow_or_fast("b", 4.0, entity="x"),
        slow_or_fast("c", 4.0, entity="y"),
    ]
    # 36 USD on slow machines; enough is left to make one job fast, not all.
    found = plan("max_min_fairness", 50.0, *three)
    assert found.feasible
    used = {job.name: {each.accelerator for each in job.segments} for job in found.jobs}
    assert used == {"a": {"V100"}, "b": {"V100"}, "c": {"A100"}}
