"""What was seen of spot offers, and the loss rates that follow."""

import pytest

from cloudgavel.pricing.sightings import (
    MOST_SIGHTINGS,
    NOTHING_SEEN,
    OfferSightings,
    catalogue_rate_per_hour,
    learnt_rates_per_hour,
)
from tests.builders import NOW_S, an_offer

SPOT = an_offer(spot=True, price=1.0)
SIBLING = an_offer(spot=True, price=1.1, zone="use1-az2")
STRANGER = an_offer("T4", spot=True, price=0.2)


def test_a_life_that_ends_by_the_cloud_is_a_span_and_a_loss() -> None:
    known = NOTHING_SEEN.lived(NOW_S, NOW_S + 7200, taken=True)
    assert (known.taken, known.lived_h) == (1, 2.0)
    assert [(each.at_s - NOW_S, each.available) for each in known.seen] == [
        (0, True),
        (7200, False),
    ]


def test_a_life_that_we_ended_is_no_loss() -> None:
    known = NOTHING_SEEN.lived(NOW_S, NOW_S + 3600, taken=False)
    assert (known.taken, [each.available for each in known.seen]) == (0, [True])


def test_histories_are_bounded_and_keep_the_newest() -> None:
    known = OfferSightings()
    for number in range(MOST_SIGHTINGS + 9):
        known = known.refused(NOW_S + number)
    assert len(known.seen) == MOST_SIGHTINGS
    assert known.seen[-1].at_s == NOW_S + MOST_SIGHTINGS + 8


def test_without_history_the_rate_is_the_catalogues() -> None:
    unknown = an_offer("A100", spot=True, interruption_rate_per_hour=None)
    assert learnt_rates_per_hour([SPOT, unknown, an_offer()], {}) == {}
    assert [catalogue_rate_per_hour(each) for each in (SPOT, unknown, an_offer())] == [0.1, 0.1, 0]


def test_losses_raise_the_rate_here_a_little_next_door_and_nowhere_else() -> None:
    seen = {SPOT.offer_id: OfferSightings(taken=8, lived_h=4.0)}
    rates = learnt_rates_per_hour([SPOT, SIBLING, STRANGER], seen)
    assert rates[SPOT.offer_id] == pytest.approx((0.1 * 20 + 8) / 24)
    assert rates[SIBLING.offer_id] == pytest.approx((0.1 * 20 + 2) / 21)
    assert STRANGER.offer_id not in rates


def test_a_long_calm_lowers_the_rate() -> None:
    seen = {SPOT.offer_id: OfferSightings(taken=0, lived_h=100.0)}
    assert learnt_rates_per_hour([SPOT], seen)[SPOT.offer_id] < 0.02
