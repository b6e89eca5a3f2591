"""One simulation in detail, for the report's figures."""

import dataclasses

from cloudgavel.documents.simulation_detail import LeaseBar, PolicyDetail
from cloudgavel.policies.registry import policy_named
from cloudgavel.simulator.cluster_run import ClusterRun, run_cluster
from cloudgavel.simulator.compare import Comparison


def details_of(comparison: Comparison) -> tuple[PolicyDetail, ...]:
    """Simulate the first seed of every policy once more, keeping its leases."""
    seed = comparison.pairs()[0][1]
    workload = comparison.workload_for(seed)
    settings = dataclasses.replace(comparison.settings_for(seed), keep_leases=True)
    return tuple(
        detail_of(
            run_cluster(workload, comparison.table, comparison.types, policy_named(name), settings),
            policy=name,
        )
        for name in comparison.policies
    )


def detail_of(run: ClusterRun, *, policy: str) -> PolicyDetail:
    """Draw a run's records together; leases that follow each other in place become one bar."""
    first_row: dict[str, int] = {}
    rows = 0
    for kind in run.cluster.types:
        first_row[kind.accelerator] = rows
        rows += kind.count
    changes: dict[float, int] = {}
    bars: list[LeaseBar] = []
    last: dict[int, int] = {}
    for lease in sorted(run.leases, key=lambda each: (each.from_s, each.jobs)):
        from_s, to_s = lease.from_s - run.started_s, lease.to_s - run.started_s
        changes[from_s] = changes.get(from_s, 0) + len(lease.numbers)
        changes[to_s] = changes.get(to_s, 0) - len(lease.numbers)
        job = " + ".join(lease.jobs)
        for number in lease.numbers:
            row = first_row[lease.accelerator] + number
            at = last.get(row)
            if at is not None and bars[at].job == job and from_s - bars[at].to_s < 1e-6:
                bars[at] = dataclasses.replace(bars[at], to_s=to_s)
                continue
            last[row] = len(bars)
            bars.append(LeaseBar(accelerator=row, from_s=from_s, to_s=to_s, job=job))
    busy: list[tuple[float, int]] = []
    total = 0
    for at_s in sorted(changes):
        total += changes[at_s]
        busy.append((at_s, total))
    times = sorted(
        each.finished_s - each.arrives_s for each in run.outcomes if each.finished_s is not None
    )
    return PolicyDetail(
        policy=policy,
        job_times_s=tuple(times),
        busy=tuple(busy),
        bars=tuple(bars),
        rows=tuple((kind.accelerator, kind.count) for kind in run.cluster.types),
    )
