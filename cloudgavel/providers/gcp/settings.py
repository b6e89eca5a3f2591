"""What a run asks of Google Cloud besides an offer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cloudgavel.providers.bundle import AgentSource
from cloudgavel.units import DAY_S

IMAGE_PROJECT = "deeplearning-platform-release"
IMAGE_FAMILY = "common-cu129-ubuntu-2204-nvidia-580"
"""Deep Learning VM: Ubuntu 22.04 with driver and CUDA."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GcpSettings:
    """Fixed for a run, so that a repeated launch is the same request."""

    project: str
    regions: tuple[str, ...]
    store_url: str
    agent: AgentSource
    service_account: str | None = None
    """E-mail of the account that the machines act as; ``None`` = no account, so the store must
    need none. ``"default"`` = the project's own, which may do far too much."""
    image_project: str = IMAGE_PROJECT
    image_family: str = IMAGE_FAMILY
    disk_gib: int = 200
    lifetime_s: float = 7 * DAY_S
    """The machine's second timer: it ends after this, whatever happened to the agent."""
    network: str = "global/networks/default"
    subnetwork_by_region: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    external_ip: bool = True
    """False where a NAT or Private Google Access gives the way out."""
    tpu_runtime_by_family: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Runtime version by family (``v5litepod``), over those of ``translate.TPU_RUNTIMES``."""
    tpu_queue_wait_s: float | None = None
    """``None`` = ask for slices directly: yes or no at once. Otherwise through a queued resource
    that may wait so long for capacity, then is taken back."""
    operation_wait_s: float = 90.0
    """A launch is watched so long for a stock-out; what is still undecided then counts as
    pending, and the next listings tell."""
    visible_grace_s: float = 120.0
    max_instances: int | None = None
    """Of the run's own machines and slices at a time, here; ``None`` = as the quotas allow."""
    facts_age_s: float = 6 * 3600.0
    """Types, GPUs and images are asked for again after this."""
    quotas_age_s: float = 900.0
    prices_age_s: float = DAY_S
