"""Policies on the same workloads: every pair of policy and seed, in parallel, resumable.

A result depends on its policy, seed and inputs alone, so that processes, their number and their
order change nothing. With ``results_dir`` every finished pair is kept in a file named by a digest
of all that it depends on; what is there is not computed again.

What is compared is a ``Comparable``: a fixed cluster (``Comparison``) or rented machines
(``simulator.rented.comparison``).
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from cloudgavel import __version__
from cloudgavel.documents.simulation import (
    Interval,
    PairedDifference,
    PolicySummary,
    SimulatedType,
    SimulationDocument,
    SimulationResult,
)
from cloudgavel.errors import UsageError
from cloudgavel.mechanism.fixed_cluster.cluster import AcceleratorType
from cloudgavel.policies.registry import policy_named
from cloudgavel.simulator.cluster_run import ClusterRunSettings, run_cluster
from cloudgavel.simulator.generate import GeneratorSettings, generated_workload
from cloudgavel.simulator.metrics import result_of
from cloudgavel.simulator.progress_reports import ProgressReports
from cloudgavel.simulator.throughputs import ThroughputTable
from cloudgavel.simulator.workload import Workload

COMPARED = ("avg_jct_s", "makespan_s", "cost_usd", "deadline_misses")
LEAST_SEEDS = 3
"""Fewer have no interval: with one degree of freedom it is 12.7 standard errors to each side."""


class Comparable(Protocol):
    """Policies, seeds, and how one policy fares with one seed. Travels to other processes."""

    @property
    def policies(self) -> tuple[str, ...]:
        """Names; differences are to the first one."""
        ...

    def pairs(self) -> list[tuple[str, int | None]]:
        """Every policy with every seed, seeds outermost."""
        ...

    def digest(self) -> str:
        """Of everything a result depends on but policy and seed."""
        ...

    def simulate(self, policy: str, seed: int | None) -> SimulationResult:
        """Simulate one pair; ``wall_s`` is left 0."""
        ...

    def frame(self) -> SimulationDocument:
        """Return the document without results: what was compared."""
        ...


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What is compared on a fixed cluster: one workload, or a generator with seeds."""

    policies: tuple[str, ...]
    table: ThroughputTable
    types: tuple[AcceleratorType, ...]
    settings: ClusterRunSettings
    workload: Workload | None = None
    generator: GeneratorSettings | None = None
    seeds: tuple[int, ...] = ()
    measured: tuple[int, int] | None = None

    def workload_for(self, seed: int | None) -> Workload:
        """The workload of a seed (the given one if there is no generator)."""
        if self.workload is not None:
            return self.workload
        assert self.generator is not None and seed is not None
        dice = np.random.default_rng(seed)
        return generated_workload(self.table, self.generator, dice, name=f"generated-{seed}")

    @property
    def draws(self) -> bool:
        """Whether a seed makes a difference: to jobs, failures, or what policies know."""
        told = self.settings.reports
        return (
            self.workload is None
            or self.settings.measured_share is not None
            or told.error_share > 0
            or self.settings.failures_per_hour > 0
        )

    def settings_for(self, seed: int | None) -> ClusterRunSettings:
        """The settings with failures, and what policies know, drawn by the seed."""
        return replace(self.settings, seed=0 if seed is None else seed)

    def pairs(self) -> list[tuple[str, int | None]]:
        """Every policy with every seed, seeds outermost."""
        seeds: Sequence[int | None] = self.seeds if self.draws else (None,)
        return [(policy, seed) for seed in seeds for policy in self.policies]

    def digest(self) -> str:
        """Of everything a result depends on but policy and seed."""
        table = self.table
        content = [
            __version__,
            sorted(
                (str(key), sorted((str(k), v) for k, v in row.items()))
                for key, row in table.alone.items()
            ),
            sorted(
                (key, sorted((str(k), v) for k, v in row.items()))
                for key, row in table.beside.items()
            ),
            [asdict(kind) for kind in self.types],
            asdict(self.settings),
            None if self.workload is None else asdict(self.workload),
            None if self.generator is None else asdict(self.generator),
            self.measured,
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def simulate(self, policy: str, seed: int | None) -> SimulationResult:
        """Run one policy on the workload of a seed."""
        run = run_cluster(
            self.workload_for(seed),
            self.table,
            self.types,
            policy_named(policy),
            self.settings_for(seed),
            timer=time.process_time,
        )
        return result_of(run, policy=policy, seed=seed, measured=self.measured)

    def frame(self) -> SimulationDocument:
        """Return the document without results."""
        name = self.workload.name if self.workload is not None else described(self.generator)
        return SimulationDocument(
            workload=name,
            cluster=tuple(
                SimulatedType(
                    accelerator=kind.accelerator,
                    count=kind.count,
                    accelerators_per_instance=kind.accelerators_per_instance,
                    usd_per_hour=kind.usd_per_hour,
                )
                for kind in self.types
            ),
            market=None,
            budget_usd=None,
            round_s=self.settings.round_s,
            change_over_s=self.settings.change_over_s,
            measured_jobs=self.measured,
            results=(),
            summaries=(),
            differences=(),
            notes=(
                *failure_notes(self.settings),
                *(() if self.workload is None else self.workload.notes),
                *belief_notes(self.settings.measured_share, self.settings.reports),
            ),
        )


def failure_notes(settings: ClusterRunSettings) -> tuple[str, ...]:
    """How often jobs fail, in words."""
    if not settings.failures_per_hour:
        return ()
    return (
        f"{settings.failures_per_hour:g} failures an hour of each accelerator in use, saves every "
        f"{settings.save_every_s:g} s",
    )


def belief_notes(measured_share: float | None, reports: ProgressReports) -> tuple[str, ...]:
    """What policies do not know, in words."""
    told = []
    if measured_share is not None:
        told.append(f"policies know {100 * measured_share:g}% of the throughputs at first")
    if reports.error_share:
        told.append(f"jobs tell their progress with errors up to {100 * reports.error_share:g}%")
    if reports.late_s:
        told.append(f"jobs tell their progress every {reports.late_s:g} s")
    return tuple(told)


def described(generator: GeneratorSettings | None) -> str:
    """``50 generated jobs, 4/h``."""
    assert generator is not None
    pace = "all at once" if generator.jobs_per_hour is None else f"{generator.jobs_per_hour:g}/h"
    jobs = (
        "1 generated job" if generator.job_count == 1 else f"{generator.job_count} generated jobs"
    )
    return f"{jobs}, {pace}"


def compare(
    comparison: Comparable,
    *,
    workers: int = 1,
    results_dir: Path | None = None,
    done: Callable[[int, int], None] | None = None,
    parallel: str = "local",
) -> tuple[SimulationResult, ...]:
    """Simulate every pair; ``done(finished, all)`` is told after each.

    ``parallel``: ``local`` (``workers`` processes of joblib) or ``ray`` (as many at a time as the
    Ray cluster has processors).
    Raises ``UsageError`` when Ray is asked for and not installed.
    """
    pairs = comparison.pairs()
    found: dict[int, SimulationResult] = {}
    missing: list[int] = []
    digest = comparison.digest() if results_dir is not None else ""
    paths: list[Path | None] = []
    for number, (policy, seed) in enumerate(pairs):
        path = None
        if results_dir is not None:
            key = hashlib.sha256(f"{digest} {policy} {seed}".encode()).hexdigest()[:20]
            path = results_dir / f"{key}.json"
        paths.append(path)
        kept = _read(path)
        if kept is None:
            missing.append(number)
        else:
            found[number] = kept
    if done is not None and found:
        done(len(found), len(pairs))
    for number, result in _computed(comparison, pairs, missing, workers, parallel):
        found[number] = result
        _write(paths[number], result)
        if done is not None:
            done(len(found), len(pairs))
    return tuple(found[number] for number in range(len(pairs)))


def simulate_one(comparison: Comparable, policy: str, seed: int | None) -> SimulationResult:
    """Simulate one pair and take its time."""
    started = time.perf_counter()
    result = comparison.simulate(policy, seed)
    return replace(result, wall_s=time.perf_counter() - started)


def _numbered(
    comparison: Comparable, number: int, policy: str, seed: int | None
) -> tuple[int, SimulationResult]:
    return number, simulate_one(comparison, policy, seed)


def _computed(
    comparison: Comparable,
    pairs: Sequence[tuple[str, int | None]],
    missing: Sequence[int],
    workers: int,
    parallel: str,
) -> Iterator[tuple[int, SimulationResult]]:
    if parallel == "ray":
        yield from _by_ray(comparison, pairs, missing)
        return
    if workers == 1 or len(missing) <= 1:
        for number in missing:
            yield _numbered(comparison, number, *pairs[number])
        return
    import joblib

    with joblib.parallel_config(backend="loky", n_jobs=workers):
        yield from joblib.Parallel(return_as="generator_unordered")(
            joblib.delayed(_numbered)(comparison, number, *pairs[number]) for number in missing
        )


def _by_ray(
    comparison: Comparable, pairs: Sequence[tuple[str, int | None]], missing: Sequence[int]
) -> Iterator[tuple[int, SimulationResult]]:
    """Give all pairs to the Ray cluster that ``RAY_ADDRESS`` names, or to one started here.

    Not by joblib: its Ray backend hands results over all at once, at the end.
    """
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            "--parallel ray needs the package `ray`",
            hints=["install it with `pip install 'cloudgavel[ray]'`, or use --parallel local"],
        ) from error
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    shared = ray.put(comparison)
    simulate = ray.remote(_numbered)
    waiting = [simulate.remote(shared, number, *pairs[number]) for number in missing]
    while waiting:
        done, waiting = ray.wait(waiting)
        yield from ray.get(done)


