import pytest

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.mechanism.actions import Launch, Move, Save
from cloudgavel.mechanism.decide import decide
from cloudgavel.mechanism.guards.safety_net import (
    check_net,
    demand_now,
    latest_on_demand_start_at_s,
)
from cloudgavel.mechanism.guards.timeline import Timeline
from cloudgavel.mechanism.situation import arrange
from cloudgavel.mechanism.state import QuotaLimit
from tests.builders import (
    NOW_S,
    FixedPolicy,
    GreedyPolicy,
    a_job,
    a_state,
    an_instance,
    an_offer,
    on_machine,
)

ON_DEMAND = an_offer()
SPOT = an_offer(spot=True, price=1.0)
# An hour of steps, a save of 30 s every 30 minutes: 3,660 s; boot and restore at most 360 s,
# noticed 10 s late.
WORST_S = 3660 + 360 + 10


def test_the_latest_start_leaves_the_worst_change_over_and_all_unsaved_work() -> None:
    situation = arrange(a_state(a_job(deadline_in_s=10_000)))
    latest = latest_on_demand_start_at_s(situation, "job")
    assert latest == pytest.approx(NOW_S + 10_000 - WORST_S)


def test_a_job_on_spot_with_slack_stays_there() -> None:
    machine = an_instance(SPOT)
    job = on_machine(a_job(deadline_in_s=WORST_S + 600), machine)
    plan = decide(a_state(job, instances=(machine,)), GreedyPolicy())
    assert not any(isinstance(each, Launch) for each in plan.actions)


def test_a_job_whose_slack_ends_before_the_next_decision_goes_on_demand_now() -> None:
    machine = an_instance(SPOT)
    job = on_machine(a_job(deadline_in_s=WORST_S + 300), machine)
    plan = decide(a_state(job, instances=(machine,)), FixedPolicy("spot"))
    launches = [each for each in plan.actions if isinstance(each, Launch)]
    assert [each.offer_ids for each in launches] == [(ON_DEMAND.offer_id,)]
    assert not any(isinstance(each, Move) for each in plan.actions), "it works on until then"


def test_work_that_a_deadline_cannot_lose_is_saved_ahead() -> None:
    machine = an_instance(SPOT)
    job = on_machine(a_job(deadline_in_s=WORST_S + 500), machine, steps_done=10_000, saved_steps=0)
    plan = decide(a_state(job, instances=(machine,)), FixedPolicy("spot"))
    assert [each.job for each in plan.actions if isinstance(each, Save)] == ["job"]


def test_jointly_over_the_quota_only_as_many_as_needed_go_now() -> None:
    """Two jobs, one on-demand machine: alone each has time, together one must start now."""
    quota = QuotaLimit(name="gpus", limit=1, units_per_instance={ON_DEMAND.offer_id: 1.0})
    jobs = [a_job(name, deadline_in_s=2 * WORST_S + 400) for name in ("a", "b")]
    situation = arrange(a_state(*jobs, quotas=(quota,)))
    start_at_s = NOW_S + 365
    alone = check_net(situation, ["a"], kept={}, on_demand_now=(), start_at_s=start_at_s)
    both = check_net(situation, ["a", "b"], kept={}, on_demand_now=(), start_at_s=start_at_s)
    assert alone.holds and not both.holds
    sent, answer = demand_now(
        situation, ["a", "b"], kept={}, start_at_s=start_at_s, may_be_sent=["a", "b"]
    )
    assert answer.holds and len(sent) == 1


def test_jobs_that_share_a_machine_are_one_machine_of_the_quota() -> None:
    big = an_offer(size=8, price=20.0)
    quota = QuotaLimit(name="boxes", limit=1, units_per_instance={big.offer_id: 1.0})
    jobs = [a_job(f"j{number}", deadline_in_s=WORST_S + 400) for number in range(8)]
    situation = arrange(a_state(*jobs, offers=(big,), quotas=(quota,)))
    names = [job.spec.name for job in jobs]
    assert check_net(situation, names, kept={}, on_demand_now=(), start_at_s=NOW_S).holds
    more = arrange(
        a_state(*jobs, a_job("j8", deadline_in_s=WORST_S + 400), offers=(big,), quotas=(quota,))
    )
    answer = check_net(more, [*names, "j8"], kept={}, on_demand_now=(), start_at_s=NOW_S)
    assert len(answer.late_by_s) == 1


