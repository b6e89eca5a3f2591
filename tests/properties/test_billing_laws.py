"""Laws of bills: slices add up, time never pays back, history stands still."""

from fractions import Fraction
from itertools import pairwise
from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.pricing.billing import (
    PriceChange,
    PriceSegment,
    accrued_micro_usd,
    committed_micro_usd,
    cost_micro_usd,
    final_bill,
    slice_micro_usd,
)

LAUNCH = 1_793_491_200.0
quick = settings(max_examples=80, deadline=None)

prices = st.integers(0, 120_000_000).map(lambda micro: micro / 1_000_000)
spans = st.integers(0, 10**8).map(lambda ms: ms / 1000)


@st.composite
def price_changes(draw: st.DrawFn) -> list[PriceChange]:
    changes = [PriceChange(at_s=LAUNCH, usd_per_hour=draw(prices))]
    offsets = sorted(draw(st.lists(spans, max_size=6)))
    return changes + [
        PriceChange(at_s=LAUNCH + offset, usd_per_hour=draw(prices)) for offset in offsets
    ]


@quick
@given(price_changes(), st.lists(spans, min_size=1, max_size=12))
def test_slices_add_up_exactly(changes: list[PriceChange], cuts: list[float]) -> None:
    instants = [LAUNCH, *(LAUNCH + cut for cut in sorted(cuts))]
    parts = [slice_micro_usd(changes, LAUNCH, a, b) for a, b in pairwise(instants)]
    assert sum(parts) == accrued_micro_usd(changes, LAUNCH, instants[-1])
    assert all(part >= 0 for part in parts)


@quick
@given(price_changes(), spans, spans)
def test_accrual_is_monotone(changes: list[PriceChange], one_s: float, other_s: float) -> None:
    early, late = sorted((one_s, other_s))
    assert accrued_micro_usd(changes, LAUNCH, LAUNCH + early) <= accrued_micro_usd(
        changes, LAUNCH, LAUNCH + late
    )


@quick
@given(price_changes(), spans, prices, spans)
def test_history_is_never_repriced(
    changes: list[PriceChange], until_s: float, price: float, later_s: float
) -> None:
    known = [c for c in changes if c.at_s <= LAUNCH + until_s]
    later = PriceChange(at_s=LAUNCH + until_s + later_s, usd_per_hour=price)
    assert accrued_micro_usd(known, LAUNCH, LAUNCH + until_s) == accrued_micro_usd(
        [*known, later], LAUNCH, LAUNCH + until_s
    )


@quick
@given(price_changes(), spans)
def test_the_bill_is_the_accrual_or_the_minimum(
    changes: list[PriceChange], elapsed_s: float
) -> None:
    bill = final_bill(changes, LAUNCH, ended_at_s=LAUNCH + elapsed_s)
    accrued = accrued_micro_usd(changes, LAUNCH, LAUNCH + elapsed_s)
    assert bill.cost_micro_usd >= accrued
    assert bill.billed_s == max(60, ceil(Fraction(round(elapsed_s * 1000), 1000)))
    if elapsed_s >= 60:
        assert bill.cost_micro_usd == accrued


@quick
@given(price_changes(), spans)
def test_segments_and_changes_tell_the_same_bill(
    changes: list[PriceChange], elapsed_s: float
) -> None:
    end = LAUNCH + elapsed_s
    known = [c for c in changes if c.at_s <= end]
    ends = [*(c.at_s for c in known[1:]), end]
    segments = [
        PriceSegment(from_s=c.at_s, to_s=to_s, usd_per_hour=c.usd_per_hour)
        for c, to_s in zip(known, ends, strict=True)
    ]
    assert cost_micro_usd(segments) == final_bill(changes, LAUNCH, ended_at_s=end).cost_micro_usd


@quick
@given(prices, spans)
def test_one_price_is_exact_within_half_a_micro_dollar(price: float, span_s: float) -> None:
    seconds = max(60, ceil(Fraction(round(span_s * 1000), 1000)))
    exact = Fraction(round(price * 1_000_000)) * seconds / 3600
    cost = cost_micro_usd([PriceSegment(from_s=0.0, to_s=span_s, usd_per_hour=price)])
    assert abs(cost - exact) <= Fraction(1, 2)


@quick
@given(prices, spans, spans)
def test_what_is_committed_covers_what_is_then_billed(
    price: float, elapsed_s: float, further_s: float
) -> None:
    changes = [PriceChange(at_s=LAUNCH, usd_per_hour=price)]
    now = LAUNCH + elapsed_s
    billed_s = ceil(Fraction(round(elapsed_s * 1000), 1000))
    bill = final_bill(changes, LAUNCH, ended_at_s=now + further_s)
    accrued = accrued_micro_usd(changes, LAUNCH, now)
    # Both the accrual and the bill are rounded to the micro-dollar: one of slack.
    assert bill.cost_micro_usd <= (accrued + committed_micro_usd(price, billed_s, further_s) + 1)
