"""What decisions count on as a job's speeds: given, estimated low, measured; and its like's."""

import math
from dataclasses import replace

import pytest

from cloudgavel.estimation.job_rates import estimated_rates
from cloudgavel.estimation.measured_rate import RateWindows
from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.jobs.profiles import PROFILES
from cloudgavel.jobs.spec import AcceleratorRequest, JobSpec
from cloudgavel.policies.registry import policy_named
from cloudgavel.pricing.market import ExpectedMarket
from cloudgavel.providers.simulated.attempt import Failure
from cloudgavel.runtime.assemble import bind_policy
from cloudgavel.runtime.cluster_state import Supply, cluster_state, job_rates, kin_rates
from cloudgavel.simulator.plan import plan_run
from cloudgavel.simulator.virtual_run import virtual_run
from cloudgavel.store import events as ev
from cloudgavel.store.fold import apply, fold
from cloudgavel.store.records import JobRecord, RunState
from tests.unit.runtime.scripted import START_S, Stage, a_job, a_run, an_offer

TWO_KINDS = (AcceleratorRequest(accelerator="V100"), AcceleratorRequest(accelerator="P100"))
OFFERS = [an_offer("z1", price=3.06), an_offer("z1", spot=True, price=0.9)]


def steady(rate: float) -> RateWindows:
    return RateWindows(rates_steps_per_s=(rate,) * 3)


def record(spec: JobSpec, **measured: float) -> JobRecord:
    windows = {label: steady(rate) for label, rate in measured.items()}
    return JobRecord(spec=spec, rate_windows=windows)


def by_profile(name: str = "a", **changes: object) -> JobSpec:
    return a_job(
        name,
        accelerators=TWO_KINDS,
        throughput_steps_per_s={},
        profile="resnet50/bs32",
        **changes,
    )


def test_an_estimate_counts_low_and_is_marked() -> None:
    spec = a_job(accelerators=TWO_KINDS, throughput_steps_per_s={"V100": 2.0})
    rates = job_rates(record(spec), measured_counts=True)
    assert rates.estimated == {"P100"}
    assert rates.steps_per_s["V100"] == 2.0
    assert rates.steps_per_s["P100"] == estimated_rates(spec)["P100"].low_steps_per_s


def test_what_was_measured_is_no_estimate_and_improves_the_others() -> None:
    before = job_rates(record(by_profile()), measured_counts=True)
    assert before.estimated == {"V100", "P100"}
    own = PROFILES["resnet50/bs32"]
    after = job_rates(record(by_profile(), V100=own["V100"]), measured_counts=True)
    assert after.estimated == {"P100"}
    assert after.steps_per_s["V100"] == own["V100"]
    assert before.steps_per_s["P100"] < after.steps_per_s["P100"] < own["P100"]


def test_where_time_is_virtual_nothing_is_measured() -> None:
    job = record(by_profile(), V100=123.0)
    assert job_rates(job, measured_counts=False) == job_rates(
        record(by_profile()), measured_counts=False
    )


def test_a_measured_rate_goes_before_a_given_one() -> None:
    job = record(a_job(throughput_steps_per_s={"V100": 2.0}), V100=1.5)
    assert job_rates(job, measured_counts=True).steps_per_s == {"V100": 1.5}
    assert job_rates(job, measured_counts=False).steps_per_s == {"V100": 2.0}


def test_siblings_learn_from_each_other_and_strangers_do_not() -> None:
    one, other = by_profile("s-1", family="s"), by_profile("s-2", family="s")
    stranger = by_profile("t", family="t")
    kin = kin_rates([record(one, V100=4.0), record(one, V100=5.0), record(other), record(stranger)])
    assert kin == {"foreach s": {"V100": 4.5}}
    alone = job_rates(record(other), measured_counts=True)
    helped = job_rates(record(other), measured_counts=True, kin=kin)
    assert helped.estimated == {"V100", "P100"}
    assert helped.steps_per_s["P100"] != alone.steps_per_s["P100"]
    assert job_rates(record(stranger), measured_counts=True, kin=kin) == job_rates(
        record(stranger), measured_counts=True
    )


def test_jobs_of_one_profile_are_alike_too() -> None:
    kin = kin_rates([record(by_profile(), V100=4.0), record(a_job())])
    assert kin == {"profile resnet50/bs32": {"V100": 4.0}}


def started(*specs: JobSpec) -> RunState:
    """A run whose first job runs on a machine since the start."""
    stage = Stage(a_run(*specs), [an_offer()])
    while not any(isinstance(event, ev.AttemptStarted) for _, event in stage.log.read()):
        stage.driver.advance()
    return stage.loop.state


def told(state: RunState, *reports: tuple[float, int], attempt: int = 1) -> RunState:
    for at_s, step in reports:
        state = apply(
            state,
            ev.Progressed(
                at_s=START_S + at_s,
                job="a",
                attempt=attempt,
                step=step,
                phase=JobPhase.RUNNING,
                steps_per_s_measured=0.0,
            ),
        )
    return state


def view(state: RunState, name: str = "a", *, measured_counts: bool = True):
    supply = Supply(offers=OFFERS)
    snapshot = cluster_state(state, supply, now_s=START_S + 9999.0, measured_counts=measured_counts)
    return next(job for job in snapshot.jobs if job.spec.name == name)


