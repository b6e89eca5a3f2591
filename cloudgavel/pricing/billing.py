"""What a machine costs: per second with a minimum, in integer micro-dollars.

The rule (AWS Linux, GCP): every second *begun* is billed at the price in force when it began, and
a machine that existed at all is billed for at least ``minimum_s``. Instants are taken to the
millisecond, so that the noise of floats in UNIX time never buys a second. Sums are integers
throughout; a bill is rounded once, half up, to the micro-dollar.

Slices of a bill are differences of ``accrued_micro_usd``: they add up exactly, whatever the slices.
History is never re-priced: the past part of a bill depends on the prices of its own time alone.
A launch that failed has no segments and costs nothing. Disks and egress are not here.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cloudgavel.pricing.offer import CapacityType
from cloudgavel.units import micro_usd

MINIMUM_S = 60.0
WAIVED_S = 3600.0
"""AWS, Linux: a spot machine that AWS takes within this is not charged ("Billing for interrupted
Spot Instances", EC2 User Guide, read 2026-11). One that we end is."""
_MS_PER_S = 1000
_S_PER_HOUR = 3600


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceSegment:
    """A span of billed time at one price, in seconds on any common axis."""

    from_s: float
    to_s: float
    usd_per_hour: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceChange:
    """From ``at_s`` on, the price is ``usd_per_hour``."""

    at_s: float
    usd_per_hour: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Bill:
    """The final bill of one machine."""

    cost_micro_usd: int
    billed_s: int
    estimated: bool
    """True if the end was not seen: billed to the last instant it was seen alive."""


def cost_micro_usd(segments: Sequence[PriceSegment], *, minimum_s: float = MINIMUM_S) -> int:
    """Micro-dollars of the segments of one machine; 0 without segments (a failed launch).

    Gaps between segments are not billed (a stopped machine). If less than ``minimum_s`` was billed
    in all, the last price goes on to the minimum, even after a single empty segment. ``ValueError``
    for segments that overlap, run backwards or have no price.
    """
    _check_minimum(minimum_s)
    if not segments:
        return 0
    for segment in segments:
        if segment.to_s < segment.from_s:
            raise ValueError(f"a segment ends before it starts: {segment}")
    for before, after in pairwise(segments):
        if after.from_s < before.to_s:
            raise ValueError(f"segments overlap or are out of order: {before}, {after}")
    offset_ms = 0
    changes = []
    for segment in segments:
        changes.append((offset_ms, _rate(segment.usd_per_hour)))
        offset_ms += _ms(segment.to_s) - _ms(segment.from_s)
    seconds = max(_seconds_begun(offset_ms), math.ceil(minimum_s))
    return _rounded(_rate_seconds(changes, seconds))


def accrued_micro_usd(
    price_changes: Sequence[PriceChange], launched_at_s: float, until_s: float
) -> int:
    """Micro-dollars accrued from launch to ``until_s``: cumulative, without the minimum.

    Monotone in ``until_s``; 0 at or before the launch. The first change must not be later than the
    launch and changes must be in order of time (``ValueError``); of several at one instant the
    last counts. Changes after ``until_s`` do not matter: appending to the list never alters what
    accrued before.
    """
    changes = _offsets(price_changes, launched_at_s)
    elapsed_ms = _ms(until_s) - _ms(launched_at_s)
    return _rounded(_rate_seconds(changes, _seconds_begun(elapsed_ms)))


def slice_micro_usd(
    price_changes: Sequence[PriceChange], launched_at_s: float, from_s: float, to_s: float
) -> int:
    """Micro-dollars accrued between two instants; adjacent slices add up exactly to the whole."""
    if to_s < from_s:
        raise ValueError(f"a slice ends before it starts: {from_s} to {to_s}")
    return accrued_micro_usd(price_changes, launched_at_s, to_s) - accrued_micro_usd(
        price_changes, launched_at_s, from_s
    )


def final_bill(
    price_changes: Sequence[PriceChange],
    launched_at_s: float,
    *,
    ended_at_s: float | None,
    last_seen_alive_at_s: float | None = None,
    minimum_s: float = MINIMUM_S,
) -> Bill:
    """The bill of a machine that existed and is gone, minimum included.

    ``ended_at_s`` is ``None`` if the machine was ended outside the tool: billing then stops at
    ``last_seen_alive_at_s`` (or the launch) and the bill is marked ``estimated``. The price in
    force at the end goes on to the minimum. ``ValueError`` for an end before the launch.
    """
    _check_minimum(minimum_s)
    estimated = ended_at_s is None
    if ended_at_s is None:
        ended_at_s = launched_at_s if last_seen_alive_at_s is None else last_seen_alive_at_s
    elapsed_ms = _ms(ended_at_s) - _ms(launched_at_s)
    if elapsed_ms < 0:
        raise ValueError(f"ended at {ended_at_s}, before its launch at {launched_at_s}")
    changes = [
        (offset_ms, rate)
        for offset_ms, rate in _offsets(price_changes, launched_at_s)
        if offset_ms <= elapsed_ms
    ]
    seconds = max(_seconds_begun(elapsed_ms), math.ceil(minimum_s))
    return Bill(
        cost_micro_usd=_rounded(_rate_seconds(changes, seconds)),
        billed_s=seconds,
        estimated=estimated,
    )


def is_waived(provider: str, capacity_type: CapacityType, lived_s: float) -> bool:
    """Whether a machine that its cloud took after ``lived_s`` seconds costs nothing."""
    return provider == "aws" and capacity_type is CapacityType.SPOT and lived_s < WAIVED_S


def committed_micro_usd(
    usd_per_hour: float, billed_s: float, further_s: float, *, minimum_s: float = MINIMUM_S
) -> int:
    """The most a live machine can still add to its bill by running ``further_s`` at this price.

    Includes what is left of the minimum after ``billed_s``, and one second for the one begun; for
    the budget's reserve, so rounded up.
    """
    _check_minimum(minimum_s)
    if billed_s < 0 or further_s < 0:
        raise ValueError(f"negative time: {billed_s}, {further_s}")
    seconds = max(math.ceil(further_s) + 1, math.ceil(minimum_s - billed_s))
    return -(-_rate(usd_per_hour) * seconds // _S_PER_HOUR)


def _rate_seconds(changes: Sequence[tuple[int, int]], seconds: int) -> int:
    """Sum of micro-USD/h x seconds over ``[0, seconds)``; second k costs the price at its start."""
    total = 0
    for (offset_ms, rate), until_s in zip(changes, _ends(changes, seconds), strict=True):
        from_s = _seconds_begun(offset_ms)
        total += rate * max(0, min(until_s, seconds) - from_s)
    return total


def _ends(changes: Sequence[tuple[int, int]], seconds: int) -> Iterator[int]:
    for offset_ms, _ in changes[1:]:
        yield _seconds_begun(offset_ms)
    yield seconds


def _offsets(price_changes: Sequence[PriceChange], launched_at_s: float) -> list[tuple[int, int]]:
    """``(ms after launch, micro-USD/h)`` of the price at launch and its later changes."""
    if not price_changes or _ms(price_changes[0].at_s) > _ms(launched_at_s):
        raise ValueError("the price at launch is unknown")
    for before, after in pairwise(price_changes):
        if after.at_s < before.at_s:
            raise ValueError(f"price changes are out of order: {before}, {after}")
    offsets: list[tuple[int, int]] = []
    for change in price_changes:
        offset_ms = _ms(change.at_s) - _ms(launched_at_s)
        if offset_ms <= 0:
            offsets = [(0, _rate(change.usd_per_hour))]
        else:
            offsets.append((offset_ms, _rate(change.usd_per_hour)))
    return offsets


def _rate(usd_per_hour: float) -> int:
    rate = micro_usd(usd_per_hour)
    if rate < 0:
        raise ValueError(f"a negative price: {usd_per_hour}")
    return rate


def _ms(at_s: float) -> int:
    if not math.isfinite(at_s):
        raise ValueError(f"not an instant: {at_s}")
    return round(at_s * _MS_PER_S)


def _seconds_begun(elapsed_ms: int) -> int:
    return max(0, -(-elapsed_ms // _MS_PER_S))


def _rounded(rate_seconds: int) -> int:
    return (2 * rate_seconds + _S_PER_HOUR) // (2 * _S_PER_HOUR)


def _check_minimum(minimum_s: float) -> None:
    if not math.isfinite(minimum_s) or minimum_s < 0:
        raise ValueError(f"not a minimum: {minimum_s}")
