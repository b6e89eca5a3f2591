"""Policies compared on rented machines: same jobs and markets, the same bytes every time."""

import functools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgavel.documents.simulation import SimulationResult
from cloudgavel.errors import UsageError
from cloudgavel.jobs.spec import AcceleratorRequest
from cloudgavel.pricing.catalog import Catalog
from cloudgavel.simulator import compare as module
from cloudgavel.simulator.compare import compare, document_of
from cloudgavel.simulator.generate import GeneratorSettings
from cloudgavel.simulator.progress_reports import ProgressReports
from cloudgavel.simulator.rented.comparison import START_AT_S, RentedComparison, rentable_offers
from cloudgavel.simulator.rented.recorded import load_recorded
from cloudgavel.simulator.roofline import roofline_table
from cloudgavel.views.simulation import simulation_text
from cloudgavel.views.simulation_report import simulation_report
from tests.builders import an_offer
from tests.unit.runtime.scripted import a_job, a_run

OFFERS = (
    an_offer("V100", spot=True, price=0.9, interruption_rate_per_hour=0.5),
    an_offer("V100", price=3.06),
)


def a_comparison(**changes: object) -> RentedComparison:
    run = a_run(
        a_job("first", steps=7200, deadline_s=9 * 3600.0),
        a_job("later", steps=3600, arrives_s=5000.0),
    )
    given = RentedComparison(
        policies=("min_cost", "on_demand_only"), offers=OFFERS, seeds=(0, 1), run=run
    )
    return replace(given, **changes)  # type: ignore[arg-type]


@functools.cache
def whole() -> tuple[SimulationResult, ...]:
    return compare(a_comparison())


def without_timings(results: tuple[SimulationResult, ...]) -> list[SimulationResult]:
    return [replace(each, solve_s=0.0, wall_s=0.0) for each in results]


def test_spot_is_cheaper_and_on_demand_is_the_same_in_every_market() -> None:
    comparison = a_comparison()
    document = document_of(comparison, whole())
    cheap, dear = document.summaries
    assert cheap.cost_usd.mean < 0.7 * dear.cost_usd.mean
    assert dear.cost_usd.low == pytest.approx(dear.cost_usd.high)
    assert dear.interruptions.mean == dear.lost_steps.mean == 0
    (cost,) = [each for each in document.differences if each.metric == "cost_usd"]
    assert cost.difference.mean == pytest.approx(dear.cost_usd.mean - cheap.cost_usd.mean)
    assert [each.deadlines for each in document.results] == [1] * 4
    assert document.market == "2 offers of aws" and document.cluster == ()


def test_job_times_begin_when_a_job_arrives() -> None:
    result = whole()[1]
    # 3,600 and 7,200 steps at one a second, boot and restore; nothing of the wait before 5,000 s.
    assert 3600 < result.p50_jct_s * 2 - result.p99_jct_s < result.p99_jct_s
    assert 7200 < result.p99_jct_s < 8400
    assert 8600 < result.makespan_s < 9600


def test_the_same_seeds_give_the_same_bytes_whatever_computes_them() -> None:
    one = a_comparison()
    here = without_timings(whole())
    there = without_timings(compare(one, workers=2))
    texts = [
        json.dumps(replace(document_of(one, each), summaries=()).to_json())
        for each in (tuple(here), tuple(there))
    ]
    assert texts[0] == texts[1]


def test_an_interrupted_comparison_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison = a_comparison()
    real = module.simulate_one
    simulated: list[object] = []

    def until_the_third(comparison: object, policy: str, seed: int | None) -> SimulationResult:
        if len(simulated) == 2:
            raise KeyboardInterrupt
        simulated.append(seed)
        return real(comparison, policy, seed)

    monkeypatch.setattr(module, "simulate_one", until_the_third)
    with pytest.raises(KeyboardInterrupt):
        compare(comparison, results_dir=tmp_path)
    monkeypatch.setattr(module, "simulate_one", real)
    seen: list[int] = []
    resumed = compare(comparison, results_dir=tmp_path, done=lambda n, of: seen.append(n))
    assert seen == [2, 3, 4]
    assert without_timings(resumed) == without_timings(whole())


