"""Markets: what each promises, and that a story is the same whoever asks and in what order."""

import json
import math
import os
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.pricing.market import (
    AvailabilityTrace,
    CalmMarket,
    ExpectedMarket,
    Market,
    Outages,
    PriceWalk,
    SeededMarket,
    TraceError,
    TraceMarket,
    parse_availability_trace,
)
from tests.unit.pricing.pricing_builders import a_slice, a_spot_offer, an_offer

NOW = 1_793_491_200.0
SPOT = a_spot_offer()
FULL = SeededMarket(
    seed=7, outages=Outages(mean_gap_s=5000, mean_outage_s=700), price_walk=PriceWalk(step_s=600)
)
TRACE = AvailabilityTrace(
    gap_s=195, available=(True, True, False, False, True), prices_usd_per_hour=(1, 1, 2, 1, 1)
)
REPLAY = TraceMarket(traces={SPOT.offer_id: TRACE}, origin_s=NOW)
MARKETS: list[Market] = [CalmMarket(), ExpectedMarket(), SeededMarket(seed=7), FULL, REPLAY]


@pytest.mark.parametrize("market", MARKETS)
def test_on_demand_has_capacity_a_fixed_price_and_no_interruption(market: Market) -> None:
    offer = an_offer()
    for at_s in (NOW, NOW + 1e5, NOW + 1e7):
        assert market.price_usd_per_hour(offer, at_s) == 3.06
        assert market.capacity_available(offer, at_s)
        assert market.next_price_change_s(offer, at_s) is None
        assert market.next_capacity_change_s(offer, at_s) is None
        assert market.interruption_at_s(offer, 1, at_s) is None


@pytest.mark.parametrize("market", MARKETS)
def test_an_unknown_price_stays_unknown(market: Market) -> None:
    offer = a_spot_offer(price_usd_per_hour=None, zone="use1-az2")
    assert market.price_usd_per_hour(offer, NOW) is None
    assert market.next_price_change_s(offer, NOW) is None


@pytest.mark.parametrize("market", MARKETS)
def test_boot_takes_a_gpu_90_s_and_a_slice_180_s(market: Market) -> None:
    assert market.boot_s(SPOT, 1) == 90.0
    assert market.boot_s(a_slice("tpu-v3-8"), 1) == 180.0


@pytest.mark.parametrize("market", MARKETS)
@settings(max_examples=40, deadline=None)
@given(offset_s=st.floats(-1e5, 1e6), ordinal=st.integers(0, 50))
def test_changes_come_strictly_later_and_interruptions_not_before_the_launch(
    market: Market, offset_s: float, ordinal: int
) -> None:
    at_s = NOW + offset_s
    for change in (
        market.next_price_change_s(SPOT, at_s),
        market.next_capacity_change_s(SPOT, at_s),
    ):
        assert change is None or change > at_s
    end = market.interruption_at_s(SPOT, ordinal, at_s)
    assert end is None or end >= at_s


@pytest.mark.parametrize("market", [FULL, REPLAY])
@settings(max_examples=30, deadline=None)
@given(offset_s=st.floats(-1e5, 1e6), share=st.floats(0.0, 0.999))
def test_capacity_and_price_hold_until_the_next_change_and_capacity_flips_there(
    market: Market, offset_s: float, share: float
) -> None:
    at_s = NOW + offset_s
    change_s = market.next_capacity_change_s(SPOT, at_s)
    assert change_s is not None
    between_s = at_s + (change_s - at_s) * share
    if change_s - between_s > 0.01:
        assert market.capacity_available(SPOT, at_s) == market.capacity_available(SPOT, between_s)
    assert market.capacity_available(SPOT, change_s) != market.capacity_available(
        SPOT, change_s - 0.01
    )
    price_change_s = market.next_price_change_s(SPOT, at_s)
    assert price_change_s is not None
    between_s = at_s + (price_change_s - at_s) * share
    if price_change_s - between_s > 0.01:
        assert market.price_usd_per_hour(SPOT, at_s) == market.price_usd_per_hour(SPOT, between_s)


