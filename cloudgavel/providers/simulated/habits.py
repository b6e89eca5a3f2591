"""How the simulated cloud behaves, and what can be made to go wrong with it."""

from dataclasses import dataclass, field

from cloudgavel.pricing.offer import CapacityType, Offer


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudHabits:
    """Delays of the cloud in virtual seconds."""

    list_lag_s: float = 0.0
    """A new instance is missing from lists for this long."""
    terminate_confirm_s: float = 20.0
    """From asking an end to TERMINATED; billed."""
    aws_notice_s: float = 120.0
    gcp_notice_s: float = 30.0
    other_notice_s: float = 30.0
    tpu_notice_s: float = 0.0
    """None at all: plan for it."""
    ended_listed_s: float = 24 * 3600.0
    """How long an ended instance stays in lists."""

    def notice_s(self, offer: Offer) -> float:
        """Seconds between the notice and the interruption of a spot instance; 0 = no notice."""
        if offer.capacity_type is not CapacityType.SPOT:
            return 0.0
        if offer.accelerator.startswith("tpu"):
            return self.tpu_notice_s
        return {"aws": self.aws_notice_s, "gcp": self.gcp_notice_s}.get(
            offer.provider, self.other_notice_s
        )


@dataclass(kw_only=True, slots=True)
class CloudFaults:
    """What goes wrong next; the counts are used up one call at a time. Set them at any moment."""

    refused_zones: set[str] = field(default_factory=set)
    """Zones without capacity, on top of what the market says."""
    throttled_launches: int = 0
    lost_launches: int = 0
    """Calls that never reach the cloud: UNREACHABLE, nothing rented."""
    unanswered_launches: int = 0
    """Calls that work but whose answer is lost: UNREACHABLE, one instance rented."""
    failing_terminates: int = 0
    failing_lists: int = 0
