"""Workloads, throughputs and clusters as files and flags give them."""

from pathlib import Path

import numpy as np
import pytest

from cloudgavel.errors import UsageError
from cloudgavel.simulator.clusters import parse_cluster
from cloudgavel.simulator.generate import GeneratorSettings, generated_workload
from cloudgavel.simulator.throughputs import ThroughputTable
from cloudgavel.simulator.trace_formats import load_throughputs, load_workload
from tests.unit.simulator.building import a_table

TRACE = "ResNet-18 (batch size 64)\tpython3 x.py\tdir\t--steps\t1\t100387\t2\t1\t-1.000000\t7.5\n"


def test_a_trace_line_becomes_a_job(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    path.write_text(TRACE)
    (job,) = load_workload(path).jobs
    assert (job.kind, job.gang_size, job.total_steps) == ("ResNet-18 (batch size 64)", 2, 100387.0)
    assert (job.arrives_s, job.deadline_s, job.weight) == (7.5, None, 1.0)


def test_a_broken_trace_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    path.write_text(TRACE + "nonsense\n")
    with pytest.raises(UsageError, match=r"a\.trace:2 is not a job"):
        load_workload(path)


def test_a_deadline_is_the_arrival_plus_factor_times_duration(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "job_id,job_type,scale_factor,total_steps,duration_on_v100_s,slo_factor,arrival_s\n"
        "7,LM,1,10,100,1.2,50\n8,LM,1,10,100,,50\n"
    )
    with_deadline, without = load_workload(path).jobs
    assert with_deadline.deadline_s == pytest.approx(170.0)
    assert without.deadline_s is None


def test_columns_can_be_mapped(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("model,iterations,submit\nLM,10,3\n")
    mapped = {"kind": "model", "total_steps": "iterations", "arrives_s": "submit"}
    (job,) = load_workload(path, columns=mapped).jobs
    assert (job.kind, job.total_steps, job.arrives_s) == ("LM", 10.0, 3.0)
    with pytest.raises(UsageError, match="no column job_type"):
        load_workload(path)


def test_pairs_and_spread_figures_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        """{"v100": {"('A', 1)": {"null": 4.0, "('B', 1)": [3.0, 2.0]},
                     "('B', 1)": {"null": 5.0}},
            "v100_unconsolidated": {"('A', 2)": {"null": 1.5}}}"""
    )
    table = load_throughputs(path)
    assert table.rate(("A", 1), "v100") == 4.0
    assert table.rate(("A", 2), "v100") is None
    assert table.rate(("A", 2), "v100", spread=True) == 1.5
    assert table.beside["v100"][("A", 1), ("B", 1)] == 3.0
    assert table.beside["v100"][("B", 1), ("A", 1)] == 2.0


def test_the_generator_follows_the_published_law_and_its_seed() -> None:
    settings = GeneratorSettings(
        job_count=4_000, jobs_per_hour=4.0, several_accelerators=True, deadlines=True
    )

    def drawn(seed: int, table: ThroughputTable):
        return generated_workload(table, settings, np.random.default_rng(seed), name="g").jobs

    table = a_table()
    jobs = drawn(1, table)
    assert jobs == drawn(1, table)
    assert jobs != drawn(2, table)
    rates = {
        (job.kind, job.gang_size): table.rate((job.kind, job.gang_size), "v100") for job in jobs
    }
    minutes = np.array([job.total_steps / rates[job.kind, job.gang_size] / 60 for job in jobs])
    assert minutes.min() >= 10**1.5 - 1e-9 and minutes.max() <= 10**4 + 1e-9
    assert np.mean(minutes <= 1_000) == pytest.approx(0.8, abs=0.02)
    assert jobs[-1].arrives_s / len(jobs) == pytest.approx(900.0, rel=0.06)
    # The table knows gangs of 1, 2 and 4: their published parts, without the 8s.
    assert np.mean([job.gang_size == 1 for job in jobs]) == pytest.approx(0.7 / 0.95, abs=0.02)
    spans = {
        round((job.deadline_s - job.arrives_s) / (60 * length), 6)
        for job, length in zip(jobs, minutes, strict=True)
    }
    assert spans == {1.2, 2.0, 10.0}


def test_a_cluster_is_read_with_published_and_given_prices() -> None:
    v100, a100 = parse_cluster("v100=8,a100=4", prices="a100=1.5", per_instance="v100=4")
    assert (v100.count, v100.usd_per_hour, v100.accelerators_per_instance) == (8, 0.74, 4)
    assert (a100.count, a100.usd_per_hour, a100.accelerators_per_instance) == (4, 1.5, None)


@pytest.mark.parametrize(
    ("cluster", "prices", "said"),
    [
        ("v100", "", "expected name=number"),
        ("v100=1,v100=2", "", "twice"),
        ("v100=1.5", "", "a whole number"),
        ("v100=0", "", "no accelerators"),
        ("v100=1", "k80=1", "which --cluster does not"),
    ],
)
def test_a_cluster_that_means_nothing_is_refused(cluster: str, prices: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_cluster(cluster, prices=prices)
