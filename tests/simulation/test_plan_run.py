"""``plan`` is the run itself in virtual time: what it promises, and what it says of budgets."""

from dataclasses import replace

import pytest

from cloudgavel.documents.encode import as_json
from cloudgavel.documents.plan import PlanDocument
from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.jobs.spec import AcceleratorRequest, JobSpec, RunSpec
from cloudgavel.policies.registry import policy_named
from cloudgavel.pricing.market import ExpectedMarket, SeededMarket
from cloudgavel.runtime.account import run_document
from cloudgavel.runtime.assemble import bind_policy
from cloudgavel.simulator.plan import plan_run
from cloudgavel.simulator.virtual_run import VirtualRun, virtual_run
from cloudgavel.store.ledger import imbalance_micro_usd
from cloudgavel.views.plan import plan_text
from tests.unit.runtime.scripted import START_S, a_job, a_run, an_offer

OFFERS = [
    an_offer("z1", spot=True, price=0.9, rate_per_hour=0.2),
    an_offer("z1", price=3.06),
    an_offer("z2", price=3.06),
]


def some_jobs(**changes: object) -> RunSpec:
    def job(name: str, hours: float, deadline_h: float) -> JobSpec:
        return a_job(name, steps=int(hours * 3600), deadline_s=deadline_h * 3600, **changes)

    return a_run(job("a", 2.0, 5.0), job("b", 1.0, 4.0))


def plan(run: RunSpec, budget_usd: float | None, **changes: object) -> PlanDocument:
    return plan_run(run, budget_usd=budget_usd, now_s=START_S, offers=OFFERS, **changes)  # type: ignore[arg-type]


def text_of(answer: PlanDocument) -> str:
    return plan_text(answer, width=160, next_steps=False, file="jobs.yaml")


@pytest.fixture(scope="module")
def ample() -> PlanDocument:
    return plan(some_jobs(), 100.0)


def test_an_ample_budget_keeps_every_deadline(ample: PlanDocument) -> None:
    assert ample.feasible
    assert [job.deadline_met for job in ample.jobs] == [True, True]
    assert ample.relaxed == ()
    assert ample.makespan_s == max(job.finish_s or 0 for job in ample.jobs)
    assert ample.fleet.peak_instances >= 1
    as_json(ample)


def test_costs_stand_in_their_order(ample: PlanDocument) -> None:
    cost = ample.cost
    assert cost.lower_bound_usd is not None and cost.on_demand_only_usd is not None
    assert cost.lower_bound_usd <= cost.expected_usd <= cost.on_demand_only_usd
    assert sum(job.cost_usd for job in ample.jobs) <= cost.expected_usd + 1e-9


def test_segments_lie_within_the_plan_one_after_another(ample: PlanDocument) -> None:
    for job in ample.jobs:
        assert job.segments
        assert job.segments[-1].end_s == job.finish_s
        on_spot = job.segments[-1].capacity_type == "spot"
        # `every: auto` saves more often where a loss is likelier.
        assert job.save_every_s is not None and (job.save_every_s < 1800) == on_spot
        for before, after in zip(job.segments, job.segments[1:], strict=False):
            assert before.end_s <= after.start_s


def test_the_same_question_gets_the_same_answer_and_another_one_another_name(
    ample: PlanDocument,
) -> None:
    assert plan(some_jobs(), 100.0) == ample
    later = plan_run(some_jobs(), budget_usd=100.0, now_s=START_S + 3600, offers=OFFERS)
    assert later.cost == ample.cost
    assert plan(some_jobs(weight=2.0), 100.0).plan_id != ample.plan_id


def test_the_smallest_budget_it_names_suffices_and_two_percent_less_does_not(
    ample: PlanDocument,
) -> None:
    smallest = ample.smallest_sufficient_budget_usd
    assert smallest is not None
    assert smallest >= ample.cost.expected_usd
    exact = plan(some_jobs(), smallest)
    assert exact.feasible
    assert exact.cost.expected_usd <= smallest
    assert all(job.deadline_met for job in exact.jobs)
    less = plan(some_jobs(), smallest * 0.98)
    assert not less.feasible
    assert less.smallest_sufficient_budget_usd == smallest