def document_of(
    comparison: Comparable, results: Sequence[SimulationResult], *, notes: Sequence[str] = ()
) -> SimulationDocument:
    """Put results into the document: summaries over seeds, and paired differences."""
    frame = comparison.frame()
    said = [*frame.notes, *notes]
    for result in results:
        left = result.jobs - result.jobs_completed
        if left:
            where = "" if result.seed is None else f" (seed {result.seed})"
            jobs = "1 job" if left == 1 else f"{left} jobs"
            said.append(f"{result.policy}{where}: {jobs} did not end")
    return replace(
        frame,
        results=tuple(results),
        summaries=tuple(_summary(name, results) for name in comparison.policies),
        differences=_differences(comparison.policies, results),
        notes=tuple(said),
    )


def interval_of(values: Sequence[float]) -> Interval:
    """Mean and 95 % interval by Student's t; no interval of fewer than ``LEAST_SEEDS`` values."""
    mean = float(np.mean(values))
    if len(values) < LEAST_SEEDS:
        return Interval(mean=mean, low=None, high=None)
    from scipy.stats import t as student

    half = float(student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5)
    return Interval(mean=mean, low=mean - half, high=mean + half)


def _summary(policy: str, results: Sequence[SimulationResult]) -> PolicySummary:
    own = [result for result in results if result.policy == policy]
    met = [1 - each.deadline_misses / each.deadlines for each in own if each.deadlines]
    return PolicySummary(
        policy=policy,
        seeds=len(own),
        avg_jct_s=_interval([each.avg_jct_s for each in own]),
        p50_jct_s=_interval([each.p50_jct_s for each in own]),
        p90_jct_s=_interval([each.p90_jct_s for each in own]),
        p99_jct_s=_interval([each.p99_jct_s for each in own]),
        makespan_s=_interval([each.makespan_s for each in own]),
        cost_usd=_interval([each.cost_usd for each in own]),
        deadlines_met_share=_interval(met),
        utilization=interval_of([each.utilization for each in own]),
        moves=interval_of([each.moves for each in own]),
        interruptions=interval_of([each.interruptions for each in own]),
        lost_steps=interval_of([each.lost_steps for each in own]),
        solve_s=sum(each.solve_s for each in own),
    )


