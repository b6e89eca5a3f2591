"""The only place that rounds: numbers and instants as people read them."""

from cloudgavel.units import span as span

UNKNOWN = "unknown"


def money(usd: float | None) -> str:
    """``$14.20``; ``$1,596`` from a thousand up; ``$0.0042`` below a cent; ``unknown``."""
    if usd is None:
        return UNKNOWN
    sign = "-" if usd < 0 else ""
    size = abs(usd)
    if size >= 1000:
        return f"{sign}${size:,.0f}"
    if 0 < size < 0.01:
        return f"{sign}${size:.2g}"
    return f"{sign}${size:.2f}"


def rate(usd_per_hour: float | None) -> str:
    """``$13.20/h``."""
    return UNKNOWN if usd_per_hour is None else f"{money(usd_per_hour)}/h"


def lateness(finish_s: float | None, deadline_s: float | None) -> str:
    """``6h21m early``, ``12m late``, ``none`` without a deadline."""
    if deadline_s is None:
        return "none"
    if finish_s is None:
        return "not reached"
    slack_s = deadline_s - finish_s
    return f"{span(slack_s)} early" if slack_s >= 0 else f"{span(-slack_s)} late"


def steps_rate(steps_per_s: float | None) -> str:
    """Steps/s with three significant digits; ``-`` where there is none."""
    if steps_per_s is None:
        return "-"
    return f"{steps_per_s:.3g}" if steps_per_s < 1000 else f"{steps_per_s:,.0f}"


def share(part: float | None) -> str:
    """``78%``."""
    return UNKNOWN if part is None else f"{100 * part:.0f}%"


def capacity(capacity_type: str) -> str:
    """``spot``, ``od``, ``reserved``."""
    return "od" if capacity_type == "on_demand" else capacity_type


def bar(part: float, width: int) -> str:
    """``[####......]``: ``part`` of 1 filled, ``width`` cells inside the brackets."""
    filled = min(width, max(0, int(part * width + 1e-9)))
    return f"[{'#' * filled}{'.' * (width - filled)}]"
