"""Whatever the market does: no deadline is missed and no run costs more than the cap."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.policies.baselines.clairvoyant import clairvoyant_usd
from cloudgavel.policies.baselines.greedy_spot import GreedySpot
from cloudgavel.policies.baselines.region_failover import RegionFailover
from cloudgavel.policies.baselines.uniform_progress import UniformProgress
from cloudgavel.policies.spot.controller import SpotUnderDeadline
from cloudgavel.policies.spot.regimes import RegimeFamily
from cloudgavel.policies.spot.safety import RiskCap, joint_on_demand
from cloudgavel.policies.spot.tables import TableShelf
from cloudgavel.policies.spot.view import ON_DEMAND, WAIT, SpotTerms, SpotView
from cloudgavel.simulator.spot.replay import Market, on_demand_only_usd, replay

FAMILY = RegimeFamily(
    stay_scales_s=(600.0, 6000.0), away_scales_s=(3000.0,), decay=0.0, age_edges_s=()
)
"""Small, so that tables are quick; safety must not depend on what is believed."""
SHELF = TableShelf()
TICK_S = 600.0
CHANGEOVERS = st.sampled_from([0.0, 0.31, 1.0, 1.23, 2.5])


class Nasty:
    """Takes spot away when it hurts: each job's offers are gone when its policy has just started,
    or just before a change-over ends, by a pattern of the dice."""

    def __init__(self, policy, dice: np.random.Generator, market: Market) -> None:
        self.policy, self.dice, self.market, self.step = policy, dice, market, 0

    def decide(self, view: SpotView) -> np.ndarray:
        choice = self.policy.decide(view)
        self.step += 1
        if self.step < self.market.available.shape[1]:
            for job in np.flatnonzero(choice >= 0):
                if self.dice.random() < 0.6:
                    self.market.available[job, self.step, choice[job]] = False
        return choice


@st.composite
def worlds(draw: st.DrawFn) -> tuple[SpotTerms, Market, np.random.Generator]:
    seed = draw(st.integers(0, 10**6))
    dice = np.random.default_rng(seed)
    jobs, offers = 8, draw(st.sampled_from([1, 1, 3]))
    changeover = draw(CHANGEOVERS)
    work = draw(st.sampled_from([5.0, 20.4, 40.0]))
    spare = changeover + draw(st.sampled_from([0.0, 0.7, 3.0, 15.0]))
    ticks = int(work + spare) + 2
    kind = draw(st.sampled_from(["never", "always", "flapping", "dice", "one long"]))
    shape = (jobs, ticks, offers)
    if kind == "dice":
        available = dice.random(shape) < dice.random((jobs, 1, offers))
    elif kind == "flapping":
        period = dice.integers(1, 4, (jobs, 1, offers))
        available = (np.arange(ticks)[None, :, None] // period) % 2 == 0
    elif kind == "one long":
        available = np.arange(ticks)[None, :, None] < dice.integers(0, ticks, (jobs, 1, offers))
    else:
        available = np.full(shape, kind == "always")
    terms = SpotTerms(
        tick_s=TICK_S,
        changeover_s=changeover * TICK_S,
        work_s=np.full(jobs, work * TICK_S),
        deadline_s=np.full(jobs, (work + spare) * TICK_S),
        work_rate=np.full(offers, draw(st.sampled_from([0.6, 1.0, 1.7]))),
        holds_for_tick=draw(st.booleans()),
    )
    market = Market(
        available=np.array(available),
        spot_usd_per_hour=np.full(shape, draw(st.sampled_from([0.1, 0.3, 0.7]))),
        on_demand_usd_per_hour=np.ones(jobs),
    )
    return terms, market, dice


@settings(max_examples=40, deadline=None)
@given(world=worlds(), nasty=st.booleans())
def test_no_deadline_is_missed_and_the_cap_holds(
    world: tuple[SpotTerms, Market, np.random.Generator], nasty: bool
) -> None:
    terms, market, dice = world
    policy = SpotUnderDeadline(terms, family=FAMILY, shelf=SHELF)
    outcome = replay(Nasty(policy, dice, market) if nasty else policy, terms, market)
    assert not outcome.missed.any()
    base = on_demand_only_usd(terms, market)
    own_start = terms.changeover_s / 3600.0
    extra = np.maximum(0.01 * base, 2 * terms.changeover_s / 3600.0)
    assert np.all(outcome.cost_usd <= base + own_start + extra + 1e-9)


@settings(max_examples=30, deadline=None)
@given(world=worlds(), nasty=st.booleans())
def test_the_baselines_are_never_late_either(
    world: tuple[SpotTerms, Market, np.random.Generator], nasty: bool
) -> None:
    terms, market, dice = world
    for maker in (GreedySpot, UniformProgress, RegionFailover):
        policy = maker(terms)
        outcome = replay(Nasty(policy, dice, market) if nasty else policy, terms, market)
        assert not outcome.missed.any(), maker


def test_uniform_progress_leaves_slow_spot_in_time() -> None:
    terms = SpotTerms(
        tick_s=TICK_S,
        changeover_s=0.0,
        work_s=np.full(1, 5 * TICK_S),
        deadline_s=np.full(1, 8 * TICK_S),
        work_rate=np.full(1, 0.6),
    )
    market = Market(
        available=np.ones((10, 1, 1), dtype=bool),
        spot_usd_per_hour=np.full((10, 1, 1), 0.1),
        on_demand_usd_per_hour=np.ones(1),
    )
    assert not replay(UniformProgress(terms), terms, market).missed.any()


@settings(max_examples=20, deadline=None)
@given(world=worlds())
def test_the_clairvoyant_is_a_lower_bound(
    world: tuple[SpotTerms, Market, np.random.Generator],
) -> None:
    terms, market, _ = world
    bound = clairvoyant_usd(
        terms,
        available=market.available,
        spot_usd_per_hour=market.spot_usd_per_hour,
        on_demand_usd_per_hour=market.on_demand_usd_per_hour,
    )
    outcome = replay(SpotUnderDeadline(terms, family=FAMILY, shelf=SHELF), terms, market)
    assert np.all(outcome.cost_usd >= bound - 1e-9)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    slots=st.integers(1, 3),
    jobs=st.integers(1, 9),
    changeover=st.sampled_from([0.0, 0.4, 1.0]),
)
def test_jobs_that_share_on_demand_slots_are_never_late(
    seed: int, slots: int, jobs: int, changeover: float
) -> None:
    """Spot comes and goes at the dice's will; whoever must is on on-demand, nobody else is."""
    dice = np.random.default_rng(seed)
    work = dice.uniform(1, 10, jobs)
    # Deadlines that the list in their order keeps on the shared slots, with something to spare.
    free = [0.0] * slots
    deadline = np.zeros(jobs)
    for job in range(jobs):
        free.sort()
        end = np.ceil(free[0] + work[job] + changeover)
        free[0] = end
        deadline[job] = max(deadline[max(job - 1, 0)], end + dice.uniform(0, 4))
    left, held, pending = work.copy(), np.full(jobs, WAIT), np.zeros(jobs)
    finished = np.full(jobs, np.inf)
    for step in range(200):
        if np.all(left <= 1e-9):
            break
        must = joint_on_demand(
            needed_s=left + np.where(held == ON_DEMAND, pending, 0.0),
            deadline_left_s=deadline - step,
            changeover_s=changeover,
            on_demand_held=held == ON_DEMAND,
            slots=slots,
            tick_s=1.0,
        )
        assert must.sum() <= slots
        choice = np.where(must, ON_DEMAND, np.where(dice.random(jobs) < 0.4, 0, WAIT))
        pending = np.where(
            (choice != WAIT) & (choice != held), changeover, np.where(choice == held, pending, 0.0)
        )
        held = np.where(left > 1e-9, choice, WAIT)
        gained = np.where(held == WAIT, 0.0, np.maximum(1.0 - pending, 0.0))
        ends = (held != WAIT) & (left > 1e-9) & (left <= gained + 1e-9)
        finished[ends] = step + (np.minimum(pending, 1.0) + left)[ends]
        left = np.where(ends, 0.0, left - np.minimum(gained, left))
        pending = np.maximum(pending - 1.0, 0.0)
        held = np.where(held == 0, np.where(dice.random(jobs) < 0.5, WAIT, 0), held)
    assert np.all(finished <= deadline + 1e-6)


