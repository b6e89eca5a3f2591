"""The grid of spot policies: mean cost ratio, regret and misses by deadline, baselines beside it.

    python benchmarks/spot/grid.py TRACE... [--tick-s 585] [--changeover-s 585] [--runs 100]

Prints one table per deadline ratio over all traces, the cells by trace in which ``min_cost`` is
worse than the better of greedy and uniform progress, and the same for three zones together.
"""

import argparse
import itertools
import time
from dataclasses import replace
from pathlib import Path

from cloudgavel.documents.spot_simulation import SpotSimulationDocument
from cloudgavel.policies.spot.tables import TableShelf
from cloudgavel.simulator.spot.simulation import SpotSimulationSettings, simulate_spot
from cloudgavel.simulator.spot.traces import SpotTrace, load_trace

POLICIES = ("min_cost", "uniform_progress", "uniform_progress_eager", "greedy", "clairvoyant")
RATIOS = (1.08, 1.25, 1.5, 2.0)


def cells(document: SpotSimulationDocument) -> dict[tuple[str, str], float]:
    return {(row.trace, row.policy): row.mean_cost_ratio for row in document.by_trace}


def print_table(document: SpotSimulationDocument) -> None:
    for row in document.results:
        print(
            f"  {document.deadline_ratio:<6g}{row.policy:<24}{row.mean_cost_ratio:8.3f}"
            f"{row.p90_cost_ratio:8.3f}{row.max_cost_ratio:8.4f}{row.mean_regret:9.4f}"
            f"{row.deadline_misses:6d}{row.changeovers:8d}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--tick-s", type=float, default=None)
    parser.add_argument("--changeover-s", type=float, default=585.0)
    parser.add_argument("--on-demand-ratio", type=float, default=3.33)
    parser.add_argument("--job-hours", type=float, default=48.0)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--ratios", type=float, nargs="+", default=RATIOS)
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
        seed=given.seed,
        policies=POLICIES,
    )
    print("  ratio policy                      mean     p90     max   regret misses  starts")
    worse: list[str] = []
    began = time.perf_counter()
    for ratio in given.ratios:
        document = simulate_spot(traces, replace(settings, deadline_ratio=ratio), shelf=shelf)
        print_table(document)
        by_cell = cells(document)
        for trace in traces:
            ours = by_cell[trace.name, "min_cost"]
            for rival in ("uniform_progress", "uniform_progress_eager", "greedy"):
                gap = ours - by_cell[trace.name, rival]
                if gap > 0:
                    worse.append(f"  {ratio:g} {trace.name}: {gap:+.4f} against {rival}")
    print("cells in which a baseline is cheaper:")
    print("\n".join(worse) or "  none")
    if given.together:
        together(traces, replace(settings, together=True, deadline_ratio=1.25), shelf)
    print(f"{time.perf_counter() - began:.0f} s, tables {shelf.size_bytes / 2**20:.0f} MiB")


def together(traces: list[SpotTrace], settings: SpotSimulationSettings, shelf: TableShelf) -> None:
    print("three zones together, deadline 1.25: mean cost over the clairvoyant's")
    sums = dict.fromkeys(POLICIES, 0.0)
    groups = list(itertools.combinations(traces, 3))
    for group in groups:
        document = simulate_spot(group, settings, shelf=shelf)
        best = document.results[-1].mean_cost_ratio
        excess = {row.policy: row.mean_cost_ratio / best - 1 for row in document.results}
        for policy, value in excess.items():
            sums[policy] += value / len(groups)
        names = "+".join(trace.name for trace in group)
        print(f"  {names}: " + ", ".join(f"{name} {v:.1%}" for name, v in excess.items()))
    print("  mean: " + ", ".join(f"{name} {v:.1%}" for name, v in sums.items()))


if __name__ == "__main__":
    main()
