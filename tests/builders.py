"""Builders: defaults for everything but what a test is about."""

from dataclasses import replace
from typing import Any

import numpy as np

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.jobs.spec import AcceleratorRequest, CheckpointPlan, JobSpec
from cloudgavel.mechanism.fallback import greedy_allocation
from cloudgavel.mechanism.fleet import Instance, InstanceState
from cloudgavel.mechanism.state import ClusterState, JobView
from cloudgavel.policies.allocation import Allocation, AllocationStatus
from cloudgavel.policies.problem import AllocationProblem, JobRow, Pool
from cloudgavel.pricing.offer import CapacityType, Offer

NOW_S = 1_800_000_000.0
V100 = AcceleratorRequest(accelerator="V100")
T4 = AcceleratorRequest(accelerator="T4")
RATES = {"V100": 10.0, "T4": 3.0, "A100": 25.0, "A100:8": 180.0, "V100:8": 72.0, "tpu-v3-8": 30.0}


def a_request(label: str = "V100") -> AcceleratorRequest:
    """``V100`` or ``A100:8``."""
    name, _, count = label.partition(":")
    return AcceleratorRequest(accelerator=name, count=int(count or 1))


def an_offer(
    accelerator: str = "V100",
    *,
    spot: bool = False,
    price: float | None = 3.0,
    zone: str = "use1-az1",
    size: int = 1,
    **changes: Any,
) -> Offer:
    """One instance type per accelerator and size, on demand at $3/h unless told otherwise."""
    fields: dict[str, Any] = {
        "provider": "aws",
        "region": "us-east-1",
        "zone": zone,
        "instance_type": f"box.{accelerator}x{size}",
        "accelerator": accelerator,
        "accelerators_per_instance": size,
        "shareable": True,
        "vcpus": 8.0,
        "memory_gib": 61.0,
        "capacity_type": CapacityType.SPOT if spot else CapacityType.ON_DEMAND,
        "price_usd_per_hour": price,
        "interruption_rate_per_hour": 0.1 if spot else None,
        "observed_at_s": NOW_S,
        "source": "test",
    }
    return Offer(**(fields | changes))


def a_spec(name: str = "job", *, steps: int = 36_000, on: str = "V100", **changes: Any) -> JobSpec:
    """An hour of work on a V100; ``on`` lists labels, blank separated."""
    fields: dict[str, Any] = {
        "name": name,
        "commands": {"any": "python train.py"},
        "steps_total": steps,
        "accelerators": tuple(a_request(each) for each in on.split()),
        "checkpoint": CheckpointPlan(save_s=30.0, restore_s=60.0),
    }
    return JobSpec(**(fields | changes))


def a_job(
    name: str = "job",
    *,
    steps: int = 36_000,
    on: str = "V100",
    deadline_in_s: float | None = None,
    rates: dict[str, float] | None = None,
    spec: dict[str, Any] | None = None,
    **changes: Any,
) -> JobView:
    """A waiting job; ``deadline_in_s`` counts from ``NOW_S``, ``spec`` changes its spec."""
    asked = a_spec(name, steps=steps, on=on, **(spec or {}))
    known = rates or {label: RATES[label] for label in on.split()}
    fields: dict[str, Any] = {
        "spec": asked,
        "phase": JobPhase.WAITING,
        "steps_done": 0,
        "saved_steps": 0,
        "deadline_at_s": None if deadline_in_s is None else NOW_S + deadline_in_s,
        "throughput_steps_per_s": known,
    }
    return JobView(**(fields | changes))


def on_machine(job: JobView, *instances: Instance, **changes: Any) -> JobView:
    """The job, running on these instances since its start."""
    request = next(
        each for each in job.spec.accelerators if each.accelerator == instances[0].offer.accelerator
    )
    fields: dict[str, Any] = {
        "phase": JobPhase.RUNNING,
        "attempt": 1,
        "instance_ids": tuple(each.instance_id for each in instances),
        "request": request,
        "accelerator_indices": tuple(
            range(min(request.count, instances[0].offer.accelerators_per_instance))
        ),
        "placed_at_s": NOW_S - 600,
        "started_at_s": NOW_S - 600,
    }
    return replace(job, **(fields | changes))


