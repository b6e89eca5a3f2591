"""One rented instance as the simulated cloud knows it, and the changes it goes through."""

from dataclasses import dataclass
from enum import StrEnum

from cloudgavel.providers.base import EndReason, MachineState


class ChangeKind(StrEnum):
    """What happened to a machine."""

    READY = "ready"
    NOTICE = "notice"
    ENDING = "ending"
    """Its end was asked for: nothing runs on it any more, it still bills."""
    ENDED = "ended"


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineChange:
    """One transition of one machine, told to whoever lives on it."""

    at_s: float
    kind: ChangeKind
    instance_id: str
    ends_at_s: float | None = None
    """Of a notice: when the machine will be taken."""
    reason: EndReason | None = None
    """Of an end."""


@dataclass(kw_only=True, slots=True)
class Rented:
    """One instance as the cloud knows it, its future included."""

    instance_id: str
    token: str
    run_id: str
    offer_id: str
    launched_at_s: float
    ready_at_s: float
    expected_ready_at_s: float
    launch_price_usd_per_hour: float
    state: MachineState = MachineState.PENDING
    interrupted_at_s: float | None = None
    notice_at_s: float | None = None
    noticed: bool = False
    vanishes_at_s: float | None = None
    end_confirmed_at_s: float | None = None
    ended_at_s: float | None = None
    end_reason: EndReason | None = None

    @property
    def live(self) -> bool:
        """True while it can carry work."""
        return self.state in (MachineState.PENDING, MachineState.RUNNING)

    def next_change(self) -> tuple[float, ChangeKind, EndReason | None] | None:
        """Return its next transition: instant, kind and, of an end, why."""
        if self.state is MachineState.TERMINATED:
            return None
        if self.state is MachineState.TERMINATING:
            assert self.end_confirmed_at_s is not None
            return self.end_confirmed_at_s, ChangeKind.ENDED, EndReason.REQUESTED
        ahead: list[tuple[float, int, ChangeKind, EndReason | None]] = []
        if self.state is MachineState.PENDING:
            ahead.append((self.ready_at_s, 0, ChangeKind.READY, None))
        if self.notice_at_s is not None and not self.noticed:
            ahead.append((self.notice_at_s, 1, ChangeKind.NOTICE, None))
        if self.interrupted_at_s is not None:
            ahead.append((self.interrupted_at_s, 2, ChangeKind.ENDED, EndReason.INTERRUPTED))
        if self.vanishes_at_s is not None:
            ahead.append((self.vanishes_at_s, 2, ChangeKind.ENDED, EndReason.VANISHED))
        if not ahead:
            return None
        at_s, _, kind, reason = min(ahead, key=lambda change: change[:2])
        return at_s, kind, reason
