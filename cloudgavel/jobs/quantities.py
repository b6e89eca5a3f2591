"""Durations, sizes, steps, shares and money as people write them.

Every ``parse_*`` takes the text of one YAML scalar and returns a number in the unit that ends its
name. Text that it cannot take raises ``QuantityError``, whose message is the whole sentence for
the person, with the text they wrote. NaN and infinity are never accepted.
"""

import json
import math
import re
from decimal import Decimal
from typing import Final

from cloudgavel.units import DAY_S, HOUR_S, MINUTE_S

_YEAR_S: Final = 365 * DAY_S
LONGEST_DURATION_S: Final = 100 * _YEAR_S
LARGEST_STEPS: Final = 10**15
"""Steps stay exact as floating-point numbers below this."""


class QuantityError(ValueError):
    """Text that is not the quantity that was expected; the message says what would be."""


def quoted(text: str) -> str:
    """Quote a text for a message: on one line, at most 60 characters."""
    short = text if len(text) <= 60 else text[:57] + "..."
    return json.dumps(short, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


_NUMBER: Final = r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+"
_SIGNED_NUMBER: Final = re.compile(
    r"[+-]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]{1,3})?"
)
_GROUPED_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")


def _decimal(text: str) -> Decimal | None:
    """Exact value of a number such as ``900_000``, ``9e5`` or ``1,500``; ``None`` if it is none."""
    text = text.strip()
    if _GROUPED_NUMBER.fullmatch(text):
        text = text.replace(",", "")
    if len(text) > 400 or not _SIGNED_NUMBER.fullmatch(text):
        return None
    return Decimal(text.replace("_", ""))


_DURATION_UNITS: Final = {
    unit: seconds
    for units, seconds in (
        ("ms millisecond milliseconds", Decimal("0.001")),
        ("s sec secs second seconds", Decimal(1)),
        ("m min mins minute minutes", Decimal(int(MINUTE_S))),
        ("h hr hrs hour hours", Decimal(int(HOUR_S))),
        ("d day days", Decimal(int(DAY_S))),
        ("w week weeks", Decimal(7 * int(DAY_S))),
    )
    for unit in units.split()
}
_DURATION_PART: Final = re.compile(rf"({_NUMBER})\s*([a-z]+)(?:\s*(?:,|and\b)?\s*)")
_CLOCK_DURATION: Final = re.compile(r"([0-9]{1,4}):([0-5][0-9]):([0-5][0-9](?:\.[0-9]{1,9})?)")


def parse_duration_s(text: str) -> float:
    """Seconds of ``24h``, ``90m``, ``1h30m``, ``2 days``, ``1.5h`` or ``01:30:00``; ``0`` alone.

    A number without a unit and a negative duration raise ``QuantityError``; so do ``1:30``, which
    could be minutes, and anything above 100 years.
    """
    spelt = text.strip().lower()
    clock = _CLOCK_DURATION.fullmatch(spelt)
    if clock is not None:
        exact = Decimal(clock[1]) * 3600 + Decimal(clock[2]) * 60 + Decimal(clock[3])
        return float(exact)
    if re.fullmatch(r"[0-9]+:[0-9]{2}", spelt):
        hours, minutes = spelt.split(":")
        raise QuantityError(
            f"this could be hours or minutes: write {hours}h{minutes}m, {hours}m{minutes}s or "
            f"HH:MM:SS, got {quoted(text)}"
        )
    number = _decimal(spelt)
    if number is not None:
        if number == 0:
            return 0.0
        raise QuantityError(
            f"the unit is missing: write {spelt}s, {spelt}m, {spelt}h or {spelt}d, "
            f"got {quoted(text)}"
        )
    if spelt.startswith("-") and len(spelt) < 40 and _DURATION_PART.match(spelt, 1):
        raise QuantityError(f"a duration cannot be negative, got {quoted(text)}")
    return _sum_of_parts_s(spelt, text)


def _sum_of_parts_s(spelt: str, text: str) -> float:
    """Seconds of ``1h30m``: each unit at most once."""
    expected = QuantityError(f"expected a duration like 24h, 90m or 1h30m, got {quoted(text)}")
    total = Decimal(0)
    position = 0
    seen: set[Decimal] = set()
    if not spelt or len(spelt) > 500:
        raise expected
    while position < len(spelt):
        part = _DURATION_PART.match(spelt, position)
        if part is None or part[2] not in _DURATION_UNITS:
            raise expected
        unit_s = _DURATION_UNITS[part[2]]
        if unit_s in seen:
            raise expected
        seen.add(unit_s)
        total += Decimal(part[1]) * unit_s
        position = part.end()
    if spelt.endswith((",", "and")):
        raise expected
    if total > Decimal(LONGEST_DURATION_S):
        raise QuantityError(f"longer than 100 years, got {quoted(text)}")
    return float(total)


def format_duration(duration_s: float) -> str:
    """Write seconds so that ``parse_duration_s`` gives back exactly the same number.

    ``5400`` becomes ``1h30m``; negative and non-finite numbers raise ``ValueError``.
    """
    if not math.isfinite(duration_s) or duration_s < 0:
        raise ValueError(f"not a duration: {duration_s}")
    left = Decimal(repr(duration_s))
    words = []
    for unit, unit_s in (("d", 86400), ("h", 3600), ("m", 60)):
        count = int(left // unit_s)
        if count:
            words.append(f"{count}{unit}")
            left -= count * unit_s
    if left or not words:
        seconds = f"{left:f}"
        if "." in seconds:
            seconds = seconds.rstrip("0").rstrip(".")
        words.append(f"{seconds}s")
    return "".join(words)


_GIB: Final = Decimal(1024**3)
_SIZE_UNITS: Final = {
    "b": Decimal(1),
    **{f"{letter}ib": Decimal(1024**power) for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}i": Decimal(1024**power) for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}b": Decimal(1000**power) for power, letter in enumerate("kmgt", start=1)},
    **{letter: Decimal(1000**power) for power, letter in enumerate("kmgt", start=1)},
}
_SIZE: Final = re.compile(rf"([+-]?(?:{_NUMBER}))\s*([a-z]+)")


def parse_size_gib(text: str) -> float:
    """GiB of ``12GiB`` or ``12Gi`` (binary), ``400MB`` or ``400M`` (decimal); more than zero."""
    spelt = text.strip().lower()
    if len(spelt) > 60:
        raise QuantityError(f"expected a size like 12GiB or 400MB, got {quoted(text)}")
    if _decimal(spelt) is not None:
        raise QuantityError(
            f"the unit is missing: write {spelt}GiB or {spelt}MiB, got {quoted(text)}"
        )
    size = _SIZE.fullmatch(spelt)
    if size is None or size[2] not in _SIZE_UNITS:
        raise QuantityError(f"expected a size like 12GiB or 400MB, got {quoted(text)}")
    size_bytes = Decimal(size[1]) * _SIZE_UNITS[size[2]]
    if size_bytes <= 0:
        raise QuantityError(f"a size must be more than zero, got {quoted(text)}")
    return float(size_bytes / _GIB)


def format_size_gib(size_gib: float) -> str:
    """Write GiB so that ``parse_size_gib`` gives back exactly the same number (``12GiB``)."""
    digits = f"{Decimal(repr(size_gib)):f}"
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return f"{digits}GiB"


_STEP_SUFFIXES: Final = {"k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9}


def parse_steps(text: str) -> int:
    """Exact whole steps of ``900_000``, ``900,000``, ``9e5``, ``900k`` or ``1.5M``; at least 1."""
    spelt = text.strip()
    scale = _STEP_SUFFIXES.get(spelt[-1:], 1)
    number = _decimal(spelt[:-1] if scale > 1 else spelt)
    if number is None:
        raise QuantityError(f"expected a number of steps like 900_000 or 9e5, got {quoted(text)}")
    if number > LARGEST_STEPS:
        raise QuantityError(f"at most 1e15 steps, got {quoted(text)}")
    steps = number * scale
    if steps <= 0:
        raise QuantityError(f"the steps must be at least 1, got {quoted(text)}")
    if steps != steps.to_integral_value():
        raise QuantityError(f"expected a whole number of steps, got {quoted(text)}")
    if steps > LARGEST_STEPS:
        raise QuantityError(f"at most 1e15 steps, got {quoted(text)}")
    return int(steps)


def parse_integer(text: str) -> int:
    """Whole number of at most 18 digits, such as ``3`` or ``1_000``."""
    number = _decimal(text)
    if number is None or abs(number) >= 10**18 or number != number.to_integral_value():
        raise QuantityError(f"expected a whole number, got {quoted(text)}")
    return int(number)


def parse_number(text: str) -> float:
    """Finite number, such as ``7.8`` or ``1e-3``."""
    number = _decimal(text)
    if number is None or not math.isfinite(float(number)):
        raise QuantityError(f"expected a number, got {quoted(text)}")
    return float(number)


def parse_share(text: str) -> float:
    """Share between 0 and 1 of ``10%`` or ``0.1``; ``10`` alone is refused as ambiguous."""
    spelt = text.strip()
    number = _decimal(spelt.removesuffix("%"))
    if number is None:
        raise QuantityError(f"expected a share like 10% or 0.1, got {quoted(text)}")
    share = number / 100 if spelt.endswith("%") else number
    if share < 0:
        raise QuantityError(f"a share cannot be negative, got {quoted(text)}")
    if not spelt.endswith("%") and share >= 1:
        raise QuantityError(f"the percent sign is missing: write {spelt}%, got {quoted(text)}")
    if share > 1:
        raise QuantityError(f"a share is at most 100%, got {quoted(text)}")
    return float(share)


LARGEST_USD: Final = 1e12


def parse_usd(text: str) -> float:
    """US dollars of ``500``, ``$500``, ``1,500.50`` or ``500 USD``.

    Other currencies raise ``QuantityError``; a sign is allowed so that the caller can say what a
    negative amount would mean.
    """
    spelt = text.strip()
    negative = spelt.startswith("-")
    bare = re.sub(r"^[+-]?\s*(?:US\$|USD|\$)\s*|\s*(?:US\$|USD|\$)$", "", spelt, flags=re.I)
    number = _decimal(bare)
    if number is not None and abs(number) > Decimal(LARGEST_USD):
        raise QuantityError(f"at most $1e12, got {quoted(text)}")
    if number is None:
        if re.search(r"[€£¥]|\b(?:eur|gbp|jpy|chf)\b", spelt, re.I):
            raise QuantityError(f"only US dollars are known, like 500 or $500, got {quoted(text)}")
        raise QuantityError(f"expected an amount in US dollars like 500, got {quoted(text)}")
    return -abs(float(number)) if negative else float(number)


_BOOLEANS: Final = {
    "true": True,
    "yes": True,
    "on": True,
    "false": False,
    "no": False,
    "off": False,
}


def parse_boolean(text: str) -> bool:
    """``true``, ``yes``, ``on`` or ``false``, ``no``, ``off``, in any case."""
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        raise QuantityError(f"expected true or false, got {quoted(text)}")
    return value