def test_another_budget_or_market_does_not_take_kept_results() -> None:
    digests = {
        each.digest()
        for each in (
            a_comparison(),
            a_comparison(budget_usd=5.0),
            a_comparison(offers=OFFERS[1:]),
            a_comparison(run=a_run(a_job("first", steps=1))),
        )
    }
    assert len(digests) == 4
    named_elsewhere = replace(a_comparison().run, source="other.yaml", policy="min_makespan")
    assert a_comparison(run=named_elsewhere).digest() in digests


def test_too_little_money_is_told() -> None:
    comparison = a_comparison(budget_usd=1.0, seeds=(0,), policies=("on_demand_only",))
    (result,) = compare(comparison)
    assert result.cost_usd <= 1.0 and result.jobs_completed < 2 and result.gave_up
    assert result.deadline_misses == 1
    text = simulation_text(document_of(comparison, (result,)), width=80)
    assert "budget $1.00" in text and "did not end" in text


def generated(count: int) -> RentedComparison:
    return RentedComparison(
        policies=("min_cost",),
        offers=(),
        seeds=(0, 1),
        generator=GeneratorSettings(
            job_count=count,
            jobs_per_hour=4.0,
            deadlines=True,
            several_accelerators=True,
            reference="V100",
        ),
        table=roofline_table(),
    )


def test_generated_jobs_have_deadlines_arrivals_and_throughputs_on_every_accelerator() -> None:
    comparison = generated(200)
    jobs = comparison.run_for(0).jobs
    assert comparison.run_for(0) == comparison.run_for(0) != comparison.run_for(1)
    factors = set()
    for job in jobs:
        gang = job.accelerators[0].count
        here = AcceleratorRequest(accelerator="V100", count=gang)
        assert {each.accelerator for each in job.accelerators} > {"T4", "V100", "A100"}
        assert set(job.throughput_steps_per_s) == {each.label for each in job.accelerators}
        duration_s = job.steps_total / job.throughput_steps_per_s[here.label]
        assert 60 * 10**1.5 * 0.99 <= duration_s <= 60 * 10**4 * 1.01
        factors.add(round((job.deadline_s - job.arrives_s) / duration_s, 1))
    assert factors == {1.2, 2.0, 10.0}
    assert {job.accelerators[0].count for job in jobs} == {1, 2, 4, 8}
    assert jobs[-1].arrives_s == pytest.approx(200 * 900, rel=0.3)


def test_the_report_draws_machines_by_kind() -> None:
    comparison = a_comparison()
    document = document_of(comparison, whole())
    details = comparison.details()
    assert details[1].rows == (("V100", 1),) or details[1].rows == (("V100", 2),)
    assert max(count for _, count in details[1].busy) == details[1].rows[0][1]
    page = simulation_report(document, details)
    assert "Accelerators rented" in page and "Who ran where: min_cost" in page


def trace_file(path: Path, samples: list[int], **more: object) -> Path:
    path.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": samples, **more}))
    return path