def test_a_job_already_on_demand_is_not_asked_to_start_again() -> None:
    machine = an_instance(ON_DEMAND)
    job = on_machine(a_job(deadline_in_s=1900), machine, steps_done=18_000, saved_steps=0)
    plan = decide(a_state(job, instances=(machine,)), FixedPolicy("spot"))
    assert not any(isinstance(each, (Launch, Move)) for each in plan.actions)
    assert plan.forecasts[0].promise == "covered"


def test_a_promise_nobody_can_keep_is_released_and_says_by_how_much() -> None:
    plan = decide(a_state(a_job(deadline_in_s=1000)), GreedyPolicy())
    (relaxed,) = plan.relaxed
    assert (relaxed.job, relaxed.promise) == ("job", "deadline")
    assert relaxed.by_s == pytest.approx(3600 + 240 - 1000)
    assert plan.forecasts[0].promise == "released"


def test_short_money_releases_the_promise_of_least_weight_by_name() -> None:
    jobs = [
        a_job("heavy", deadline_in_s=20_000, spec={"weight": 5.0}),
        a_job("light", deadline_in_s=20_000, spec={"weight": 1.0}),
    ]
    plan = decide(a_state(*jobs, budget_usd=1.6), GreedyPolicy())
    assert [each.job for each in plan.relaxed] == ["light"]
    assert "least weight" in plan.relaxed[0].reason


def test_a_machine_under_notice_is_lost_already() -> None:
    machine = an_instance(SPOT, notice_ends_at_s=NOW_S + 100)
    job = on_machine(a_job(deadline_in_s=50_000), machine, steps_done=5000)
    plan = decide(a_state(job, instances=(machine,)), GreedyPolicy())
    assert {type(each) for each in plan.actions} == {Save, Launch}


def test_predecessors_inherit_the_deadline_of_what_comes_after_them() -> None:
    first = a_job("first")
    second = a_job("second", deadline_in_s=10_000, waits_for=("first",))
    situation = arrange(a_state(first, second))
    assert situation.deadlines["first"] == pytest.approx(NOW_S + 10_000 - 3600 - 240)


def test_a_timeline_finds_the_first_gap() -> None:
    timeline = Timeline({"gpu": 2.0})
    timeline.take({"gpu": 2.0}, 0.0, 100.0)
    timeline.take({"gpu": 1.0}, 100.0, 200.0)
    assert timeline.earliest({"gpu": 1.0}, 0.0, 50.0, 1000.0) == 100.0
    assert timeline.earliest({"gpu": 2.0}, 0.0, 50.0, 1000.0) == 200.0
    assert timeline.earliest({"gpu": 2.0}, 0.0, 50.0, 150.0) is None
    assert timeline.earliest({"tpu": 9.0}, 0.0, 50.0, 150.0) == 0.0


def test_a_starting_job_is_not_moved_for_money() -> None:
    machine = an_instance(ON_DEMAND)
    job = on_machine(a_job(steps=900_000), machine, phase=JobPhase.STARTING)
    plan = decide(a_state(job, instances=(machine,)), FixedPolicy("spot"))
    assert not any(isinstance(each, (Launch, Move)) for each in plan.actions)


def test_no_promise_is_covered_by_an_estimate() -> None:
    """The T4 is slow and known, the V100 fast and estimated: what keeps the deadline decides."""

    def promise(deadline_in_s: float, *, estimated: str) -> str:
        job = a_job(on="T4 V100", deadline_in_s=deadline_in_s, estimated=frozenset({estimated}))
        offers = (an_offer("T4", price=1.0), an_offer())
        return decide(a_state(job, offers=offers), GreedyPolicy()).forecasts[0].promise

    only_v100_is_fast_enough, both_are = 8_000.0, 20_000.0
    assert promise(only_v100_is_fast_enough, estimated="T4") == "covered"
    assert promise(only_v100_is_fast_enough, estimated="V100") == "expected"
    assert promise(both_are, estimated="V100") == "covered"
