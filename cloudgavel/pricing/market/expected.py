"""The market as it is on average, without dice: for plans and for tests."""

from dataclasses import dataclass

from cloudgavel.pricing.market.protocol import (
    assumed_boot_s,
    check_options,
    mean_spot_lifetime_s,
)
from cloudgavel.pricing.offer import Offer


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedMarket:
    """Catalogue prices, capacity always; each spot instance lives exactly its mean lifetime.

    ``interruptions_per_hour`` and ``boot_delay_s`` override the offers' own figures.
    """

    interruptions_per_hour: float | None = None
    boot_delay_s: float | None = None

    def __post_init__(self) -> None:
        check_options(self.interruptions_per_hour, self.boot_delay_s)

    def price_usd_per_hour(self, offer: Offer, at_s: float) -> float | None:
        """The offer's own price, always."""
        return offer.price_usd_per_hour

    def next_price_change_s(self, offer: Offer, after_s: float) -> float | None:
        """Never."""
        return None

    def capacity_available(self, offer: Offer, at_s: float) -> bool:
        """Always."""
        return True

    def next_capacity_change_s(self, offer: Offer, after_s: float) -> float | None:
        """Never."""
        return None

    def interruption_at_s(
        self, offer: Offer, instance_ordinal: int, launched_at_s: float
    ) -> float | None:
        """``1/rate`` hours after the launch of a spot instance; never on demand."""
        lifetime_s = mean_spot_lifetime_s(offer, self.interruptions_per_hour)
        return None if lifetime_s is None else launched_at_s + lifetime_s

    def boot_s(self, offer: Offer, instance_ordinal: int) -> float:
        """The assumed delay of the offer's kind, or the override."""
        return assumed_boot_s(offer) if self.boot_delay_s is None else self.boot_delay_s