def test_what_is_met_but_not_insured_is_named(ample: PlanDocument) -> None:
    assert [job.insured_from_s for job in ample.jobs] == [0.0, 0.0]
    assert "only if spot holds" not in text_of(ample)
    tight = plan(some_jobs(), ample.smallest_sufficient_budget_usd)
    assert tight.feasible and tight.budget_covers_worst_case is False
    bare = [job.name for job in tight.jobs if job.deadline_met and job.insured_from_s != 0]
    assert bare
    assert "only if spot holds" in text_of(tight)
    not_insured = next(x for x in text_of(tight).splitlines() if x.startswith("Not insured"))
    assert all(name in not_insured for name in bare)


def test_being_sent_on_demand_is_the_price_of_insurance() -> None:
    run = a_run(a_job("a", steps=2 * 3600, deadline_s=2.2 * 3600))
    answer = plan(run, None)
    (job,) = answer.jobs
    assert job.deadline_met and job.insured_from_s is not None
    assert job.sent_on_demand_s is not None
    on_demand = [each for each in job.segments if each.capacity_type == "on_demand"]
    assert on_demand and on_demand[0].start_s >= job.sent_on_demand_s
    assert 0 < job.insurance_usd <= job.cost_usd + 0.01
    assert "Insurance      a on demand from " in text_of(answer)


def test_a_margin_that_is_not_kept_is_a_note() -> None:
    run = replace(some_jobs(), deadline_margin_share=0.7)
    answer = plan(run, None)
    assert any("deadline_margin (70%)" in note for note in answer.notes)
    assert not any("deadline_margin" in note for note in plan(some_jobs(), None).notes)


def test_a_deadline_on_an_estimated_speed_is_not_counted_as_kept_without_a_word() -> None:
    job = a_job(
        "a",
        steps=3600,
        deadline_s=9 * 3600,
        accelerators=(AcceleratorRequest(accelerator="V100"), AcceleratorRequest(accelerator="T4")),
        throughput_steps_per_s={"T4": 1.0},
    )
    answer = plan(a_run(job), None)
    (planned,) = answer.jobs
    assert planned.segments[0].steps_per_s_estimated and planned.insured_from_s is None
    assert "1 of 1 met, all only if the estimated speed holds" in text_of(answer).replace(
        "spot holds, all only if ", ""
    )
    assert "~" in text_of(answer)


def test_too_little_money_says_what_it_would_take_and_what_is_missed() -> None:
    poor = plan(some_jobs(), 1.0)
    assert not poor.feasible
    assert poor.budget_covers_worst_case is False
    assert poor.cost.expected_usd <= 1.0
    assert {line.job for line in poor.relaxed} >= {
        job.name for job in poor.jobs if job.deadline_met is False
    }
    assert any(job.deadline_met is False for job in poor.jobs)
    assert (poor.smallest_sufficient_budget_usd or 0) > 1.0


def test_a_deadline_that_nothing_can_keep_is_infeasible_at_any_price() -> None:
    run = some_jobs()
    hurried = replace(run, jobs=tuple(replace(job, deadline_s=600.0) for job in run.jobs))
    answer = plan(hurried, None)
    assert not answer.feasible
    assert answer.smallest_sufficient_budget_usd is None
    assert all(job.deadline_met is False for job in answer.jobs)


def test_no_budget_means_no_limit(ample: PlanDocument) -> None:
    free = plan(some_jobs(), None)
    assert free.feasible
    assert free.budget_usd is None and free.budget_covers_worst_case is None
    assert free.cost == ample.cost


def run_with(budget_usd: float, *, seed: int | None) -> VirtualRun:
    market = ExpectedMarket() if seed is None else SeededMarket(seed=seed)
    return virtual_run(
        some_jobs(),
        offers=OFFERS,
        market=market,
        decide=bind_policy(policy_named("min_cost")),
        now_s=START_S,
        budget_usd=budget_usd,
        best_effort=True,
    )


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_half_the_money_is_never_exceeded_and_everything_is_saved(
    ample: PlanDocument, seed: int | None
) -> None:
    assert ample.smallest_sufficient_budget_usd is not None
    half = round(ample.smallest_sufficient_budget_usd / 2, 2)
    done = run_with(half, seed=seed)
    state = done.state
    assert state.ended == "budget_exhausted"
    assert state.spent_usd <= half
    assert imbalance_micro_usd(state) == 0
    assert not state.live_instances
    for job in state.jobs.values():
        if job.phase is not JobPhase.FINISHED and job.attempts:
            last = job.attempts[-1]
            if last.end == "stopped":
                assert job.saved_steps == last.end_step
    document = run_document(state)
    assert document.state == "budget_exhausted"
    missed = {job.name for job in document.jobs if job.deadline_met is False}
    assert missed
