"""Checkpoints between clouds: part of a run's cost and ledger, by the bytes that moved."""

from dataclasses import replace

import pytest

from cloudgavel.documents.plan import PlanDocument
from cloudgavel.jobs.spec import CheckpointPlan, RunSpec
from cloudgavel.pricing.traffic import cloud_of_store, traffic_rates
from cloudgavel.simulator.plan import plan_run
from cloudgavel.views.plan import plan_text
from tests.unit.runtime.scripted import START_S, a_job, a_run, an_offer


def planned(provider: str, store: str | None, size_gib: float | None = 10.0) -> PlanDocument:
    job = a_job(
        steps=7200, checkpoint=CheckpointPlan(save_s=10.0, restore_s=20.0, every_s=600.0,
                                              size_gib=size_gib),
    )  # fmt: skip
    run: RunSpec = a_run(job, store=store)
    offers = [replace(an_offer(price=3.0), provider=provider, region="us-east1")]
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
    # Two hours of work: a save every ten minutes, the last of them at the end.
    assert plan.cost.traffic_usd == pytest.approx(12 * 10 * 0.12)
    assert "Traffic        $14.40 of it, checkpoints between clouds" in text(plan)
    assert plan.cost.expected_usd > 14.40
    assert [(line.kind, line.job) for line in plan.lines] == [("traffic", "a"), ("storage", "a")]
    assert plan.jobs[0].cost_usd > 14.40


def test_an_unknown_size_is_unknown_and_not_zero():
    plan = planned("gcp", "s3://b/r", size_gib=None)
    assert plan.cost.traffic_usd is None
    assert "Traffic        unknown, and not in the cost" in text(plan)


def test_what_leaves_is_billed_by_the_cloud_that_it_leaves():
    there = traffic_rates("gcp", "us-central1", "aws")
    assert there.usd(6.0, 2.0) == pytest.approx(6 * 0.12 + 2 * 0.09)
    back = traffic_rates("aws", "us-east-1", "gcp")
    assert back.usd(6.0, 2.0) == pytest.approx(6 * 0.09 + 2 * 0.12)
    assert traffic_rates("aws", "us-east-1", "aws").free
    assert traffic_rates("aws", "us-east-1", None).free
    assert cloud_of_store("gs://b/r?endpoint=x") == "gcp"
    assert cloud_of_store(None) is None


def test_a_region_that_is_not_known_to_be_near_pays_the_dearest_rate():
    near = traffic_rates("aws", "eu-west-1", "gcp")
    far = traffic_rates("aws", "nowhere-1", "gcp")
    assert far.save_usd_per_gib > near.save_usd_per_gib


def test_storage_is_billed_by_the_time_that_checkpoints_lie_there():
    plan = planned("aws", "s3://b/r")
    # One checkpoint of 10 GiB for the second ten minutes, two from then on for about 100 minutes.
    low, high = (2 * 10 * 0.023 / 720 * hours for hours in (1.5, 2.0))
    assert low < plan.cost.storage_usd < high
    assert planned("aws", None).cost.storage_usd == 0.0
