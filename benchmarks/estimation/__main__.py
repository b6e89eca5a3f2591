"""``python -m benchmarks.estimation --data DIR``: errors, calibration and what they cost.

``--data`` (default: the environment's ``CLOUDGAVEL_DATA``) holds
``gavel/simulation_throughputs.json``. ``--seeds`` draws of what is measured, at 10, 30 and 60 %.
"""

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.estimation.held_out import (
    HEAD,
    alone_errors,
    by_roofline,
    new_job_errors,
    pair_errors,
    two_way,
)
from benchmarks.estimation.objective_loss import JOBS, TYPES, Stage
from cloudgavel.estimation.completed import CompletedMatrix
from cloudgavel.estimation.estimated_table import EstimatedTable, estimated_table
from cloudgavel.simulator.throughputs import ThroughputTable
from cloudgavel.simulator.trace_formats import load_throughputs

SHARES = (0.1, 0.3, 0.6)
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("CLOUDGAVEL_DATA"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--no-objectives", action="store_true", help="errors only, in seconds")
    asked = parser.parse_args()
    if asked.data is None:
        sys.exit("give --data, or set CLOUDGAVEL_DATA")
    truth = load_throughputs(Path(asked.data) / "gavel" / "simulation_throughputs.json")

    def tables(share: float, seeds: int) -> list[EstimatedTable]:
        return [
            estimated_table(
                truth.alone, truth.beside, measured_share=share, dice=np.random.default_rng(seed)
            )
            for seed in range(seeds)
        ]

    print(f"Relative error on held-out entries, {asked.seeds} draws\n{HEAD}")
    for share in SHARES:
        before = time.process_time()
        made = tables(share, asked.seeds)
        cpu_s = (time.process_time() - before) / asked.seeds
        print(f"rates alone, {share:.0%} measured ({cpu_s:.2f} CPU s a table, pairs included)")
        print("\n".join(alone_errors(made)))
        print(f"shares kept beside another, {share:.0%} measured")
        print("\n".join(pair_errors(made)), flush=True)
    whole = tables(1.0, 1)[0]
    print("a job of a family that was never seen, one column measured")
    print(f"  {'other columns':32} {new_job_errors(whole, accelerators_known=0)}")
    print(f"  {'an accelerator never seen':32} {new_job_errors(whole, accelerators_known=1)}")
    if asked.no_objectives:
        return
    counts = ", ".join(f"{kind.count} {kind.accelerator}" for kind in TYPES)
    print(
        f"\nLoss in objective, {JOBS} jobs on {counts}: mean of {asked.seeds} draws, at first and "
        f"after each of {ROUNDS} rounds of measuring what runs"
    )
    for space_sharing in (False, True):
        stages = [Stage(truth, seed, space_sharing=space_sharing) for seed in range(asked.seeds)]
        for share in SHARES:
            made = tables(share, asked.seeds)
            for at, policy in enumerate(stages[0].policies):
                print(f"{policy.name}, {share:.0%} measured")
                for name, view in VIEWS.items():
                    losses = [
                        stage.losses(stage.policies[at], table, view, ROUNDS)
                        for stage, table in zip(stages, made, strict=True)
                    ]
                    words = " ".join(f"{loss:7.1%}" for loss in np.mean(losses, axis=0))
                    print(f"  {name:32} {words}", flush=True)


def as_estimated(table: EstimatedTable) -> ThroughputTable:
    return ThroughputTable(alone=table.alone, beside=table.beside)


def with_roofline(table: EstimatedTable) -> ThroughputTable:
    return _with_baseline(table, roofline=True)


def with_column_means(table: EstimatedTable) -> ThroughputTable:
    return _with_baseline(table, roofline=False)


def _with_baseline(table: EstimatedTable, *, roofline: bool) -> ThroughputTable:
    """The same entries measured, the others from a baseline; pairs keep the mean share."""
    rates = table.rates
    values = np.where(rates.known, rates.truth, np.nan)
    guess = by_roofline(values, table.columns) if roofline else two_way(values)
    mean = np.where(rates.known, rates.truth, guess)
    pairs = {
        gang: replace(matrix, shares=_mean_share(matrix.shares))
        for gang, matrix in table.pairs.items()
    }
    seen = replace(table, rates=replace(rates, mean=mean), pairs=pairs)
    return as_estimated(seen)


def _mean_share(shares: CompletedMatrix) -> CompletedMatrix:
    mean = float(shares.truth[shares.known].mean())
    return replace(shares, mean=np.where(shares.known, shares.truth, mean))


VIEWS = {
    "this model": as_estimated,
    "roofline": with_roofline,
    "column means": with_column_means,
}

if __name__ == "__main__":
    main()