@pytest.mark.parametrize("rate", [1.0, 1.7])
def test_a_fresh_spot_machine_that_would_end_the_job_late_is_not_started(rate: float) -> None:
    """The last tick has room for the work that is left but not for a change-over."""
    terms = SpotTerms(
        tick_s=600.0,
        changeover_s=186.0,
        work_s=np.array([3000.0]),
        deadline_s=np.array([3186.0]),
        work_rate=np.full(1, rate),
        holds_for_tick=True,
    )
    there = np.ones((1, 7, 1), dtype=bool)
    market = Market(
        available=there,
        spot_usd_per_hour=np.full(there.shape, 0.1),
        on_demand_usd_per_hour=np.ones(1),
    )
    outcome = replay(SpotUnderDeadline(terms, family=FAMILY, shelf=SHELF), terms, market)
    assert outcome.missed.tolist() == [False]


def test_the_cap_with_a_tight_share_forbids_spot_after_bad_luck() -> None:
    terms = SpotTerms(
        tick_s=TICK_S,
        changeover_s=TICK_S,
        work_s=np.array([100 * TICK_S]),
        deadline_s=np.array([300 * TICK_S]),
        work_rate=np.ones(1),
    )
    flapping = (np.arange(302) % 2 == 0)[None, :, None]
    market = Market(
        available=flapping,
        spot_usd_per_hour=np.full(flapping.shape, 0.3),
        on_demand_usd_per_hour=np.ones(1),
    )
    outcome = replay(
        SpotUnderDeadline(terms, family=FAMILY, shelf=SHELF, cap=RiskCap()), terms, market
    )
    greedy = replay(GreedySpot(terms), terms, market)
    base = on_demand_only_usd(terms, market)[0]
    assert outcome.cost_usd[0] / base <= 1.03 + 1e-9
    assert greedy.cost_usd[0] / base > 1.1
    assert outcome.missed.tolist() == [False]


@pytest.mark.parametrize("slots", [0, 1])
def test_too_few_slots_name_the_most_urgent(slots: int) -> None:
    must = joint_on_demand(
        needed_s=np.array([10.0, 10.0]),
        deadline_left_s=np.array([15.0, 12.0]),
        changeover_s=1.0,
        on_demand_held=np.array([False, False]),
        slots=slots,
        tick_s=1.0,
    )
    assert must.tolist() == [False, slots == 1]
