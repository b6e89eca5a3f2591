"""What any market can be asked, and the assumptions all of them share."""

from typing import Protocol

from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.units import HOUR_S

ASSUMED_GPU_BOOT_S = 90.0
"""Seconds from the launch call to a GPU machine that works: an assumption, not a measurement."""
ASSUMED_TPU_BOOT_S = 180.0
"""The same for a TPU slice."""
ASSUMED_INTERRUPTION_RATE_PER_HOUR = 0.10
"""Of a spot offer whose rate is unknown: unknown is not "never"."""


class Market(Protocol):
    """A story of prices, capacity and interruptions.

    Every answer depends on the arguments alone: asking twice, in any order, tells the same story.
    Offers are those of the catalogue; an offer already re-priced by a market is not one. On-demand
    offers keep their price, always have capacity and are never interrupted. Instants are UNIX
    seconds.
    """

    def price_usd_per_hour(self, offer: Offer, at_s: float) -> float | None:
        """The price in force at ``at_s``; ``None`` if unknown."""
        ...

    def next_price_change_s(self, offer: Offer, after_s: float) -> float | None:
        """The first instant after ``after_s`` at which the price may differ; ``None`` = never."""
        ...

    def capacity_available(self, offer: Offer, at_s: float) -> bool:
        """Whether a launch at ``at_s`` gets a machine."""
        ...

    def next_capacity_change_s(self, offer: Offer, after_s: float) -> float | None:
        """The first instant after ``after_s`` at which capacity changes; ``None`` = never."""
        ...

    def interruption_at_s(
        self, offer: Offer, instance_ordinal: int, launched_at_s: float
    ) -> float | None:
        """When the cloud takes this instance back; ``None`` = never.

        ``instance_ordinal`` tells instances of one offer apart (a launch counter); the answer is
        never before ``launched_at_s``.
        """
        ...

    def boot_s(self, offer: Offer, instance_ordinal: int) -> float:
        """Seconds from the launch until the machine works."""
        ...


def assumed_boot_s(offer: Offer) -> float:
    """180 s for a TPU slice, 90 s for anything else."""
    return ASSUMED_TPU_BOOT_S if offer.accelerator.startswith("tpu-") else ASSUMED_GPU_BOOT_S


def mean_spot_lifetime_s(offer: Offer, interruptions_per_hour: float | None) -> float | None:
    """Mean seconds a spot instance of this offer lives; ``None`` = it is never taken.

    ``interruptions_per_hour`` overrides the offer's own rate; a rate nobody knows is assumed.
    """
    if offer.capacity_type is not CapacityType.SPOT:
        return None
    rate = interruptions_per_hour
    if rate is None:
        rate = offer.interruption_rate_per_hour
    if rate is None:
        rate = ASSUMED_INTERRUPTION_RATE_PER_HOUR
    return HOUR_S / rate if rate > 0 else None


def check_options(interruptions_per_hour: float | None, boot_s: float | None) -> None:
    """``ValueError`` for a negative or NaN override."""
    if interruptions_per_hour is not None and not interruptions_per_hour >= 0:
        raise ValueError(f"not a rate: {interruptions_per_hour} interruptions per hour")
    if boot_s is not None and not boot_s >= 0:
        raise ValueError(f"not a boot delay: {boot_s} s")
