"""Places, packing, actions: one round at a time."""

from dataclasses import replace

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.mechanism import reasons
from cloudgavel.mechanism.actions import Launch, Move, Start, Terminate, Wait
from cloudgavel.mechanism.decide import decide
from cloudgavel.mechanism.fleet import InstanceState
from cloudgavel.mechanism.plan import RoundPlan
from cloudgavel.mechanism.state import BlockedOffer
from cloudgavel.policies.allocation import AllocationStatus
from tests.builders import (
    NOW_S,
    FailingPolicy,
    FixedPolicy,
    GreedyPolicy,
    a_job,
    a_state,
    an_instance,
    an_offer,
    on_machine,
)

SPOT = an_offer(spot=True, price=1.0)


def of(plan: RoundPlan, kind: type) -> list:  # type: ignore[type-arg]
    return [each for each in plan.actions if isinstance(each, kind)]


def test_a_waiting_job_is_launched_with_its_zones_cheapest_first() -> None:
    dearer = an_offer(spot=True, price=1.05, zone="use1-az2")
    other_class = an_offer(spot=True, price=1.9, zone="use1-az3")
    plan = decide(a_state(a_job(), offers=(other_class, dearer, SPOT)), GreedyPolicy())
    (launch,) = of(plan, Launch)
    assert launch.token == "run-r1-0"
    assert launch.offer_ids == (SPOT.offer_id, dearer.offer_id)
    assert launch.price_limit_usd_per_hour == 1.05


def test_a_booting_machine_is_kept_for_its_job_and_nothing_is_launched_twice() -> None:
    booting = an_instance(
        SPOT, state=InstanceState.BOOTING, intended_jobs=("job",), launched_at_s=NOW_S - 60
    )
    plan = decide(a_state(a_job(), instances=(booting,)), GreedyPolicy())
    assert not plan.actions
    assert [each.instance_ids for each in plan.leases] == [("i-1",)]
    assert plan.next_wake_at_s == NOW_S + 120


def test_a_ready_machine_starts_the_next_attempt() -> None:
    ready = an_instance(SPOT, intended_jobs=("job",))
    plan = decide(a_state(a_job(attempt=3), instances=(ready,)), GreedyPolicy())
    (start,) = of(plan, Start)
    assert (start.attempt, start.instance_ids, start.accelerator_indices) == (4, ("i-1",), (0,))


def test_a_move_takes_two_steps_and_never_two_places() -> None:
    old = an_instance(an_offer())
    job = on_machine(a_job(steps=3_600_000), old)
    state = a_state(job, instances=(old,), budget_usd=None)
    first = decide(state, GreedyPolicy())
    assert len(of(first, Launch)) == 1 and not of(first, Move) and not of(first, Terminate)
    new = an_instance(SPOT, instance_id="i-2", intended_jobs=("job",))
    second = decide(replace(state, instances=(old, new)), GreedyPolicy())
    assert [each.to_instance_ids for each in of(second, Move)] == [("i-2",)]
    assert not of(second, Start)
    gone = replace(job, instance_ids=(), phase=JobPhase.MOVING, move_to=("i-2",))
    third = decide(replace(state, jobs=(gone,), instances=(old, new)), GreedyPolicy())
    assert [each.instance_ids for each in of(third, Start)] == [("i-2",)]
    assert [each.instance_id for each in of(third, Terminate)] == ["i-1"]


def test_equal_prices_never_move_a_job() -> None:
    here = an_instance(SPOT)
    twin = an_offer(spot=True, price=1.0, zone="use1-az2", instance_type="box.twin")
    job = on_machine(a_job(steps=3_600_000), here)
    state = a_state(job, instances=(here,), offers=(SPOT, twin), budget_usd=None)
    assert not decide(state, FixedPolicy("twin")).actions


