"""What an instance says about itself."""

from dataclasses import dataclass
from enum import StrEnum


class ProcessState(StrEnum):
    """Where a job's process is."""

    STARTING = "starting"
    """Setup or restore; no step done by this attempt yet."""
    RUNNING = "running"
    PAUSED = "paused"
    """Its grant is used up."""
    SAVING = "saving"
    STOPPED = "stopped"
    """Ended on order (saved or not: see ``saved_step``)."""
    EXITED = "exited"
    """Ended by itself: ``exit_code`` says how."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobReport:
    """One attempt as the agent sees it."""

    job: str
    attempt: int
    state: ProcessState
    step: int
    """Steps done in all (those of earlier attempts included)."""
    restored_step: int = 0
    """Step of the checkpoint this attempt started from; 0 = from the beginning."""
    saved_step: int | None = None
    """Step of the newest manifest this attempt committed."""
    saved_bytes: int | None = None
    """Size of that checkpoint; ``None`` = none, or not known."""
    uploaded_bytes: int = 0
    """Of all checkpoints that this attempt committed from this machine."""
    downloaded_bytes: int = 0
    """Of the checkpoint that it restored on this machine."""
    save_sequence_done: int = 0
    save_error: str | None = None
    """Why the last save failed; ``None`` after one that worked."""
    exit_code: int | None = None
    """Negative = ended by that signal."""
    steps_per_s: float | None = None
    """Measured over the last while, in real time."""
    loss: float | None = None
    last_lines: tuple[str, ...] = ()
    """The end of the job's output, kept when it exits."""
    error: str | None = None
    """Why the job could not be started or restored."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """A cloud said that the instance will be taken."""

    kind: str
    """``interruption`` or ``maintenance`` or ``rebalance``."""
    ends_at_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The whole observed state of one instance."""

    run_id: str
    instance_id: str
    sequence_seen: int
    """Highest orders sequence that is fully taken into account here."""
    heartbeat_at_s: float
    agent_pid: int
    address: str | None = None
    """At which the other machines of a gang reach this one; ``None`` = not known."""
    jobs: tuple[JobReport, ...] = ()
    notice: Notice | None = None
    ending: bool = False
    """The agent is about to end (power-off, watchdog, notice)."""