def an_instance(
    offer: Offer | None = None,
    *,
    instance_id: str = "i-1",
    state: InstanceState = InstanceState.READY,
    **changes: Any,
) -> Instance:
    """A machine that has been ready for ten minutes."""
    offer = offer or an_offer()
    fields: dict[str, Any] = {
        "instance_id": instance_id,
        "offer": offer,
        "state": state,
        "price_usd_per_hour": offer.price_usd_per_hour,
        "launched_at_s": NOW_S - 900,
        "ready_at_s": NOW_S - 600 if state is InstanceState.READY else None,
    }
    return Instance(**(fields | changes))


def a_state(*jobs: JobView, **changes: Any) -> ClusterState:
    """A run with $1,000, V100 on demand at $3 and spot at $1, rounds of six minutes."""
    fields: dict[str, Any] = {
        "run_id": "run",
        "now_s": NOW_S,
        "created_at_s": NOW_S,
        "round_number": 1,
        "round_s": 360.0,
        "jobs": jobs,
        "instances": (),
        "offers": (an_offer(), an_offer(spot=True, price=1.0)),
        "budget_usd": 1000.0,
    }
    return ClusterState(**(fields | changes))


def a_pool(label: str = "V100", **changes: Any) -> Pool:
    """A column of one V100 on demand at $3."""
    fields: dict[str, Any] = {
        "label": label,
        "offer_id": label,
        "accelerator": "V100",
        "capacity_type": CapacityType.ON_DEMAND,
        "gang_size": 1,
        "accelerators_per_instance": 1,
        "shareable": True,
        "price_usd_per_hour": 3.0,
    }
    return Pool(**(fields | changes))


def a_problem(
    rows: tuple[JobRow, ...], pools: tuple[Pool, ...], rates: Any = 10.0, **changes: Any
) -> AllocationProblem:
    """A problem in which every job runs in every pool, change-overs of four minutes."""
    shape = (len(rows), len(pools))
    fields: dict[str, Any] = {
        "jobs": rows,
        "pools": pools,
        "throughput_steps_per_s": np.broadcast_to(np.asarray(rates, dtype=float), shape).copy(),
        "feasible": np.ones(shape, dtype=bool),
        "change_over_s": np.full(shape, 240.0),
    }
    return AllocationProblem(**(fields | changes))


class GreedyPolicy:
    """Every job on its cheapest way in time: what the round falls back to, as a policy."""

    name = "greedy"
    summary = "cheapest way in time, job by job"
    source = "tests"

    def allocate(self, problem: AllocationProblem) -> Allocation:
        return replace(greedy_allocation(problem, ""), status=AllocationStatus.OPTIMAL, message="")


class FailingPolicy:
    """A policy whose solver is broken."""

    name = "broken"
    summary = "raises"
    source = "tests"

    def allocate(self, problem: AllocationProblem) -> Allocation:
        raise ArithmeticError("the matrix is singular")


class FixedPolicy:
    """Sends every job to the columns whose label contains a word; nothing where none does."""

    name = "fixed"
    summary = "for tests"
    source = "tests"

    def __init__(self, *words: str) -> None:
        self.words = words

    def allocate(self, problem: AllocationProblem) -> Allocation:
        shares = np.zeros((len(problem.jobs), len(problem.pools)))
        for row in range(len(problem.jobs)):
            for column, pool in enumerate(problem.pools):
                if problem.feasible[row, column] and all(w in pool.label for w in self.words):
                    shares[row, column] = 1.0
                    break
        return Allocation(status=AllocationStatus.OPTIMAL, shares=shares)
