"""Against the original scheduler on its own workloads (figures: docs/design/simulation.md)."""

import numpy as np
import pytest

from cloudgavel.documents.simulation import SimulationResult
from cloudgavel.policies.registry import policy_named
from cloudgavel.simulator.cluster_run import ClusterRunSettings, run_cluster
from cloudgavel.simulator.clusters import parse_cluster
from cloudgavel.simulator.metrics import result_of
from cloudgavel.simulator.trace_formats import load_throughputs, load_workload
from tests.unit.simulator.building import data

SMALL = "v100=8,p100=16,k80=24"


def simulated(workload: str, cluster: str, policy: str) -> SimulationResult:
    root = data()
    run = run_cluster(
        load_workload(root / workload),
        load_throughputs(root / "simulation_throughputs.json"),
        parse_cluster(cluster),
        policy_named(policy),
        ClusterRunSettings(),
    )
    return result_of(run, policy=policy)


@pytest.mark.parametrize(
    ("policy", "jct_h"),
    [
        ("max_min_fairness", 3.96),
        ("max_min_fairness_agnostic", 5.55 * 1.03),
        ("water_filling", 3.99 * 1.03),
        ("fifo", 5.42),
        ("isolated", 5.52 * 1.03),
    ],
)
def test_job_times_on_workload_a(policy: str, jct_h: float) -> None:
    result = simulated("physical_cluster/max_min_fairness.trace", SMALL, policy)
    assert result.jobs_completed == 96
    assert result.avg_jct_s is not None and result.avg_jct_s / 3600 <= jct_h


def test_makespan_on_workload_b() -> None:
    result = simulated("physical_cluster/minimize_makespan.trace", SMALL, "makespan")
    assert result.makespan_s / 3600 <= 17.98


def test_mean_job_time_on_workload_c() -> None:
    result = simulated("generated_200_static.csv", "v100=25,p100=25,k80=25", "shortest_remaining")
    assert result.avg_jct_s is not None and result.avg_jct_s / 3600 < 17.8
    assert np.isfinite(result.makespan_s)
