"""The clairvoyant optimum against every possible course of action on tiny traces."""

import itertools

import numpy as np
import pytest

from cloudgavel.policies.baselines.clairvoyant import clairvoyant_changeovers, clairvoyant_usd
from cloudgavel.policies.baselines.greedy_spot import GreedySpot
from cloudgavel.policies.baselines.on_demand_only import OnDemandOnly
from cloudgavel.policies.baselines.region_failover import RegionFailover
from cloudgavel.policies.baselines.uniform_progress import UniformProgress
from cloudgavel.policies.spot.view import ON_DEMAND, WAIT, SpotView
from cloudgavel.simulator.spot.replay import replay
from tests.unit.spot.builders import bits, market, markov_market, terms


class Course:
    """One fixed course of action; what is not available becomes waiting, its end on-demand."""

    def __init__(self, course: tuple[int, ...]) -> None:
        self.course = course
        self.step = 0

    def decide(self, view: SpotView) -> np.ndarray:
        choice = self.course[self.step] if self.step < len(self.course) else ON_DEMAND
        self.step += 1
        if choice >= 0 and not view.available[0, choice]:
            choice = WAIT
        return np.array([choice])


def best_of_all_courses(given, there, steps: int) -> tuple[float, int]:
    offers = there.available.shape[2]
    best = (np.inf, 0)
    for course in itertools.product([WAIT, ON_DEMAND, *range(offers)], repeat=steps):
        outcome = replay(Course(course), given, there)
        if not outcome.missed[0]:
            best = min(best, (float(outcome.cost_usd[0]), int(outcome.changeovers[0])))
    return best


@pytest.mark.parametrize("changeover", [0.0, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("row", ["1101110", "0110111", "0000000", "1010101"])
def test_one_offer_equals_brute_force(changeover: float, row: str) -> None:
    given = terms(work_ticks=2.5, deadline_ticks=6.5, changeover_ticks=changeover)
    there = market(bits(row))
    prices = {
        "available": there.available,
        "spot_usd_per_hour": there.spot_usd_per_hour,
        "on_demand_usd_per_hour": there.on_demand_usd_per_hour,
    }
    cost = clairvoyant_usd(given, **prices)
    expected, starts = best_of_all_courses(given, there, 7)
    assert cost[0] == pytest.approx(expected)
    if changeover:
        assert clairvoyant_changeovers(given, cost, **prices)[0] == starts


def test_two_offers_with_paces_equal_brute_force() -> None:
    given = terms(work_ticks=3, deadline_ticks=5, changeover_ticks=0.5, rates=[1.0, 2.0])
    there = market(np.array([[[1, 0], [1, 1], [0, 1], [0, 1], [1, 1]]]))
    there.spot_usd_per_hour[:, :, 1] = 0.7
    cost = clairvoyant_usd(
        given,
        available=there.available,
        spot_usd_per_hour=there.spot_usd_per_hour,
        on_demand_usd_per_hour=there.on_demand_usd_per_hour,
    )
    assert cost[0] == pytest.approx(best_of_all_courses(given, there, 5)[0])


def test_what_cannot_be_done_costs_infinitely_much() -> None:
    given = terms(work_ticks=5, deadline_ticks=5.5, changeover_ticks=1)
    there = market(bits("000000"))
    cost = clairvoyant_usd(
        given,
        available=there.available,
        spot_usd_per_hour=there.spot_usd_per_hour,
        on_demand_usd_per_hour=there.on_demand_usd_per_hour,
    )
    assert np.isinf(cost[0])


@pytest.mark.parametrize("changeover", [0.3, 1.0, 1.6])
def test_no_policy_is_cheaper(changeover: float) -> None:
    given = terms(work_ticks=30, deadline_ticks=45, changeover_ticks=changeover, jobs=20)
    there = markov_market(
        np.random.default_rng(3), jobs=20, ticks=45, stay_chance=0.85, away_chance=0.8
    )
    cost = clairvoyant_usd(
        given,
        available=there.available,
        spot_usd_per_hour=there.spot_usd_per_hour,
        on_demand_usd_per_hour=there.on_demand_usd_per_hour,
    )
    for policy in (
        OnDemandOnly(given),
        GreedySpot(given),
        RegionFailover(given),
        UniformProgress(given),
        UniformProgress(given, hysteresis=False),
    ):
        outcome = replay(policy, given, there)
        assert not outcome.missed.any()
        assert np.all(outcome.cost_usd >= cost - 1e-9)
    assert np.all(cost < replay(OnDemandOnly(given), given, there).cost_usd)
