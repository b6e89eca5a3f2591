"""Prices, capacity and interruptions over time, as pure functions of the instant asked about."""

from cloudgavel.pricing.market.calm import CalmMarket
from cloudgavel.pricing.market.expected import ExpectedMarket
from cloudgavel.pricing.market.protocol import (
    ASSUMED_GPU_BOOT_S,
    ASSUMED_INTERRUPTION_RATE_PER_HOUR,
    ASSUMED_TPU_BOOT_S,
    Market,
    assumed_boot_s,
)
from cloudgavel.pricing.market.seeded import Outages, PriceWalk, SeededMarket
from cloudgavel.pricing.market.trace import (
    AvailabilityTrace,
    TraceError,
    TraceMarket,
    parse_availability_trace,
)

__all__ = [
    "ASSUMED_GPU_BOOT_S",
    "ASSUMED_INTERRUPTION_RATE_PER_HOUR",
    "ASSUMED_TPU_BOOT_S",
    "AvailabilityTrace",
    "CalmMarket",
    "ExpectedMarket",
    "Market",
    "Outages",
    "PriceWalk",
    "SeededMarket",
    "TraceError",
    "TraceMarket",
    "assumed_boot_s",
    "parse_availability_trace",
]
