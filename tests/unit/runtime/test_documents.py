"""Documents say what the log says, and nothing that it does not."""

import json
from dataclasses import replace

from cloudgavel.documents.encode import as_json
from cloudgavel.mechanism.reasons import MACHINE_TAKEN, RENTED_FOR_IT
from cloudgavel.runtime.account import run_document
from cloudgavel.runtime.now import status_document
from cloudgavel.runtime.story import tell
from cloudgavel.store import events as ev
from cloudgavel.store.fold import fold
from cloudgavel.views.run import run_text
from cloudgavel.views.status import status_text
from tests.unit.runtime.scripted import START_S, Stage, a_job, a_run, an_offer
from tests.unit.store.test_events import one_of_each


def a_finished_stage() -> Stage:
    stage = Stage(
        a_run(
            a_job("kept", steps=900, deadline_s=7200.0),
            a_job("missed", steps=9000, deadline_s=3600.0),
            a_job("free", steps=100),
        ),
        [an_offer("z1", spot=True, price=0.913337, rate_per_hour=2.0), an_offer("z2", price=3.07)],
    )
    stage.run_until(600)
    stage.script.moves.add("missed")
    stage.run_to_end()
    return stage


def test_the_account_adds_up_to_the_micro_dollar() -> None:
    document = run_document(a_finished_stage().loop.state)
    spent = round(document.spent_usd * 1_000_000)
    assert sum(round(i.cost_usd * 1_000_000) for i in document.instances) == spent
    jobs = sum(round(job.spent_usd * 1_000_000) for job in document.jobs)
    assert jobs + round(document.unattributed_usd * 1_000_000) == spent
    assert round(sum(i.cost_usd for i in document.instances), 6) == document.spent_usd


def test_deadlines_are_kept_missed_or_none() -> None:
    document = run_document(a_finished_stage().loop.state)
    kept, missed, free = document.jobs
    assert (kept.deadline_met, missed.deadline_met, free.deadline_met) == (True, False, None)
    assert (kept.deadline_s, free.deadline_s) == (7200.0, None)
    assert kept.finish_s is not None and kept.finish_s <= 7200.0
    assert missed.moves == 1
    assert missed.interruptions >= 1
    assert missed.attempts == 1 + missed.moves + missed.interruptions


def test_the_account_has_every_instance_and_its_fate() -> None:
    stage = a_finished_stage()
    document = run_document(stage.loop.state)
    assert {i.id for i in document.instances} == set(stage.cloud.instance_ids())
    assert {i.end_reason for i in document.instances} == {"requested", "interrupted"}
    assert all(i.ended_at is not None and not i.estimated for i in document.instances)
    launched = [i.launched_at for i in document.instances]
    assert launched == sorted(launched)
    json.dumps(as_json(document), allow_nan=False)


def test_a_run_under_way_has_open_ends() -> None:
    stage = Stage(a_run(a_job(steps=9000, deadline_s=1e5)), [an_offer()])
    stage.run_until(1000)
    document = run_document(stage.loop.state)
    assert document.state == "running"
    assert document.ended_at is None
    (job,) = document.jobs
    assert (job.finish_s, job.deadline_met, job.state) == (None, None, "RUNNING")
    (instance,) = document.instances
    assert instance.ended_at is None


def test_a_stopped_run_saved_nothing_by_the_work_it_left() -> None:
    stage = Stage(
        a_run(a_job("a", steps=100, deadline_s=1e5), a_job("b", steps=90_000, deadline_s=1e5)),
        [an_offer()],
    )
    stage.run_until(1000)
    account = replace(run_document(stage.loop.state), on_demand_only_usd=40.0, lower_bound_usd=9.0)
    text = run_text(account, width=100)
    assert "all 2 jobs on-demand only $40.00, lower bound $9.00; here 1 finished" in text
    assert "Deadlines      1 of 2 kept, 1 open" in text and "saved $" not in text
    failed = replace(
        status_document(stage.loop.state, now_s=START_S + 1000),
        on_demand_only_usd=40.0,
        expected_total_usd=12.0,
    )
    assert "vs on-demand" in status_text(failed, width=200)
    failed = replace(failed, jobs=(failed.jobs[0], replace(failed.jobs[1], state="FAILED")))
    assert "vs on-demand" not in status_text(failed, width=200)


def test_a_run_that_ended_costs_what_it_spent() -> None:
    state = a_finished_stage().loop.state
    status = as_json(status_document(state, now_s=START_S + 1e5))
    assert status["expected_total_usd"] == status["spent_usd"] == round(state.spent_usd, 6)
    assert "on course for" not in status_text(status_document(state, now_s=START_S), width=200)


def test_money_in_documents_is_whole_micro_dollars() -> None:
    status = status_document(a_finished_stage().loop.state, now_s=START_S)
    rough = replace(status, lower_bound_usd=8.950997664835166, usd_per_hour=0.1 + 0.2)
    assert as_json(rough)["lower_bound_usd"] == 8.950998
    assert as_json(rough)["usd_per_hour"] == 0.3


