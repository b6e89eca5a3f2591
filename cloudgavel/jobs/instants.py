"""Instants as people write them: ISO 8601 with an offset, or with an IANA time zone.

The time-zone rules are those of the machine (``zoneinfo``): constant data, like Unicode tables.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cloudgavel.jobs.quantities import QuantityError, quoted

_INSTANT: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]\s*([0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?))?"
    r"\s*([Zz]|[+-][0-9]{2}:?(?:[0-9]{2})?)?"
    r"(?:\s*\[?\s*([A-Za-z][A-Za-z0-9_+\-]*(?:/[A-Za-z0-9_+\-]+)*)\s*\]?)?"
)


def looks_like_instant(text: str) -> bool:
    """Whether a text begins like a date, so that it is meant as an instant."""
    return re.match(r"\s*[0-9]{4}-[0-9]", text) is not None


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo | None:
    """Rules of a zone, or ``None`` if this machine knows none of that name."""
    if name.upper() in ("UTC", "GMT", "Z"):
        name = "UTC"
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return None


def parse_instant_at_s(text: str) -> float:
    """UNIX seconds of ``2026-12-01T12:00Z``, ``...+01:00`` or ``2026-12-01T12:00 Europe/Berlin``.

    Without offset or zone, in an hour that the zone skips, or in one that it repeats, the text
    names no single instant: ``QuantityError``, with the spellings that would.
    """
    match = _INSTANT.fullmatch(text.strip())
    if match is None:
        raise QuantityError(f"expected an instant like 2026-12-01T12:00:00Z, got {quoted(text)}")
    date, clock, offset, zone_name = match.groups()
    try:
        naive = datetime.fromisoformat(f"{date}T{clock or '00:00'}")
    except ValueError as wrong:
        raise QuantityError(f"no such date or time ({wrong}), got {quoted(text)}") from None
    if offset and zone_name:
        raise QuantityError(f"give an offset or a time zone, not both, got {quoted(text)}")
    if not offset and not zone_name:
        written = f"{date}T{clock or '00:00'}"
        raise QuantityError(
            f"the time zone is missing: write {written}Z for UTC, {written}+01:00 or "
            f'"{written} Europe/Berlin", got {quoted(text)}'
        )
    if not 1970 < naive.year < 9999:
        raise QuantityError(f"the year is out of range, got {quoted(text)}")
    if offset:
        return _at_offset_s(naive, offset, text)
    zone = _zone(zone_name)
    if zone is None:
        raise QuantityError(
            f"unknown time zone `{zone_name}`: write a name like Europe/Berlin or an offset like "
            f"+01:00, got {quoted(text)}"
        )
    return _in_zone_s(naive, zone, text)


def _at_offset_s(naive: datetime, offset: str, text: str) -> float:
    """UNIX seconds of a wall time at ``Z``, ``+01:00``, ``+0100`` or ``+01``."""
    if offset in "Zz":
        return naive.replace(tzinfo=UTC).timestamp()
    digits = offset[1:].replace(":", "").ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 14 or minutes > 59:
        raise QuantityError(f"no place on earth has the offset {offset}, got {quoted(text)}")
    ahead = timedelta(hours=hours, minutes=minutes)
    utc = naive - ahead if offset[0] == "+" else naive + ahead
    return utc.replace(tzinfo=UTC).timestamp()


def _in_zone_s(naive: datetime, zone: ZoneInfo, text: str) -> float:
    """UNIX seconds of a wall time in a zone, if it happens there exactly once."""
    first = naive.replace(tzinfo=zone, fold=0)
    second = naive.replace(tzinfo=zone, fold=1)
    back = first.astimezone(UTC).astimezone(zone).replace(tzinfo=None)
    if back != naive:
        raise QuantityError(
            f"this hour does not exist in {zone.key}: clocks skip it that day, got {quoted(text)}"
        )
    if first.utcoffset() != second.utcoffset():
        choices = " or ".join(each.isoformat(timespec="minutes") for each in (first, second))
        raise QuantityError(
            f"this hour happens twice in {zone.key}: write {choices}, got {quoted(text)}"
        )
    return first.timestamp()
