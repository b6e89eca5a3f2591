"""Builders of problems on a fixed cluster."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cloudgavel.policies.problem import AllocationProblem, JobRow, Pool
from cloudgavel.policies.sharing import PairSharing
from cloudgavel.pricing.offer import CapacityType


def pool(accelerator: str, gang: int = 1, *, price: float = 1.0, spread: bool = False) -> Pool:
    return Pool(
        label=f"{accelerator}*{gang}" + ("~" if spread else ""),
        offer_id=accelerator,
        accelerator=accelerator,
        capacity_type=CapacityType.RESERVED,
        gang_size=gang,
        accelerators_per_instance=1,
        shareable=True,
        price_usd_per_hour=price,
        spread=spread,
    )


def cluster_problem(
    rates: Sequence[Sequence[float]] | np.ndarray,
    accelerators: Sequence[int],
    *,
    pools: Sequence[Pool] | None = None,
    jobs: Sequence[JobRow] | None = None,
    steps: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
    prices: Sequence[float] | None = None,
    deadlines: Sequence[float | None] | None = None,
    entities: Sequence[str | None] | None = None,
    elapsed: Sequence[float] | None = None,
    sharing: PairSharing | None = None,
    **more: object,
) -> AllocationProblem:
    """One-accelerator pools r0, r1, ... unless given; a rate of 0 is "cannot run there"."""
    table = np.asarray(rates, dtype=np.float64).reshape(len(rates), len(accelerators))
    m, width = table.shape
    if pools is None:
        pools = [
            pool(f"r{number}", price=1.0 if prices is None else prices[number])
            for number in range(width)
        ]
    if jobs is None:
        jobs = [
            JobRow(
                name=f"j{row}",
                steps_left=1000.0 if steps is None else steps[row],
                weight=1.0 if weights is None else weights[row],
                deadline_s=None if deadlines is None else deadlines[row],
                entity=None if entities is None else entities[row],
                elapsed_s=0.0 if elapsed is None else elapsed[row],
            )
            for row in range(m)
        ]
    feasible = table > 0
    return AllocationProblem(
        jobs=tuple(jobs),
        pools=tuple(pools),
        throughput_steps_per_s=np.where(feasible, table, np.nan),
        feasible=feasible,
        change_over_s=np.zeros((m, width)),
        cluster_accelerators=tuple(accelerators),
        sharing=sharing,
        **more,
    )


def random_problem(
    m: int, accelerators: Sequence[int], seed: int, **more: object
) -> AllocationProblem:
    dice = np.random.default_rng(seed)
    rates = np.exp(dice.normal(0, 1, (m, len(accelerators))))
    rates[dice.random(rates.shape) < 0.1] = 0.0
    rates[:, 0] = np.maximum(rates[:, 0], 0.01)
    more.setdefault("steps", np.exp(dice.normal(8, 1, m)).tolist())
    return cluster_problem(rates, accelerators, **more)


def data_folder() -> Path:
    """The folder of public throughput tables, or skip the test."""
    named = os.environ.get("CLOUDGAVEL_DATA")
    if not named or not (Path(named) / "gavel" / "simulation_throughputs.json").exists():
        pytest.skip("set CLOUDGAVEL_DATA to a folder with gavel/simulation_throughputs.json")
    return Path(named)


def measured_table() -> tuple[list[str], np.ndarray, np.ndarray]:
    """Kinds, rates (K, 3) alone on v100, p100, k80, and retained shares (K, K, 3)."""
    path = data_folder() / "gavel" / "simulation_throughputs.json"
    raw = json.loads(path.read_text())
    types = ("v100", "p100", "k80")
    kinds = [key for key in raw["v100"] if key.endswith(", 1)")]
    rates = np.array([[raw[each][kind]["null"] for each in types] for kind in kinds])
    retained = np.full((len(kinds), len(kinds), 3), np.nan)
    for r, each in enumerate(types):
        for a, one in enumerate(kinds):
            for b, other in enumerate(kinds):
                pair = raw[each][one].get(other)
                if pair is not None and rates[a, r] > 0 and rates[b, r] > 0:
                    retained[a, b, r] = pair[0] / rates[a, r]
    return kinds, rates, np.clip(retained, 0, 1)
