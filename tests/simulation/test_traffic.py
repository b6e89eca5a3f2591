"""Checkpoints between clouds: told beside the plan's cost, from what jobs say of their size."""

from dataclasses import replace

import pytest

from cloudgavel.documents.plan import PlanDocument
from cloudgavel.jobs.spec import CheckpointPlan, RunSpec
from cloudgavel.pricing.traffic import cloud_of_store, traffic_usd
from cloudgavel.simulator.plan import plan_run
from cloudgavel.views.plan import plan_text
from tests.unit.runtime.scripted import START_S, a_job, a_run, an_offer


def planned(provider: str, store: str | None, size_gib: float | None = 10.0) -> PlanDocument:
    job = a_job(
        steps=7200, checkpoint=CheckpointPlan(save_s=10.0, restore_s=20.0, every_s=600.0,
                                              size_gib=size_gib),
    )  # fmt: skip
    run: RunSpec = a_run(job, store=store)
    offers = [replace(an_offer(price=3.0), provider=provider)]
    return plan_run(run, budget_usd=100.0, now_s=START_S, offers=offers)


def text(plan: PlanDocument) -> str:
    return plan_text(plan, width=100, next_steps=False, file="jobs.yaml")


@pytest.mark.parametrize(
    ("provider", "store"),
    [("aws", "s3://b/r"), ("gcp", "gs://b/r"), ("gcp", None), ("aws", "file:///x")],
)
def test_within_one_cloud_there_is_none(provider, store):
    plan = planned(provider, store)
    assert plan.cost.traffic_usd == 0.0
    assert "Traffic" not in text(plan)


def test_every_save_from_another_cloud_is_counted():
    plan = planned("gcp", "s3://b/r")
    # Two hours with a save every ten minutes, and one at the end.
    assert plan.cost.traffic_usd == pytest.approx(13 * 10 * 0.12)
    assert "Traffic        $15.60 more for checkpoints between clouds" in text(plan)


def test_an_unknown_size_is_unknown_and_not_zero():
    plan = planned("gcp", "s3://b/r", size_gib=None)
    assert plan.cost.traffic_usd is None
    assert "Traffic        unknown, and not in the budget" in text(plan)


def test_what_leaves_is_billed_by_the_cloud_that_it_leaves():
    there = traffic_usd(machine_cloud="gcp", store_cloud="aws", gib=2.0, saves=3, restores=1)
    assert there == pytest.approx(2 * (3 * 0.12 + 0.09))
    back = traffic_usd(machine_cloud="aws", store_cloud="gcp", gib=2.0, saves=3, restores=1)
    assert back == pytest.approx(2 * (3 * 0.09 + 0.12))
    assert cloud_of_store("gs://b/r?endpoint=x") == "gcp"
    assert cloud_of_store(None) is None
