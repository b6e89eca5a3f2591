"""The cost range and the deadlines' probabilities over simulated markets."""

from dataclasses import replace

import pytest

from cloudgavel.policies.registry import policy_named
from cloudgavel.simulator.market_range import (
    CHEAPEST_PLACES,
    cheapest_places,
    market_range,
    percentile,
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
    )


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
    )
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


def test_percentiles_lie_between_the_order_statistics():
    assert percentile([3.0], 0.05) == 3.0
    assert percentile([0.0, 10.0], 0.05) == pytest.approx(0.5)
    assert percentile([float(n) for n in range(101)], 0.95) == pytest.approx(95.0)


def test_the_cheapest_places_of_each_kind_are_kept():
    offers = [an_offer(f"z{n}", spot=True, price=1.0 + n) for n in range(9)]
    dear = replace(an_offer("z0", price=9.0))
    kept = cheapest_places([*offers, dear])
    assert set(kept) == {*offers[:CHEAPEST_PLACES], dear}
