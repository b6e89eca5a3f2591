import pytest

from cloudgavel.pricing.billing import (
    Bill,
    PriceChange,
    PriceSegment,
    accrued_micro_usd,
    committed_micro_usd,
    cost_micro_usd,
    final_bill,
    slice_micro_usd,
)

LAUNCH = 1_793_491_200.0


def at(usd_per_hour: float, after_s: float = 0.0) -> PriceChange:
    return PriceChange(at_s=LAUNCH + after_s, usd_per_hour=usd_per_hour)


def segment(from_s: float, to_s: float, usd_per_hour: float) -> PriceSegment:
    return PriceSegment(from_s=from_s, to_s=to_s, usd_per_hour=usd_per_hour)


def test_an_hour_costs_the_hourly_price_to_the_micro_dollar() -> None:
    assert cost_micro_usd([segment(0, 3600, 3.06)]) == 3_060_000
    assert accrued_micro_usd([at(3.06)], LAUNCH, LAUNCH + 3600) == 3_060_000
    assert cost_micro_usd([segment(LAUNCH, LAUNCH + 3600, 21.957642)]) == 21_957_642


def test_a_second_begun_is_a_second_billed() -> None:
    one_s = 3_600_000 // 3600
    assert accrued_micro_usd([at(3.6)], LAUNCH, LAUNCH) == 0
    assert accrued_micro_usd([at(3.6)], LAUNCH, LAUNCH + 0.001) == one_s
    assert accrued_micro_usd([at(3.6)], LAUNCH, LAUNCH + 1) == one_s
    assert accrued_micro_usd([at(3.6)], LAUNCH, LAUNCH + 1.5) == 2 * one_s


def test_noise_of_floats_buys_no_second() -> None:
    launched = LAUNCH + 0.1 + 0.2
    assert accrued_micro_usd(
        [PriceChange(at_s=0.0, usd_per_hour=3.6)], launched, launched + 10
    ) == (10_000)
    assert accrued_micro_usd(
        [PriceChange(at_s=0.0, usd_per_hour=3.6)], LAUNCH + 0.3, LAUNCH + 10.3
    ) == (10_000)


def test_the_minimum_is_sixty_seconds() -> None:
    assert cost_micro_usd([segment(0, 5, 36.0)]) == 600_000
    assert cost_micro_usd([segment(0, 0, 36.0)]) == 600_000
    assert cost_micro_usd([segment(0, 60, 36.0)]) == 600_000
    assert cost_micro_usd([segment(0, 61, 36.0)]) == 610_000
    assert cost_micro_usd([segment(0, 5, 36.0)], minimum_s=0) == 50_000


def test_a_failed_launch_costs_nothing() -> None:
    assert cost_micro_usd([]) == 0


def test_a_past_run_keeps_its_price_when_the_catalogue_moves() -> None:
    prices = [at(3.06)]
    first_hour = accrued_micro_usd(prices, LAUNCH, LAUNCH + 3600)
    prices.append(at(4.00, after_s=3600))
    assert accrued_micro_usd(prices, LAUNCH, LAUNCH + 3600) == first_hour == 3_060_000
    assert accrued_micro_usd(prices, LAUNCH, LAUNCH + 7200) == 7_060_000


def test_the_price_in_force_when_a_second_begins_is_its_price() -> None:
    prices = [at(3.6), at(7.2, after_s=1.5)]
    # Seconds 0 and 1 began before the change, second 2 after it.
    assert accrued_micro_usd(prices, LAUNCH, LAUNCH + 3) == 1000 + 1000 + 2000


def test_of_changes_before_the_launch_only_the_last_counts() -> None:
    prices = [at(1.0, after_s=-500), at(9.0, after_s=-100), at(3.6, after_s=0), at(5.0, 3600)]
    assert accrued_micro_usd(prices, LAUNCH, LAUNCH + 10) == 10_000


