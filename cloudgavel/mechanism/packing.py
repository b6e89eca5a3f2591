"""Machines and the accelerators on them: who sits where, and where there is room."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from cloudgavel.mechanism.columns import Column, same_kind
from cloudgavel.mechanism.fleet import Instance, InstanceState
from cloudgavel.mechanism.situation import Situation, is_placed
from cloudgavel.mechanism.state import ClusterState
from cloudgavel.pricing.offer import Offer


@dataclass(slots=True)
class Machine:
    """A live machine, or one that this plan launches, while the plan is being made."""

    machine_id: str
    """Instance id, or the token of a launch."""
    offer: Offer
    usd_per_hour: float
    size: int
    """Accelerators on it."""
    ready: bool
    usable: bool
    new: bool = False
    offers: tuple[Offer, ...] = ()
    """Acceptable offers of a launch."""
    column: int | None = None
    """Column of a launch."""
    seats: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Accelerators by job: processes that are there and jobs that are to come."""
    intended: set[str] = field(default_factory=set)

    def free(self, count: int) -> tuple[int, ...] | None:
        """The lowest ``count`` accelerators that nobody has, or ``None``."""
        if self.size - sum(len(indices) for indices in self.seats.values()) < count:
            return None
        taken = {index for indices in self.seats.values() for index in indices}
        left = [index for index in range(self.size) if index not in taken]
        return tuple(left[:count]) if len(left) >= count else None

    @property
    def idle(self) -> bool:
        """Nobody is on it and nobody is to come."""
        return not self.seats


def machines_of(situation: Situation) -> dict[str, Machine]:
    """Live machines with the processes on them; indices that are unknown are the lowest free."""
    machines = {
        each.instance_id: _machine(each)
        for each in sorted(situation.state.instances, key=lambda item: item.instance_id)
    }
    placed = [job for job in situation.state.jobs if job.active and is_placed(job)]
    # Known indices first, so that guesses never overlap them.
    placed.sort(key=lambda job: (not job.accelerator_indices, job.placed_at_s or 0, job.spec.name))
    for job in placed:
        for instance_id in job.instance_ids:
            machine = machines.get(instance_id)
            if machine is None:
                continue
            count = 1 if job.request is None else min(job.request.count, machine.size)
            indices = job.accelerator_indices or machine.free(count) or ()
            machine.seats[job.spec.name] = indices
    return machines


def fits_on(column: Column, machine: Machine) -> bool:
    """Whether a column's gang (or its part) may sit on this machine."""
    return machine.usable and same_kind(column, machine.offer)


def zone_groups(machines: Iterable[Machine], column: Column) -> list[list[Machine]]:
    """Idle machines of the column's kind by zone, for gangs over several machines."""
    groups: dict[str, list[Machine]] = {}
    for machine in machines:
        if fits_on(column, machine) and machine.idle and not machine.intended:
            groups.setdefault(machine.offer.zone, []).append(machine)
    return [
        sorted(group, key=lambda each: (not each.ready, each.machine_id))
        for _, group in sorted(groups.items())
        if len(group) >= column.instance_count
    ]


Kind = tuple[str, str, str, str, int]
"""Cloud, type, capacity type, accelerator and size: machines of one kind are interchangeable."""


def kind_of(offer: Offer) -> Kind:
    """The kind of the machines of an offer."""
    return (
        offer.provider,
        offer.instance_type,
        str(offer.capacity_type),
        offer.accelerator,
        offer.accelerators_per_instance,
    )


class Room:
    """What quotas and ``max_usd_per_hour`` leave, all live machines counted."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._used = {each.name: 0.0 for each in state.quotas}
        self._usd_per_hour = 0.0
        for machine in state.instances:
            self.take(machine.offer.offer_id, machine.price_usd_per_hour, 1)

    def has(self, offer_id: str, usd_per_hour: float, count: int) -> bool:
        """Whether ``count`` more instances of an offer fit."""
        cap = self._state.max_usd_per_hour
        if cap is not None and self._usd_per_hour + usd_per_hour * count > cap + 1e-9:
            return False
        return all(
            self._used[each.name] + each.units_per_instance.get(offer_id, 0.0) * count
            <= each.limit + 1e-9
            for each in self._state.quotas
            if each.units_per_instance.get(offer_id, 0.0) > 0
        )

    def take(self, offer_id: str, usd_per_hour: float, count: int) -> None:
        """Count ``count`` more instances (fewer when negative)."""
        self._usd_per_hour += usd_per_hour * count
        for each in self._state.quotas:
            self._used[each.name] += each.units_per_instance.get(offer_id, 0.0) * count


def _machine(instance: Instance) -> Machine:
    return Machine(
        machine_id=instance.instance_id,
        offer=instance.offer,
        usd_per_hour=instance.price_usd_per_hour,
        size=instance.offer.accelerators_per_instance,
        ready=instance.state is InstanceState.READY,
        usable=instance.usable,
        intended=set(instance.intended_jobs),
    )