def test_a_failed_save_keeps_a_job_where_it_is() -> None:
    old = an_instance(an_offer())
    job = on_machine(a_job(steps=3_600_000), old, save_error="disk full")
    plan = decide(a_state(job, instances=(old,), budget_usd=None), FixedPolicy("spot"))
    assert not plan.actions and plan.leases[0].extended


def test_eight_jobs_share_one_instance_without_overlap() -> None:
    big = an_offer(size=8, price=10.0)
    jobs = [a_job(f"j{number}") for number in range(8)]
    plan = decide(a_state(*jobs, offers=(big, an_offer())), FixedPolicy("x8"))
    (launch,) = of(plan, Launch)
    assert len(launch.for_jobs) == 8
    ready = an_instance(big, intended_jobs=launch.for_jobs)
    starts = of(decide(a_state(*jobs, offers=(big,), instances=(ready,)), FixedPolicy()), Start)
    assert sorted(each.accelerator_indices for each in starts) == [(n,) for n in range(8)]


def test_a_lone_job_does_not_pay_for_eight_accelerators() -> None:
    big = an_offer(size=8, price=10.0)
    plan = decide(a_state(a_job(), offers=(big, an_offer())), FixedPolicy("x8"))
    assert of(plan, Launch)[0].offer_ids == (an_offer().offer_id,)


def test_a_free_accelerator_comes_before_a_new_machine() -> None:
    big = an_instance(an_offer(size=8, price=10.0))
    busy = on_machine(a_job("busy"), big)
    state = a_state(busy, a_job("new"), instances=(big,), offers=(big.offer,))
    plan = decide(state, GreedyPolicy())
    (start,) = of(plan, Start)
    assert start.job == "new" and start.accelerator_indices == (1,)
    assert not of(plan, Launch)


def test_a_gang_over_two_instances_gets_both_in_one_zone() -> None:
    offers = (
        an_offer("A100", size=4, price=12.0),
        an_offer("A100", size=4, price=12.1, zone="use1-az2"),
    )
    job = a_job(on="A100:8")
    launches = of(decide(a_state(job, offers=offers), GreedyPolicy()), Launch)
    assert [each.offer_ids for each in launches] == [(offers[0].offer_id,)] * 2
    machines = [an_instance(offers[0], instance_id=f"i-{n}", intended_jobs=("job",)) for n in "ab"]
    (start,) = of(
        decide(a_state(job, offers=offers, instances=tuple(machines)), GreedyPolicy()), Start
    )
    assert start.instance_ids == ("i-a", "i-b") and start.accelerator_indices == (0, 1, 2, 3)


def test_half_a_gang_does_not_start() -> None:
    offer = an_offer("A100", size=4, price=12.0)
    machines = (
        an_instance(offer, instance_id="i-a", intended_jobs=("job",)),
        an_instance(offer, instance_id="i-b", intended_jobs=("job",), state=InstanceState.BOOTING),
    )
    state = a_state(a_job(on="A100:8"), offers=(offer,), instances=machines)
    assert not decide(state, GreedyPolicy()).actions


def test_blocked_unpriced_and_pointless_spot_offers_are_left_out() -> None:
    dear_spot = an_offer(spot=True, price=3.0)
    blocked = BlockedOffer(offer_id=an_offer().offer_id, until_s=NOW_S + 90, reason="capacity")
    unpriced = an_offer("T4", price=None)
    job = a_job(on="V100 T4")
    plan = decide(
        a_state(job, offers=(an_offer(), dear_spot, unpriced), blocked=(blocked,)), GreedyPolicy()
    )
    (wait,) = of(plan, Wait)
    assert not of(plan, Launch) and wait.job == "job"
    assert plan.next_wake_at_s == NOW_S + 90


