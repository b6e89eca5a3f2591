"""Constant prices, capacity always, no interruption: the best case, and the on-demand baseline."""

from dataclasses import dataclass

from cloudgavel.pricing.market.protocol import assumed_boot_s, check_options
from cloudgavel.pricing.offer import Offer


@dataclass(frozen=True, kw_only=True, slots=True)
class CalmMarket:
    """Nothing ever happens. ``boot_delay_s`` overrides the assumed boot delays."""

    boot_delay_s: float | None = None

    def __post_init__(self) -> None:
        check_options(None, self.boot_delay_s)

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
        """Never."""
        return None

    def boot_s(self, offer: Offer, instance_ordinal: int) -> float:
        """The assumed delay of the offer's kind, or the override."""
        return assumed_boot_s(offer) if self.boot_delay_s is None else self.boot_delay_s
