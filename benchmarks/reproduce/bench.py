"""What the sections simulate on: workloads, clusters, and results that are kept."""

import hashlib
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

import cloudgavel
from benchmarks.reproduce.reference import MEASURED, WORKLOADS
from cloudgavel.documents.simulation import SimulationResult
from cloudgavel.simulator.cluster_run import ClusterRunSettings
from cloudgavel.simulator.clusters import parse_cluster
from cloudgavel.simulator.compare import Comparison, compare
from cloudgavel.simulator.generate import GeneratorSettings, generated_workload
from cloudgavel.simulator.throughputs import JobKind, ThroughputTable
from cloudgavel.simulator.trace_formats import load_throughputs, load_workload
from cloudgavel.simulator.workload import Workload

SETTINGS = ClusterRunSettings()
PER_TYPE = 36
"""Accelerators of each of the three types in the paper's simulations."""


class Bench:
    """The data, the size of everything, and the results there are already.

    Without ``data`` a table and workloads are made up (``is_made_up``): then only the machinery
    is exercised. ``quick`` takes clusters a quarter as large, loads in proportion, and few jobs.
    """

    def __init__(
        self, data: Path | None, *, quick: bool, results: Path | None = None, workers: int = 1
    ) -> None:
        self.is_made_up = data is None
        self.root = None if data is None else data / "gavel"
        self.quick, self.workers = quick, workers
        self.results = None if results is None else results / code_digest()
        self.table = (
            made_up_table()
            if self.root is None
            else load_throughputs(self.root / "simulation_throughputs.json")
        )
        self.per_type = 9 if quick else PER_TYPE

    @property
    def cluster(self) -> str:
        """The paper's: as many of each type."""
        return f"v100={self.per_type},p100={self.per_type},k80={self.per_type}"

    def load(self, jobs_per_hour: float) -> float:
        """A load of the paper's cluster, in proportion to the one here."""
        return jobs_per_hour * self.per_type / PER_TYPE

    def published(self, name: str) -> tuple[Workload, str]:
        """A published workload and its cluster."""
        path, cluster = WORKLOADS[name]
        if self.root is not None:
            return load_workload(self.root / path), cluster
        generator = GeneratorSettings(
            job_count=12,
            jobs_per_hour=None if name in "BC" else 1.0,
            several_accelerators=name in "AB",
            deadlines=name == "C",
        )
        dice = np.random.default_rng(ord(name))
        return generated_workload(self.table, generator, dice, name=name), "v100=8,p100=8,k80=8"

    def on_published(
        self, name: str, *policies: str, settings: ClusterRunSettings = SETTINGS
    ) -> dict[str, SimulationResult]:
        """Policies on a published workload."""
        workload, cluster = self.published(name)
        return self.alone(
            Comparison(
                policies=policies,
                table=self.table,
                types=parse_cluster(cluster),
                settings=settings,
                workload=workload,
                measured=None if self.is_made_up else MEASURED.get(name),
            )
        )

    def generated(
        self,
        *policies: str,
        jobs: int,
        jobs_per_hour: float | None,
        several: bool = False,
        seeds: int = 1,
        settings: ClusterRunSettings = SETTINGS,
        measured: tuple[int, int] | None = None,
        cluster: str | None = None,
    ) -> dict[str, list[SimulationResult]]:
        """Policies on generated workloads, one for each seed."""
        return self.run(
            Comparison(
                policies=policies,
                table=self.table,
                types=parse_cluster(cluster or self.cluster),
                settings=settings,
                generator=GeneratorSettings(
                    job_count=jobs, jobs_per_hour=jobs_per_hour, several_accelerators=several
                ),
                seeds=tuple(range(seeds)),
                measured=measured,
            )
        )

    def alone(self, comparison: Comparison) -> dict[str, SimulationResult]:
        """Run a comparison that draws nothing."""
        return {name: found[0] for name, found in self.run(comparison).items()}

    def run(self, comparison: Comparison) -> dict[str, list[SimulationResult]]:
        """Results by policy; what was computed before is read."""
        started = time.monotonic()
        known = 0

        def say(finished: int, count: int) -> None:
            nonlocal known
            spent_s = time.monotonic() - started
            if spent_s < 0.05:
                known = finished
            left_s = spent_s / max(finished - known, 1) * (count - finished)
            print(
                f"  {comparison.frame().workload}: {finished} of {count} simulations, "
                f"{spent_s:.0f} s" + (f", about {left_s:.0f} s left" if left_s else ""),
                file=sys.stderr,
                flush=True,
            )

        results = compare(comparison, workers=self.workers, results_dir=self.results, done=say)
        found: dict[str, list[SimulationResult]] = {}
        for result in results:
            found.setdefault(result.policy, []).append(result)
        return found


def estimating(measured_share: float) -> ClusterRunSettings:
    """Policies know so much of the throughputs at first."""
    return replace(SETTINGS, measured_share=measured_share)


def code_digest() -> str:
    """Of the package's source: results of other code are not taken for those of this one."""
    found = hashlib.sha256()
    root = Path(cloudgavel.__file__).parent
    for path in sorted(root.rglob("*.py")):
        found.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:16]


def made_up_table() -> ThroughputTable:
    """Six kinds on the three types, alone and in pairs, drawn by a fixed seed."""
    dice = np.random.default_rng(5)
    speed: Mapping[str, float] = {"v100": 4.0, "p100": 2.0, "k80": 0.6}
    kinds = ("A3C", *(f"ResNet-50 (batch size {size})" for size in (16, 32, 64)), "LM", "GAN")
    alone: dict[tuple[str, bool], dict[JobKind, float]] = {}
    beside: dict[str, dict[tuple[JobKind, JobKind], float]] = {}
    for name, factor in speed.items():
        base = {kind: factor * float(np.exp(dice.normal(0, 0.4))) for kind in kinds}
        alone[name, False] = {
            (kind, gang): rate * gang**0.9 for kind, rate in base.items() for gang in (1, 2, 4, 8)
        }
        alone[name, True] = {kind: 0.6 * rate for kind, rate in alone[name, False].items()}
        beside[name] = {
            ((a, 1), (b, 1)): base[a] * float(dice.uniform(0.4, 0.8)) for a in kinds for b in kinds
        }
    return ThroughputTable(alone=alone, beside=beside)
