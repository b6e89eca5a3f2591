"""The rented machines as one decision sees them."""

from dataclasses import dataclass
from enum import StrEnum

from cloudgavel.pricing.offer import Offer


class InstanceState(StrEnum):
    """Where an instance is in its life; all but ENDED cost money."""

    REQUESTED = "requested"
    """An intent is open: the call may have reached the cloud."""
    BOOTING = "booting"
    READY = "ready"
    """Its agent takes orders."""
    TERMINATING = "terminating"
    """Asked to end, not yet confirmed: still billing."""
    ENDED = "ended"


@dataclass(frozen=True, kw_only=True, slots=True)
class Instance:
    """One rented machine that is not known to have ended."""

    instance_id: str
    """The cloud's id; for REQUESTED the launch token."""
    offer: Offer
    """As launched: of a REQUESTED one the first acceptable offer."""
    state: InstanceState
    price_usd_per_hour: float
    """What it costs now."""
    launched_at_s: float
    ready_at_s: float | None = None
    """Since when its agent takes orders; ``None`` before."""
    expected_ready_at_s: float | None = None
    notice_ends_at_s: float | None = None
    """The cloud said it will be taken then."""
    intended_jobs: tuple[str, ...] = ()
    """Jobs it was launched for, not all of them placed yet."""
    terminate_asked_at_s: float | None = None
    """When its end was asked for (TERMINATING); ``None`` = not asked, or unknown when."""

    @property
    def usable(self) -> bool:
        """True where a job may be placed or waits to be placed."""
        return self.state is not InstanceState.TERMINATING and self.notice_ends_at_s is None
