"""How long policies take by the number of jobs, and where the time of a simulation goes."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import highspy

from benchmarks.fixed.clusters import cluster_problem
from benchmarks.measuring import Case, allocating, measured
from benchmarks.reproduce.bench import SETTINGS, Bench
from benchmarks.reproduce.report import Figure, Section, Table
from cloudgavel.policies.base import Policy
from cloudgavel.policies.fixed.allox import AlloX
from cloudgavel.policies.fixed.finish_time_fairness import FinishTimeFairness
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.fixed.water_filling import HierarchicalWaterFilling
from cloudgavel.policies.registry import policy_named
from cloudgavel.simulator import cluster_run
from cloudgavel.simulator.clusters import parse_cluster
from cloudgavel.views.simulation_report import COLOURS

SIZES = (64, 128, 256, 512, 1024, 2048)
ORIGINAL_S = {
    "max-min": (".02", ".03", ".05", ".04", ".07", ".15"),
    "max-min with space sharing, 26 kinds": (".22", "1.2", "8.1", "113", "-", "-"),
    "max-min with space sharing, all different": (".22", "1.2", "8.1", "113", "-", "-"),
    "hierarchical water filling": (".24", ".56, wrong", "1.2", "8.9", "-", "-"),
    "finish-time fairness": (".41", "", "2.1", "", "7.7", "-"),
    "AlloX": (".07", ".83", "11.2", "over the limit", "-", "-"),
}
"""CPU s of one call of the original scheduler on the same kind of problem; - = not run."""
MINE: tuple[tuple[str, Policy, dict[str, Any], int], ...] = (
    ("max-min", MaxMinFairness(), {}, 2048),
    (
        "max-min with space sharing, 26 kinds",
        MaxMinFairness(space_sharing=True),
        {"kinds": 26, "sharing": True},
        2048,
    ),
    (
        "max-min with space sharing, all different",
        MaxMinFairness(space_sharing=True),
        {"sharing": True},
        2048,
    ),
    ("hierarchical water filling", HierarchicalWaterFilling(), {"severity": "roomy"}, 2048),
    ("finish-time fairness", FinishTimeFairness(), {}, 2048),
    ("AlloX", AlloX(), {}, 1024),
)


def policy_time(bench: Bench) -> Section:
    sizes = SIZES[:2] if bench.quick else SIZES
    rows = []
    for name, policy, options, largest in MINE:
        cells = []
        for size, theirs in zip(sizes, ORIGINAL_S[name], strict=False):
            if size > largest:
                cells.append(f"- / {theirs}")
                continue
            found = measured(
                Case(
                    size=size,
                    severity="",
                    prepare=allocating(
                        policy, lambda size=size, o=options: cluster_problem(size, **o)
                    ),
                )
            )
            cells.append(f"{found.cpu_s:.3g} / {theirs or '-'}")
        rows.append((name, *cells))
    head = ("CPU s of a call, ours / the original", *(f"{size:,}" for size in sizes))
    return Section(
        title="Run time of policies against the number of jobs",
        published=(
            "the hierarchical policy takes under 10 minutes with 2,048 jobs (OSDI 2020, section "
            "7.4, figure 12)",
        ),
        blocks=(
            Table(head, tuple(rows)),
            "Whole calls: build, solve, read back, on one thread. Jobs of one kind are "
            "interchangeable, so with space sharing the linear program is one over kinds; where "
            "all jobs differ, pairs are priced as they are needed. More in docs/concepts/speed.md.",
        ),
    )


def where_time_goes(bench: Bench) -> Section:
    found = {name: _median_time(bench, name) for name in ("A" if bench.quick else "AD")}
    rows = []
    for name, parts in found.items():
        total = sum(parts.values())
        rows += [
            (name, what, f"{seconds:.2f}", f"{100 * seconds / total:.0f} %")
            for what, seconds in parts.items()
        ]
        rows.append((name, "**all**", f"**{total:.2f}**", ""))
    return Section(
        title="Where the time of a simulation goes",
        published=(
            "the original scheduler: A 1.4 CPU s, D 32.6; re-allocating at once, as here, 2.7 and "
            "51.9",
        ),
        blocks=(
            Figure(time_svg(found)),
            Table(("workload", "part", "CPU s", ""), tuple(rows)),
            "`max_min_fairness`, re-allocating at every arrival and end; imports and reading "
            "excluded, solves included. Every part is measured with the process's CPU clock "
            "around its calls, without a profiler; the median of five runs of A and three of D.",
        ),
    )


def _median_time(bench: Bench, name: str) -> dict[str, float]:
    """The parts of the run whose whole time is the median."""
    runs = [time_of(bench, name) for _ in range(1 if bench.quick else 3 if name == "D" else 5)]
    return sorted(runs, key=lambda parts: sum(parts.values()))[len(runs) // 2]


def time_svg(found: Mapping[str, Mapping[str, float]]) -> str:
    """One bar for each workload, its parts side by side."""
    height = 60 * len(found) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" role="img" '
        'font-family="sans-serif" font-size="12">'
        "<title>Where the CPU time of a simulation goes</title>"
        f'<rect width="760" height="{height}" fill="white"/>'
    ]
    for row, (name, parts) in enumerate(found.items()):
        total, x, y = sum(parts.values()), 40.0, 60 * row + 10
        lines.append(f'<text x="8" y="{y + 19}">{name}</text>')
        for colour, (what, seconds) in zip(COLOURS, parts.items(), strict=False):
            width = 620 * seconds / total
            lines.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="28" fill="{colour}">'
                f"<title>{what}</title></rect>"
                f'<text x="{x + 3:.1f}" y="{y + 42}">{what.split(",")[0].split(":")[0]}</text>'
                f'<text x="{x + 3:.1f}" y="{y + 18}" fill="white">{100 * seconds / total:.0f} %'
                "</text>"
            )
            x += width
        lines.append(f'<text x="{x + 6:.1f}" y="{y + 19}">{total:.2f} CPU s</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def time_of(bench: Bench, name: str) -> dict[str, float]:
    """CPU seconds by part of one simulation under max-min fairness."""
    workload, cluster = bench.published(name)
    policy = _Timed(policy_named("max_min_fairness"))
    types = parse_cluster(cluster)
    # One solve before, so that the solver is loaded.
    MaxMinFairness().allocate(cluster_problem(8))
    with _timed(highspy.Highs, "run") as solver, _timed(cluster_run, "decide_leases") as decisions:
        begin = time.process_time()
        run = cluster_run.run_cluster(
            workload, bench.table, types, policy, SETTINGS, timer=time.process_time
        )
        whole = time.process_time() - begin
    return {
        f"solver, {run.solves:,} solves of two stages": solver.cpu_s,
        "programs: building, reading answers": policy.cpu_s - solver.cpu_s,
        f"turns and places, {run.decisions:,} decisions": decisions.cpu_s - policy.cpu_s,
        "accounts: events, progress, credits": whole - decisions.cpu_s,
    }


class _Spent:
    cpu_s = 0.0


class _Timed:
    """A policy that counts the CPU seconds of its calls."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self.cpu_s = policy, 0.0
        self.name, self.summary, self.source = policy.name, policy.summary, policy.source

    def allocate(self, problem):
        begin = time.process_time()
        found = self._policy.allocate(problem)
        self.cpu_s += time.process_time() - begin
        return found


@contextmanager
def _timed(owner: object, name: str) -> Iterator[_Spent]:
    """Count the CPU seconds of a function while the block runs."""
    original: Callable[..., Any] = getattr(owner, name)
    own = name in vars(owner)
    spent = _Spent()

    def timed(*args, **named):
        begin = time.process_time()
        found = original(*args, **named)
        spent.cpu_s += time.process_time() - begin
        return found

    setattr(owner, name, timed)
    try:
        yield spent
    finally:
        if own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)
