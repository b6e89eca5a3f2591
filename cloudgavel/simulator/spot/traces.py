"""Availability traces: reading, merging ticks, aligning zones.

File format of the public traces of 2023: ``{"metadata": {"gap_seconds": 195}, "data": [1, 0, ...],
"prices": [...]}``; ``data`` says for each tick whether spot could be had, ``prices`` (optional)
the spot price in USD per hour, null where unknown.
"""

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from cloudgavel.errors import UsageError
from cloudgavel.policies.spot.view import Bools, Floats


class Merge(StrEnum):
    """When several ticks of a trace become one: is spot there if it was in all, in any, in most?"""

    ALL_UP = "all-up"
    ANY_UP = "any-up"
    MAJORITY = "majority"


@dataclass(frozen=True, kw_only=True, slots=True)
class SpotTrace:
    """Whether one spot offer could be had, tick by tick."""

    name: str
    tick_s: float
    available: Bools
    """(N,)"""
    usd_per_hour: Floats | None = None
    """(N,) spot price where the file has one; the last known price fills gaps."""

    @property
    def duration_s(self) -> float:
        """Seconds the trace covers."""
        return self.tick_s * len(self.available)


def load_trace(path: Path) -> SpotTrace:
    """Read one trace file; ``UsageError`` when it is not one."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read the trace {path}", facts=(("reason", str(error)),)
        ) from error
    except json.JSONDecodeError as error:
        raise UsageError(
            f"the trace {path} is not JSON", facts=(("at", f"line {error.lineno}: {error.msg}"),)
        ) from error
    return parse_trace(document, name=path.stem)


def parse_trace(document: object, *, name: str) -> SpotTrace:
    """Turn a decoded trace file into a ``SpotTrace``; ``UsageError`` when something is missing."""
    shape_hint = 'expected {"metadata": {"gap_seconds": 195}, "data": [1, 0, ...]}'
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        raise UsageError(f"the trace {name} has no metadata", hints=(shape_hint,))
    gap = document["metadata"].get("gap_seconds")
    if not isinstance(gap, int | float) or isinstance(gap, bool) or not 0 < gap < 1e9:
        raise UsageError(
            f"the trace {name} does not say how long a tick is",
            facts=(("metadata.gap_seconds", repr(gap)),),
            hints=(shape_hint,),
        )
    data = document.get("data")
    if not isinstance(data, list) or not data:
        raise UsageError(f"the trace {name} has no data", hints=(shape_hint,))
    wrong = next((i for i, value in enumerate(data) if value not in (0, 1)), None)
    if wrong is not None:
        raise UsageError(
            f"the trace {name} holds something that is neither 0 nor 1",
            facts=((f"data[{wrong}]", repr(data[wrong])),),
        )
    available = np.array([bool(value) for value in data])
    return SpotTrace(
        name=name,
        tick_s=float(gap),
        available=available,
        usd_per_hour=_prices(document.get("prices"), len(available), name),
    )


def _prices(values: object, count: int, name: str) -> Floats | None:
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != count:
        found = len(values) if isinstance(values, list) else type(values).__name__
        raise UsageError(
            f"the trace {name} needs one price per tick",
            facts=(("ticks", str(count)), ("prices", str(found))),
        )
    prices = np.array([np.nan if value is None else float(value) for value in values])
    known = np.flatnonzero(np.isfinite(prices) & (prices > 0))
    if not known.size:
        return None
    # A price never seen is unknown; between two sightings the last one holds, as on the market.
    last = np.maximum.accumulate(np.where(np.isin(np.arange(count), known), np.arange(count), 0))
    last[: known[0]] = known[0]
    return prices[last]


def merge_ticks(trace: SpotTrace, *, tick_s: float, merge: Merge = Merge.ALL_UP) -> SpotTrace:
    """Make ticks of ``tick_s``, a whole multiple of the trace's own; a last partial one is dropped.

    Prices are averaged. ``UsageError`` when the ticks do not fit.
    """
    factor = round(tick_s / trace.tick_s)
    if factor < 1 or abs(factor * trace.tick_s - tick_s) > 1e-6 * tick_s:
        raise UsageError(
            f"ticks of {tick_s:g} s do not fit the trace {trace.name}",
            facts=(("the trace's tick", f"{trace.tick_s:g} s"),),
            hints=(
                f"give a whole multiple, for example --tick-s {trace.tick_s * max(1, factor):g}",
            ),
        )
    if factor == 1:
        return trace
    count = len(trace.available) // factor
    if not count:
        raise UsageError(f"the trace {trace.name} is shorter than one tick of {tick_s:g} s")
    parts = trace.available[: count * factor].reshape(count, factor)
    available = {
        Merge.ALL_UP: parts.all(axis=1),
        Merge.ANY_UP: parts.any(axis=1),
        Merge.MAJORITY: 2 * parts.sum(axis=1) > factor,
    }[merge]
    prices = trace.usd_per_hour
    if prices is not None:
        prices = prices[: count * factor].reshape(count, factor).mean(axis=1)
    return SpotTrace(name=trace.name, tick_s=tick_s, available=available, usd_per_hour=prices)