def test_a_stopped_machine_is_not_billed_while_it_stands() -> None:
    assert cost_micro_usd([segment(0, 3600, 2.0), segment(6 * 3600, 6 * 3600, 2.0)]) == 2_000_000


def test_two_prices_in_two_segments() -> None:
    assert cost_micro_usd([segment(0, 1800, 2.0), segment(1800, 3600, 4.0)]) == 3_000_000


def test_the_last_price_goes_on_to_the_minimum() -> None:
    assert cost_micro_usd([segment(0, 10, 3.6), segment(10, 20, 7.2)]) == 10 * 1000 + 50 * 2000


def test_the_final_bill_and_its_minimum() -> None:
    assert final_bill([at(36.0)], LAUNCH, ended_at_s=LAUNCH + 5) == Bill(
        cost_micro_usd=600_000, billed_s=60, estimated=False
    )
    assert final_bill([at(3.06)], LAUNCH, ended_at_s=LAUNCH + 3600) == Bill(
        cost_micro_usd=3_060_000, billed_s=3600, estimated=False
    )


def test_a_change_after_the_end_does_not_touch_the_minimum() -> None:
    prices = [at(36.0), at(360.0, after_s=10)]
    assert final_bill(prices, LAUNCH, ended_at_s=LAUNCH + 5).cost_micro_usd == 600_000


def test_a_machine_ended_outside_the_tool_is_billed_to_its_last_sign_of_life() -> None:
    bill = final_bill([at(3.06)], LAUNCH, ended_at_s=None, last_seen_alive_at_s=LAUNCH + 7200)
    assert bill == Bill(cost_micro_usd=6_120_000, billed_s=7200, estimated=True)
    never_seen = final_bill([at(3.6)], LAUNCH, ended_at_s=None)
    assert never_seen == Bill(cost_micro_usd=60_000, billed_s=60, estimated=True)


def test_a_slice_is_what_accrued_between() -> None:
    assert slice_micro_usd([at(3.6)], LAUNCH, LAUNCH + 10, LAUNCH + 25) == 15_000
    with pytest.raises(ValueError, match="before it starts"):
        slice_micro_usd([at(3.6)], LAUNCH, LAUNCH + 10, LAUNCH)


def test_committed_covers_the_rest_of_the_minimum_and_the_second_begun() -> None:
    assert committed_micro_usd(3.6, billed_s=0, further_s=10) == 60_000
    assert committed_micro_usd(3.6, billed_s=55, further_s=0) == 5_000
    assert committed_micro_usd(3.6, billed_s=100, further_s=10.2) == 12_000
    assert committed_micro_usd(1.0, billed_s=60, further_s=60) == 16_945  # 16,944.4 rounded up
    with pytest.raises(ValueError, match="negative"):
        committed_micro_usd(3.6, billed_s=0, further_s=-1)


@pytest.mark.parametrize(
    "segments",
    [
        [segment(10, 5, 1.0)],
        [segment(0, 10, 1.0), segment(5, 20, 1.0)],
        [segment(0, 10, float("nan"))],
        [segment(0, 10, -1.0)],
        [segment(0, float("inf"), 1.0)],
    ],
)
def test_impossible_segments_are_refused(segments: list[PriceSegment]) -> None:
    with pytest.raises(ValueError):
        cost_micro_usd(segments)


def test_an_unknown_price_at_launch_is_refused_not_free() -> None:
    for prices in ([], [at(3.06, after_s=10)]):
        with pytest.raises(ValueError, match="price at launch is unknown"):
            accrued_micro_usd(prices, LAUNCH, LAUNCH + 60)


def test_changes_out_of_order_and_ends_before_launch_are_refused() -> None:
    with pytest.raises(ValueError, match="out of order"):
        accrued_micro_usd([at(1.0), at(2.0, 20), at(3.0, 10)], LAUNCH, LAUNCH + 60)
    with pytest.raises(ValueError, match="before its launch"):
        final_bill([at(1.0)], LAUNCH, ended_at_s=LAUNCH - 10)