def test_reasons_name_what_is_missing() -> None:
    huge = a_job("huge", spec={"memory_gib": 500.0})
    unknown = replace(a_job("unknown"), throughput_steps_per_s={})
    later = a_job("later", release_at_s=NOW_S + 50)
    after = a_job("after", waits_for=("later",))
    plan = decide(a_state(huge, unknown, later, after), GreedyPolicy())
    why = {each.job: each.reason for each in of(plan, Wait)}
    assert "memory" in why["huge"] and "throughput is unknown" in why["unknown"]
    assert why["later"] == reasons.NOT_ARRIVED and "later" in why["after"]
    assert plan.next_wake_at_s == NOW_S + 50


def test_max_duration_stops_a_job_that_never_ends_and_then_its_machine() -> None:
    machine = an_instance()
    job = on_machine(
        a_job(spec={"max_duration_s": 7200.0}), machine, started_at_s=NOW_S - 7200, steps_done=5
    )
    plan = decide(a_state(job, instances=(machine,)), GreedyPolicy())
    (move,) = of(plan, Move)
    assert move.to_instance_ids == () and move.reason == reasons.MAX_DURATION
    gone = replace(job, instance_ids=(), phase=JobPhase.WAITING)
    after = decide(a_state(gone, instances=(machine,)), GreedyPolicy())
    assert [each.instance_id for each in of(after, Terminate)] == ["i-1"]
    assert of(after, Wait)[0].reason == reasons.MAX_DURATION and not of(after, Launch)


def test_max_cost_stops_a_job_before_it_is_exceeded() -> None:
    machine = an_instance()
    job = on_machine(a_job(spec={"max_cost_usd": 2.0}), machine, spent_usd=1.93)
    plan = decide(a_state(job, instances=(machine,)), GreedyPolicy())
    assert [each.reason for each in of(plan, Move)] == [reasons.MAX_COST]


def test_stopping_saves_stops_and_ends_everything() -> None:
    busy, idle = an_instance(), an_instance(instance_id="i-2")
    job = on_machine(a_job(), busy)
    plan = decide(a_state(job, instances=(busy, idle), stopping=True), GreedyPolicy())
    assert [each.to_instance_ids for each in of(plan, Move)] == [()]
    assert [each.instance_id for each in of(plan, Terminate)] == ["i-2"]


def test_a_policy_without_spot_rents_none_though_it_is_cheaper() -> None:
    from cloudgavel.policies.registry import policy_named

    jobs = [a_job(f"j{number}", deadline_in_s=30_000) for number in range(2)]
    state = a_state(*jobs, a_job("whenever"))
    for policy, spot in (("on_demand_only", False), ("min_cost", True)):
        launches = of(decide(state, policy_named(policy)), Launch)
        asked = {offer_id for each in launches for offer_id in each.offer_ids}
        assert launches and any("spot" in each for each in asked) == spot
        assert all("spot" in each for each in asked) == spot


def test_without_a_deadline_refused_spot_is_waited_for_an_hour_at_most() -> None:
    refused = BlockedOffer(offer_id=SPOT.offer_id, until_s=NOW_S + 300, reason="capacity")

    def plan(**changes: object) -> RoundPlan:
        state = a_state(a_job(**changes), blocked=(refused,), offers=(an_offer(), SPOT))  # type: ignore[arg-type]
        return decide(state, GreedyPolicy())

    waiting = plan()
    assert not of(waiting, Launch)
    assert "goes on demand in 1h00m" in of(waiting, Wait)[0].reason
    assert of(plan(waiting_since_s=NOW_S - 3599), Wait)
    for late in (plan(waiting_since_s=NOW_S - 3600), plan(deadline_in_s=50_000)):
        assert [each.offer_ids for each in of(late, Launch)] == [(an_offer().offer_id,)]
    assert not of(plan(spec={"spot_only": True}, waiting_since_s=NOW_S - 9000), Launch)


