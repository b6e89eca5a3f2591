"""What a run asks of EC2 besides an offer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cloudgavel.providers.bundle import AgentSource
from cloudgavel.units import DAY_S


@dataclass(frozen=True, kw_only=True, slots=True)
class AwsSettings:
    """Fixed for a run, so that a repeated launch is the same request to the letter."""

    regions: tuple[str, ...]
    store_url: str
    agent: AgentSource
    instance_profile: str | None = None
    """Name or ARN of the profile whose role may use the run's prefix of the store."""
    image: str | None = None
    """``ami-...``, an SSM parameter's path, or a name pattern; ``None`` = the Deep Learning image
    that fits the instance type."""
    disk_gib: int = 200
    lifetime_s: float = 7 * DAY_S
    """The machine's second timer: it powers off after this, whatever happened to the agent."""
    spot_price_cap_usd_per_hour: float | None = None
    """Of the whole instance, not of one GPU. ``None`` = no bid: spot never costs more than
    on-demand, and a bid only adds interruptions."""
    interruption_queues: tuple[str, ...] = ()
    """SQS queues to read spot warnings from."""
    max_instances: int | None = None
    """At most so many machines at a time; ``None`` = as many as the account's quotas allow."""
    subnet_by_zone: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Subnet id by zone *name*; a zone without one uses the default subnet."""
    security_groups_by_region: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    visible_grace_s: float = 120.0
    """A new machine may be missing from lists, and not found, for so long."""
    facts_age_s: float = 6 * 3600.0
    """Zones, offered types and images are asked for again after this."""
    quotas_age_s: float = 900.0
    spot_prices_age_s: float = 600.0