def test_recorded_markets_take_machines_where_the_trace_says(tmp_path: Path) -> None:
    path = trace_file(tmp_path / "us-east-1a_v100_1.json", [1] * 4 + [0] * 2)
    recorded = load_recorded([str(path)], OFFERS)
    assert set(recorded.traces) == {OFFERS[0].offer_id}
    assert recorded.notes == ("us-east-1a_v100_1.json is laid under zone use1-az1",)
    comparison = a_comparison(recorded=recorded, policies=("min_cost",), seeds=(0,))
    (result,) = compare(comparison)
    assert result.interruptions >= 1
    market = comparison.market_for(comparison.run, 0)
    starts = {comparison.market_for(comparison.run, seed).origin_s for seed in range(5)}
    assert len(starts) == 5 and all(START_AT_S - 3600 <= each <= START_AT_S for each in starts)
    taken_s = market.interruption_at_s(OFFERS[0], 0, START_AT_S)
    assert taken_s is not None and taken_s <= START_AT_S + 4 * 600


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine.json", "does not say which offers"),
        ("us-east-1a_v100_8.json", "no spot offer is left"),
        ("eu-west-9a_v100_1.json", "no spot offer is left"),
        ("us-east-1a_v101_1.json", "unknown accelerator"),
    ],
)
def test_a_trace_of_nothing_is_refused(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_recorded([str(trace_file(tmp_path / name, [1, 0]))], OFFERS)


def test_a_trace_may_say_before_its_file_what_it_tells_of(tmp_path: Path) -> None:
    path = trace_file(tmp_path / "mine.json", [1, 0], prices=[0.5, 0.7])
    recorded = load_recorded([f"use1-az1:V100:1={path}"], OFFERS)
    assert recorded.notes == ()
    (trace,) = recorded.traces.values()
    assert trace.prices_usd_per_hour == (0.5, 0.7)
    with pytest.raises(UsageError, match="two traces tell of"):
        load_recorded([f"use1-az1:V100:1={path}"] * 2, OFFERS)


def test_jobs_that_nothing_rents_are_refused() -> None:
    run = a_run(a_job("k", accelerators=(AcceleratorRequest(accelerator="K80"),)), a_job("v"))
    with pytest.raises(UsageError, match="what `k` runs on"):
        rentable_offers(run, Catalog(offers=OFFERS))


def two_speeds(**changes: object) -> RentedComparison:
    requests = tuple(AcceleratorRequest(accelerator=name) for name in ("V100", "T4"))
    run = a_run(
        a_job(
            "a",
            steps=7200,
            accelerators=requests,
            throughput_steps_per_s={"V100": 1.0, "T4": 0.1},
            deadline_s=9 * 3600.0,
        )
    )
    offers = (an_offer("V100", price=3.06), an_offer("T4", price=0.526))
    return replace(
        RentedComparison(policies=("min_cost",), offers=offers, seeds=(0, 1, 2, 3), run=run),
        **changes,  # type: ignore[arg-type]
    )


def test_machines_do_their_true_rate_whatever_is_believed() -> None:
    known = compare(two_speeds())
    guessed = compare(two_speeds(measured_share=0.0))
    # 7,200 steps at one a second, boot, restore and saves; a T4 looks cheaper until it is tried.
    assert {each.makespan_s for each in known} == {known[0].makespan_s}
    assert 7200 <= known[0].makespan_s <= 9000
    assert all(each.jobs_completed == 1 for each in guessed)
    assert min(each.makespan_s for each in guessed) >= 7200
    assert max(each.makespan_s for each in guessed) > 9000
    document = document_of(two_speeds(measured_share=0.0), guessed)
    assert document.notes == ("policies know 0% of the throughputs at first",)


def test_a_gang_on_several_machines_may_be_slower() -> None:
    gang = AcceleratorRequest(accelerator="V100", count=2)
    run = a_run(
        a_job("g", steps=3600, accelerators=(gang,), throughput_steps_per_s={gang.label: 1.0})
    )
    given = RentedComparison(policies=("on_demand_only",), offers=OFFERS, seeds=(0,), run=run)
    (whole_rate,) = compare(given)
    (half_rate,) = compare(replace(given, spread_share=0.5))
    # One accelerator an instance: the two are always on two machines.
    assert half_rate.makespan_s - whole_rate.makespan_s == pytest.approx(3600, rel=0.1)
    assert given.digest() != replace(given, spread_share=0.5).digest()


@pytest.mark.parametrize(
    "reports", [ProgressReports(error_share=0.8), ProgressReports(late_s=3000.0)]
)
def test_wrong_and_late_reports_do_not_change_what_is_done(reports: ProgressReports) -> None:
    comparison = a_comparison(reports=reports, policies=("on_demand_only",))
    for told, true in zip(compare(comparison), whole()[1::2], strict=True):
        assert told.jobs_completed == 2
        assert told.makespan_s >= 8600 and told.cost_usd == pytest.approx(true.cost_usd, rel=0.2)
    assert comparison.frame().notes[0].startswith("jobs tell their progress")