@pytest.mark.parametrize("market", [FULL, REPLAY])
def test_a_story_walks_forward_through_its_changes(market: Market) -> None:
    at_s, seen = NOW, 0
    while at_s < NOW + 50_000:
        following = market.next_capacity_change_s(SPOT, at_s)
        assert following is not None and following > at_s
        at_s, seen = following, seen + 1
    assert 10 < seen < 200


def test_expected_lifetime_is_the_mean() -> None:
    assert ExpectedMarket().interruption_at_s(SPOT, 1, NOW) == NOW + 72_000
    assert ExpectedMarket(interruptions_per_hour=2).interruption_at_s(SPOT, 1, NOW) == NOW + 1800
    assert ExpectedMarket(interruptions_per_hour=0).interruption_at_s(SPOT, 1, NOW) is None


def test_an_unknown_rate_is_assumed_not_never() -> None:
    unknown = a_spot_offer(interruption_rate_per_hour=None)
    assert ExpectedMarket().interruption_at_s(unknown, 1, NOW) == NOW + 36_000


def test_calm_market_takes_nothing() -> None:
    assert CalmMarket().interruption_at_s(SPOT, 1, NOW) is None
    assert CalmMarket(boot_delay_s=0).boot_s(SPOT, 1) == 0


@pytest.mark.parametrize("kind", [CalmMarket, ExpectedMarket])
def test_boot_delay_can_be_overridden(kind: type) -> None:
    assert kind(boot_delay_s=5.0).boot_s(a_slice("tpu-v3-8"), 1) == 5.0


def test_bad_options_are_refused() -> None:
    for make in (
        lambda: SeededMarket(seed=1, interruptions_per_hour=-1),
        lambda: SeededMarket(seed=1, boot_delay_s=math.nan),
        lambda: ExpectedMarket(interruptions_per_hour=math.nan),
        lambda: Outages(mean_gap_s=0),
        lambda: PriceWalk(step_s=0),
        lambda: PriceWalk(lowest_factor=1.5),
    ):
        with pytest.raises(ValueError):
            make()


def story(market: Market, order: random.Random) -> dict[tuple[str, int], object]:
    questions = [(zone, i) for zone in ("use1-az1", "use1-az2", "usw2-az1") for i in range(12)]
    order.shuffle(questions)
    answers: dict[tuple[str, int], object] = {}
    for zone, i in questions:
        offer = a_spot_offer(zone=zone)
        at_s = NOW + 1000.0 * i
        answers[zone, i] = (
            market.interruption_at_s(offer, i, at_s),
            market.price_usd_per_hour(offer, at_s),
            market.capacity_available(offer, at_s),
            market.next_capacity_change_s(offer, at_s),
        )
    return answers


def test_the_same_seed_tells_the_same_story_in_any_order() -> None:
    again = SeededMarket(seed=7, outages=FULL.outages, price_walk=FULL.price_walk)
    assert story(FULL, random.Random(1)) == story(again, random.Random(2))
    other = SeededMarket(seed=8, outages=FULL.outages, price_walk=FULL.price_walk)
    assert story(FULL, random.Random(1)) != story(other, random.Random(1))


def test_the_story_of_a_seed_is_the_same_on_every_machine() -> None:
    # Known answers: a change here changes every recorded rehearsal.
    assert SeededMarket(seed=0).interruption_at_s(SPOT, 1, 0.0) == pytest.approx(44525.325)
    assert SeededMarket(seed=0).interruption_at_s(SPOT, 2, 0.0) == pytest.approx(34195.010)


def test_lifetimes_are_exponential_with_the_offers_mean() -> None:
    market = SeededMarket(seed=3, interruptions_per_hour=1.0)
    lives = sorted(
        end for i in range(4000) if (end := market.interruption_at_s(SPOT, i, 0.0)) is not None
    )
    assert len(lives) == 4000
    assert sum(lives) / 4000 == pytest.approx(3600, rel=0.05)
    # Kolmogorov-Smirnov against the exponential: 1.63 / sqrt(n) is the 1 % point.
    distance = max(
        abs((i + 0.5) / 4000 - (1 - math.exp(-life / 3600))) for i, life in enumerate(lives)
    )
    assert distance < 1.63 / math.sqrt(4000)