def test_a_job_that_never_stops_loses_its_machine_after_the_grace() -> None:
    machine = an_instance()
    # A save of 30 s, a grace of 20 s: 65 s at worst, twice that is waited for.
    told = a_job(steps=360_000, spec={"grace_s": 20.0})
    for asked_for_s, ended in ((120.0, False), (131.0, True)):
        job = on_machine(told, machine, stopping=True, stop_asked_at_s=NOW_S - asked_for_s)
        plan = decide(a_state(job, instances=(machine,)), GreedyPolicy())
        ends = [each for each in plan.actions if isinstance(each, Terminate)]
        assert bool(ends) == ended
    assert "job was told to stop 2m11s ago" in ends[0].reason


def test_a_machine_that_works_for_others_outlives_a_job_that_hangs() -> None:
    machine = an_instance(an_offer("A100", size=8, price=30.0))
    hanging = on_machine(
        a_job("hanging", on="A100"), machine, stopping=True, stop_asked_at_s=NOW_S - 9000
    )
    working = on_machine(a_job("working", on="A100"), machine, accelerator_indices=(1,))
    plan = decide(a_state(hanging, working, instances=(machine,)), GreedyPolicy())
    assert not any(isinstance(each, Terminate) for each in plan.actions)


def test_nothing_left_means_no_wake() -> None:
    done = a_job(phase=JobPhase.FINISHED)
    assert decide(a_state(done), GreedyPolicy()).next_wake_at_s is None


def test_a_broken_policy_gets_a_greedy_plan_that_says_so() -> None:
    plan = decide(a_state(a_job()), FailingPolicy())
    assert plan.status is AllocationStatus.FALLBACK
    assert "broken failed (ArithmeticError" in plan.notes[0]
    assert len(of(plan, Launch)) == 1


def test_the_digest_leaves_time_out_and_the_id_leaves_nothing_out() -> None:
    state = a_state(a_job())
    later = replace(state, now_s=NOW_S + 10, round_number=2)
    assert state.digest() == later.digest()
    assert decide(state, GreedyPolicy()).plan_id != decide(later, GreedyPolicy()).plan_id


def test_a_machine_left_behind_does_not_call_its_job_back() -> None:
    """A shared machine outlives the move of one of the jobs it was launched for."""
    shared = an_instance(
        an_offer(size=8, price=10.0), intended_jobs=("moved", "stayed"), launched_at_s=NOW_S - 7200
    )
    new = an_instance(SPOT, instance_id="i-2", intended_jobs=("moved",))
    moved = on_machine(a_job("moved", steps=900_000), new)
    stayed = on_machine(a_job("stayed", save_error="disk full"), shared)
    plan = decide(a_state(moved, stayed, instances=(shared, new)), FixedPolicy("spot"))
    assert not plan.actions
    assert {each.job: each.instance_ids for each in plan.leases} == {
        "moved": ("i-2",),
        "stayed": ("i-1",),
    }


def test_a_job_is_not_moved_to_a_part_of_a_machine_that_nobody_shares() -> None:
    here = an_instance(an_offer(spot=True, price=1.0))
    big = an_offer(spot=True, size=4, price=3.0, instance_type="box.four")
    job = on_machine(a_job(steps=3_600_000), here)
    state = a_state(job, instances=(here,), offers=(here.offer, big), budget_usd=None)
    assert not decide(state, FixedPolicy("four")).actions


def test_jobs_that_fill_a_cheaper_machine_move_to_it_together() -> None:
    small = an_offer(spot=True, price=2.0)
    homes = [an_instance(small, instance_id=f"i-{number}") for number in range(4)]
    jobs = [
        on_machine(a_job(f"j{number}", steps=3_600_000), home) for number, home in enumerate(homes)
    ]
    big = an_offer(spot=True, size=4, price=3.0, instance_type="box.four")
    state = a_state(*jobs, instances=tuple(homes), offers=(small, big), budget_usd=None)
    (launch,) = of(decide(state, FixedPolicy("four")), Launch)
    assert launch.offer_ids == (big.offer_id,) and len(launch.for_jobs) == 4
