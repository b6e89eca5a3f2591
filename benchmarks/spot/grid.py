"""The grid of spot policies: mean cost ratio, regret and misses by deadline, baselines beside it.

    python benchmarks/spot/grid.py TRACE... --tick-s 585 [--settings] [--together]

For every deadline ratio: cost over on-demand only (mean, 90th percentile, dearest run), mean regret
against the clairvoyant with its standard error (over random starts, trace by trace; starts of one
trace overlap, so the truth is somewhat wider), misses and starts of machines. Then the cells of
trace and ratio in which a baseline is cheaper than ``min_cost``. ``--settings`` repeats it for
other ticks, change-overs and price ratios, ``--together`` gives one job three zones.
"""

import argparse
import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from cloudgavel.policies.spot.tables import TableShelf
from cloudgavel.simulator.spot.simulation import (
    PolicyRuns,
    SpotSimulationSettings,
    policy_runs,
    runs_of,
)
from cloudgavel.simulator.spot.traces import SpotTrace, load_trace, merge_ticks

POLICIES = ("min_cost", "uniform_progress", "uniform_progress_eager", "greedy", "clairvoyant")
RIVALS = POLICIES[1:-1]
RATIOS = (1.08, 1.25, 1.5, 2.0)
OTHER_SETTINGS: dict[str, dict[str, float]] = {
    "change-over 180 s": {"changeover_s": 180.0},
    "change-over 720 s": {"changeover_s": 720.0},
    "tick 195 s, change-over 180 s": {"tick_s": 195.0, "changeover_s": 180.0},
    "on-demand 2 x spot": {"on_demand_ratio": 2.0},
}

Cells = dict[str, dict[str, list[PolicyRuns]]]
"""By policy and group of traces, one entry for each seed."""


def cells(
    groups: Sequence[Sequence[SpotTrace]],
    settings: SpotSimulationSettings,
    seeds: Sequence[int],
    shelf: TableShelf,
) -> Cells:
    result: Cells = {name: {} for name in settings.policies}
    for seed in seeds:
        dice = np.random.default_rng(seed)
        for group in groups:
            ticked = [
                merge_ticks(trace, tick_s=settings.tick_s or trace.tick_s, merge=settings.merge)
                for trace in group
            ]
            terms, market = runs_of(ticked, settings, dice)
            name = "+".join(trace.name for trace in group)
            for policy, runs in policy_runs(terms, market, settings.policies, shelf).items():
                result[policy].setdefault(name, []).append(runs)
    return result


def print_rows(ratio: float, by_policy: Cells) -> None:
    for policy, by_group in by_policy.items():
        every = [runs for group in by_group.values() for runs in group]
        costs = np.concatenate([runs.cost_ratio for runs in every])
        by_cell = [np.concatenate([runs.regret for runs in group]) for group in by_group.values()]
        regret = float(np.mean([values.mean() for values in by_cell]))
        error = np.sqrt(sum(v.var(ddof=1) / len(v) for v in by_cell)) / len(by_cell)
        print(
            f"  {ratio:<6g}{policy:<24}{costs.mean():8.3f}{np.quantile(costs, 0.9):8.3f}"
            f"{costs.max():8.4f}{regret:9.4f} +-{error:.4f}{sum(r.missed for r in every):7d}"
            f"{sum(r.changeovers for r in every):8d}",
            flush=True,
        )


def cheaper_rivals(ratio: float, by_policy: Cells) -> list[str]:
    found = []
    for group, ours in by_policy["min_cost"].items():
        for rival in RIVALS:
            theirs = by_policy[rival][group]
            gap = np.mean(
                [
                    a.cost_ratio.mean() - b.cost_ratio.mean()
                    for a, b in zip(ours, theirs, strict=True)
                ]
            )
            if gap > 0:
                found.append(f"  {ratio:g} {group}: {gap:+.4f} against {rival}")
    return found


def print_grid(
    traces: Sequence[SpotTrace],
    settings: SpotSimulationSettings,
    ratios: Sequence[float],
    seeds: Sequence[int],
    shelf: TableShelf,
) -> None:
    print(
        "  ratio policy                      mean     p90     max   regret   error misses  starts"
    )
    worse: list[str] = []
    for ratio in ratios:
        asked = replace(settings, deadline_ratio=ratio)
        by_policy = cells([[trace] for trace in traces], asked, seeds, shelf)
        print_rows(ratio, by_policy)
        worse += cheaper_rivals(ratio, by_policy)
    print("cells in which a baseline is cheaper:")
    print("\n".join(worse) or "  none")


def print_together(
    traces: Sequence[SpotTrace],
    settings: SpotSimulationSettings,
    seeds: Sequence[int],
    shelf: TableShelf,
) -> None:
    print("three zones together, deadline 1.25: mean cost over the clairvoyant's")
    asked = replace(settings, deadline_ratio=1.25, together=True)
    by_policy = cells(list(itertools.combinations(traces, 3)), asked, seeds, shelf)
    mean = {
        policy: {g: np.mean([r.cost_ratio.mean() for r in runs]) for g, runs in by_group.items()}
        for policy, by_group in by_policy.items()
    }
    best = mean["clairvoyant"]
    for group in best:
        excess = ", ".join(f"{name} {mean[name][group] / best[group] - 1:.1%}" for name in mean)
        print(f"  {group}: {excess}")
    for name, by_group in mean.items():
        print(f"  mean: {name} {np.mean([by_group[g] / best[g] - 1 for g in best]):.2%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--tick-s", type=float, default=None)
    parser.add_argument("--changeover-s", type=float, default=585.0)
    parser.add_argument("--on-demand-ratio", type=float, default=3.33)
    parser.add_argument("--job-hours", type=float, default=48.0)
    parser.add_argument("--runs", type=int, default=60, help="random starts by trace and seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 8])
    parser.add_argument("--ratios", type=float, nargs="+", default=RATIOS)
    parser.add_argument("--settings", action="store_true", help="other settings as well")
    parser.add_argument("--together", action="store_true", help="also every three zones together")
    given = parser.parse_args()
    traces = [load_trace(path) for path in given.traces]
    shelf = TableShelf()
    settings = SpotSimulationSettings(
        job_hours=given.job_hours,
        tick_s=given.tick_s,
        changeover_s=given.changeover_s,
        on_demand_ratio=given.on_demand_ratio,
        runs=given.runs,
        policies=POLICIES,
    )
    began = time.process_time()
    print_grid(traces, settings, given.ratios, given.seeds, shelf)
    if given.settings:
        for label, changes in OTHER_SETTINGS.items():
            print(label)
            print_grid(traces, replace(settings, **changes), given.ratios, given.seeds, shelf)  # type: ignore[arg-type]
    if given.together:
        print_together(traces, settings, given.seeds, shelf)
    cpu_s = time.process_time() - began
    print(f"{cpu_s:.0f} s of CPU, tables {shelf.size_bytes / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
