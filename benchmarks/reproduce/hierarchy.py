"""Entities with weights over time: who has how much as jobs come in (the paper's figure 11)."""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from benchmarks.reproduce.bench import SETTINGS, Bench
from benchmarks.reproduce.report import Section, Table
from cloudgavel.policies.fixed.water_filling import HierarchicalWaterFilling
from cloudgavel.simulator.cluster_run import run_cluster
from cloudgavel.simulator.clusters import parse_cluster
from cloudgavel.simulator.workload import WorkloadJob, workload_of

WEIGHTS = {"a": 1.0, "b": 2.0, "c": 3.0}
JOBS_OF_EACH = 6
ROUNDS_BETWEEN = 4
ROUNDS_AFTER = 40


def hierarchical(bench: Bench) -> Section:
    """Deliver shares through rounds, and set what each entity got beside its weight."""
    rows = []
    inside_ways: tuple[tuple[str, dict[str, str]], ...] = (
        ("fairness", {}),
        ("first come first served", dict.fromkeys(WEIGHTS, "fifo")),
    )
    for title, inside in inside_ways:
        policy = HierarchicalWaterFilling(entity_weights=WEIGHTS, inside=inside)
        rows += _over_time(bench, title, policy)
    head = ("inside an entity", "rounds", "jobs of a, b, c", *(f"{e}: got / due" for e in WEIGHTS))
    return Section(
        title="Hierarchical fairness over time",
        published=(
            "three entities with weights 1, 2, 3 and six jobs each on 3:3:3 accelerators, a job "
            "every four rounds: entities share by weight at every time, jobs inside them by "
            "fairness or first come first served (OSDI 2020, section 7.3, figure 11)",
        ),
        blocks=(
            Table(head, tuple(rows)),
            "What an entity got is its jobs' normalised throughput (steps/s over the rate on the "
            "cluster's mix of types), in percent of all, in rounds of 360 s as they were carried "
            "out; due is its weight over those of the entities that are there. Where an entity "
            "has fewer jobs than it could use accelerators for, its jobs are already served the "
            "whole time, and what it leaves goes to the others: so it is with one or two jobs "
            "each. Inside an entity that serves in order, the last jobs wait.",
        ),
    )


def _over_time(bench: Bench, title: str, policy: HierarchicalWaterFilling) -> list[tuple[str, ...]]:
    kinds = sorted(kind for kind, rate in bench.table.alone["v100", False].items() if kind[1] == 1)
    dice = np.random.default_rng(11)
    round_s = SETTINGS.round_s
    last = (len(WEIGHTS) * JOBS_OF_EACH - 1) * ROUNDS_BETWEEN
    end_s = (last + ROUNDS_AFTER) * round_s
    jobs = []
    for number in range(len(WEIGHTS) * JOBS_OF_EACH):
        kind = kinds[int(dice.integers(len(kinds)))]
        rate = max(bench.table.rate(kind, name) or 0.0 for name in bench.table.accelerators)
        jobs.append(
            WorkloadJob(
                name=str(number),
                kind=kind[0],
                gang_size=1,
                total_steps=1.01 * end_s * rate,  # nobody ends before the last figure is taken
                arrives_s=number * ROUNDS_BETWEEN * round_s,
                entity=sorted(WEIGHTS)[number % len(WEIGHTS)],
            )
        )
    types = parse_cluster("v100=3,p100=3,k80=3")
    run = run_cluster(
        workload_of("entities", jobs),
        bench.table,
        types,
        policy,
        replace(SETTINGS, keep_leases=True),
    )
    total = sum(kind.count for kind in types)
    mixed = {
        job.name: sum(
            (bench.table.rate((job.kind, 1), kind.accelerator) or 0.0) * kind.count / total
            for kind in types
        )
        for job in jobs
    }
    entity = {job.name: job.entity or "" for job in jobs}
    rows = []
    marks = [each * 6 * ROUNDS_BETWEEN for each in (0, 1, 2)] + [last, last + ROUNDS_AFTER]
    for begin, end in pairwise(marks):
        from_s, to_s = begin * round_s, end * round_s
        got = dict.fromkeys(WEIGHTS, 0.0)
        for lease in run.leases:
            inside_s = min(lease.to_s, to_s) - max(lease.from_s, from_s)
            if inside_s > 0:
                part = inside_s / (lease.to_s - lease.from_s)
                for name, steps in zip(lease.jobs, lease.steps, strict=True):
                    got[entity[name]] += part * steps / mixed[name]
        there = [job for job in jobs if job.arrives_s < to_s - 1.0]
        present = {job.entity or "" for job in there}
        due = sum(WEIGHTS[each] for each in present)
        all_got = sum(got.values()) or 1.0
        rows.append(
            (
                title,
                f"{begin} to {end}",
                ", ".join(str(sum(job.entity == each for job in there)) for each in WEIGHTS),
                *(
                    f"{100 * got[each] / all_got:.0f} / {100 * WEIGHTS[each] / due:.0f} %"
                    for each in WEIGHTS
                ),
            )
        )
    return rows
