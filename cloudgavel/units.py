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


def span(seconds: float | None) -> str:
    """``45s``, ``21m``, ``6h21m``, ``1d04h``: a duration rounded for reading, everywhere the same.

    Negative spans keep their sign; ``None`` is ``unknown``.
    """
    if seconds is None:
        return "unknown"
    sign = "-" if seconds < 0 else ""
    whole = round(abs(seconds))
    if whole < 60:
        return f"{sign}{whole}s"
    minutes, rest_s = divmod(whole, 60)
    if minutes < 10:
        return f"{sign}{minutes}m{rest_s:02d}s" if rest_s else f"{sign}{minutes}m"
    minutes = round(whole / 60)
    if minutes < 60:
        return f"{sign}{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{sign}{hours}h{minutes:02d}m"
    days, hours = divmod(round(whole / 3600), 24)
    return f"{sign}{days}d{hours:02d}h"
