"""The places of a round: what placing answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cloudgavel.mechanism.guards.safety_net import kept_on_demand
from cloudgavel.mechanism.packing import Machine
from cloudgavel.mechanism.situation import Situation
from cloudgavel.mechanism.state import JobView


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Where one job is to be."""

    job: str
    column: int
    machine_ids: tuple[str, ...]
    indices: tuple[int, ...]
    """Accelerators on each of the machines."""
    stays: bool
    """Its process is there already."""
    reason: str


@dataclass(kw_only=True)
class Assignment:
    """The places of a round."""

    machines: dict[str, Machine]
    placements: dict[str, Placement] = field(default_factory=dict)
    launches: list[Machine] = field(default_factory=list)
    stops: dict[str, str] = field(default_factory=dict)
    """Jobs to save and stop without a new place yet, and why."""
    waits: dict[str, str] = field(default_factory=dict)
    """Jobs that get nothing, and why."""
    short_of_money: set[str] = field(default_factory=set)
    waits_until_at_s: dict[str, float] = field(default_factory=dict)
    """When jobs that wait for spot stop waiting."""


def stay_of(situation: Situation, machines: Mapping[str, Machine], job: JobView) -> Placement:
    """The placement of a job that stays on the usable machines it is on."""
    name = job.spec.name
    return Placement(
        job=name,
        column=situation.held[name],
        machine_ids=job.instance_ids,
        indices=machines[job.instance_ids[0]].seats.get(name, ()),
        stays=True,
        reason="it stays where it is",
    )


def stays_on_demand(situation: Situation, moves: Mapping[str, int]) -> dict[str, int]:
    """Jobs that stay on demand, or whose on-demand machine is on its way, with the column."""
    kept = {}
    for job in situation.jobs:
        if job.spec.name in moves:
            continue
        column = kept_on_demand(situation, job)
        if column is not None:
            kept[job.spec.name] = column
    return kept
