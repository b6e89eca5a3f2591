"""How long one decision takes, and the weighing of spot in it: 50, 200 and 1,000 jobs x 40 offers.

CPU seconds: with no tables of the spot decision process yet, and with those of the round before.

Run: ``python benchmarks/decide.py [policy] [jobs ...]`` (default: min_cost, and without a solver).
"""

import sys
import time
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from unittest.mock import patch

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.jobs.spec import AcceleratorRequest, JobSpec
from cloudgavel.mechanism import decide as deciding
from cloudgavel.mechanism.fallback import greedy_allocation
from cloudgavel.mechanism.fleet import Instance, InstanceState
from cloudgavel.mechanism.plan import RoundPlan
from cloudgavel.mechanism.state import ClusterState, JobView
from cloudgavel.mechanism.weigh_spot import Weighing, weigh_spot
from cloudgavel.policies.allocation import Allocation
from cloudgavel.policies.base import Policy
from cloudgavel.policies.problem import AllocationProblem
from cloudgavel.policies.spot.tables import TableShelf
from cloudgavel.pricing.offer import CapacityType, Offer

NOW_S = 1_800_000_000.0
KINDS = {
    "T4": (0.5, 1.0),
    "V100": (3.0, 3.0),
    "A100": (4.0, 8.0),
    "L4": (0.8, 1.6),
    "H100": (8.0, 16.0),
}
"""USD per hour on demand, and steps per second, of one accelerator."""


class WithoutSolver:
    """The greedy stand-in: what is left is the mechanism's own time."""

    name = "greedy"
    summary = "no solver"
    source = "benchmark"

    def allocate(self, problem: AllocationProblem) -> Allocation:
        return greedy_allocation(problem, "")


def offers() -> tuple[Offer, ...]:
    """Five accelerators x two sizes x two zones x spot and on demand: 40."""
    found = []
    for name, (price, _) in KINDS.items():
        for size in (1, 8):
            for zone in ("a", "b"):
                for kind in (CapacityType.ON_DEMAND, CapacityType.SPOT):
                    share = 1.0 if kind is CapacityType.ON_DEMAND else 0.35
                    found.append(
                        Offer(
                            provider="aws",
                            region="us-east-1",
                            zone=f"use1-{zone}",
                            instance_type=f"{name.lower()}.{size}x",
                            accelerator=name,
                            accelerators_per_instance=size,
                            shareable=True,
                            vcpus=8.0 * size,
                            memory_gib=64.0 * size,
                            capacity_type=kind,
                            price_usd_per_hour=price * size * share * (1.0 if zone == "a" else 1.2),
                            interruption_rate_per_hour=0.08,
                            observed_at_s=NOW_S,
                            source="benchmark",
                        )
                    )
    return tuple(found)


def a_state(count: int) -> ClusterState:
    """``count`` jobs, a third of them running already, two thirds with deadlines."""
    dice = Random(count)
    available = offers()
    jobs: list[JobView] = []
    instances: list[Instance] = []
    for number in range(count):
        asked = tuple(
            AcceleratorRequest(accelerator=name, count=gang)
            for name in dice.sample(sorted(KINDS), 3)
            for gang in (1, 8)
        )
        rates = {
            each.label: KINDS[each.accelerator][1] * each.count**0.9 * dice.uniform(0.7, 1.3)
            for each in asked
        }
        name = f"job-{number:04d}"
        job = JobView(
            spec=JobSpec(
                name=name,
                commands={"any": "true"},
                steps_total=dice.randint(10_000, 400_000),
                accelerators=asked,
                weight=dice.choice([1.0, 2.0, 4.0]),
            ),
            phase=JobPhase.WAITING,
            steps_done=0,
            saved_steps=0,
            deadline_at_s=NOW_S + dice.uniform(30, 90) * 3600 if number % 3 else None,
            throughput_steps_per_s=rates,
        )
        if number % 3 == 0:
            offer = next(
                each
                for each in available
                if each.accelerator == asked[0].accelerator and each.capacity_type == "spot"
            )
            instance = Instance(
                instance_id=f"i-{number:04d}",
                offer=offer,
                state=InstanceState.READY,
                price_usd_per_hour=offer.price_usd_per_hour or 0.0,
                launched_at_s=NOW_S - 3600,
                ready_at_s=NOW_S - 3500,
            )
            instances.append(instance)
            job = replace(
                job,
                phase=JobPhase.RUNNING,
                instance_ids=(instance.instance_id,),
                request=asked[0],
                accelerator_indices=(0,),
                steps_done=5_000,
                saved_steps=4_000,
            )
        jobs.append(job)
    return ClusterState(
        run_id="benchmark",
        now_s=NOW_S,
        created_at_s=NOW_S - 3600,
        round_number=10,
        round_s=360.0,
        jobs=tuple(jobs),
        instances=tuple(instances),
        offers=available,
        budget_usd=50.0 * count,
    )


def main(names: list[str]) -> None:
    """Print one line per policy and size."""
    sizes = [int(each) for each in names if each.isdigit()] or [50, 200, 1000]
    wanted = [each for each in names if not each.isdigit()]
    policies: list[Policy] = [WithoutSolver()]
    if wanted != ["greedy"]:
        from cloudgavel.policies.registry import policy_named

        policies.extend(policy_named(each) for each in wanted or ["min_cost"])
    print(
        f"{'policy':<16}{'jobs':>6}{'offers':>8}{'columns':>9}{'weighed':>9}"
        f"{'cold s':>8}{'weighing':>10}{'warm s':>8}{'weighing':>10}{'actions':>9}"
    )
    for policy in policies:
        for count in sizes:
            state = a_state(count)
            from cloudgavel.mechanism.situation import arrange

            columns = len(arrange(state).columns)
            shelf = TableShelf()
            cold, warm, again = (_timed(state, policy, shelf) for _ in range(3))
            warm = min(warm, again, key=lambda each: each.decide_s)
            print(
                f"{policy.name:<16}{count:>6}{len(state.offers):>8}{columns:>9}"
                f"{len(cold.plan.spot):>9}{cold.decide_s:>8.2f}{cold.weighing_s:>10.2f}"
                f"{warm.decide_s:>8.2f}{warm.weighing_s:>10.2f}{len(cold.plan.actions):>9}"
            )


@dataclass(frozen=True, slots=True)
class _Timed:
    plan: RoundPlan
    decide_s: float
    weighing_s: float


def _timed(state: ClusterState, policy: Policy, shelf: TableShelf) -> _Timed:
    spent_s = 0.0

    def weighing(*arguments: Any) -> Weighing:
        nonlocal spent_s
        begin = time.process_time()
        found = weigh_spot(*arguments)
        spent_s += time.process_time() - begin
        return found

    begin = time.process_time()
    with patch.object(deciding, "weigh_spot", weighing):
        plan = deciding.decide(state, policy, shelf)
    return _Timed(plan, time.process_time() - begin, spent_s)


if __name__ == "__main__":
    main(sys.argv[1:])