def _interval(values: Sequence[float | None]) -> Interval | None:
    """Of values that are all known."""
    known = [value for value in values if value is not None]
    return interval_of(known) if known and len(known) == len(values) else None


def _differences(
    policies: Sequence[str], results: Sequence[SimulationResult]
) -> tuple[PairedDifference, ...]:
    """Every policy less the first, over the seeds that both have (``PairedDifference``)."""
    base = {result.seed: result for result in results if result.policy == policies[0]}
    found = []
    for policy in policies[1:]:
        own = {result.seed: result for result in results if result.policy == policy}
        seeds = [seed for seed in base if seed in own]
        whole = all(own[seed].complete and base[seed].complete for seed in seeds)
        for metric in COMPARED if whole else ("deadline_misses",):
            pairs = [(getattr(own[seed], metric), getattr(base[seed], metric)) for seed in seeds]
            known = [(a, b) for a, b in pairs if a is not None and b is not None]
            if not known or len(known) < len(pairs):
                continue
            middle = float(np.mean([b for _, b in known]))
            difference = interval_of([a - b for a, b in known])
            found.append(
                PairedDifference(
                    policy=policy,
                    against=policies[0],
                    metric=metric,
                    difference=difference,
                    relative=difference.mean / middle if middle else None,
                )
            )
    return tuple(found)


def _read(path: Path | None) -> SimulationResult | None:
    """A kept result; ``None`` when there is none, or it is torn."""
    if path is None or not path.exists():
        return None
    try:
        return SimulationResult(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        return None


def _write(path: Path | None, result: SimulationResult) -> None:
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps(asdict(result)), encoding="utf-8")
    beside.replace(path)
