from dataclasses import replace

import pytest

from cloudgavel.mechanism.actions import Launch, Move, Terminate
from cloudgavel.mechanism.decide import decide
from cloudgavel.mechanism.fleet import InstanceState
from cloudgavel.mechanism.guards.reserve import (
    Liability,
    affordable_wake_s,
    committed_usd,
    liability_of,
    worst_rate,
)
from cloudgavel.mechanism.state import ReserveRules
from tests.builders import (
    NOW_S,
    GreedyPolicy,
    a_job,
    a_state,
    an_instance,
    an_offer,
    on_machine,
)


def a_liability(**changes: float) -> Liability:
    fields = {"usd_per_hour": 3.6, "wind_down_s": 120.0, "minimum_left_s": 0.0} | changes
    return Liability(instance_id="i", **fields)  # type: ignore[arg-type]


def test_committed_is_rent_until_the_next_decision_and_the_end_after_it() -> None:
    # $3.6/h is a tenth of a cent a second: 360 to the wake, 5 late, 120 to end, 1 begun.
    assert committed_usd([a_liability()], 360.0, 5.0) == pytest.approx(0.486)


def test_the_rest_of_the_minimum_charge_is_committed() -> None:
    short = a_liability(wind_down_s=0.0, minimum_left_s=55.0)
    assert committed_usd([short], 0.0, 0.0) == pytest.approx(0.056)


def test_the_affordable_wake_uses_the_money_up_and_no_more() -> None:
    liabilities = [a_liability(), a_liability(usd_per_hour=7.2)]
    wake_s = affordable_wake_s(liabilities, 5.0, 5.0, 3600.0)
    assert wake_s is not None
    assert committed_usd(liabilities, wake_s, 5.0) <= 5.0
    assert committed_usd(liabilities, wake_s + 0.1, 5.0) > 5.0


def test_without_money_for_the_end_there_is_no_wake() -> None:
    assert affordable_wake_s([a_liability()], 0.1, 5.0, 360.0) is None


def test_a_spot_price_may_rise_but_not_above_on_demand() -> None:
    spot = an_offer(spot=True, price=1.0)
    rules = ReserveRules(price_rise_share=0.5)
    key = (spot.provider, spot.region, spot.instance_type)
    assert worst_rate(spot, 1.0, rules, {}) == 1.5
    assert worst_rate(spot, 1.0, rules, {key: 1.2}) == 1.2
    assert worst_rate(an_offer(), 3.0, rules, {}) == 3.0


def test_a_machine_told_to_end_costs_only_what_is_left_of_its_confirmation() -> None:
    ending = an_instance(state=InstanceState.TERMINATING, terminate_asked_at_s=NOW_S - 100)
    liability = liability_of(ending, a_state(), {})
    assert liability.ending and liability.wind_down_s == pytest.approx(20.0)


def test_money_for_less_than_half_a_minute_stops_the_job_and_keeps_the_budget() -> None:
    machine = an_instance()
    job = on_machine(a_job(steps=360_000), machine, steps_done=5000)
    # The end of a $3/h machine takes 65 s to stop, 10 s of lateness, 120 s to confirm: $0.16.
    state = a_state(job, instances=(machine,), budget_usd=10.0, spent_usd=9.83)
    plan = decide(state, GreedyPolicy())
    assert [each.to_instance_ids for each in plan.actions if isinstance(each, Move)] == [()]
    assert state.spent_usd + plan.committed_usd <= 10.0
    assert plan.next_wake_at_s is not None and plan.next_wake_at_s <= NOW_S + 65


def test_a_machine_is_ended_unsaved_when_the_money_does_not_wait_for_the_save() -> None:
    machine = an_instance()
    job = on_machine(a_job(), machine, stopping=True, steps_done=500)
    state = a_state(job, instances=(machine,), budget_usd=10.0, spent_usd=9.895)
    plan = decide(state, GreedyPolicy())
    assert [type(each) for each in plan.actions if not hasattr(each, "job")] == [Terminate]


def test_a_price_jump_stops_launching_so_that_the_budget_holds() -> None:
    """A budget of 500, a plan of 480, then prices jump to 700: nothing that does not fit."""
    jobs = [a_job(f"j{number}", steps=3_600_000, on="V100") for number in range(7)]
    calm = decide(a_state(*jobs, offers=(an_offer(price=0.68),), budget_usd=500.0), GreedyPolicy())
    jumped = decide(a_state(*jobs, offers=(an_offer(price=1.0),), budget_usd=500.0), GreedyPolicy())

    def launches(plan: object) -> int:
        return sum(isinstance(each, Launch) for each in plan.actions)  # type: ignore[attr-defined]

    assert launches(calm) == 7
    # Four to the end at $100 each, and one more as far as the rest goes.
    assert launches(jumped) == 5


def test_out_of_money_says_so_and_stops_everything() -> None:
    job = a_job(steps=360_000)
    plan = decide(a_state(job, budget_usd=10.0, spent_usd=9.99), GreedyPolicy())
    assert plan.out_of_money
    assert not any(isinstance(each, Launch) for each in plan.actions)


def test_moving_counts_both_machines_against_the_spend_rate() -> None:
    machine = an_instance(an_offer(price=3.0))
    job = on_machine(a_job(steps=3_600_000), machine)
    cheap = an_offer(spot=True, price=0.5)
    state = a_state(job, instances=(machine,), offers=(an_offer(), cheap), max_usd_per_hour=3.2)
    assert not any(isinstance(each, Launch) for each in decide(state, GreedyPolicy()).actions)
    roomy = replace(state, max_usd_per_hour=3.6)
    assert any(isinstance(each, Launch) for each in decide(roomy, GreedyPolicy()).actions)
