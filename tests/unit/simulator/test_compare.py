"""Comparisons: the same whatever computes them, resumable, with paired differences."""

import dataclasses
import sys
from pathlib import Path

import pytest

from cloudgavel.documents.simulation import Interval, SimulationResult
from cloudgavel.errors import UsageError
from cloudgavel.simulator import compare as module
from cloudgavel.simulator.cluster_run import ClusterRunSettings
from cloudgavel.simulator.compare import Comparison, compare, document_of, interval_of
from cloudgavel.simulator.generate import GeneratorSettings
from cloudgavel.views.simulation import simulation_text
from tests.unit.simulator.building import a_table, types


def a_comparison() -> Comparison:
    return Comparison(
        policies=("fifo", "max_min_fairness"),
        table=a_table(),
        types=types(2, 2),
        settings=ClusterRunSettings(),
        generator=GeneratorSettings(job_count=5, deadlines=True),
        seeds=(0, 1, 2),
    )


def without_timings(results: tuple[SimulationResult, ...]) -> list[SimulationResult]:
    return [dataclasses.replace(each, solve_s=0.0, wall_s=0.0) for each in results]


def test_processes_change_nothing() -> None:
    one = compare(a_comparison())
    two = compare(a_comparison(), workers=2)
    assert without_timings(one) == without_timings(two)


def test_an_interrupted_comparison_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = compare(a_comparison())
    simulated = []
    real = module.simulate_one

    def until_the_fourth(comparison: Comparison, policy: str, seed: int | None):
        if len(simulated) == 3:
            raise KeyboardInterrupt
        simulated.append((policy, seed))
        return real(comparison, policy, seed)

    monkeypatch.setattr(module, "simulate_one", until_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        compare(a_comparison(), results_dir=tmp_path)
    monkeypatch.setattr(module, "simulate_one", real)
    seen = []
    resumed = compare(a_comparison(), results_dir=tmp_path, done=lambda n, of: seen.append(n))
    assert seen == [3, 4, 5, 6]
    assert without_timings(resumed) == without_timings(whole)


def test_another_cluster_does_not_take_kept_results(tmp_path: Path) -> None:
    compare(a_comparison(), results_dir=tmp_path)
    bigger = dataclasses.replace(a_comparison(), types=types(4, 4))
    seen = []
    compare(bigger, results_dir=tmp_path, done=lambda n, of: seen.append(n))
    assert seen == [1, 2, 3, 4, 5, 6]


def test_differences_are_taken_seed_by_seed() -> None:
    comparison = a_comparison()
    results = compare(comparison)
    document = document_of(comparison, results)
    by = {(each.policy, each.seed): each for each in results}
    expected = interval_of(
        [by["max_min_fairness", s].avg_jct_s - by["fifo", s].avg_jct_s for s in (0, 1, 2)]
    )
    (found,) = [each for each in document.differences if each.metric == "avg_jct_s"]
    assert found.difference == expected
    assert found.against == "fifo"
    text = simulation_text(document, width=100)
    assert "max_min_fairness" in text and max(map(len, text.splitlines())) <= 100


def test_the_interval_is_students() -> None:
    found = interval_of([1.0, 2.0, 3.0])
    assert found.mean == pytest.approx(2.0)
    assert found.high - found.mean == pytest.approx(4.302653 / 3**0.5, rel=1e-5)
    assert interval_of([1.0]).low is None
    assert interval_of([1.0, 2.0]) == Interval(mean=1.5, low=None, high=None)


def test_work_left_undone_is_not_compared_with_work_done() -> None:
    comparison = a_comparison()
    results = list(compare(comparison))
    at = next(n for n, each in enumerate(results) if each.policy == "max_min_fairness")
    results[at] = dataclasses.replace(results[at], jobs_completed=3, makespan_s=None, cost_usd=0.01)
    document = document_of(comparison, results)
    assert {each.metric for each in document.differences} == {"deadline_misses"}
    assert document.summaries[1].makespan_s is None and document.summaries[0].makespan_s is not None
    text = simulation_text(document, width=100)
    (row,) = [line for line in text.splitlines() if line.startswith("  max_min_fairness ")]
    assert "13/15" in row and "not ended" in row and "*" in row
    assert "max_min_fairness: no times or cost compared, not every job ended" in text


def test_a_tie_is_said() -> None:
    comparison = a_comparison()
    first = [each for each in compare(comparison) if each.policy == "fifo"]
    copies = [dataclasses.replace(each, policy="max_min_fairness") for each in first]
    text = simulation_text(document_of(comparison, [*first, *copies]), width=100)
    assert "  max_min_fairness: the same mean job time, makespan" in text


def test_two_seeds_have_means_and_no_interval() -> None:
    comparison = dataclasses.replace(a_comparison(), seeds=(0, 1))
    text = simulation_text(document_of(comparison, compare(comparison)), width=100)
    assert "+/-" not in text and "Means of 2 seeds, too few for an interval." in text


def test_csv_has_a_row_for_each_result() -> None:
    comparison = a_comparison()
    document = document_of(comparison, compare(comparison))
    rows = document.csv_rows()
    assert rows[0][0] == "policy" and len(rows) == 7
    assert {len(row) for row in rows} == {len(rows[0])}


def test_ray_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="needs the package `ray`"):
        compare(a_comparison(), parallel="ray")