def test_a_rate_of_zero_never_interrupts() -> None:
    assert SeededMarket(seed=3, interruptions_per_hour=0).interruption_at_s(SPOT, 1, NOW) is None


def test_an_outage_ends_the_instances_in_its_zone() -> None:
    market = SeededMarket(seed=3, interruptions_per_hour=0, outages=Outages())
    end = market.interruption_at_s(SPOT, 1, NOW)
    assert end is not None
    assert not market.capacity_available(SPOT, end)
    assert end == market.interruption_at_s(SPOT, 2, NOW)


def test_outages_take_about_their_share_of_time() -> None:
    market = SeededMarket(seed=3, outages=Outages(mean_gap_s=9000, mean_outage_s=1000))
    samples = [market.capacity_available(SPOT, 317.0 * i) for i in range(20_000)]
    assert samples.count(False) / len(samples) == pytest.approx(0.1, abs=0.02)


def test_prices_wander_round_the_catalogues_within_bounds() -> None:
    market = SeededMarket(seed=3, price_walk=PriceWalk(step_s=600, volatility=0.2))
    prices = [market.price_usd_per_hour(SPOT, 600.0 * i) or 0.0 for i in range(3000)]
    assert min(prices) >= 0.46 and max(prices) <= 1.84
    assert len(set(prices)) > 1000
    logs = [math.log(p / 0.92) for p in prices]
    steps = [abs(b - a) for a, b in pairwise(logs)]
    assert sum(steps) / len(steps) < 0.2  # near instants have near prices


@pytest.mark.parametrize("start_s", [0.0, NOW])
def test_steps_of_a_walk_advance_for_any_length(start_s: float) -> None:
    for step_s in (0.1, 0.7, 1 / 3, 3600.0):
        market = SeededMarket(seed=1, price_walk=PriceWalk(step_s=step_s))
        at_s = start_s
        for _ in range(300):
            following = market.next_price_change_s(SPOT, at_s)
            assert following is not None and at_s < following <= at_s + step_s * (1 + 1e-6)
            at_s = following


def test_a_trace_is_followed_and_starts_again() -> None:
    available = [REPLAY.capacity_available(SPOT, NOW + 195 * i) for i in range(10)]
    assert available == [True, True, False, False, True] * 2
    assert REPLAY.interruption_at_s(SPOT, 1, NOW) == NOW + 390
    # The last sample and the first of the next lap are one spell.
    assert REPLAY.interruption_at_s(SPOT, 1, NOW + 800) == NOW + 975 + 390
    assert REPLAY.interruption_at_s(SPOT, 1, NOW + 400) == NOW + 400
    assert REPLAY.next_capacity_change_s(SPOT, NOW + 390) == NOW + 780


@pytest.mark.parametrize("gap_s", [0.1, 0.3, 33.3, 195.0])
def test_the_instant_of_a_change_belongs_to_what_comes_after_it(gap_s: float) -> None:
    trace = AvailabilityTrace(gap_s=gap_s, available=(True, False))
    market = TraceMarket(traces={SPOT.offer_id: trace}, origin_s=NOW + 0.123)
    at_s = NOW + 0.123
    for _ in range(200):
        before = market.capacity_available(SPOT, at_s)
        following = market.next_capacity_change_s(SPOT, at_s)
        assert following is not None and following == pytest.approx(at_s + gap_s, abs=1e-3)
        assert market.capacity_available(SPOT, following) is not before
        at_s = following


def test_a_trace_has_its_own_prices() -> None:
    prices = [REPLAY.price_usd_per_hour(SPOT, NOW + 195 * i) for i in range(5)]
    assert prices == [1, 1, 2, 1, 1]
    assert REPLAY.next_price_change_s(SPOT, NOW) == NOW + 390
    assert REPLAY.next_price_change_s(SPOT, NOW + 585) == NOW + 975 + 390


def test_a_trace_without_prices_keeps_the_catalogues() -> None:
    market = TraceMarket(
        traces={SPOT.offer_id: AvailabilityTrace(gap_s=10, available=(True, False))}, origin_s=NOW
    )
    assert market.price_usd_per_hour(SPOT, NOW + 15) == 0.92
    assert market.next_price_change_s(SPOT, NOW) is None


