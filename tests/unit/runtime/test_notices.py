"""What the controller does between a cloud's notice and the end that it announces."""

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.messages.report import JobReport, Notice, ProcessState, Report
from cloudgavel.policies.registry import policy_named
from cloudgavel.pricing.market import ExpectedMarket
from cloudgavel.providers.base import EndReason
from cloudgavel.providers.simulated.habits import CloudHabits
from cloudgavel.runtime.assemble import bind_policy
from cloudgavel.runtime.looks import Sightings, World
from cloudgavel.runtime.observe import new_events
from cloudgavel.store import events as ev
from tests.unit.runtime.scripted import VIRTUAL, Stage, a_job, a_run, an_offer
from tests.unit.runtime.test_loop import found


def a_taken_stage(*, notice_s: float, boot_s: float = 60.0) -> Stage:
    """A spot machine that is taken after 20 minutes; the decision is the real one."""
    stage = Stage(
        a_run(a_job(steps=3000), budget_usd=50.0),
        [an_offer(spot=True, price=1.0, rate_per_hour=3.0), an_offer("z2", spot=True, price=1.1)],
        market=ExpectedMarket(boot_delay_s=boot_s),
        habits=CloudHabits(aws_notice_s=notice_s),
    )
    stage.script = bind_policy(policy_named("min_cost"))  # type: ignore[assignment]
    stage.restart()
    return stage


def test_on_a_notice_the_replacement_is_rented_before_the_end() -> None:
    stage = a_taken_stage(notice_s=120.0)
    stage.run_to_end()
    notice = found(stage, ev.InterruptionNoticed)[0]
    end = next(e for e in found(stage, ev.InstanceEnded) if e.reason == EndReason.INTERRUPTED)
    launches = [e.at_s for e in found(stage, ev.LaunchIntended)]
    assert any(notice.at_s <= at_s < end.ended_at_s for at_s in launches)
    assert stage.loop.state.jobs["a"].phase is JobPhase.FINISHED


def test_a_machine_that_the_cloud_takes_is_not_ended_by_us_first() -> None:
    stage = a_taken_stage(notice_s=120.0)
    stage.run_to_end()
    taken = {e.instance_id for e in found(stage, ev.InterruptionNoticed)}
    assert taken
    assert not [e for e in found(stage, ev.TerminateAsked) if e.instance_id in taken]


def a_report(instance_id: str, at_s: float, state: ProcessState, kind: str | None) -> Report:
    failed = state is ProcessState.EXITED
    return Report(
        run_id="run-1",
        instance_id=instance_id,
        sequence_seen=9,
        heartbeat_at_s=at_s,
        agent_pid=1,
        jobs=(
            JobReport(job="a", attempt=1, state=state, step=250, exit_code=1 if failed else None),
        ),
        notice=None if kind is None else Notice(kind=kind, ends_at_s=None),
    )


def seen(stage: Stage, *reports: Report) -> list[ev.Event]:
    world = World(
        now_s=stage.now_s,
        listing=None,
        price_changes={},
        reports={report.instance_id: report for report in reports},
        with_progress=False,
    )
    return new_events(stage.loop.state, world, Sightings(), VIRTUAL)


def a_gang_at_work() -> tuple[Stage, tuple[str, ...]]:
    stage = Stage(a_run(a_job(steps=3000, retries=0)), [an_offer()])
    stage.script.gang = 2
    stage.run_until(500)
    return stage, stage.loop.state.jobs["a"].attempts[-1].instance_ids


def test_a_gang_that_falls_apart_under_a_notice_is_lost_not_failed() -> None:
    stage, (first, second) = a_gang_at_work()
    news = seen(
        stage,
        a_report(first, stage.now_s, ProcessState.EXITED, None),
        a_report(second, stage.now_s, ProcessState.RUNNING, "interruption"),
    )
    (lost,) = [e for e in news if isinstance(e, ev.AttemptLost)]
    assert (lost.cause, lost.step) == ("interruption", 250)
    assert not [e for e in news if isinstance(e, ev.AttemptFailed | ev.JobFailed)]
    assert [e.instance_id for e in news if isinstance(e, ev.InterruptionNoticed)] == [second]


def test_without_a_notice_the_same_end_is_a_failure() -> None:
    stage, (first, second) = a_gang_at_work()
    news = seen(
        stage,
        a_report(first, stage.now_s, ProcessState.EXITED, None),
        a_report(second, stage.now_s, ProcessState.RUNNING, None),
    )
    assert [e for e in news if isinstance(e, ev.AttemptFailed)]


def test_maintenance_counts_as_a_notice_and_a_recommendation_does_not() -> None:
    stage, (first, second) = a_gang_at_work()
    news = seen(
        stage,
        a_report(first, stage.now_s, ProcessState.RUNNING, "maintenance"),
        a_report(second, stage.now_s, ProcessState.RUNNING, "rebalance"),
    )
    assert [e.instance_id for e in news if isinstance(e, ev.InterruptionNoticed)] == [first]
