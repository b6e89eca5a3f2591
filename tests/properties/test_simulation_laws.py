"""Laws of a simulated fixed cluster, over small random worlds, from its lease records alone."""

import itertools
import json
from dataclasses import asdict, replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloudgavel.mechanism.fixed_cluster.cluster import AcceleratorType
from cloudgavel.policies.registry import policy_named
from cloudgavel.simulator.cluster_run import ClusterRun, ClusterRunSettings, run_cluster
from cloudgavel.simulator.metrics import result_of
from cloudgavel.simulator.progress_reports import ProgressReports
from cloudgavel.simulator.throughputs import ThroughputTable
from cloudgavel.simulator.workload import Workload, WorkloadJob, workload_of

KINDS = ("small", "large", "odd")
TYPES = ("v100", "k80")
POLICIES = (
    "max_min_fairness",
    "max_min_fairness_agnostic",
    "max_min_fairness_space_sharing",
    "shortest_remaining",
    "fifo",
    "isolated",
    "throughput_per_usd",
    "least_cost_deadlines",
    "makespan",
)


class World(NamedTuple):
    workload: Workload
    table: ThroughputTable
    types: tuple[AcceleratorType, ...]
    known: ClusterRunSettings
    """Failures, and what policies know: throughputs in part, progress late or wrong."""


@st.composite
def worlds(draw: st.DrawFn) -> World:
    dice = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    types = tuple(
        AcceleratorType(
            accelerator=name,
            count=draw(st.integers(1, 6)),
            accelerators_per_instance=draw(st.sampled_from([None, 1, 2, 4])),
            usd_per_hour=price,
        )
        for name, price in zip(TYPES, (0.74, 0.135), strict=True)
    )
    alone = {}
    beside = {}
    for number, name in enumerate(TYPES):
        for spread in (False, True):
            alone[name, spread] = {
                (kind, gang): float(
                    10.0 ** dice.uniform(-1, 2) / (1 + number) * (0.6 if spread else 1.0)
                )
                for kind in KINDS
                for gang in (1, 2, 4)
                if dice.random() < 0.9
            }
        own = alone[name, False]
        beside[name] = {
            (a, b): own[a] * float(dice.uniform(0.3, 0.9)) for a in own for b in own if a[1] == b[1]
        }
    table = ThroughputTable(alone=alone, beside=beside)
    jobs = []
    for number in range(draw(st.integers(1, 9))):
        arrives_s = float(draw(st.sampled_from([0.0, 0.0, 100.0, 360.0, 1234.5, 20_000.0])))
        jobs.append(
            WorkloadJob(
                name=f"j{number}",
                kind=draw(st.sampled_from(KINDS)),
                gang_size=draw(st.sampled_from([1, 1, 2, 4])),
                total_steps=float(10.0 ** dice.uniform(2, 5)),
                arrives_s=arrives_s,
                weight=float(draw(st.sampled_from([1.0, 1.0, 3.0]))),
                deadline_s=draw(st.sampled_from([None, arrives_s + 5_000.0])),
            )
        )
    known = ClusterRunSettings(
        failures_per_hour=draw(st.sampled_from([0.0, 0.0, 4.0])),
        save_every_s=draw(st.sampled_from([60.0, 1800.0])),
        measured_share=draw(st.sampled_from([None, None, 0.0, 0.3])),
        reports=ProgressReports(
            error_share=draw(st.sampled_from([0.0, 0.0, 0.7])),
            late_s=draw(st.sampled_from([0.0, 5000.0])),
        ),
    )
    return World(workload_of("random", jobs), table, types, known)


def simulated(
    world: World,
    policy: str,
    change_over_s: float,
    preempts: bool,
) -> ClusterRun:
    workload, table, types, known = world
    return run_cluster(
        workload,
        table,
        types,
        policy_named(policy),
        replace(
            known,
            change_over_s=change_over_s,
            start_s=change_over_s / 2,
            preempts_within_round=preempts,
            keep_leases=True,
        ),
    )


LAWS = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
CASES = {
    "world": worlds(),
    "policy": st.sampled_from(POLICIES),
    "change_over_s": st.sampled_from([0.0, 30.0]),
    "preempts": st.booleans(),
}