def test_a_trace_that_never_loses_capacity_takes_nothing() -> None:
    market = TraceMarket(
        traces={SPOT.offer_id: AvailabilityTrace(gap_s=10, available=(True,) * 4)}, origin_s=NOW
    )
    assert market.interruption_at_s(SPOT, 1, NOW) is None
    assert market.next_capacity_change_s(SPOT, NOW) is None


def test_offers_without_a_trace_follow_the_other_market() -> None:
    elsewhere = a_spot_offer(zone="use1-az2")
    assert REPLAY.interruption_at_s(elsewhere, 1, NOW) == NOW + 72_000
    calm = TraceMarket(traces={}, origin_s=NOW, otherwise=CalmMarket())
    assert calm.interruption_at_s(SPOT, 1, NOW) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"metadata": {"gap_seconds": 0}, "data": [1]}',
        '{"metadata": {"gap_seconds": 10}, "data": []}',
        '{"metadata": {"gap_seconds": 10}, "data": [2]}',
        '{"metadata": {"gap_seconds": 10}, "data": [1, 1], "prices": [1.0]}',
        '{"metadata": {"gap_seconds": 10}, "data": [1], "prices": [0.0]}',
        '{"metadata": {"gap_seconds": 10}, "data": 1}',
    ],
)
def test_what_is_no_trace_is_refused(text: str) -> None:
    with pytest.raises(TraceError):
        parse_availability_trace(text)


def recorded(name: str) -> AvailabilityTrace:
    data = os.environ.get("CLOUDGAVEL_DATA")
    path = Path(data or "") / "spot_traces" / name
    if not data or not path.exists():
        pytest.skip("CLOUDGAVEL_DATA names no directory with spot_traces")
    return parse_availability_trace(path.read_text())


def test_a_recorded_trace_interrupts_exactly_where_it_falls() -> None:
    trace = recorded("us-west-2b_v100_1.json")
    market = TraceMarket(traces={SPOT.offer_id: trace}, origin_s=NOW)
    samples = trace.available
    falls = [
        NOW + 195 * (i + 1) for i in range(len(samples) - 1) if samples[i] and not samples[i + 1]
    ]
    assert len(falls) == 94
    at_s, ends = NOW, []
    while at_s < NOW + trace.length_s:
        if market.capacity_available(SPOT, at_s):
            end = market.interruption_at_s(SPOT, len(ends), at_s)
            assert end is not None
            ends.append(end)
            at_s = end
        else:
            following = market.next_capacity_change_s(SPOT, at_s)
            assert following is not None
            at_s = following
    assert [end for end in ends if end < NOW + trace.length_s] == falls


def test_recorded_prices_are_read() -> None:
    trace = recorded("prices/us-east-1b_intel_64.json")
    market = TraceMarket(traces={SPOT.offer_id: trace}, origin_s=NOW)
    assert market.price_usd_per_hour(SPOT, NOW) == 1.2754
    assert trace.gap_s == 34


def test_a_trace_round_trips_through_its_text() -> None:
    text = json.dumps(
        {"metadata": {"gap_seconds": 195}, "data": [1, 1, 0, 0, 1], "prices": [1, 1, 2, 1, 1]}
    )
    assert parse_availability_trace(text) == TRACE


def test_a_story_counts_from_its_origin_and_begins_at_the_catalogues_price() -> None:
    def told(origin_s: float) -> list[tuple[float | None, bool]]:
        market = SeededMarket(
            seed=3, outages=Outages(), price_walk=PriceWalk(step_s=3600.0), origin_s=origin_s
        )
        instants = [origin_s + hours * 1800.0 for hours in range(48)]
        return [
            (market.price_usd_per_hour(SPOT, at_s), market.capacity_available(SPOT, at_s))
            for at_s in instants
        ]

    early, late = told(NOW), told(NOW + 1234.0)
    assert early == late
    assert early[0][0] == SPOT.price_usd_per_hour
    assert len({price for price, _ in early}) > 10
