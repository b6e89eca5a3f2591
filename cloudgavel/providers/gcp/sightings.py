"""What this process saw of its machines: starts by our clock, ends, and how they came about."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cloudgavel.providers.base import EndReason, LaunchRequest, ListedInstance, MachineState
from cloudgavel.providers.gcp.compute import (
    NOTICE_S,
    Created,
    Ending,
    Machines,
    Stories,
    preempted_at_s,
)
from cloudgavel.providers.gcp.failures import call_failed
from cloudgavel.providers.gcp.tpu import Slices
from cloudgavel.providers.gcp.translate import GcpMachine, instance_name, is_tpu_offer

log = logging.getLogger("cloudgavel.gcp")

REPLAY_AGE_S = 150.0
"""A machine this much older than the call that returned it was started by an earlier call.

More than two minutes: so far apart two clocks may be."""


@dataclass(slots=True)
class Sighting:
    """What this process saw of one machine."""

    listed: ListedInstance
    zone: str
    is_tpu: bool
    asked_to_end_at_s: float | None = None
    deletion: str | None = None
    """The operation that deletes it."""
    open_insertion: str | None = None
    """The operation that makes it, while it is undecided."""
    never_was: bool = False
    """That operation failed after all: nothing was rented."""


class Sightings:
    """Turns descriptions into lines of a list; safe between threads.

    Instants are our clock's where this process was there, Google's otherwise. A machine that was
    seen to have ended does not change any more.
    """

    def __init__(
        self,
        *,
        now_s: Callable[[], float],
        lifetime_s: float,
        machines: Machines,
        slices: Slices,
        price_of: Callable[[str, float | None], float | None],
        boot_s_of: Callable[[str], float],
    ) -> None:
        """``price_of(offer_id, at_s)``: USD per hour if known; ``boot_s_of(offer_id)``."""
        self._now_s = now_s
        self._lifetime_s = lifetime_s
        self._machines = machines
        self._slices = slices
        self._price_of = price_of
        self._boot_s_of = boot_s_of
        self._known: dict[str, Sighting] = {}
        self._lock = threading.Lock()

    def get(self, instance_id: str) -> Sighting | None:
        """Return what is known of a machine."""
        with self._lock:
            return self._known.get(instance_id)

    def of_run(self, run_id: str) -> dict[str, Sighting]:
        """Return what is known of a run's machines, by id."""
        with self._lock:
            return {
                instance_id: known
                for instance_id, known in self._known.items()
                if known.listed.run_id == run_id
            }

    def launched(
        self, created: Created, request: LaunchRequest, asked_at_s: float
    ) -> ListedInstance:
        """Take note of what a launch gave; a machine of a token used before may be long over."""
        name, offer, machine = instance_name(request), request.offer, created.machine
        with self._lock:
            known = self._known.get(name)
            if known is None:
                said_s = machine.created_at_s if machine is not None else None
                here = said_s is None or said_s > asked_at_s - REPLAY_AGE_S
                launched_at_s = asked_at_s if here or said_s is None else said_s
                known = self._known[name] = Sighting(
                    listed=self._first_line(
                        instance_id=name,
                        token=request.token,
                        run_id=request.run_id,
                        offer_id=offer.offer_id,
                        launched_at_s=launched_at_s,
                    ),
                    zone=offer.zone,
                    is_tpu=is_tpu_offer(offer),
                )
            known.open_insertion = created.open_operation
        if machine is not None:
            return self.seen(machine, Stories())
        if created.existed and known.listed.state is not MachineState.TERMINATED:
            return self.gone(name, known, Stories())
        return known.listed

    def asked_to_end(self, known: Sighting, deletion: str | None) -> None:
        """Take note of an end that was asked for, by which operation."""
        with self._lock:
            if known.asked_to_end_at_s is None:
                known.asked_to_end_at_s = self._now_s()
            known.deletion = known.deletion or deletion

    def seen(self, machine: GcpMachine, stories: Stories) -> ListedInstance:
        """Bring what is known of one machine up to date with its description."""
        now_s = self._now_s()
        known = self.get(machine.instance_id) or self._met(machine, now_s)
        before = known.listed
        if before.state is MachineState.TERMINATED:
            return before
        state, notice_ends_at_s, reason, ended_at_s = machine.state, None, None, None
        if state is MachineState.TERMINATED:
            reason, traced_at_s = self._why(machine.instance_id, known, now_s, stories, machine)
            ended_at_s = machine.ended_at_s if machine.ended_at_s is not None else traced_at_s
            ended_at_s = _between(before.launched_at_s, ended_at_s, now_s)
        elif (
            state is MachineState.TERMINATING
            and known.asked_to_end_at_s is None
            and not machine.is_tpu
        ):
            taken_at_s = preempted_at_s(self._endings(machine.zone, machine.instance_id, stories))
            if taken_at_s is not None:
                # It still runs, and may save, for as long as the cloud's notice lasts.
                state, notice_ends_at_s = MachineState.RUNNING, taken_at_s + NOTICE_S
        return self._write_down(
            known,
            state=state,
            ended_at_s=ended_at_s,
            reason=reason,
            notice_ends_at_s=notice_ends_at_s,
        )

    def gone(self, instance_id: str, known: Sighting, stories: Stories) -> ListedInstance:
        """A machine that Google no longer knows has ended; find out how, and when."""
        now_s = self._now_s()
        reason, at_s = self._why(instance_id, known, now_s, stories, None)
        if known.never_was:
            at_s = known.listed.launched_at_s
        return self._write_down(
            known,
            state=MachineState.TERMINATED,
            ended_at_s=_between(known.listed.launched_at_s, at_s, now_s),
            reason=reason,
            notice_ends_at_s=known.listed.notice_ends_at_s,
        )

    def _why(
        self,
        instance_id: str,
        known: Sighting,
        now_s: float,
        stories: Stories,
        machine: GcpMachine | None,
    ) -> tuple[EndReason, float | None]:
        """Return why a machine ended and, if it is told, when."""
        if known.is_tpu:
            if machine is not None and machine.status in ("PREEMPTED", "SUSPENDING", "SUSPENDED"):
                return EndReason.INTERRUPTED, None
            if known.asked_to_end_at_s is not None:
                return EndReason.REQUESTED, self._deleted_at_s(known)
            return EndReason.VANISHED, None
        endings = self._endings(known.zone, instance_id, stories)
        taken_at_s = preempted_at_s(endings)
        asked_at_s = known.asked_to_end_at_s
        if asked_at_s is not None and (taken_at_s is None or asked_at_s < taken_at_s):
            return EndReason.REQUESTED, self._deleted_at_s(known)
        if taken_at_s is not None:
            return EndReason.INTERRUPTED, taken_at_s + NOTICE_S
        if now_s - known.listed.launched_at_s >= self._lifetime_s:
            return EndReason.EXPIRED, endings[-1].at_s if endings else None
        if endings:
            return endings[-1].reason, endings[-1].at_s
        return EndReason.VANISHED, None

    def _endings(self, zone: str, instance_id: str, stories: Stories) -> Sequence[Ending]:
        try:
            return self._machines.endings(zone, instance_id, stories)
        except Exception as error:
            log.warning("%s", call_failed(error, f"read the operations of {zone}").message)
            return []

    def _deleted_at_s(self, known: Sighting) -> float | None:
        if known.deletion is None:
            return None
        try:
            if known.is_tpu:
                return self._slices.done_at_s(known.deletion)
            return self._machines.done_at_s(known.zone, known.deletion)
        except Exception as error:
            log.warning("%s", call_failed(error, f"look at {known.deletion}").message)
            return None

    def _met(self, machine: GcpMachine, now_s: float) -> Sighting:
        """Begin to know a machine of an earlier process."""
        said_s = machine.created_at_s
        launched_at_s = now_s if said_s is None else min(said_s, now_s)
        listed = self._first_line(
            instance_id=machine.instance_id,
            token=machine.token,
            run_id=machine.run_id,
            offer_id=machine.offer_id,
            launched_at_s=launched_at_s,
        )
        with self._lock:
            return self._known.setdefault(
                machine.instance_id,
                Sighting(listed=listed, zone=machine.zone, is_tpu=machine.is_tpu),
            )

    def _write_down(
        self,
        known: Sighting,
        *,
        state: MachineState,
        ended_at_s: float | None,
        reason: EndReason | None,
        notice_ends_at_s: float | None,
    ) -> ListedInstance:
        before = known.listed
        price = self._price_of(before.offer_id, ended_at_s)
        known.listed = ListedInstance(
            instance_id=before.instance_id,
            token=before.token,
            run_id=before.run_id,
            offer_id=before.offer_id,
            state=state,
            launched_at_s=before.launched_at_s,
            price_usd_per_hour=before.price_usd_per_hour if price is None else price,
            expected_ready_at_s=before.expected_ready_at_s,
            ended_at_s=ended_at_s,
            end_reason=reason,
            notice_ends_at_s=notice_ends_at_s or before.notice_ends_at_s,
        )
        return known.listed

    def _first_line(
        self, *, instance_id: str, token: str, run_id: str, offer_id: str, launched_at_s: float
    ) -> ListedInstance:
        launched_at_s = min(launched_at_s, self._now_s())
        return ListedInstance(
            instance_id=instance_id,
            token=token,
            run_id=run_id,
            offer_id=offer_id,
            state=MachineState.PENDING,
            launched_at_s=launched_at_s,
            price_usd_per_hour=self._price_of(offer_id, None) or 0.0,
            expected_ready_at_s=launched_at_s + self._boot_s_of(offer_id),
        )


def _between(low_s: float, at_s: float | None, high_s: float) -> float:
    """An instant that is told, kept within what we know; untold: now, when it was missed."""
    return high_s if at_s is None else max(low_s, min(at_s, high_s))