@LAWS
@given(**CASES)
def test_no_accelerator_holds_two_leases_and_no_job_is_in_two_places(
    world, policy, change_over_s, preempts
) -> None:
    run = simulated(world, policy, change_over_s, preempts)
    by_accelerator: dict[tuple[str, int], list[tuple[float, float]]] = {}
    by_job: dict[str, list[tuple[float, float]]] = {}
    for lease in run.leases:
        assert 1 <= len(lease.jobs) <= 2
        for number in lease.numbers:
            by_accelerator.setdefault((lease.accelerator, number), []).append(
                (lease.from_s, lease.to_s)
            )
        for job in lease.jobs:
            by_job.setdefault(job, []).append((lease.from_s, lease.to_s))
    counts = {kind.accelerator: kind.count for kind in world[2]}
    for accelerator, number in by_accelerator:
        assert 0 <= number < counts[accelerator]
    for spans in (*by_accelerator.values(), *by_job.values()):
        spans.sort()
        for (_, end), (start, _) in itertools.pairwise(spans):
            assert start >= end - 1e-6


@LAWS
@given(**CASES)
def test_gangs_are_whole_and_consolidated_unless_they_are_said_to_be_spread(
    world, policy, change_over_s, preempts
) -> None:
    run = simulated(world, policy, change_over_s, preempts)
    gangs = {job.name: job.gang_size for job in world[0].jobs}
    machines = {kind.accelerator: kind.accelerators_per_instance for kind in world[2]}
    for lease in run.leases:
        assert all(gangs[job] == len(set(lease.numbers)) for job in lease.jobs)
        per = machines[lease.accelerator]
        if per is not None and not lease.spread:
            assert len({number // per for number in lease.numbers}) == 1


@LAWS
@given(**CASES)
def test_dollars_are_accelerator_seconds_times_the_price(
    world, policy, change_over_s, preempts
) -> None:
    run = simulated(world, policy, change_over_s, preempts)
    price = {kind.accelerator: kind.usd_per_hour for kind in world[2]}
    dollars = sum(
        (lease.to_s - lease.from_s) * len(lease.numbers) * price[lease.accelerator] / 3600
        for lease in run.leases
    )
    assert result_of(run, policy=policy).cost_usd == pytest.approx(dollars, rel=1e-6, abs=1e-9)


@LAWS
@given(**CASES)
def test_progress_is_never_above_rate_times_time_and_work_is_done_exactly(
    world, policy, change_over_s, preempts
) -> None:
    workload, table, _, _ = world
    run = simulated(world, policy, change_over_s, preempts)
    kinds = {job.name: (job.kind, job.gang_size) for job in workload.jobs}
    done = dict.fromkeys(kinds, 0.0)
    for lease in run.leases:
        for job, steps in zip(lease.jobs, lease.steps, strict=True):
            rate = table.rate(kinds[job], lease.accelerator, spread=lease.spread)
            assert rate is not None
            assert -1e-9 <= steps <= rate * (lease.to_s - lease.from_s + 1e-5) * (1 + 1e-9)
            done[job] += steps
    for job, outcome in zip(workload.jobs, run.outcomes, strict=True):
        if outcome.finished_s is None:
            assert done[job.name] <= job.total_steps * (1 + 1e-9)
        else:
            assert done[job.name] == pytest.approx(job.total_steps, rel=1e-6)
            assert outcome.finished_s >= job.arrives_s


@LAWS
@given(**CASES)
def test_every_job_that_some_type_can_run_ends(world, policy, change_over_s, preempts) -> None:
    workload, table, types, _ = world
    run = simulated(world, policy, change_over_s, preempts)
    for job, outcome in zip(workload.jobs, run.outcomes, strict=True):
        runs_somewhere = any(
            kind.count >= job.gang_size
            and (
                (
                    (kind.accelerators_per_instance or job.gang_size) >= job.gang_size
                    and table.rate((job.kind, job.gang_size), kind.accelerator)
                )
                or (
                    kind.accelerators_per_instance is not None
                    and job.gang_size > 1
                    and table.rate((job.kind, job.gang_size), kind.accelerator, spread=True)
                )
            )
            for kind in types
        )
        assert (outcome.finished_s is not None) == runs_somewhere


@settings(max_examples=10, deadline=None, derandomize=True)
@given(**CASES)
def test_the_same_world_gives_the_same_bytes(world, policy, change_over_s, preempts) -> None:
    texts = []
    for _ in range(2):
        run = simulated(world, policy, change_over_s, preempts)
        result = result_of(run, policy=policy)
        texts.append(
            json.dumps([asdict(result), [asdict(lease) for lease in run.leases]], sort_keys=True)
        )
    assert texts[0] == texts[1]
