"""Documents with every kind of line in them, for what commands print."""

from dataclasses import replace

from cloudgavel.documents.explain import ExplainChoice, ExplainDocument
from cloudgavel.documents.frontier import FrontierDocument, FrontierPoint
from cloudgavel.documents.plan import (
    CostLine,
    FleetLine,
    PlanCost,
    PlanDocument,
    PlannedJob,
    Relaxed,
    Segment,
    ShadowPriceLine,
)
from cloudgavel.documents.run import RunDocument, RunInstance, RunJob
from cloudgavel.documents.status import (
    StatusDocument,
    StatusEvent,
    StatusFleetLine,
    StatusJob,
)

LATE = Relaxed(
    job="unet3d", promise="deadline", by_s=1500.0, by_usd=None, reason="the money does not last"
)


def a_plan(*, feasible: bool) -> PlanDocument:
    segment = Segment(
        provider="aws",
        zone="use1-az4",
        instance_type="p3.2xlarge",
        capacity_type="spot",
        start_s=90.0,
        end_s=22_000.0,
        accelerator="V100",
        gang=1,
        steps_per_s=7.8,
        usd_per_hour=0.42,
    )
    jobs = (
        PlannedJob(
            name="resnet50",
            finish_s=22_000.0,
            deadline_s=44_860.0,
            deadline_met=True,
            cost_usd=2.57,
            segments=(segment,),
            insured_from_s=0.0 if feasible else None,
            save_every_s=1470.0,
        ),
        PlannedJob(
            name="unet3d",
            finish_s=None if not feasible else 30_000.0,
            deadline_s=36_000.0,
            deadline_met=feasible,
            cost_usd=1234.5,
            segments=(),
            sent_on_demand_s=7200.0 if feasible else None,
            insurance_usd=987.0 if feasible else 0.0,
        ),
        PlannedJob(
            name="a-very-long-name-of-a-job-in-a-sweep-lr-0.001",
            finish_s=60.0,
            deadline_s=None,
            deadline_met=None,
            cost_usd=0.0042,
            segments=(segment,),
        ),
    )
    return PlanDocument(
        name="vision-sweep",
        plan_id="7f3a9c1e",
        policy="min_cost",
        rehearsal=True,
        prices_as_of="2026-11-01",
        created_at="2026-11-29T14:06:02Z",
        feasible=feasible,
        budget_usd=500.0 if feasible else 5.0,
        budget_covers_worst_case=feasible,
        smallest_sufficient_budget_usd=123.45,
        cost=PlanCost(expected_usd=214.0, lower_bound_usd=201.0, on_demand_only_usd=596.0),
        makespan_s=30_000.0 if feasible else None,
        rounds=61,
        jobs=jobs,
        fleet=FleetLine(
            peak_instances=7, peak_usd_per_hour=13.2, instance_hours=61.0, spot_share=0.78
        ),
        relaxed=() if feasible else (LATE,),
        shadow_prices=(
            ShadowPriceLine(
                constraint="deadline of resnet50",
                unit="USD/h",
                usd_per_unit_down=31.0,
                usd_per_unit_up=12.0,
            ),
            ShadowPriceLine(
                constraint="budget", unit="USD per USD", usd_per_unit_down=0.0, usd_per_unit_up=0.0
            ),
        ),
        notes=("throughput of `unet3d` on L4 is an estimate",),
    )


def a_run() -> RunDocument:
    return RunDocument(
        run_id="vision-sweep-1a2b3c4d",
        name="vision-sweep",
        state="failed",
        policy="min_cost",
        rehearsal=True,
        created_at="2026-11-29T14:06:02Z",
        ended_at="2026-11-29T20:06:02Z",
        budget_usd=500.0,
        spent_usd=16.25,
        unattributed_usd=0.25,
        lower_bound_usd=12.0,
        on_demand_only_usd=45.5,
        rounds=61,
        jobs=(
            RunJob(
                name="resnet50", state="FINISHED", steps_done=900_000, steps_total=900_000,
                deadline_s=44_860.0, finish_s=22_000.0, deadline_met=True, spent_usd=14.0,
                moves=1, interruptions=2, steps_repeated=1204, attempts=4, failures=0,
            ),
            RunJob(
                name="unet3d", state="FAILED", steps_done=12, steps_total=5_000,
                deadline_s=36_000.0, finish_s=None, deadline_met=False, spent_usd=2.0,
                moves=0, interruptions=0, steps_repeated=0, attempts=3, failures=3,
                last_lines=("Traceback (most recent call last):", "ValueError: no such layer"),
            ),
        ),
        instances=(
            RunInstance(
                id="aws-1", provider="aws", instance_type="p3.2xlarge", zone="use1-az4",
                capacity_type="spot", launched_at="2026-11-29T14:06:02Z",
                ended_at="2026-11-29T20:06:02Z", end_reason="interrupted", cost_usd=12.75,
                estimated=False,
            ),
            RunInstance(
                id="gcp-2", provider="gcp", instance_type="tpu-v3-8", zone="us-central1-a",
                capacity_type="on_demand", launched_at="2026-11-29T14:06:02Z",
                ended_at="2026-11-29T14:30:02Z", end_reason="vanished", cost_usd=2.0,
                estimated=True,
            ),
        ),
        lines=(
            CostLine(
                kind="traffic", job="resnet50", usd=1.5,
                note="15.00 GiB saved to another cloud, 1.67 GiB restored from it",
            ),
        ),
        relaxed=(LATE,),
    )  # fmt: skip


