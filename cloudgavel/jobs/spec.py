"""What a person asked for, after parsing: frozen, complete, with units in the names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class AcceleratorRequest:
    """One acceptable gang: ``count`` accelerators of one kind (a TPU slice counts as one)."""

    accelerator: str
    """Canonical name of ``jobs.accelerators`` (``V100``, ``A100-80GB``, ``tpu-v3-8``)."""
    count: int = 1

    @property
    def label(self) -> str:
        """``V100`` for one, ``A100:8`` for several: the key of throughput tables."""
        return self.accelerator if self.count == 1 else f"{self.accelerator}:{self.count}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointPlan:
    """How a job saves its state."""

    path: str = "ckpt"
    """Directory relative to the job's workdir."""
    every_s: float | None = None
    """Seconds between periodic saves; ``None`` = chosen from loss rate and save cost."""
    size_gib: float | None = None
    save_s: float = 30.0
    """Seconds one save holds the job up."""
    restore_s: float = 60.0
    """Seconds from the process start to the first step after a restore."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSpec:
    """One training job. Spans ending in ``_s`` without ``_at_`` count from the run's creation."""

    name: str
    commands: Mapping[str, str]
    """Shell command by platform: ``any``, or ``gpu`` and ``tpu``."""
    steps_total: int
    accelerators: tuple[AcceleratorRequest, ...]
    """Acceptable gangs, in the order written."""
    throughput_steps_per_s: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Steps/s of the whole gang by ``AcceleratorRequest.label``; missing means unknown."""
    workdir: str = "."
    """Absolute after parsing (relative ones are resolved against the file's directory)."""
    setup: str | None = None
    image: str | None = None
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    secrets: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    profile: str | None = None
    """Name in ``jobs.profiles``: what its speeds are estimated from."""
    family: str | None = None
    """Name as written of the ``foreach`` entry it is one of."""
    memory_gib: float | None = None
    """Accelerator memory needed per accelerator."""
    checkpoint: CheckpointPlan = CheckpointPlan()
    progress_pattern: str | None = None
    """Regular expression over the job's output whose first group is the step, for scripts that do
    not import ``cloudgavel.training``."""
    grace_s: float = 20.0
    """Real seconds between SIGTERM and SIGKILL."""
    deadline_s: float | None = None
    """Seconds from the run's creation."""
    deadline_at_s: float | None = None
    """UNIX seconds; set when the deadline was written as an instant. At most one of both is set."""
    weight: float = 1.0
    max_cost_usd: float | None = None
    max_duration_s: float | None = None
    entity: str | None = None
    arrives_s: float = 0.0
    after: tuple[str, ...] = ()
    spot_only: bool = False
    retries: int = 2
    line: int | None = None
    """Line of the job in its file, for messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudSpec:
    """One rented cloud as asked for."""

    provider: str
    regions: tuple[str, ...] = ()
    """Empty = all regions of the catalogue."""
    project: str | None = None
    max_instances: int | None = None
    interruption_queues: tuple[str, ...] = ()
    """AWS: URLs of SQS queues that get spot interruption warnings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RehearsalSpec:
    """How the rehearsed market behaves (provider ``local``); ignored on a real cloud."""

    seed: int = 0
    clouds: tuple[CloudSpec, ...] = ()
    """Which clouds' prices are rehearsed; empty = every offer of the catalogue."""
    interruptions_per_hour: float | None = None
    """Overrides every spot offer's interruption rate when given."""
    boot_s: float | None = None
    """Overrides the boot delay of every offer when given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSpec:
    """A whole jobs.yaml."""

    name: str
    jobs: tuple[JobSpec, ...]
    budget_usd: float | None = None
    max_usd_per_hour: float | None = None
    policy: str = "min_cost"
    round_s: float = 360.0
    deadline_margin_share: float = 0.10
    max_spot_wait_s: float = 3600.0
    """How long a job without a deadline waits for spot that is refused, before on-demand."""
    clouds: tuple[CloudSpec, ...] = ()
    """Empty = rehearsal on this machine: no money is spent."""
    cluster: Mapping[str, int] | None = None
    store: str | None = None
    """URL; ``None`` = ``file://`` under the state directory."""
    notify: tuple[str, ...] = ()
    rehearsal: RehearsalSpec = RehearsalSpec()
    source: str | None = None
    """Path of the file as given, for messages."""
    folder: str | None = None
    """Absolute directory of the file: a policy of one's own may lie there."""
