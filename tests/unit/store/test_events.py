"""Every event survives the log: what is read is what was written."""

import json
from types import MappingProxyType
from typing import get_args

import pytest

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.jobs.spec import CloudSpec
from cloudgavel.mechanism import actions as act
from cloudgavel.mechanism.plan import Forecast, Lease, RoundPlan
from cloudgavel.policies.allocation import AllocationStatus, RelaxedPromise, ShadowPrice
from cloudgavel.store import events as ev
from cloudgavel.store.events import from_json, kind_of, to_json
from tests.unit.runtime.scripted import a_job, a_run, an_offer


def a_plan() -> RoundPlan:
    return RoundPlan(
        plan_id="p1",
        round_number=3,
        state_digest="abc",
        actions=(
            act.Launch(
                token="t", offer_ids=("x", "y"), for_jobs=("a",),
                price_limit_usd_per_hour=1.0, reason="r",
            ),
            act.Start(
                job="a", attempt=1, instance_ids=("i",), request_label="V100",
                accelerator_indices=(0, 1), save_every_s=60.0, reason="r",
            ),
            act.Save(job="a", reason="r"),
            act.Move(job="a", to_instance_ids=(), reason="r"),
            act.Terminate(instance_id="i", reason="r"),
            act.Wait(job="a", reason="r"),
        ),
        leases=(
            Lease(job="a", instance_ids=("i",), offer_id="o", request_label="V100", extended=True),
        ),
        forecasts=(
            Forecast(
                job="a", finish_at_s=1.5, cost_usd=None, deadline_at_s=2.0, promise="covered"
            ),
        ),
        relaxed=(RelaxedPromise(job="a", promise="deadline", by_s=3.0, reason="late"),),
        shadow_prices=(
            ShadowPrice(constraint="q", unit="1", usd_per_unit_down=None, usd_per_unit_up=2.0),
        ),
        next_wake_at_s=9.0,
        status=AllocationStatus.RELAXED,
        notes=("one", "two"),
        lower_bound_usd=4.0,
    )  # fmt: skip


def one_of_each() -> list[ev.Event]:
    offer = an_offer(spot=True, rate_per_hour=0.5)
    run = a_run(
        a_job("a", deadline_s=5.0, env=MappingProxyType({"A": "1"})),
        clouds=(CloudSpec(provider="aws", regions=("r1",), max_instances=3),),
        cluster=MappingProxyType({"V100": 2}),
    )
    return [
        ev.RunCreated(at_s=1.0, run_id="r", spec=run, budget_usd=None),
        ev.SpecChanged(at_s=1.0, spec=run),
        ev.BudgetSet(at_s=1.0, budget_usd=3.5),
        ev.RunResumed(at_s=1.0),
        ev.StopRequested(at_s=1.0, reason="down"),
        ev.ControllerStarted(at_s=1.0, holder="h", pid=1, host="x"),
        ev.ControllerEnded(at_s=1.0, holder="h", reason="r"),
        ev.RoundDecided(at_s=1.0, plan=a_plan()),
        ev.LaunchIntended(
            at_s=1.0, token="t", offers=(offer,), for_jobs=("a",), reason="r", round_number=1
        ),
        ev.LaunchSucceeded(
            at_s=1.0, token="t", instance_id="i", offer=offer, launched_at_s=1.0,
            price_usd_per_hour=1.1,
        ),
        ev.LaunchFailed(
            at_s=1.0, token="t", offer_id="o", failure="capacity", message="none",
            closes_intent=True,
        ),
        ev.InstanceReady(at_s=1.0, instance_id="i"),
        ev.InterruptionNoticed(at_s=1.0, instance_id="i", ends_at_s=None),
        ev.TerminateAsked(at_s=1.0, instance_id="i", reason="r"),
        ev.InstanceEnded(at_s=1.0, instance_id="i", ended_at_s=1.0, reason="vanished"),
        ev.OrphanSeen(at_s=1.0, instance_id="i", offer_id="o", price_usd_per_hour=1.0),
        ev.OrphanEnded(at_s=1.0, instance_id="i"),
        ev.PriceChanged(at_s=1.0, instance_id="i", price_usd_per_hour=1.0),
        ev.Accrued(
            at_s=1.0,
            lines=(
                ev.AccruedLine(
                    instance_id="i", until_s=2.0, micro_usd=5,
                    by_job=MappingProxyType({"a": 3}), unattributed_micro_usd=2,
                ),
            ),
        ),
        ev.AttemptStarted(
            at_s=1.0, job="a", attempt=1, instance_ids=("i",), request_label="V100",
            accelerator_indices=(0,), save_every_s=60.0, reason="r", steps_per_s_expected=None,
        ),
        ev.SaveAsked(at_s=1.0, job="a", reason="r"),
        ev.StopAsked(at_s=1.0, job="a", to_instance_ids=("j",), reason="r"),
        ev.Progressed(at_s=1.0, job="a", attempt=1, step=4, phase=JobPhase.RUNNING, loss=0.25),
        ev.CheckpointSaved(at_s=1.0, job="a", attempt=1, step=4),
        ev.TrafficBooked(
            at_s=1.0, job="a", attempt=1, uploaded_bytes=9, downloaded_bytes=4, micro_usd=3
        ),
        ev.StorageBooked(at_s=1.0, by_job=MappingProxyType({"a": 2})),
        ev.SaveFailed(at_s=1.0, job="a", attempt=1, error="disk full"),
        ev.AttemptStopped(at_s=1.0, job="a", attempt=1, step=4, interrupted=False),
        ev.AttemptLost(at_s=1.0, job="a", attempt=1, step=4, cause="vanished"),
        ev.AttemptFailed(
            at_s=1.0, job="a", attempt=1, step=4, exit_code=-9, last_lines=("x",), retry=True
        ),
        ev.JobFinished(at_s=1.0, job="a", step=10),
        ev.JobFailed(at_s=1.0, job="a", reason="r", last_lines=("x", "y")),
        ev.JobCancelled(at_s=1.0, job="a", reason="r"),
        ev.PromiseReleased(
            at_s=1.0, job="a", promise="max_cost", by_s=None, by_usd=2.0, reason="r"
        ),
        ev.RunEnded(at_s=1.0, state="finished"),
        ev.Notified(at_s=1.0, key="budget:9", address="ab12", delivered=True),
    ]  # fmt: skip


def test_the_examples_cover_the_whole_union() -> None:
    assert {type(event) for event in one_of_each()} == set(get_args(ev.Event))


@pytest.mark.parametrize("event", one_of_each(), ids=kind_of)
def test_read_is_written(event: ev.Event) -> None:
    assert from_json(kind_of(event), to_json(event)) == event


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="Teleported"):
        from_json("Teleported", "{}")


def test_keys_of_a_newer_writer_are_ignored_and_missing_ones_take_defaults() -> None:
    body = json.dumps({"at_s": 1, "state": "finished", "mood": "fine"})
    assert from_json("RunEnded", body) == ev.RunEnded(at_s=1.0, state="finished")


@pytest.mark.parametrize(
    "body",
    [
        {"at_s": "soon", "job": "a", "step": 1},
        {"at_s": 1.0, "job": 7, "step": 1},
        {"at_s": 1.0, "job": "a", "step": None},
        {"at_s": 1.0, "job": "a"},
    ],
)
def test_a_body_that_does_not_fit_is_refused(body: object) -> None:
    with pytest.raises(ValueError):
        from_json("JobFinished", json.dumps(body))


def test_a_number_that_is_none_is_not_written() -> None:
    with pytest.raises(ValueError):
        to_json(ev.JobFinished(at_s=float("nan"), job="a", step=1))
