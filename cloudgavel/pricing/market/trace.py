"""A market replayed from recorded availability, and prices where the record has them."""

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cloudgavel.pricing.market.expected import ExpectedMarket
from cloudgavel.pricing.market.protocol import Market, assumed_boot_s, check_options
from cloudgavel.pricing.offer import CapacityType, Offer

Value = TypeVar("Value")


class TraceError(ValueError):
    """A recorded trace that cannot be read."""


@dataclass(frozen=True, slots=True)
class _Steps(Generic[Value]):
    """A step function over the samples of a trace, repeated for ever in both directions."""

    first_samples: tuple[int, ...]
    """Sample at which each value begins; the first is 0."""
    values: tuple[Value, ...]
    """Neighbours differ; the last may equal the first, where the trace starts again."""
    gap_ms: int
    sample_count: int

    @classmethod
    def of(cls, samples: Sequence[Value], gap_ms: int) -> "_Steps[Value]":
        firsts = [i for i in range(len(samples)) if i == 0 or samples[i] != samples[i - 1]]
        return cls(tuple(firsts), tuple(samples[i] for i in firsts), gap_ms, len(samples))

    def at(self, offset_s: float) -> Value:
        return self.values[self._index(offset_s)[1]]

    def next_change_s(self, offset_s: float) -> float | None:
        """The first offset after ``offset_s`` with another value."""
        if len(self.values) == 1:
            return None
        lap, index = self._index(offset_s)
        if index + 1 < len(self.values):
            sample = lap * self.sample_count + self.first_samples[index + 1]
        else:
            skipped = 1 if self.values[0] == self.values[-1] else 0
            sample = (lap + 1) * self.sample_count + self.first_samples[skipped]
        return sample * self.gap_ms / 1000

    def _index(self, offset_s: float) -> tuple[int, int]:
        """Lap and position in ``values``.

        To the millisecond: the difference of two UNIX instants is only near the offset it stands
        for, and the instant of a change must belong to what comes after it.
        """
        lap, within = divmod(round(offset_s * 1000) // self.gap_ms, self.sample_count)
        return lap, bisect_right(self.first_samples, within) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class AvailabilityTrace:
    """Capacity sampled every ``gap_s`` seconds (in whole milliseconds).

    Sample i holds for ``[i gap, (i+1) gap)``.
    """

    gap_s: float
    available: tuple[bool, ...]
    prices_usd_per_hour: tuple[float, ...] | None = None
    """One per sample, if recorded."""
    _capacity: "_Steps[bool]" = field(init=False, repr=False, compare=False, hash=False)
    _prices: "_Steps[float] | None" = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        if not (self.gap_s >= 0.001 and math.isfinite(self.gap_s)):
            raise TraceError(f"the gap between samples must be positive: {self.gap_s}")
        gap_ms = round(self.gap_s * 1000)
        if not self.available:
            raise TraceError("the trace has no samples")
        prices = self.prices_usd_per_hour
        if prices is not None:
            if len(prices) != len(self.available):
                raise TraceError(f"{len(self.available)} samples but {len(prices)} prices")
            if not all(math.isfinite(price) and price > 0 for price in prices):
                raise TraceError("a recorded price is not a price")
        object.__setattr__(self, "_capacity", _Steps.of(self.available, gap_ms))
        object.__setattr__(self, "_prices", None if prices is None else _Steps.of(prices, gap_ms))

    @property
    def length_s(self) -> float:
        """Seconds the trace lasts; after that it starts again."""
        return self.gap_s * len(self.available)


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceMarket:
    """Spot offers follow their trace from ``origin_s`` on; after its end it starts again.

    ``traces`` maps ``offer_id`` to a trace. An instance is taken at the first instant at or after
    its launch at which its trace has no capacity; a trace that never loses capacity never takes
    one. Offers without a trace, and all on-demand offers, follow ``otherwise``.
    """

    traces: Mapping[str, AvailabilityTrace]
    origin_s: float
    otherwise: Market = field(default_factory=ExpectedMarket)
    boot_delay_s: float | None = None

    def __post_init__(self) -> None:
        check_options(None, self.boot_delay_s)

    def price_usd_per_hour(self, offer: Offer, at_s: float) -> float | None:
        """The recorded price; the catalogue's if the trace has none."""
        trace = self._trace(offer)
        if trace is None:
            return self.otherwise.price_usd_per_hour(offer, at_s)
        if trace._prices is None:
            return offer.price_usd_per_hour
        return trace._prices.at(at_s - self.origin_s)

    def next_price_change_s(self, offer: Offer, after_s: float) -> float | None:
        """The next recorded change of price."""
        trace = self._trace(offer)
        if trace is None:
            return self.otherwise.next_price_change_s(offer, after_s)
        if trace._prices is None:
            return None
        return self._instant(trace._prices.next_change_s(after_s - self.origin_s))

    def capacity_available(self, offer: Offer, at_s: float) -> bool:
        """What the trace says of this instant."""
        trace = self._trace(offer)
        if trace is None:
            return self.otherwise.capacity_available(offer, at_s)
        return trace._capacity.at(at_s - self.origin_s)

    def next_capacity_change_s(self, offer: Offer, after_s: float) -> float | None:
        """The next instant at which the trace changes."""
        trace = self._trace(offer)
        if trace is None:
            return self.otherwise.next_capacity_change_s(offer, after_s)
        return self._instant(trace._capacity.next_change_s(after_s - self.origin_s))

    def interruption_at_s(
        self, offer: Offer, instance_ordinal: int, launched_at_s: float
    ) -> float | None:
        """Where the trace goes from available to not; at once if it is not at the launch."""
        if self._trace(offer) is None:
            return self.otherwise.interruption_at_s(offer, instance_ordinal, launched_at_s)
        if not self.capacity_available(offer, launched_at_s):
            return launched_at_s
        return self.next_capacity_change_s(offer, launched_at_s)

    def boot_s(self, offer: Offer, instance_ordinal: int) -> float:
        """The override, or the assumed delay of the offer's kind."""
        return assumed_boot_s(offer) if self.boot_delay_s is None else self.boot_delay_s

    def _trace(self, offer: Offer) -> AvailabilityTrace | None:
        if offer.capacity_type is not CapacityType.SPOT:
            return None
        return self.traces.get(offer.offer_id)

    def _instant(self, offset_s: float | None) -> float | None:
        return None if offset_s is None else self.origin_s + offset_s


def parse_availability_trace(text: str) -> AvailabilityTrace:
    """Read a recorded trace: JSON with ``metadata.gap_seconds``, ``data`` (0 or 1), ``prices``.

    ``TraceError`` says what is missing or out of range.
    """
    try:
        raw = json.loads(text)
        gap_s = float(raw["metadata"]["gap_seconds"])
        samples = tuple(raw["data"])
        recorded = raw.get("prices")
        prices = None if recorded is None else tuple(float(price) for price in recorded)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TraceError(f"not an availability trace: {error!r}") from error
    if not all(sample in (0, 1) for sample in samples):
        raise TraceError("samples must be 0 or 1")
    return AvailabilityTrace(
        gap_s=gap_s,
        available=tuple(sample == 1 for sample in samples),
        prices_usd_per_hour=prices,
    )
