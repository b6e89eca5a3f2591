"""The closed union of what a plan may ask for; the executor carries them out in this order."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Rent one instance: the first of ``offer_ids`` that the cloud grants."""

    token: str
    """Idempotency token: run, round and ordinal."""
    offer_ids: tuple[str, ...]
    """Acceptable offers in order (zone fall-back), so that the executor never decides."""
    for_jobs: tuple[str, ...]
    price_limit_usd_per_hour: float
    """Dearest of the acceptable offers as seen by the decision."""
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """Start a job's next attempt from its newest checkpoint on instances that are ready."""

    job: str
    attempt: int
    instance_ids: tuple[str, ...]
    request_label: str
    accelerator_indices: tuple[int, ...]
    """Which accelerators of each instance it sees."""
    save_every_s: float
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Save:
    """Save now, go on running."""

    job: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """Save and stop where it is; a later ``Start`` resumes it on ``to_instance_ids``."""

    job: str
    to_instance_ids: tuple[str, ...]
    """Ready instances that wait for it; empty = stop and wait (pause)."""
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Terminate:
    """Give an instance back."""

    instance_id: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Wait:
    """A job gets nothing this round, and why."""

    job: str
    reason: str
    until_at_s: float | None = None
    """It waits for spot on purpose, at the latest until then; ``None`` = it waits for other
    reasons."""


Action = Launch | Start | Save | Move | Terminate | Wait
