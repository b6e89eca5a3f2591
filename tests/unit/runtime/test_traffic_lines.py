"""Checkpoints in the ledger: by the bytes that moved, each once, and the sums hold."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.jobs.spec import CheckpointPlan
from cloudgavel.pricing.offer import Offer
from cloudgavel.runtime.account import run_document
from cloudgavel.runtime.settings import LoopSettings
from cloudgavel.store import events as ev
from cloudgavel.store.fold import fold
from cloudgavel.store.ledger import book_storage, imbalance_micro_usd
from tests.unit.runtime.scripted import START_S, Stage, a_job, a_run, an_offer

SIZED = CheckpointPlan(save_s=10.0, restore_s=20.0, size_gib=4.0)


def far_offer() -> Offer:
    return replace(an_offer(), provider="gcp", region="us-central1")


def a_stage(*, gang: int = 1, store: str | None = "s3://bucket/run", steps: int = 1500) -> Stage:
    jobs = (a_job("a", steps=steps, checkpoint=SIZED), a_job("b", steps=700, checkpoint=SIZED))
    stage = Stage(a_run(*jobs, store=store), [far_offer()])
    stage.script.gang = gang
    return stage


def booked(stage: Stage) -> list[ev.TrafficBooked]:
    return [event for _, event in stage.log.read() if isinstance(event, ev.TrafficBooked)]


def check_sums(stage: Stage) -> None:
    state = stage.loop.state
    assert imbalance_micro_usd(state) == 0
    run = run_document(state)
    micro = round(run.spent_usd * 1e6)
    lines = sum(round(line.usd * 1e6) for line in run.lines)
    assert micro == sum(round(each.cost_usd * 1e6) for each in run.instances) + lines
    jobs = sum(round(each.spent_usd * 1e6) for each in run.jobs)
    assert micro == jobs + round(run.unattributed_usd * 1e6)


def test_every_committed_save_and_every_restore_is_booked_to_its_job() -> None:
    stage = a_stage()
    stage.run_until(700)
    instance_id = stage.loop.state.jobs["a"].attempts[-1].instance_ids[0]
    stage.cloud.vanish_at(instance_id, stage.now_s + 33.0)
    stage.run_to_end()
    job = stage.loop.state.jobs["a"]
    assert len(job.attempts) == 2
    # 1,500 steps with a save every 100: 15 in all, those repeated after the loss on top.
    up = sum(attempt.uploaded_bytes for attempt in job.attempts) // (4 * 2**30)
    assert up == 15
    assert [attempt.downloaded_bytes for attempt in job.attempts] == [0, 4 * 2**30]
    assert job.traffic_micro_usd == 15 * 480_000 + 360_000
    assert job.spent_micro_usd > job.traffic_micro_usd
    check_sums(stage)


def test_each_machine_of_a_gang_restores_and_one_of_them_saves() -> None:
    stage = a_stage(gang=2)
    stage.run_until(700)
    stage.cloud.vanish_at(
        stage.loop.state.jobs["a"].attempts[-1].instance_ids[1], stage.now_s + 33.0
    )
    stage.run_to_end()
    last = stage.loop.state.jobs["a"].attempts[-1]
    assert last.downloaded_bytes == 2 * 4 * 2**30
    assert last.uploaded_bytes % (4 * 2**30) == 0 < last.uploaded_bytes
    check_sums(stage)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(restarts=st.lists(st.integers(50, 2500), max_size=6), loss=st.integers(400, 1500))
def test_a_controller_that_starts_again_books_nothing_twice_and_forgets_nothing(
    restarts: list[int], loss: int
) -> None:
    calm, shaken = a_stage(), a_stage()
    for stage, at in ((calm, []), (shaken, sorted(restarts))):
        first = True
        for at_s in [*at, 10**6]:
            if first and at_s > loss:
                stage.run_until(loss)
                stage.cloud.vanish_at(
                    stage.loop.state.jobs["a"].attempts[-1].instance_ids[0], START_S + loss + 5
                )
                first = False
            stage.run_until(at_s)
            stage.restart()
    for name, job in calm.loop.state.jobs.items():
        other = shaken.loop.state.jobs[name]
        assert sum(each.uploaded_bytes for each in other.attempts) == sum(
            each.uploaded_bytes for each in job.attempts
        )
        assert other.traffic_micro_usd == job.traffic_micro_usd
        assert other.storage_micro_usd == pytest.approx(job.storage_micro_usd, rel=0.2, abs=50)
    check_sums(shaken)
    assert fold(event for _, event in shaken.log.read()) == shaken.loop.state


def test_within_the_store_s_own_cloud_and_without_a_store_nothing_is_booked() -> None:
    for store in ("gs://bucket/run", None):
        stage = a_stage(store=store)
        stage.run_to_end()
        assert not booked(stage)
        check_sums(stage)
    assert not run_document(stage.loop.state).lines


def test_storage_counts_the_two_checkpoints_that_are_kept_until_the_run_ends() -> None:
    stage = a_stage(store="gs://bucket/run")
    stage.run_to_end()
    state = stage.loop.state
    for job in state.jobs.values():
        assert job.kept_bytes == (4 * 2**30, 4 * 2**30)
        longest = 2 * 4 * 0.026 / 720 / 3600 * (state.at_s - START_S) * 1e6
        assert 0.3 * longest < job.storage_micro_usd <= longest
    assert book_storage(state, state.at_s) is None


def test_the_first_save_whose_size_is_known_is_decided_on_at_once() -> None:
    stage = Stage(
        a_run(a_job("a", steps=1500), store="s3://bucket/run"),
        [far_offer()],
        settings=LoopSettings(poll_s=10.0, agent_silence_s=None),
    )
    reports = stage.world.channel.reports
    stage.world.channel.reports = lambda: {
        name: replace(
            report,
            jobs=tuple(
                replace(job, saved_bytes=None if job.saved_step is None else 2**30)
                for job in report.jobs
            ),
        )
        for name, report in reports().items()
    }
    stage.run_to_end()
    known = [state for state in stage.script.states if state.jobs[0].checkpoint_gib == 1.0]
    saved = next(e for _, e in stage.log.read() if isinstance(e, ev.CheckpointSaved))
    assert saved.size_bytes == 2**30
    assert known[0].now_s == saved.at_s
    later = [state.now_s for state in known[1:]]
    assert later[0] == saved.at_s + 360.0
