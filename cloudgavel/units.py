"""Units: seconds, USD and integer micro-dollars, GiB; and how people write them."""

import math

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 86400.0
MICRO = 1_000_000
"""Micro-dollars in one USD: the ledger's integer unit."""


def micro_usd(usd: float) -> int:
    """Round USD to the nearest micro-dollar; refuses NaN and infinity with ``ValueError``."""
    if not math.isfinite(usd):
        raise ValueError(f"not an amount of money: {usd}")
    return round(usd * MICRO)


def usd(micro: int) -> float:
    """USD of integer micro-dollars, exact to the micro-dollar when printed with six digits."""
    return micro / MICRO
