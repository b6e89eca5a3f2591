"""What the controller wants an instance to do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class Verb(StrEnum):
    """What should become of a job on an instance."""

    RUN = "run"
    STOP = "stop"
    """Save (unless ``save_before_stop`` is false), then end the process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearsalTerms:
    """What the rented accelerator would do: virtual seconds and rates, rehearsal only."""

    steps_per_s: float
    restore_s: float
    """From the order to the first step: process start and restore."""
    save_s: float
    save_every_s: float
    """Stepping time between periodic saves."""
    checkpoint_bytes: int | None = None
    """Size of a checkpoint; ``None`` = not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOrder:
    """One job on one instance under one attempt.

    An attempt is a fencing epoch: each start of a job anywhere gets the next number, and an agent
    whose attempt is older than the job's fence may not commit a checkpoint.
    """

    job: str
    attempt: int
    verb: Verb
    command: str
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    setup: str | None = None
    workdir: str = "."
    """Directory on this machine (``file://`` store), or key of a packed archive in the store."""
    checkpoint_path: str = "ckpt"
    """Relative to the attempt's own copy of the workdir."""
    accelerator_indices: tuple[int, ...] = ()
    """Which accelerators of the instance the job sees."""
    platform: str = "gpu"
    """``gpu`` or ``tpu``."""
    rank: int = 0
    world_size: int = 1
    peers: tuple[str, ...] = ()
    """Instance ids of the gang by rank."""
    peer_addresses: tuple[str, ...] = ()
    """IP addresses of the gang by rank; empty where one is not known."""
    steps_total: int
    run_to_step: int | None = None
    """The grant: the job may run up to and including this many steps done; ``None`` = unbounded."""
    save_at_steps: tuple[int, ...] = ()
    """Steps at which the job must save before going on (rehearsal); ascending."""
    save_sequence: int = 0
    """Each increase asks for one save as soon as possible."""
    save_every_s: float | None = None
    """Real seconds between periodic saves (real clouds); ``None`` in a rehearsal."""
    save_before_stop: bool = True
    progress_pattern: str | None = None
    grace_s: float = 20.0
    """Real seconds between SIGTERM and SIGKILL."""
    rehearsal: RehearsalTerms | None = None
    """Given by the controller when time is virtual; agents ignore it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Orders:
    """The whole desired state of one instance."""

    run_id: str
    instance_id: str
    sequence: int
    lease_s: float
    """Real seconds without newer orders or a renewed lease after which the agent saves and ends."""
    jobs: tuple[JobOrder, ...] = ()
    power_off: bool = False
    """End every job (as its order says) and then the agent."""
