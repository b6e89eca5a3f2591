"""Whole runs in virtual time, market by market: what least cost pays, misses and moves.

Run: ``python benchmarks/spot/whole_runs.py [--seeds 10] [--data FOLDER] [workload ...]``.

Each line is one workload: the quick-start, and made-up ones of 10 to 30 jobs whose deadlines are
1.1 to 2 times their length on demand, in four markets:

- ``mild``: the rehearsal's (a zone without capacity for half an hour about every eight hours);
- ``harsh``: capacity is away as often as it is there, machines are taken every three hours besides;
- ``trace``: zones follow the public availability traces (``--data`` is a folder of them);
- ``narrow``: the same, with one place for each kind of machine.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from cloudgavel.jobs.parse import parse_run
from cloudgavel.jobs.spec import RunSpec
from cloudgavel.policies.registry import policy_named
from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.pricing.market import Market, Outages, PriceWalk, SeededMarket, TraceMarket
from cloudgavel.pricing.market.trace import AvailabilityTrace, parse_availability_trace
from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.runtime.account import deadline_met
from cloudgavel.runtime.assemble import bind_policy, rehearsal_market, rehearsal_offers
from cloudgavel.simulator.market_range import cheapest_places
from cloudgavel.simulator.virtual_run import virtual_run
from cloudgavel.units import HOUR_S

NOW_S = 1_800_000_000.0
RATES = {"T4": 1.0, "L4": 1.6, "A10G": 2.0, "V100": 2.6}
"""Steps/s of the made-up jobs on one accelerator."""
WORKLOADS = (
    "quickstart",
    "10-mild",
    "30-mild",
    "10-harsh",
    "10-trace",
    "1-narrow",
    "10-narrow",
)


def quickstart() -> RunSpec:
    """Read the example."""
    path = Path(__file__).parents[2] / "examples" / "quickstart" / "jobs.yaml"
    return parse_run(
        path.read_text(), source=str(path), base_dir=str(path.parent), environment={}, now_s=NOW_S
    )


def made_up(count: int, seed: int) -> RunSpec:
    """``count`` jobs of 2 to 12 hours on a V100, with deadlines 1.1 to 2 times that and a start."""
    dice = Random(f"{count} {seed}")
    lines = [
        "version: 1",
        "name: made-up",
        "rehearsal: {clouds: {aws: {regions: [us-east-1, us-west-2]}}}",
        "jobs:",
    ]
    for number in range(count):
        hours = dice.uniform(2, 12)
        names = sorted({"V100", dice.choice(["T4", "A10G", "L4"])})
        rates = {name: RATES[name] * dice.uniform(0.9, 1.1) for name in names}
        ratio = dice.choice([1.1, 1.25, 1.5, 2.0])
        steps = round(hours * 3600 * rates["V100"])
        lines += [
            f"  - name: job-{number:02d}",
            "    command: 'true'",
            f"    steps: {steps}",
            f"    accelerators: {{{', '.join(f'{name}: 1' for name in names)}}}",
            f"    throughput: {{{', '.join(f'{k}: {v:.4f}' for k, v in rates.items())}}}",
            f"    deadline: {round(hours * ratio * 3600 + 300)}s",
            f"    checkpoint: {{path: ckpt, every: auto, save: {dice.choice([5, 30])}s}}",
        ]
    text = "\n".join(lines)
    return parse_run(text, source="made-up", base_dir="/", environment={}, now_s=NOW_S)


def harsh(seed: int) -> SeededMarket:
    """Capacity away half of the time, in spells of about an hour."""
    return SeededMarket(
        seed=seed,
        interruptions_per_hour=0.33,
        outages=Outages(mean_gap_s=1.5 * HOUR_S, mean_outage_s=1.5 * HOUR_S),
        price_walk=PriceWalk(step_s=HOUR_S, volatility=0.08),
        origin_s=NOW_S,
    )


def traced(offers: Sequence[Offer], folder: Path, seed: int) -> TraceMarket:
    """Every spot offer follows one of the folder's traces from a start of its own."""
    dice = Random(seed)
    traces = [parse_availability_trace(path.read_text()) for path in sorted(folder.glob("*.json"))]
    found = {}
    for offer in offers:
        if offer.capacity_type is CapacityType.SPOT:
            trace = dice.choice(traces)
            begin = dice.randrange(len(trace.available))
            turned = (*trace.available[begin:], *trace.available[:begin])
            found[offer.offer_id] = AvailabilityTrace(gap_s=trace.gap_s, available=turned)
    return TraceMarket(traces=found, origin_s=NOW_S)