def test_progress_becomes_the_rate_that_decisions_see() -> None:
    """The agent's own figure, of two seconds, is 0 for slow jobs: only progress counts."""
    state = told(started(by_profile()), *[(600.0 + 130.0 * n, 65 * n) for n in range(5)])
    job = view(state)
    assert job.throughput_steps_per_s["V100"] == pytest.approx(0.5)
    assert job.estimated == {"P100"}


def test_a_save_is_not_part_of_the_rate() -> None:
    reports = [(600.0 + 130.0 * n, 65 * n) for n in range(3)]
    state = told(started(by_profile()), *reports)
    at_s, step = reports[-1]
    for phase, seconds in ((JobPhase.SAVING, 10.0), (JobPhase.RUNNING, 4000.0)):
        state = apply(
            state,
            ev.Progressed(
                at_s=START_S + at_s + seconds, job="a", attempt=1, step=step, phase=phase
            ),
        )
    state = told(state, (at_s + 4130.0, step + 65))
    assert state.jobs["a"].rate_windows["V100"].rates_steps_per_s == pytest.approx((0.5,) * 3)


def test_a_rate_stays_with_the_gang_it_was_measured_on() -> None:
    """After a move the old accelerator's rate is not taken for the new one's."""
    state = told(started(by_profile()), *[(600.0 + 130.0 * n, 65 * n) for n in range(5)])
    (instance_id,) = state.jobs["a"].attempts[-1].instance_ids
    state = apply(
        state,
        ev.AttemptStopped(at_s=START_S + 2000.0, job="a", attempt=1, step=300, interrupted=False),
    )
    state = apply(
        state,
        ev.AttemptStarted(
            at_s=START_S + 2100.0, job="a", attempt=2, instance_ids=(instance_id,),
            request_label="P100", accelerator_indices=(0,), save_every_s=60.0, reason="test",
            steps_per_s_expected=None, price_usd_per_hour=1.0,
        ),
    )  # fmt: skip
    job = view(state)
    assert job.throughput_steps_per_s["V100"] == pytest.approx(0.5)
    assert job.estimated == {"P100"}
    state = told(state, *[(2200.0 + 130.0 * n, 300 + 26 * n) for n in range(5)], attempt=2)
    job = view(state)
    assert job.throughput_steps_per_s["P100"] == pytest.approx(0.2)
    assert job.throughput_steps_per_s["V100"] == pytest.approx(0.5)
    assert job.estimated == frozenset()


def test_a_sibling_that_never_ran_learns_in_the_snapshot() -> None:
    a, b = by_profile("a", family="s"), by_profile("b", family="s")
    state = started(a, b)
    before = view(state, "b").throughput_steps_per_s
    state = told(state, *[(600.0 + 130.0 * n, 650 * n) for n in range(5)])
    after = view(state, "b")
    assert after.estimated == {"V100", "P100"}
    assert after.throughput_steps_per_s["P100"] != before["P100"]
    assert view(state, "b", measured_counts=False).throughput_steps_per_s == before


def test_out_of_memory_is_remembered_by_the_next_controller() -> None:
    stage = Stage(a_run(a_job("a", retries=3)), [an_offer()])
    agents = stage.world.channel
    while ("a", 1) not in agents.attempts():
        stage.driver.advance()
    said = "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB"
    agents.learn_failure(("a", 1), Failure(after_step=5, exit_code=1, error=said))
    while not any(isinstance(event, ev.AttemptFailed) for _, event in stage.log.read()):
        stage.driver.advance()
    assert stage.loop.state.jobs["a"].excluded == {"V100"}
    stage.restart()
    assert stage.loop.state.jobs["a"].excluded == {"V100"}
    assert view(stage.loop.state).excluded == {"V100"}
    again = fold(event for _, event in stage.log.read())
    assert again.jobs["a"].excluded == {"V100"}


def test_measured_rates_survive_a_restart() -> None:
    """They follow from the log alone."""
    stage = Stage(a_run(by_profile(steps=2000)), [an_offer()])
    stage.run_until(3000)
    windows = stage.loop.state.jobs["a"].rate_windows
    stage.restart()
    assert stage.loop.state.jobs["a"].rate_windows == windows


def test_a_job_with_only_a_profile_is_planned_at_the_low_quantile() -> None:
    spec = replace(by_profile(), steps_total=20_000)
    low = estimated_rates(spec)["V100"].low_steps_per_s
    document = plan_run(a_run(spec), budget_usd=100.0, now_s=START_S, offers=OFFERS)
    assert document.feasible
    (job,) = document.jobs
    assert {segment.steps_per_s for segment in job.segments} == {low}
    running_s = sum(each.end_s - each.start_s for each in job.segments)
    assert running_s > 20_000 / low
    assert math.isclose(low, 3.7, rel_tol=0.05)


def test_a_deadline_on_estimates_alone_is_never_covered() -> None:
    def promises(spec: JobSpec) -> set[str]:
        stage = plan_events(spec)
        return {
            forecast.promise
            for event in stage
            if isinstance(event, ev.RoundDecided)
            for forecast in event.plan.forecasts
        }

    known = replace(by_profile(deadline_s=36_000.0), throughput_steps_per_s={"V100": 2.0})
    assert "covered" in promises(known)
    assert "covered" not in promises(by_profile(deadline_s=36_000.0))


def plan_events(spec: JobSpec) -> list[ev.Event]:
    run = virtual_run(
        a_run(spec),
        offers=OFFERS,
        market=ExpectedMarket(),
        decide=bind_policy(policy_named("min_cost")),
        now_s=START_S,
        budget_usd=100.0,
    )
    return list(run.events)