def a_status() -> StatusDocument:
    return StatusDocument(
        run_id="vision-sweep-1a2b3c4d",
        name="vision-sweep",
        state="running",
        rehearsal=True,
        policy="min_cost",
        round=42,
        now="2026-11-29T14:09:31Z",
        now_s=209.0,
        next_decision_s=358.0,
        controller_alive=True,
        controller_seen_s_ago=3.0,
        budget_usd=500.0,
        spent_usd=41.96,
        committed_usd=1.2,
        usd_per_hour=13.2,
        expected_total_usd=214.0,
        lower_bound_usd=201.0,
        on_demand_only_usd=401.0,
        jobs=(
            StatusJob(
                name="bert-large", state="RUNNING", on="aws p4d.24xlarge spot",
                steps_per_s_measured=37.9, steps_per_s_expected=38.5, steps_done=610,
                steps_total=1000, finish_s=20_000.0, deadline_s=21_140.0, promise="covered",
                spent_usd=45.71, reason=None, save_every_s=1470.0,
            ),
            StatusJob(
                name="unet3d", state="WAITING", on=None, steps_per_s_measured=None,
                steps_per_s_expected=None, steps_done=0, steps_total=5000, finish_s=40_000.0,
                deadline_s=36_000.0, promise="released", spent_usd=0.0,
                reason="it comes after bert-large",
            ),
            StatusJob(
                name="sweep-1", state="FINISHED", on=None, steps_per_s_measured=None,
                steps_per_s_expected=None, steps_done=50, steps_total=50, finish_s=100.0,
                deadline_s=None, promise="none", spent_usd=0.004, reason=None,
            ),
        ),
        fleet=(
            StatusFleetLine(
                provider="aws", instance_type="p4d.24xlarge", capacity_type="spot", count=1,
                age_s=180.0, busy_share=0.41, usd_per_hour=10.9,
                interruption_rate_per_hour=0.12, note=None,
            ),
            StatusFleetLine(
                provider="gcp", instance_type="tpu-v3-8", capacity_type="on_demand", count=2,
                age_s=7_440.0, busy_share=0.0, usd_per_hour=16.0,
                interruption_rate_per_hour=None, note="1 booting",
            ),
        ),
        orphans=("i-0dead (aws/use1-az1/p3.2xlarge/spot)",),
        events=(
            StatusEvent(
                at="2026-11-29T14:09:12Z", at_s=190.0, subject="bert-large",
                text="saved at step 640,118",
            ),
            StatusEvent(
                at="2026-11-29T14:06:07Z", at_s=5.0, subject="aws/use1-az1/p3",
                text="not granted (capacity): none to be had now",
            ),
        ),
        relaxed=(LATE,),
    )  # fmt: skip


def a_frontier() -> FrontierDocument:
    return FrontierDocument(
        name="night-batch",
        policy="makespan",
        rehearsal=False,
        prices_as_of="2026-11-01",
        created_at="2026-11-29T20:00:00Z",
        job_count=3,
        feasible=True,
        budget_usd=None,
        smallest_sufficient_budget_usd=1041.0,
        cost_lower_bound_usd=871.23,
        points=tuple(
            FrontierPoint(
                budget_usd=budget,
                cost_usd=cost,
                makespan_s=hours * 3600,
                makespan_lower_bound_s=bound,
                deadlines_met=2,
                deadlines=2,
            )
            for budget, cost, hours, bound in (
                (1041.0, 1012.4, 26.5, 17.25 * 3600),
                (1502.77, 1398.05, 18.1, 12.0 * 3600),
                (2980.0, 2811.9, 9.75, None),
            )
        ),
        runs=8,
    )


def an_explanation() -> ExplainDocument:
    choices = (
        ("wait", None, None, 14.21, None, False),
        ("spot", "aws/use1-az4/p3.2xlarge/spot", 1, 13.08, 0.012, True),
        ("spot", "gcp/us-central1-a/a-machine-with-a-very-long-name/spot", 8, None, 0.24, False),
        ("on_demand", "aws/use1-az4/p3.2xlarge/on_demand", 1, 36.72, None, False),
    )
    return ExplainDocument(
        run="vision-sweep",
        job="resnet50",
        planned=False,
        round=42,
        at_s=7_600.0,
        state="RUNNING",
        on="aws p3.2xlarge spot",
        reason="cheapest in time for its deadline",
        steps_done=120_000,
        steps_total=900_000,
        spent_usd=1.75,
        expected_finish_s=40_000.0,
        expected_cost_left_usd=9.5,
        deadline_s=44_860.0,
        promise="covered",
        choices=tuple(
            ExplainChoice(
                hold=hold,
                offer_id=offer_id,
                accelerators=gang,
                expected_cost_usd=cost,
                loss_chance=lost,
                chosen=chosen,
            )
            for hold, offer_id, gang, cost, lost, chosen in choices
        ),
        latest_on_demand_s=16_300.0,
        reserve_usd=27.9,
        most_usd=48.2,
        deadline_usd_per_hour_less=0.61,
        deadline_usd_per_hour_more=0.0,
        save_every_s=1470.0,
        save_s=30.0,
        loss_rate_per_hour=0.1,
    )


def an_explanation_of_the_past() -> ExplainDocument:
    return replace(
        an_explanation(),
        state="FINISHED",
        on=None,
        reason=None,
        ended_s=41_000.0,
        last_on="aws p3.2xlarge on-demand",
        last_reason="its deadline needs it",
        steps_done=900_000,
        spent_usd=13.6,
        expected_finish_s=41_000.0,
        expected_cost_left_usd=None,
        promise="kept",
        choices=(),
        latest_on_demand_s=None,
        reserve_usd=None,
        most_usd=None,
        deadline_usd_per_hour_less=None,
        deadline_usd_per_hour_more=None,
        loss_rate_per_hour=0.0,
    )
