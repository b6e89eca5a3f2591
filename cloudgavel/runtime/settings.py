"""How patient and how frequent the runtime is; nothing here changes what is decided."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopSettings:
    """Times of the loop, in seconds of the run's own time unless said otherwise."""

    poll_s: float | None = 2.0
    """Look at lists and reports at least this often; ``None`` = the world says when (virtual)."""
    visible_grace_s: float = 120.0
    """A machine may be missing from the cloud's list for so long after its launch."""
    look_again_s: float = 5.0
    """A machine missing from the list is looked for once more after this, then it is lost."""
    boot_limit_s: float = 900.0
    """A machine whose agent never took orders is given back after this, or after five times the
    expected boot where that is longer."""
    agent_silence_s: float | None = 600.0
    """A machine whose agent has been silent for so long is given back; its own watchdog
    (``agent_lease_s``) has saved and ended long before. ``None`` = never (virtual time)."""
    progress_every_s: float = 15.0
    """Progress is written down at most this often per job, and before every decision."""
    accrue_every_s: float = 60.0
    """The ledger is brought up to date at least this often while anything bills."""
    unreachable_retry_s: float = 10.0
    """A call that gave no answer is repeated, with the same token, after this."""
    throttled_retry_s: float = 5.0
    terminate_retry_s: float = 30.0
    """An end that is not confirmed is asked for again after this."""
    capacity_block_s: float = 120.0
    """First back-off of an offer without capacity; doubled with every refusal in a row."""
    capacity_block_cap_s: float = 960.0
    quota_block_s: float = 3600.0
    invalid_block_s: float = 86400.0
    credentials_block_s: float = 600.0
    agent_lease_s: float = 300.0
    """Real seconds after which an agent without a controller saves and ends."""
    most_idle_decisions: int = 240
    """Decisions in a row without any machine, and none to come, after which the run is stopped
    with its reasons; the same command goes on with it."""
    pool_size: int = 8
    """Calls to clouds at one time."""
    secrets: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Values of the variables named under ``secrets``; handed to agents, never recorded."""