def test_before_the_first_decision_no_end_is_called_unlikely() -> None:
    stage = Stage(a_run(a_job(steps=9000, deadline_s=1e5)), [an_offer()])
    text = status_text(status_document(stage.loop.state, now_s=START_S), width=100)
    assert "not planned yet" in text and "not reached" not in text


def test_the_status_tells_where_everything_is() -> None:
    stage = Stage(
        a_run(a_job("a", steps=9000, deadline_s=1e5), a_job("b", after=("a",))),
        [an_offer(price=2.5)],
    )
    stage.run_until(1000)
    events = [event for _, event in stage.log.read()]
    status = status_document(stage.loop.state, now_s=stage.now_s, events=events)
    a, b = status.jobs
    assert a.save_every_s == stage.script.save_every_s
    assert (a.on, a.steps_per_s_expected, a.promise) == (
        "aws p3.2xlarge on-demand",
        1.0,
        "expected",
    )
    assert (b.on, b.state, b.promise) == (None, "WAITING", "none")
    (line,) = status.fleet
    assert (line.count, line.busy_share, line.usd_per_hour) == (1, 1.0, 2.5)
    assert line.age_s == stage.now_s - START_S
    assert status.now_s == stage.now_s - START_S
    assert status.usd_per_hour == 2.5
    assert status.spent_usd == stage.loop.state.spent_usd > 0
    texts = [event.text for event in status.events]
    assert any("started on aws p3.2xlarge on-demand in z1" in text for text in texts)
    assert [e.at_s for e in status.events] == sorted((e.at_s for e in status.events), reverse=True)
    json.dumps(as_json(status), allow_nan=False)


def test_an_ended_run_has_no_next_decision_and_promises_are_settled() -> None:
    stage = a_finished_stage()
    status = status_document(stage.loop.state, now_s=stage.now_s)
    assert status.next_decision_s is None
    assert status.committed_usd == status.usd_per_hour == 0.0
    assert [job.promise for job in status.jobs] == ["kept", "missed", "none"]
    assert status.fleet == ()


def test_what_a_person_hears_has_a_subject_and_no_placeholder() -> None:
    stage = a_finished_stage()
    told = [tell(event, stage.loop.state) for _, event in stage.log.read()]
    heard = [words for words in told if words is not None]
    assert len(heard) > 10
    for subject, text in heard:
        assert subject and text
        assert "None" not in text and "{" not in text


def test_every_kind_of_event_can_be_told() -> None:
    stage = a_finished_stage()
    state = stage.loop.state
    instance_id = next(iter(state.instances))
    for event in one_of_each():
        if hasattr(event, "instance_id"):
            changed = {f: getattr(event, f) for f in event.__slots__}
            event = type(event)(**{**changed, "instance_id": instance_id})
        if isinstance(event, ev.AttemptStarted):
            continue
        words = tell(event, state)
        assert words is None or all(words)


def test_a_deadline_that_was_kept_after_all_is_not_told_as_released() -> None:
    stage = a_finished_stage()
    state = stage.loop.state
    events = [
        ev.PromiseReleased(at_s=START_S, job=job, promise="deadline", by_s=None, by_usd=1.0,
                           reason="too dear")
        for job in ("kept", "missed")
    ]  # fmt: skip
    document = run_document(fold(events, state))
    assert [promise.job for promise in document.relaxed] == ["missed"]


def test_a_start_on_a_machine_of_its_own_tells_why_that_was_rented() -> None:
    stage = a_finished_stage()
    state = stage.loop.state
    job = state.jobs["kept"]
    (record,) = (state.instances[i] for i in job.attempts[0].instance_ids)
    assert record.launch_reason == "script"
    start = next(
        event
        for _, event in stage.log.read()
        if isinstance(event, ev.AttemptStarted) and event.job == "kept"
    )
    other = state.jobs["missed"].attempts[0].instance_ids
    for event in (
        replace(start, reason=RENTED_FOR_IT),
        ev.StopAsked(at_s=START_S, job="kept", to_instance_ids=other, reason=RENTED_FOR_IT),
    ):
        told = tell(event, state)
        assert told is not None and told[1].endswith(": script")
    told = tell(replace(start, reason="cheapest now"), state)
    assert told is not None and told[1].endswith(": cheapest now")


def test_events_name_each_thing_once() -> None:
    state = a_finished_stage().loop.state
    refused = ev.LaunchFailed(
        at_s=START_S, token="t", offer_id="aws/z1/p3", failure="capacity",
        message="aws/z1/p3 is not to be had now", closes_intent=True,
    )  # fmt: skip
    assert tell(refused, state) == ("aws/z1/p3", "not granted (capacity): is not to be had now")
    taken = ev.StopAsked(at_s=START_S, job="kept", to_instance_ids=("i-2",), reason=MACHINE_TAKEN)
    assert tell(taken, state) == (
        "kept", "saves and goes elsewhere: the cloud takes the machine it was on"
    )  # fmt: skip
    assert tell(ev.RunEnded(at_s=START_S, state="failed", reason="f"), state) == (
        "run",
        "failed: f",
    )
