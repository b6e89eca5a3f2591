"""The states of a job and the one table of changes between them that are allowed."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from cloudgavel.errors import BugError


class JobPhase(StrEnum):
    """Where a job stands; the words that people and documents use."""

    WAITING = "WAITING"
    """On no machine: not arrived, behind other jobs, held back by a decision, or interrupted."""
    STARTING = "STARTING"
    """A machine is booting, setting up or restoring for it."""
    RUNNING = "RUNNING"
    """Steps are being made."""
    SAVING = "SAVING"
    """Ordered to write a checkpoint and stop, or to write one and go on."""
    MOVING = "MOVING"
    """Saved in one place and on its way to another."""
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_final(self) -> bool:
        """Whether nothing follows any more."""
        return not ALLOWED_TRANSITIONS[self]


_P = JobPhase
_ENDS: Final = (_P.FAILED, _P.CANCELLED)

ALLOWED_TRANSITIONS: Final[Mapping[JobPhase, frozenset[JobPhase]]] = MappingProxyType(
    {
        # Fails while waiting when a job that it is `after` failed, or its duration is used up.
        _P.WAITING: frozenset((_P.STARTING, *_ENDS)),
        # A short job may be seen finished without having been seen running.
        _P.STARTING: frozenset((_P.RUNNING, _P.SAVING, _P.WAITING, _P.FINISHED, *_ENDS)),
        # RUNNING -> STARTING is a retry in place, RUNNING -> WAITING an interruption.
        _P.RUNNING: frozenset((_P.SAVING, _P.MOVING, _P.STARTING, _P.WAITING, _P.FINISHED, *_ENDS)),
        # Back to RUNNING after a periodic save, or when the checkpoint could not be written.
        _P.SAVING: frozenset((_P.RUNNING, _P.MOVING, _P.STARTING, _P.WAITING, _P.FINISHED, *_ENDS)),
        # Back to RUNNING when the move was given up before the old place was left.
        _P.MOVING: frozenset((_P.STARTING, _P.RUNNING, _P.WAITING, _P.FINISHED, *_ENDS)),
        _P.FINISHED: frozenset(),
        _P.FAILED: frozenset(),
        _P.CANCELLED: frozenset(),
    }
)
"""What may follow each state. Staying in a state is no transition and is not in the table."""


def may_become(before: JobPhase, after: JobPhase) -> bool:
    """Whether the table allows this change."""
    return after in ALLOWED_TRANSITIONS[before]


def require_transition(before: JobPhase, after: JobPhase, *, job: str | None = None) -> None:
    """Refuse a change that the table does not allow with ``BugError``; same state included."""
    if may_become(before, after):
        return
    allowed = ", ".join(sorted(ALLOWED_TRANSITIONS[before])) or "nothing: the state is final"
    name = f"job `{job}`" if job is not None else "a job"
    raise BugError(
        f"{name} cannot go from {before} to {after}",
        facts=(("state", str(before)), ("asked for", str(after)), ("allowed", allowed)),
    )
