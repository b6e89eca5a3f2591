import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.pricing.interruption import (
    HazardBelief,
    belief_around,
    expected_lost_work_s,
    gang_hazard_per_hour,
    gang_probability,
    hazard_per_hour,
    mean_lifetime_s,
    probability_within,
    save_interval_s,
    useful_share,
)

quick = settings(max_examples=60, deadline=None)
hazards = st.floats(1e-4, 20.0)


def test_probability_of_a_tenth_an_hour() -> None:
    assert probability_within(0.1, 3600) == pytest.approx(0.0951626, abs=1e-7)
    assert probability_within(0.0, 3600) == 0.0
    assert probability_within(0.1, 0) == 0.0


@quick
@given(hazards, st.floats(1.0, 7200.0))
def test_hazard_and_probability_are_inverse(hazard: float, span_s: float) -> None:
    probability = probability_within(hazard, span_s)
    if probability < 1 - 1e-6:
        assert hazard_per_hour(probability, span_s) == pytest.approx(hazard, rel=1e-6)


@quick
@given(hazards, st.integers(1, 64))
def test_a_gangs_hazard_is_its_probability(hazard: float, machine_count: int) -> None:
    assert probability_within(gang_hazard_per_hour(hazard, machine_count), 600) == pytest.approx(
        gang_probability(probability_within(hazard, 600), machine_count), rel=1e-9
    )


def test_gang_probability_by_hand() -> None:
    assert gang_probability(0.1, 3) == pytest.approx(1 - 0.9**3)
    assert gang_probability(1.0, 3) == 1.0
    assert gang_probability(0.3, 1) == pytest.approx(0.3)


def test_mean_lifetime() -> None:
    assert mean_lifetime_s(0.1) == 36_000.0
    assert mean_lifetime_s(0.0) == math.inf


def test_lost_work_is_half_the_interval_when_interruptions_are_rare() -> None:
    assert expected_lost_work_s(1e-9, 600) == pytest.approx(300)
    assert expected_lost_work_s(0.0, 600) == 300.0
    assert expected_lost_work_s(0.1, 0) == 0.0


def test_lost_work_agrees_with_the_integral() -> None:
    hazard, interval_s, steps = 6.0, 900.0, 100_000
    per_s = hazard / 3600
    weights = [math.exp(-per_s * (i + 0.5) * interval_s / steps) for i in range(steps)]
    mean = sum(w * (i + 0.5) * interval_s / steps for i, w in enumerate(weights)) / sum(weights)
    assert expected_lost_work_s(hazard, interval_s) == pytest.approx(mean, rel=1e-6)


@quick
@given(st.floats(1e-6, 50.0), st.floats(1.0, 20_000.0))
def test_lost_work_never_exceeds_half_the_interval_or_the_lifetime(
    hazard: float, interval_s: float
) -> None:
    lost_s = expected_lost_work_s(hazard, interval_s)
    assert 0 <= lost_s <= min(interval_s / 2, 3600 / hazard) * (1 + 1e-9)


def test_save_interval_is_youngs_when_saves_are_cheap() -> None:
    young = math.sqrt(2 * 5 * 36_000)
    assert save_interval_s(0.1, 5) == pytest.approx(young, rel=0.02)


def test_save_interval_edges() -> None:
    assert save_interval_s(0.0, 30) == 3600.0
    assert save_interval_s(0.1, 0.0) == 60.0
    assert save_interval_s(0.0001, 300) == 3600.0
    assert save_interval_s(60.0, 600, minimum_s=1) == 60.0  # saves outlast the mean lifetime
    assert save_interval_s(0.1, 5, minimum_s=10, maximum_s=100) == 100
    with pytest.raises(ValueError, match="clamp"):
        save_interval_s(0.1, 5, minimum_s=100, maximum_s=10)