def one_place(offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """Keep the cheapest offer of each kind."""
    kept: dict[tuple[str, int, str], Offer] = {}
    for offer in sorted(offers, key=lambda each: (each.price_usd_per_hour or 0.0, each.offer_id)):
        key = (offer.accelerator, offer.accelerators_per_instance, offer.capacity_type.value)
        kept.setdefault(key, offer)
    return tuple(sorted(kept.values(), key=lambda each: each.offer_id))


def one_run(workload: str, seed: int, data: Path, policy: str) -> dict[str, float]:
    """Play one market to its end."""
    if workload == "quickstart":
        run, kind = quickstart(), "mild"
    else:
        count, _, kind = workload.partition("-")
        run = made_up(int(count), seed)
    offers = cheapest_places(rehearsal_offers(run, bundled_catalog()))
    if kind == "narrow":
        offers = one_place(offers)
    market: Market
    if kind == "mild":
        market = dataclasses.replace(rehearsal_market(run, NOW_S), seed=seed)
    elif kind == "harsh":
        market = harsh(seed)
    else:
        market = traced(offers, data, seed)
    chosen = policy_named(policy)
    if hasattr(chosen, "explained_count"):
        chosen = dataclasses.replace(chosen, explained_count=0)  # type: ignore[type-var]
    begin = time.process_time()
    done = virtual_run(
        run,
        offers=offers,
        market=market,
        decide=bind_policy(chosen),
        now_s=NOW_S,
        budget_usd=None,
        best_effort=True,
    )
    jobs = done.state.jobs.values()
    return {
        "usd": done.state.spent_usd,
        "misses": sum(deadline_met(job, done.state) is not True for job in jobs),
        "moves": sum(job.moves for job in jobs),
        "lost": sum(job.interruptions for job in jobs),
        "decisions": done.state.decisions,
        "cpu_s": time.process_time() - begin,
    }


def main(arguments: Sequence[str]) -> None:
    """Print one line per workload."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--data", type=Path, default=Path("data/spot_traces"))
    parser.add_argument("--policy", default="min_cost")
    parser.add_argument("--out", type=Path, help="every run, as JSON lines")
    asked = parser.parse_args(arguments)
    print(
        f"{'workload':<12}{'mean USD':>10}{'of on demand':>14}{'misses':>8}{'moves':>7}"
        f"{'taken':>7}{'CPU s':>8}"
    )
    for workload in asked.workloads or WORKLOADS:
        runs = [one_run(workload, seed, asked.data, asked.policy) for seed in range(asked.seeds)]
        plain = [
            one_run(workload, seed, asked.data, "on_demand_only") for seed in range(asked.seeds)
        ]
        if asked.out is not None:
            with asked.out.open("a") as file:
                for seed, (run, bare) in enumerate(zip(runs, plain, strict=True)):
                    line = {"workload": workload, "seed": seed, **run, "on_demand_usd": bare["usd"]}
                    file.write(json.dumps(line) + "\n")
        mean = statistics.fmean(run["usd"] for run in runs)
        share = statistics.fmean(
            run["usd"] / bare["usd"] for run, bare in zip(runs, plain, strict=True)
        )
        print(
            f"{workload:<12}{mean:>10.2f}{share:>14.3f}"
            f"{sum(run['misses'] for run in runs):>8.0f}{sum(run['moves'] for run in runs):>7.0f}"
            f"{sum(run['lost'] for run in runs):>7.0f}"
            f"{statistics.median(run['cpu_s'] for run in runs):>8.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
