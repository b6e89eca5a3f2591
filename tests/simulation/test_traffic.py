"""Checkpoints between clouds: part of a run's cost and ledger, by the bytes that moved."""

from dataclasses import replace

import pytest

from cloudgavel.documents.plan import PlanDocument
from cloudgavel.jobs.spec import CheckpointPlan, RunSpec
from cloudgavel.mechanism.checkpoint_costs import interval_s, traffic_to_come
from cloudgavel.mechanism.columns import build_columns
from cloudgavel.pricing.traffic import cloud_of_store, traffic_rates
from cloudgavel.simulator.plan import plan_run
from cloudgavel.views.plan import plan_text
from tests.builders import a_job as built_job
from tests.builders import a_state as built_state
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


def two_clouds(deadline_s: float | None = None, **checkpoint: float | None) -> PlanDocument:
    """Google's machines are 20 cents an hour cheaper; the store is in AWS."""
    plan = CheckpointPlan(save_s=10.0, restore_s=20.0, **checkpoint)
    job = a_job(steps=7200, checkpoint=plan, deadline_s=deadline_s)
    run = a_run(job, store="s3://b/r")
    offers = [
        replace(
            an_offer(price=price, spot=spot, rate_per_hour=0.05),
            provider=provider,
            region=region,
            instance_type=provider,
        )
        for provider, region, extra in (("aws", "us-east-1", 0.2), ("gcp", "us-east1", 0.0))
        for spot, price in ((False, 3.0 + extra), (True, 1.0 + extra))
    ]
    return plan_run(run, budget_usd=100.0, now_s=START_S, offers=offers)


def clouds(plan: PlanDocument) -> list[str]:
    return [segment.provider for job in plan.jobs for segment in job.segments]


@pytest.mark.parametrize("deadline_s", [None, 20_000.0])
def test_large_checkpoints_keep_a_job_in_the_cloud_of_its_store(deadline_s):
    assert set(clouds(two_clouds(deadline_s, size_gib=10.0, every_s=600.0))) == {"aws"}
    assert set(clouds(two_clouds(deadline_s, size_gib=0.01, every_s=600.0))) == {"gcp"}


def test_a_save_that_costs_money_is_made_less_often():
    job = built_job(spec={"checkpoint": CheckpointPlan(save_s=10.0)})
    near, far = (built_state(job, store_cloud=cloud) for cloud in ("aws", "gcp"))
    small, large = (replace(job, checkpoint_gib=gib) for gib in (0.1, 10.0))
    spot = next(each for each in build_columns(far, [job]) if each.spot)
    here = interval_s(near, large, spot)
    assert here < interval_s(far, small, spot) < interval_s(far, large, spot)
    written = replace(job.spec, checkpoint=CheckpointPlan(every_s=600.0))
    assert interval_s(far, replace(large, spec=written), spot) == 600.0


@pytest.mark.parametrize("budget", [12.0, 20.0, 26.0, 40.0])
def test_a_run_in_another_cloud_keeps_its_budget_with_its_traffic(budget):
    job = a_job(steps=7200, checkpoint=CheckpointPlan(every_s=600.0, size_gib=10.0, save_s=10.0))
    run = a_run(job, store="s3://b/r")
    offers = [replace(an_offer(price=3.0), provider="gcp", region="us-east1")]
    plan = plan_run(run, budget_usd=budget, now_s=START_S, offers=offers)
    assert plan.cost.expected_usd <= budget
    least = plan.smallest_sufficient_budget_usd
    assert least is not None
    assert least > 2 * 3.0 + 12 * 10 * 0.12
    assert plan.feasible == (budget >= least)


def test_a_size_that_nobody_gave_is_told_and_the_budget_is_kept_all_the_same():
    job = a_job(steps=7200)
    offers = [replace(an_offer(price=3.0), provider="gcp", region="us-east1")]
    plan = plan_run(a_run(job, store="s3://b/r"), budget_usd=60.0, now_s=START_S, offers=offers)
    assert any("no size is known for the checkpoints of a" in note for note in plan.notes)
    assert not planned("aws", "s3://b/r", size_gib=None).notes


def test_while_no_size_is_known_three_saves_of_a_whole_memory_are_kept_ready():
    job = built_job(spec={"checkpoint": CheckpointPlan(every_s=60.0)})
    state = built_state(job, store_cloud="gcp")
    column = build_columns(state, [job])[0]
    unknown = traffic_to_come(state, job, column)
    assert unknown.usd_per_hour == 0.0
    assert unknown.once_usd == pytest.approx(3 * 16 * 0.09)
    known = traffic_to_come(state, replace(job, checkpoint_gib=2.0), column)
    assert known.usd_per_hour == pytest.approx(60 * 2 * 0.09)
    assert known.once_usd == pytest.approx(4 * 2 * 0.09)
    moved = replace(job, checkpoint_gib=2.0, saved_steps=5)
    assert traffic_to_come(state, moved, column).once_usd == pytest.approx(8 * 0.09 + 2 * 0.12)
