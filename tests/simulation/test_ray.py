"""Comparisons spread over a local Ray instance: the same results as here."""

import dataclasses

import pytest

from cloudgavel.documents.simulation import SimulationResult
from cloudgavel.simulator.compare import compare
from tests.unit.simulator.test_compare import a_comparison

ray = pytest.importorskip("ray", reason="install cloudgavel[ray] to test --parallel ray")


def without_timings(results: tuple[SimulationResult, ...]) -> list[SimulationResult]:
    return [dataclasses.replace(each, solve_s=0.0, wall_s=0.0) for each in results]


@pytest.mark.enable_socket
def test_ray_changes_nothing() -> None:
    here = compare(a_comparison())
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        there = compare(a_comparison(), workers=2, parallel="ray")
    finally:
        ray.shutdown()
    assert without_timings(there) == without_timings(here)
