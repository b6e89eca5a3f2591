"""The cost range and the deadlines' probabilities over simulated markets."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from cloudgavel.policies.registry import policy_named
from cloudgavel.simulator.market_range import (
    CHEAPEST_PLACES,
    cheapest_places,
    market_range,
    quantile,
    usual_markets,
)
from tests.unit.runtime.scripted import START_S, a_job, a_run, an_offer

OFFERS = [
    an_offer("z1", spot=True, price=0.9, rate_per_hour=0.5),
    an_offer("z1", price=3.06),
]


def ranged(run, markets, **options):
    return market_range(
        run,
        markets=markets,
        offers=OFFERS,
        policy=policy_named("min_cost"),
        now_s=START_S,
        budget_usd=options.pop("budget_usd", None),
        **options,
    ).wait()


def test_spot_gives_a_range_and_the_same_one_every_time():
    run = a_run(a_job("a", steps=2 * 3600, deadline_s=9 * 3600.0))
    found = ranged(run, markets=3)
    assert 0 < found.p05_usd < found.p95_usd <= 9 * 3.06
    assert found.markets == 3
    assert found.deadline_share == {"a": 1.0}
    assert ranged(run, markets=3) == found


def test_processes_change_nothing():
    run = a_run(a_job("a", steps=3600, deadline_s=9 * 3600.0))
    assert ranged(run, markets=2, workers=2) == ranged(run, markets=2)


def test_on_demand_alone_costs_the_same_everywhere():
    run = a_run(a_job("a", steps=3600))
    found = market_range(
        run,
        markets=3,
        offers=OFFERS[1:],
        policy=policy_named("min_cost"),
        now_s=START_S,
        budget_usd=None,
    ).wait()
    assert found.p05_usd == pytest.approx(found.p95_usd)
    assert found.deadline_share == {}


def test_a_deadline_that_nothing_keeps_has_probability_nought():
    run = a_run(
        a_job("late", steps=3600, deadline_s=600.0), a_job("early", steps=60, deadline_s=36000.0)
    )
    found = ranged(run, markets=3, best_effort=True)
    assert found.deadline_share == {"late": 0.0, "early": 1.0}


def test_no_market_gives_no_range():
    assert ranged(a_run(), markets=0) is None


def test_quantiles_lie_between_the_values_that_enclose_them():
    assert quantile([3.0], 0.05) == 3.0
    assert quantile([0.0, 10.0], 0.05) == 0.0
    assert quantile([0.0, 10.0], 0.5) == pytest.approx(5.0)
    assert quantile([float(n) for n in range(1, 20)], 0.05) == pytest.approx(1.0)
    assert quantile([float(n) for n in range(1, 20)], 0.95) == pytest.approx(19.0)
    assert quantile([float(n) for n in range(1, 100)], 0.95) == pytest.approx(95.0)


@pytest.mark.parametrize(("count", "share"), [(4, 0.6), (10, 9 / 11), (19, 0.9), (50, 0.9)])
@pytest.mark.parametrize("drawn", ["uniform", "exponential", "lognormal"])
def test_the_range_holds_as_much_of_what_it_was_drawn_from_as_is_said(count, share, drawn):
    """Of 4,000 ranges from known distributions: part of the distribution inside, on average."""
    dice = np.random.default_rng(7)
    uniform = np.sort(dice.uniform(size=(4000, count)), axis=1)
    frozen = {
        "uniform": scipy.stats.uniform(),
        "exponential": scipy.stats.expon(),
        "lognormal": scipy.stats.lognorm(0.3),
    }[drawn]
    inside = []
    for values in frozen.ppf(uniform):
        low, high = quantile(values, 0.05), quantile(values, 0.95)
        inside.append(frozen.cdf(high) - frozen.cdf(low))
    # Between two values the line bends away a little from the distribution.
    assert np.mean(inside) == pytest.approx(share, abs=0.012)


def test_the_more_work_the_fewer_markets():
    assert [usual_markets(n) for n in (0, 1, 6, 10, 50, 1000)] == [10, 10, 10, 6, 4, 4]


def test_the_cheapest_places_of_each_kind_are_kept():
    offers = [an_offer(f"z{n}", spot=True, price=1.0 + n) for n in range(9)]
    dear = replace(an_offer("z0", price=9.0))
    kept = cheapest_places([*offers, dear])
    assert set(kept) == {*offers[:CHEAPEST_PLACES], dear}
