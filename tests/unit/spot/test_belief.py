"""The filter against enumeration, and learning."""

import itertools

import numpy as np
import pytest

from cloudgavel.policies.spot.belief import agreeing, first_belief, outlook, seen
from cloudgavel.policies.spot.regimes import RegimeFamily, step_chain

TINY = RegimeFamily(
    stay_scales_s=(900.0, 9000.0),
    away_scales_s=(600.0, 6000.0),
    decay=1.0,
    age_edges_s=(1200.0,),
    redraws_per_hour=0.3,
    rerun_share=0.2,
    drifts_per_hour=0.4,
)


def test_rows_of_the_chain_are_chances() -> None:
    chain = step_chain(TINY, 600.0)
    assert np.allclose(chain.mix.sum(axis=1), 1)
    assert np.allclose(chain.rerun.sum(axis=2), 1)
    assert np.allclose(TINY.stationary().sum(axis=(0, 1)), 1)
    assert np.all((chain.change > 0) & (chain.change < 1))


def test_hazards_fall_with_age_down_to_the_floor() -> None:
    rates = RegimeFamily(decay=1.0, age_edges_s=(3600.0, 36000.0)).change_rates_per_s()
    assert np.all(np.diff(rates, axis=1) <= 0)
    scales = RegimeFamily().away_scales_s
    assert rates.min() >= 0.1 / max(scales) - 1e-12


def test_the_filter_equals_enumeration_of_hidden_paths() -> None:
    chain = step_chain(TINY, 600.0)
    observed = [True, True, False, True]
    ages, regimes = TINY.ages, TINY.count
    states = list(itertools.product(range(ages), range(regimes)))

    def moves(age: int, regime: int, up: bool, then: bool) -> np.ndarray:
        """Chances (A, K) of the next hidden state and of seeing ``then``."""
        result = np.zeros((ages, regimes))
        for after in range(regimes):
            weight = chain.mix[regime, after]
            change = chain.change[int(up), age, after]
            if up == then:
                on = chain.age_on[age]
                result[age, after] += weight * (1 - change) * (1 - on)
                result[min(age + 1, ages - 1), after] += weight * (1 - change) * on
            else:
                result[0] += weight * change * chain.rerun[int(then), after]
        return result

    start = first_belief(TINY, np.array(observed[0]))
    paths = {state: float(start[state]) for state in states}
    for before, after in itertools.pairwise(observed):
        moved = dict.fromkeys(states, 0.0)
        for state, weight in paths.items():
            chances = moves(*state, before, after)
            for target in states:
                moved[target] += weight * float(chances[target])
        paths = moved
    total = sum(paths.values())
    expected = np.array([[paths[(a, k)] / total for k in range(regimes)] for a in range(ages)])

    belief = start
    for before, after in itertools.pairwise(observed):
        belief = seen(outlook(belief, np.array(before), chain), np.array(after))
    assert belief == pytest.approx(expected)


def loss_chance_after(states: list[bool], family: RegimeFamily, step_s: float) -> float:
    chain = step_chain(family, step_s)
    belief = first_belief(family, np.array(states[0]))
    for before, after in itertools.pairwise(states):
        belief = seen(outlook(belief, np.array(before), chain), np.array(after))
    ahead = outlook(belief, np.array(states[-1]), chain)
    return float(ahead.loss_chance() if states[-1] else 1 - ahead.loss_chance())


def test_an_offer_that_has_lasted_is_trusted_and_one_that_flaps_is_not() -> None:
    family = RegimeFamily()
    lasting = loss_chance_after([True] * 100, family, 600.0)
    fresh = loss_chance_after([True], family, 600.0)
    flapping = loss_chance_after([True, False] * 20 + [True], family, 600.0)
    assert lasting < fresh / 2
    assert flapping > 10 * lasting


def test_belief_recovers_when_the_regime_changes() -> None:
    family = RegimeFamily()
    calm = [True] * 150
    storm = calm + [False, True] * 6
    assert loss_chance_after(storm, family, 600.0) > 5 * loss_chance_after(calm, family, 600.0)
    after = [*storm, *([True] * 150)]
    assert loss_chance_after(after, family, 600.0) < 2 * loss_chance_after(calm, family, 600.0)


def test_weights_must_fit() -> None:
    with pytest.raises(ValueError, match="weights"):
        RegimeFamily(weights=(1.0,)).prior()


@pytest.mark.parametrize("up", [True, False])
def test_a_better_forecast_moves_the_hazard_and_nothing_else(up: bool) -> None:
    chain = step_chain(TINY, 600.0)
    now = np.array([up, up])
    prospect = outlook(first_belief(TINY, now), now, chain)
    hazards = (chain.change @ chain.mix.T)[int(up)]
    wanted = np.array([hazards.min() * 1.5, hazards.max() * 0.8])
    result = agreeing(prospect, now, chain, wanted)
    before, after = (prospect.spot, result.spot) if up else (prospect.none, result.none)
    mean = (after * hazards).sum(axis=(-2, -1)) / after.sum(axis=(-2, -1))
    assert mean == pytest.approx(wanted, rel=1e-2)
    assert after.sum(axis=(-2, -1)) == pytest.approx(before.sum(axis=(-2, -1)))
    assert result.loss_chance() == pytest.approx(prospect.loss_chance())
    out_of_reach = agreeing(prospect, now, chain, np.array([0.0, 1.0]))
    assert np.all(np.isfinite(out_of_reach.spot))
    assert np.all(np.isfinite(out_of_reach.none))