@quick
@given(st.floats(0.02, 5.0), st.floats(1.0, 120.0))
def test_no_other_interval_wastes_much_less(hazard: float, save_s: float) -> None:
    best_s = save_interval_s(hazard, save_s, minimum_s=1e-3, maximum_s=1e9)
    share = useful_share(hazard, save_interval_s=best_s, save_s=save_s)
    for factor in (0.5, 0.8, 1.25, 2.0):
        other = useful_share(hazard, save_interval_s=best_s * factor, save_s=save_s)
        assert share >= other - 0.002


def test_useful_share_by_hand() -> None:
    assert useful_share(0.0, save_interval_s=570, save_s=30) == pytest.approx(0.95)
    # Mean 3600 s, segments of 600 s: 600 / (3600 e^(60/3600) (e^(630/3600) - 1)).
    expected = 600 / (3600 * math.exp(60 / 3600) * (math.exp(630 / 3600) - 1))
    assert useful_share(1.0, save_interval_s=600, save_s=30, restore_s=60) == pytest.approx(
        expected
    )
    assert useful_share(1e6, save_interval_s=600, save_s=30) == 0.0


@quick
@given(hazards, st.floats(1.0, 3600.0), st.floats(0.0, 600.0), st.floats(0.0, 600.0))
def test_useful_share_is_a_share_and_falls_with_the_hazard(
    hazard: float, interval_s: float, save_s: float, restore_s: float
) -> None:
    share = useful_share(hazard, save_interval_s=interval_s, save_s=save_s, restore_s=restore_s)
    worse = useful_share(2 * hazard, save_interval_s=interval_s, save_s=save_s, restore_s=restore_s)
    assert 0 <= worse <= share <= 1


def test_belief_moves_from_the_prior_to_what_is_seen() -> None:
    belief = belief_around(0.1, worth_h=20)
    assert belief.mean_per_hour == pytest.approx(0.1)
    assert belief.updated(events=0, exposure_h=20).mean_per_hour == pytest.approx(0.05)
    seen = belief.updated(events=3, exposure_h=5).updated(events=2, exposure_h=5)
    assert seen.mean_per_hour == pytest.approx((2 + 5) / 30)
    assert belief.updated(events=400, exposure_h=1000).mean_per_hour == pytest.approx(0.4, rel=0.02)


@quick
@given(st.integers(0, 40), st.floats(0.0, 1000.0), st.integers(0, 5), st.floats(0.0, 50.0))
def test_updates_can_be_made_in_any_order(
    events: int, exposure_h: float, more_events: int, more_h: float
) -> None:
    belief = belief_around(0.1)
    one = belief.updated(events=events, exposure_h=exposure_h).updated(
        events=more_events, exposure_h=more_h
    )
    other = belief.updated(events=more_events, exposure_h=more_h).updated(
        events=events, exposure_h=exposure_h
    )
    assert one.mean_per_hour == pytest.approx(other.mean_per_hour)


def test_the_upper_bound_is_the_gamma_quantile_closely() -> None:
    # 90 % quantiles of gamma(5, 1) and gamma(20, 1): 7.99359 and 25.9025.
    assert HazardBelief(prior_events=5, prior_exposure_h=1).upper_per_hour(0.9) == pytest.approx(
        7.99359, rel=0.01
    )
    assert HazardBelief(prior_events=20, prior_exposure_h=10).upper_per_hour(0.9) == pytest.approx(
        2.59025, rel=0.01
    )
    assert HazardBelief(prior_events=0, prior_exposure_h=1).upper_per_hour() == 0.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: probability_within(-0.1, 10),
        lambda: probability_within(math.nan, 10),
        lambda: hazard_per_hour(1.0, 10),
        lambda: hazard_per_hour(0.5, 0),
        lambda: gang_probability(1.5, 2),
        lambda: gang_probability(0.5, 0),
        lambda: gang_hazard_per_hour(0.5, 0),
        lambda: useful_share(0.1, save_interval_s=0, save_s=1),
        lambda: HazardBelief(prior_events=1, prior_exposure_h=0),
        lambda: belief_around(-1),
        lambda: belief_around(0.1).updated(events=-1, exposure_h=1),
    ],
)
def test_nonsense_is_refused(call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError):
        call()
