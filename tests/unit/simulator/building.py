"""Small worlds for the simulator's tests."""

import os
from pathlib import Path

import pytest

from cloudgavel.mechanism.fixed_cluster.cluster import AcceleratorType
from cloudgavel.simulator.throughputs import ThroughputTable
from cloudgavel.simulator.workload import Workload, WorkloadJob, workload_of


def a_table() -> ThroughputTable:
    """``even`` runs alike everywhere, ``picky`` ten times faster on v100; spread gangs at half."""
    even = {("even", size): 1.0 * size for size in (1, 2, 4)}
    fast = {("picky", size): 10.0 * size for size in (1, 2, 4)}
    slow = {("picky", size): 1.0 * size for size in (1, 2, 4)}
    alone = {
        ("v100", False): {**even, **fast},
        ("k80", False): {**even, **slow},
        ("v100", True): {kind: rate / 2 for kind, rate in {**even, **fast}.items()},
        ("k80", True): {kind: rate / 2 for kind, rate in {**even, **slow}.items()},
    }
    return ThroughputTable(alone=alone, beside={})


def types(
    v100: int, k80: int = 0, *, per_instance: int | None = None
) -> tuple[AcceleratorType, ...]:
    return (
        AcceleratorType(
            accelerator="v100",
            count=v100,
            accelerators_per_instance=per_instance,
            usd_per_hour=0.74,
        ),
        AcceleratorType(
            accelerator="k80",
            count=k80,
            accelerators_per_instance=per_instance,
            usd_per_hour=0.135,
        ),
    )


def a_job(name: str, steps: float, kind: str = "even", **other: object) -> WorkloadJob:
    fields = {"gang_size": 1, "arrives_s": 0.0, **other}
    return WorkloadJob(name=name, kind=kind, total_steps=steps, **fields)  # type: ignore[arg-type]


def a_workload(*jobs: WorkloadJob) -> Workload:
    return workload_of("test", jobs)


def data() -> Path:
    """The folder of the published workloads, or a skip with the reason."""
    root = os.environ.get("CLOUDGAVEL_DATA")
    if root is None:
        pytest.skip("set CLOUDGAVEL_DATA to a folder with gavel/simulation_throughputs.json")
    return Path(root) / "gavel"
