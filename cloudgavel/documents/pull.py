"""``cloudgavel/pull``: what was brought from a run's store to this machine."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PullFile:
    """One file on this machine."""

    path: str
    size_bytes: int
    was_there: bool
    """It was there already, with the right content."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PullDocument:
    """A checkpoint and the logs of a job."""

    schema: str = "cloudgavel/pull"
    schema_version: int = 1
    run_id: str
    job: str
    directory: str
    step: int | None
    """Of the checkpoint; ``None`` = it was not asked for, or there is none yet."""
    attempt: int | None
    steps_total: int
    checkpoint: tuple[PullFile, ...]
    logs: tuple[PullFile, ...]
    notes: tuple[str, ...] = ()
