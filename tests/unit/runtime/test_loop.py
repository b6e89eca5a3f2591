"""What the loop does when things go well and when they do not, in virtual time."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import pytest

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.messages.report import Report
from cloudgavel.pricing.market import ExpectedMarket
from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.base import LaunchRequest, MachineState, Quota
from cloudgavel.providers.failures import CallFailed, FailureKind
from cloudgavel.providers.simulated.attempt import Failure
from cloudgavel.providers.simulated.habits import CloudHabits
from cloudgavel.providers.tags import GANG_TAG
from cloudgavel.runtime.requests import CANCEL, DOWN, SET_BUDGET, events_of_request
from cloudgavel.runtime.settings import LoopSettings
from cloudgavel.store import events as ev
from cloudgavel.store.ledger import imbalance_micro_usd
from tests.unit.runtime.scripted import START_S, Stage, a_job, a_run, an_offer

E = TypeVar("E", bound=ev.Event)


def found(stage: Stage, kind: type[E]) -> list[E]:
    return [event for _, event in stage.log.read() if isinstance(event, kind)]


def living(stage: Stage) -> list[str]:
    return [
        instance_id
        for instance_id in stage.cloud.instance_ids()
        if stage.cloud.machine_state(instance_id) is not MachineState.TERMINATED
    ]


def test_a_run_goes_from_launch_to_the_confirmed_end_of_every_machine() -> None:
    stage = Stage(a_run(a_job("a"), a_job("b", after=("a",))), [an_offer()])
    stage.run_to_end()
    state = stage.loop.state
    assert state.ended == "finished"
    assert [job.phase for job in state.jobs.values()] == [JobPhase.FINISHED] * 2
    first, second = (found(stage, ev.AttemptStarted)[i].at_s for i in (0, 1))
    assert second > next(e.at_s for e in found(stage, ev.JobFinished) if e.job == "a") >= first
    assert not living(stage)


def test_nothing_is_decided_while_nothing_happens_and_the_round_is_not_over() -> None:
    stage = Stage(a_run(), [an_offer()])
    stage.run_until(100)
    decided = stage.loop.state.decisions
    for later in (1.0, 2.0, 3.0):
        stage.loop.step(stage.now_s + later)
    assert stage.loop.state.decisions == decided


def test_intents_are_on_disk_before_the_cloud_is_asked() -> None:
    stage = Stage(a_run(), [an_offer()])
    asked: list[list[str]] = []
    launch = stage.cloud.launch

    def looking_launch(request: LaunchRequest) -> object:
        intents = [event.token for event in found(stage, ev.LaunchIntended)]
        asked.append(intents)
        assert request.token in intents
        return launch(request)

    stage.cloud.launch = looking_launch  # type: ignore[assignment,method-assign]
    stage.run_to_end()
    assert asked


def test_zones_are_tried_in_order_and_a_refusal_costs_nothing() -> None:
    stage = Stage(a_run(), [an_offer("z1"), an_offer("z2")])
    stage.cloud.faults.refused_zones.add("z1")
    stage.run_until(10)
    (failed,) = found(stage, ev.LaunchFailed)
    assert (failed.failure, failed.closes_intent) == ("capacity", False)
    (record,) = stage.loop.state.live_instances
    assert record.offer.zone == "z2"
    stage.run_to_end()
    assert {record.offer.zone for record in stage.loop.state.instances.values()} == {"z2"}


def test_without_capacity_the_back_off_doubles_up_to_its_cap() -> None:
    stage = Stage(a_run(), [an_offer()])
    stage.cloud.faults.refused_zones.add("z1")
    stage.run_until(6 * 3600)
    waits = [f.blocked_until_s - f.at_s for f in found(stage, ev.LaunchFailed)]  # type: ignore[operator]
    assert waits[:4] == [120.0, 240.0, 480.0, 960.0]
    assert max(waits) == 960.0
    assert stage.loop.state.spent_micro_usd == 0
    stage.cloud.faults.refused_zones.clear()
    stage.run_to_end()
    assert stage.loop.state.ended == "finished"
    assert not stage.loop.state.blocked


def test_a_quota_blocks_for_longer_and_says_why() -> None:
    offer = an_offer()
    stage = Stage(a_run(), [offer])
    stage.cloud._quotas = (Quota(name="vCPUs", limit=0, units_per_instance={offer.offer_id: 8}),)
    stage.run_until(100)
    (failed,) = found(stage, ev.LaunchFailed)
    assert failed.failure == "quota"
    assert failed.blocked_until_s == START_S + 3600
    assert "quota" in stage.loop.state.blocked[offer.offer_id].reason
    assert stage.cloud.launch_calls == 0


def test_an_unanswered_launch_is_repeated_with_the_same_token_and_rents_once() -> None:
    stage = Stage(a_run(), [an_offer("z1"), an_offer("z2")])
    stage.cloud.faults.unanswered_launches = 3
    stage.run_until(60)
    assert len(living(stage)) == 1
    assert len(stage.loop.state.live_instances) == 1
    assert not stage.loop.state.intents
    assert len(found(stage, ev.LaunchIntended)) == 1


def test_a_crash_before_the_answer_was_written_adopts_the_machine() -> None:
    stage = Stage(a_run(), [an_offer()], habits=CloudHabits(list_lag_s=60.0))
    stage.cloud.faults.unanswered_launches = 1
    stage.loop.step(stage.now_s)
    assert stage.loop.state.intents
    stage.restart()
    stage.run_until(120)
    assert len(living(stage)) == 1
    stage.run_to_end()
    assert len(stage.loop.state.instances) == 1


def test_a_machine_missing_from_the_list_counts_until_the_grace_is_over() -> None:
    stage = Stage(a_run(), [an_offer()], habits=CloudHabits(list_lag_s=100.0))
    stage.run_to_end()
    assert not found(stage, ev.InstanceEnded)[0].estimated
    assert len(stage.loop.state.instances) == 1


def test_a_machine_gone_from_the_list_is_lost_at_the_second_look_and_its_cost_estimated() -> None:
    stage = Stage(a_run(), [an_offer()], habits=CloudHabits(ended_listed_s=-1.0))
    stage.run_until(400)
    (record,) = stage.loop.state.live_instances
    seen_s = stage.now_s
    stage.cloud.vanish_at(record.instance_id, seen_s + 50)
    stage.world.advance_to(seen_s + 50.0)
    stage.loop.step(seen_s + 51.0)
    assert stage.loop.state.instances[record.instance_id].alive
    stage.loop.step(seen_s + 57.0)
    (ended,) = found(stage, ev.InstanceEnded)
    assert ended.estimated
    assert ended.ended_at_s == seen_s
    bill = stage.loop.state.instances[record.instance_id].accrued_micro_usd
    assert bill == round((seen_s - START_S) * 1000)
    (lost,) = found(stage, ev.AttemptLost)
    assert lost.cause == "vanished"
    wake_s = stage.loop.step(seen_s + 58.0)
    assert wake_s is not None and wake_s > seen_s + 70.0


def test_interruptions_never_consume_retries_and_only_unsaved_steps_are_repeated() -> None:
    job = a_job(steps=3000, retries=0)
    stage = Stage(a_run(job), [an_offer(spot=True, rate_per_hour=3.0)])
    stage.script.save_every_s = 170.0
    stage.run_to_end()
    record = stage.loop.state.jobs["a"]
    assert record.phase is JobPhase.FINISHED
    assert record.interruptions >= 2
    assert record.moves == record.failures == 0
    assert 0 < record.steps_repeated <= record.interruptions * 170


def test_a_gang_that_loses_one_machine_is_lost_as_a_whole_and_keeps_its_retries() -> None:
    stage = Stage(a_run(a_job(steps=3000, retries=0)), [an_offer()])
    stage.script.gang = 2
    stage.run_until(800)
    assert len(stage.loop.state.jobs["a"].attempts[-1].instance_ids) == 2
    second = stage.loop.state.jobs["a"].attempts[-1].instance_ids[1]
    stage.cloud.vanish_at(second, stage.now_s + 33.0)
    stage.run_to_end()
    job = stage.loop.state.jobs["a"]
    assert job.phase is JobPhase.FINISHED
    assert (job.failures, job.interruptions, len(job.attempts)) == (0, 1, 2)
    assert job.attempts[1].restored_step == 600
    assert 0 < job.steps_repeated <= 100
    assert imbalance_micro_usd(stage.loop.state) == 0


def test_the_machines_of_a_gang_are_told_apart_from_others_and_learn_each_others_address() -> None:
    stage = Stage(a_run(a_job(steps=500)), [an_offer()])
    stage.script.gang = 2
    requests, orders = [], []
    launch, channel = stage.cloud.launch, stage.world.channel
    send, reports = channel.send, channel.reports

    def with_addresses():
        return {
            name: replace(report, address=f"10.0.0.{number}")
            for number, (name, report) in enumerate(sorted(reports().items()))
        }

    stage.cloud.launch = lambda request: requests.append(request) or launch(request)
    channel.send = lambda given: orders.append(given) or send(given)
    channel.reports = with_addresses
    stage.run_to_end()
    assert stage.loop.state.jobs["a"].phase is JobPhase.FINISHED
    assert [request.tags[GANG_TAG] for request in requests] == ["a", "a"]
    jobs = [job for given in orders for job in given.jobs]
    assert {job.peer_addresses for job in jobs} == {("10.0.0.0", "10.0.0.1")}
    assert {job.rank for job in jobs} == {0, 1}


def test_a_machine_of_its_own_is_no_gang() -> None:
    stage = Stage(a_run(a_job("a"), a_job("b")), [an_offer()])
    requests = []
    launch = stage.cloud.launch
    stage.cloud.launch = lambda request: requests.append(request) or launch(request)
    stage.run_to_end()
    assert len(requests) == 2
    assert all(GANG_TAG not in request.tags for request in requests)


def test_a_store_that_is_away_for_ten_minutes_ends_no_machine_and_rents_none() -> None:
    """All agents are silent then, and a new machine could not start."""
    run = a_run(a_job("a", steps=3000), a_job("b", steps=3000))
    settings = LoopSettings(poll_s=10.0, agent_silence_s=300.0)
    stage = Stage(run, [an_offer()], settings=settings)
    channel = stage.world.channel
    reports, last = channel.reports, {}
    away = (START_S + 600.0, START_S + 1200.0)

    def is_away() -> bool:
        return away[0] <= stage.now_s < away[1]

    def as_far_as_known():
        if not is_away():
            last.update(reports())
        return dict(last)

    channel.reports = as_far_as_known
    channel.heard_since_s = lambda: (
        math.inf if is_away() else away[1] if stage.now_s >= away[1] else -math.inf
    )
    stage.run_until(500.0)
    lost = stage.loop.state.jobs["b"].attempts[0].instance_ids[0]
    stage.cloud.vanish_at(lost, START_S + 700.0)
    stage.run_to_end()
    assert {job.phase for job in stage.loop.state.jobs.values()} == {JobPhase.FINISHED}
    *_, again = found(stage, ev.LaunchIntended)
    assert again.for_jobs == ("b",)
    assert away[1] <= again.at_s <= away[1] + 20.0
    assert len(stage.loop.state.jobs["a"].attempts) == 1
    assert any("before the store answers" in note for note in stage.loop.drain_notes())


@pytest.mark.parametrize("off_s", [-120.0, 120.0])
def test_machines_whose_clocks_are_two_minutes_off_are_not_taken_for_silent(off_s: float) -> None:
    settings = LoopSettings(poll_s=10.0, agent_silence_s=300.0)
    stage = Stage(a_run(a_job(steps=2000)), [an_offer()], settings=settings)
    channel = stage.world.channel
    reports = channel.reports
    channel.reports = lambda: {
        name: replace(report, heartbeat_at_s=report.heartbeat_at_s + off_s)
        for name, report in reports().items()
    }
    stage.run_to_end()
    job = stage.loop.state.jobs["a"]
    assert (job.phase, len(job.attempts)) == (JobPhase.FINISHED, 1)
    assert imbalance_micro_usd(stage.loop.state) == 0


def test_a_move_saves_first_and_counts_as_one() -> None:
    stage = Stage(a_run(a_job(steps=2000)), [an_offer()])
    stage.run_until(500)
    stage.script.moves.add("a")
    stage.run_to_end()
    record = stage.loop.state.jobs["a"]
    assert (record.moves, record.interruptions, record.steps_repeated) == (1, 0, 0)
    first, second = record.attempts
    assert second.restored_step == first.end_step
    assert second.started_at_s >= (first.ended_at_s or 0)


def test_a_failing_job_is_retried_then_given_up_with_its_last_lines_and_others_go_on() -> None:
    stage = Stage(a_run(a_job("a", retries=1), a_job("b"), a_job("c", after=("a",))), [an_offer()])
    agents = stage.world.channel
    for attempt in (1, 2):
        while ("a", attempt) not in agents.attempts():
            stage.driver.advance()
        agents.learn_failure(("a", attempt), Failure(after_step=50, exit_code=3))
    stage.run_to_end()
    state = stage.loop.state
    failures = found(stage, ev.AttemptFailed)
    assert [(f.exit_code, f.retry) for f in failures] == [(3, True), (3, False)]
    assert state.jobs["a"].phase is JobPhase.FAILED
    assert "exit code 3, attempt 2 of 2" in (state.jobs["a"].reason or "")
    assert state.jobs["b"].phase is JobPhase.FINISHED
    assert state.jobs["c"].phase is JobPhase.FAILED
    assert "comes after a" in (state.jobs["c"].reason or "")
    assert state.ended == "failed"
    assert not living(stage)


def test_a_job_that_cannot_be_saved_is_not_moved() -> None:
    stage = Stage(a_run(a_job(steps=2000)), [an_offer()])
    stage.run_until(130)
    agents = stage.world.channel
    for step in range(2001):
        agents.learn_refused_save(("a", 1), step, "disk full")
    stage.script.moves.add("a")
    stage.run_until(900)
    job = stage.loop.state.jobs["a"]
    assert job.save_error == "disk full"
    assert job.attempt == 1
    assert job.phase in (JobPhase.RUNNING, JobPhase.SAVING)
    assert not job.stop_asked
    assert job.failed_stops == 1
    stage.run_to_end()
    assert stage.loop.state.jobs["a"].moves == 0


def test_down_ends_a_machine_whose_job_cannot_be_saved_after_one_try() -> None:
    stage = Stage(a_run(a_job(steps=9000)), [an_offer()])
    stage.run_until(130)
    for step in range(9001):
        stage.world.channel.learn_refused_save(("a", 1), step, "disk full")
    stage.run_until(700)
    assert stage.loop.state.jobs["a"].save_error == "disk full"
    stage.loop.record(ev.StopRequested(at_s=stage.now_s, reason="down"))
    stage.driver.wake_now()
    asked_s = stage.now_s
    stage.run_to_end()
    assert stage.loop.state.ended == "stopped"
    assert stage.now_s - asked_s < 120
    assert not living(stage)


def test_max_duration_ends_a_job_and_its_machine() -> None:
    stage = Stage(a_run(a_job(steps=10_000, max_duration_s=1800.0)), [an_offer()])
    stage.run_to_end()
    (failed,) = found(stage, ev.JobFailed)
    (started,) = found(stage, ev.AttemptStarted)
    assert failed.at_s == started.at_s + 1800.0
    assert "max_duration" in failed.reason
    assert stage.loop.state.ended == "failed"
    assert not living(stage)


def test_an_end_that_the_cloud_did_not_hear_is_asked_for_again() -> None:
    stage = Stage(a_run(), [an_offer()])
    stage.cloud.faults.failing_terminates = 3
    stage.run_to_end()
    assert stage.loop.state.ended == "finished"
    assert not living(stage)
    (asked,) = found(stage, ev.TerminateAsked)
    (ended,) = found(stage, ev.InstanceEnded)
    assert ended.ended_at_s - asked.at_s >= 3 * 30.0
    assert stage.loop.state.spent_micro_usd == round((ended.ended_at_s - START_S) * 1000)
    assert any("asking again" in note for note in stage.loop.drain_notes())


def test_a_list_that_fails_changes_nothing_and_is_asked_for_again() -> None:
    stage = Stage(a_run(), [an_offer()])
    stage.run_until(300)
    stage.cloud.faults.failing_lists = 5
    stage.run_to_end()
    assert stage.loop.state.ended == "finished"
    assert len(stage.loop.state.instances) == 1


def silent_offers(stage: Stage, times: int) -> list[float]:
    """Let the next questions for offers go unanswered; return the instants of all questions."""
    asked: list[float] = []
    ask = stage.cloud.offers

    def offers() -> Sequence[Offer]:
        asked.append(stage.now_s)
        if len(asked) <= times:
            raise CallFailed(FailureKind.UNREACHABLE, "the cloud gave no answer")
        return ask()

    stage.cloud.offers = offers  # type: ignore[method-assign]
    return asked


def test_while_the_cloud_names_no_offers_the_last_known_ones_count() -> None:
    stage = Stage(a_run(a_job("a"), a_job("b", after=("a",))), [an_offer()])
    stage.run_until(300)
    asked = silent_offers(stage, 1000)
    stage.run_to_end()
    assert asked
    assert stage.loop.state.ended == "finished"
    assert any("last known offers" in note for note in stage.loop.drain_notes())


def test_before_any_offer_is_known_nothing_is_decided_and_the_cloud_is_asked_again() -> None:
    stage = Stage(a_run(), [an_offer()])
    asked = silent_offers(stage, 3)
    stage.run_to_end()
    assert asked[:4] == [START_S + 10.0 * count for count in range(4)]
    assert stage.script.states[0].now_s == asked[3]
    assert stage.loop.state.ended == "finished"


def test_a_run_can_be_stopped_although_no_offer_was_ever_known() -> None:
    stage = Stage(a_run(), [an_offer()])
    stage.run_until(300)
    stage.restart()
    silent_offers(stage, 1000)
    stage.loop.record(*events_of_request(DOWN, {}, stage.loop.state, stage.now_s))
    stage.run_to_end()
    assert stage.loop.state.ended == "stopped"
    assert not living(stage)


def test_a_machine_with_our_tag_and_no_intent_is_shown_and_ended_with_the_run() -> None:
    stage = Stage(a_run(), [an_offer()])
    stage.cloud.launch(LaunchRequest(token="stray", run_id="run-1", offer=stage.offers[0], tags={}))
    stage.run_until(400)
    assert list(stage.loop.state.orphans.values()) == [stage.offers[0].offer_id]
    assert len(living(stage)) == 2
    stage.run_to_end()
    assert not living(stage)
    assert found(stage, ev.OrphanEnded)


def test_a_machine_that_never_takes_orders_is_given_back() -> None:
    class NeverBoots(ExpectedMarket):
        def boot_s(self, offer: Offer, instance_ordinal: int) -> float:
            return 1e9 if instance_ordinal == 1 else 90.0

    stage = Stage(a_run(a_job("a"), a_job("b")), [an_offer()], market=NeverBoots())
    stage.run_to_end()
    given_back = [e for e in found(stage, ev.TerminateAsked) if "took no orders" in e.reason]
    (asked,) = given_back
    assert asked.at_s == START_S + 900.0
    assert stage.loop.state.ended == "finished"


def test_a_machine_whose_agent_falls_silent_is_given_back_and_its_job_goes_on_elsewhere() -> None:
    settings = LoopSettings(poll_s=None, agent_silence_s=600.0)
    stage = Stage(a_run(a_job(steps=4000)), [an_offer()], settings=settings)
    stage.run_until(500)
    agents = stage.world.channel
    silent_since_s = stage.now_s
    (hung,) = [record.instance_id for record in stage.loop.state.live_instances]
    reports = agents.reports

    def stale_reports() -> dict[str, Report]:
        answer = dict(reports())
        if hung in answer:
            answer[hung] = replace(answer[hung], heartbeat_at_s=silent_since_s)
        return answer

    agents.reports = stale_reports  # type: ignore[method-assign]
    stage.run_to_end()
    (asked,) = [e for e in found(stage, ev.TerminateAsked) if "silent" in e.reason]
    assert 600.0 <= asked.at_s - silent_since_s <= 600.0 + 360.0
    job = stage.loop.state.jobs["a"]
    assert job.phase is JobPhase.FINISHED
    assert (job.moves, job.failures, len(job.attempts)) == (0, 0, 2)


def test_down_saves_everything_ends_every_machine_and_leaves_the_rest_for_later() -> None:
    stage = Stage(a_run(a_job("a", steps=5000), a_job("b", steps=5000)), [an_offer()])
    stage.run_until(500)
    stage.loop.record(*events_of_request(DOWN, {"reason": "enough"}, stage.loop.state, stage.now_s))
    stage.driver.wake_now()
    stage.run_to_end()
    state = stage.loop.state
    assert state.ended == "stopped"
    assert not living(stage)
    for job in state.jobs.values():
        assert job.saved_steps == job.attempts[-1].end_step > 0
    stage.log.append([ev.RunResumed(at_s=stage.now_s)])
    stage.restart()
    stage.run_to_end()
    assert stage.loop.state.ended == "finished"
    assert all(job.steps_repeated == 0 for job in stage.loop.state.jobs.values())


def test_a_budget_that_is_gone_ends_the_run_and_more_money_goes_on() -> None:
    stage = Stage(a_run(a_job(steps=5000), budget_usd=1.0), [an_offer()])
    stage.run_until(700)
    stage.script.out_of_money = True
    stage.run_to_end()
    state = stage.loop.state
    assert state.ended == "budget_exhausted"
    assert not living(stage)
    stage.script.out_of_money = False
    stage.log.append(
        [ev.BudgetSet(at_s=stage.now_s, budget_usd=50.0), ev.RunResumed(at_s=stage.now_s)]
    )
    stage.restart()
    stage.run_to_end()
    assert stage.loop.state.ended == "finished"
    assert stage.loop.state.budget_usd == 50.0
    assert stage.script.states[-1].budget_usd == 50.0


def test_requests_are_idempotent() -> None:
    stage = Stage(a_run(a_job("a"), a_job("b")), [an_offer()])
    stage.run_until(10)
    state = stage.loop.state
    for kind, body in (
        (DOWN, {"reason": "x"}),
        (CANCEL, {"jobs": ["a", "nobody"]}),
        (SET_BUDGET, {"budget_usd": 7}),
    ):
        events = events_of_request(kind, body, state, stage.now_s)
        assert len(events) == 1
        stage.loop.record(*events)
        assert not events_of_request(kind, body, stage.loop.state, stage.now_s)


def test_a_cancelled_job_ends_where_it_is_and_the_others_go_on() -> None:
    stage = Stage(a_run(a_job("a", steps=5000), a_job("b")), [an_offer()])
    stage.run_until(500)
    stage.loop.record(ev.JobCancelled(at_s=stage.now_s, job="a", reason="asked for"))
    stage.driver.wake_now()
    stage.run_to_end()
    state = stage.loop.state
    assert state.jobs["a"].phase is JobPhase.CANCELLED
    assert state.jobs["b"].phase is JobPhase.FINISHED
    assert state.ended == "finished"


def test_orders_of_a_later_controller_win_and_are_sent_again() -> None:
    stage = Stage(a_run(a_job(steps=3000)), [an_offer()])
    stage.log.append([ev.ControllerStarted(at_s=START_S, holder="1", pid=1, host="h")])
    stage.restart()
    stage.run_until(400)
    (record,) = stage.loop.state.live_instances
    before = stage.world.channel.orders_of(record.instance_id)
    stage.log.append([ev.ControllerStarted(at_s=stage.now_s, holder="2", pid=2, host="h")])
    stage.restart()
    stage.driver.advance()
    after = stage.world.channel.orders_of(record.instance_id)
    assert before is not None and after is not None
    assert after.sequence > before.sequence
    assert after.jobs == before.jobs
    assert len(found(stage, ev.AttemptStarted)) == 1


def test_the_decision_sees_what_the_log_knows() -> None:
    stage = Stage(
        a_run(
            a_job("a", deadline_s=7200.0, arrives_s=0.0),
            a_job("b", after=("a",), deadline_at_s=START_S + 9000.0, arrives_s=600.0),
            max_usd_per_hour=9.0,
        ),
        [an_offer()],
    )
    stage.run_until(500)
    seen = stage.script.states[-1]
    a, b = seen.jobs
    assert (a.deadline_at_s, b.deadline_at_s) == (START_S + 7200.0, START_S + 9000.0)
    assert b.release_at_s == START_S + 600.0
    assert b.waits_for == ("a",)
    assert a.phase is JobPhase.RUNNING and a.attempt == 1
    assert 0 < a.saved_steps <= a.steps_done
    assert seen.max_usd_per_hour == 9.0
    assert seen.spent_usd > 0
    assert [i.instance_id for i in seen.instances] == list(a.instance_ids)


def test_the_same_story_is_told_twice() -> None:
    def story() -> list[ev.Event]:
        stage = Stage(
            a_run(a_job("a", steps=4000), a_job("b")), [an_offer(spot=True, rate_per_hour=5.0)]
        )
        stage.run_to_end()
        return [event for _, event in stage.log.read()]

    assert story() == story()


def test_a_plan_that_asks_for_the_impossible_is_not_carried_out() -> None:
    stage = Stage(a_run(a_job(steps=2000)), [an_offer()])
    stage.run_until(300)
    honest = stage.script

    def dishonest(state: object) -> object:
        plan = honest(state)  # type: ignore[arg-type]
        start = honest._start("a", 1, stage.loop.state.live_instances[0].instance_id)
        return replace(plan, actions=(start, *plan.actions))

    stage.script = dishonest  # type: ignore[assignment]
    stage.restart()
    stage.driver.advance()
    stage.driver.advance()
    assert len(found(stage, ev.AttemptStarted)) == 1
    assert any("not started" in note for note in stage.loop.drain_notes())


def test_a_run_in_which_nothing_can_ever_be_rented_is_stopped_with_its_reasons() -> None:
    stage = Stage(a_run(a_job("a", arrives_s=7200.0)), [])
    stage.run_to_end()
    (end,) = found(stage, ev.RunEnded)
    assert end.state == "stopped"
    assert "nothing could be rented in 240 rounds" in end.reason
    # Rounds before the job arrives are not counted.
    assert end.at_s - START_S >= 7200.0 + 239 * 360.0
    assert stage.loop.state.jobs["a"].active


def test_a_job_that_ran_and_then_hung_is_not_told_as_one_that_could_not_start() -> None:
    stage = Stage(a_run(a_job("a", steps=900, retries=0)), [an_offer()])
    failure = Failure(after_step=50, exit_code=None, error="no progress for 120 s of real time")
    while ("a", 1) not in stage.world.channel.attempts():
        stage.driver.advance()
    stage.world.channel.learn_failure(("a", 1), failure)
    stage.run_to_end()
    (failed,) = found(stage, ev.JobFailed)
    assert failed.reason == "no progress for 120 s of real time, attempt 1 of 1"
