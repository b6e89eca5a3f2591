"""Tables against a plain recursion on tiny horizons, and predictions against replayed means."""

import functools

import numpy as np
import pytest

from cloudgavel.policies.spot.controller import SpotUnderDeadline
from cloudgavel.policies.spot.regimes import RegimeFamily, step_chain
from cloudgavel.policies.spot.safety import RiskCap
from cloudgavel.policies.spot.tables import (
    GONE_NONE,
    GONE_ON_DEMAND,
    SPOT_HELD,
    SPOT_NONE,
    SPOT_ON_DEMAND,
    TableKey,
    TableShelf,
    build_table,
)
from cloudgavel.simulator.spot.replay import on_demand_only_usd, replay
from tests.unit.spot.builders import markov_market, terms

KINDS = {
    (True, "none"): SPOT_NONE,
    (True, "spot"): SPOT_HELD,
    (True, "on_demand"): SPOT_ON_DEMAND,
    (False, "none"): GONE_NONE,
    (False, "on_demand"): GONE_ON_DEMAND,
}


def key(family: RegimeFamily, **changes: float) -> TableKey:
    values = {
        "price_ratio": 0.3,
        "changeover_steps": 1.0,
        "step_s": 600.0,
        "steps": 9,
        "slack_steps": 9.0,
    } | changes
    return TableKey(family=family, **values)


def plain_value(
    family: RegimeFamily,
    time: int,
    slack: int,
    up: bool,
    held: str,
    price: float,
    holds: bool,
    lost: int,
) -> np.ndarray:
    """(A, K) least expected cost by recursion over courses, with plenty of allowance, change-over
    of one step: written from the rules, not from the table's code.
    """
    chain = step_chain(family, 600.0)
    ages, regimes = family.ages, family.count

    @functools.cache
    def value(time: int, slack: int, up: bool, held: str, age: int, regime: int) -> float:
        work = time - slack
        if work <= 0:
            return 0.0

        def after(next_slack: int, next_held: str) -> float:
            total = 0.0
            for then in range(regimes):
                weight = chain.mix[regime, then]
                change = chain.change[int(up), age, then]
                lost_held = "none" if up and next_held == "spot" else next_held
                unsaved = lost if up and held == next_held == "spot" else 0
                ended = value(time - 1, next_slack - unsaved, not up, lost_held, 0, then)
                on = chain.age_on[age]
                older = min(age + 1, ages - 1)
                stayed = (1 - on) * value(time - 1, next_slack, up, next_held, age, then)
                stayed += on * value(time - 1, next_slack, up, next_held, older, then)
                total += weight * (change * ended + (1 - change) * stayed)
            return total

        free = slack >= 2 + 2 * lost
        options = []
        if held == "on_demand":
            options.append(1.0 + after(slack, held))
        elif slack >= 1:
            options.append(1.0 + after(slack - 1, "on_demand"))
        if free:
            options.append(after(slack - 1, "none"))
        if up and held == "spot" and (free or work <= 1 or (holds and slack >= 1)):
            options.append(price + (0.0 if work <= 1 else after(slack, "spot")))
        if up and held != "spot" and free:
            options.append(price + after(slack - 1, "spot"))
        return min(options) if options else 1e6

    return np.array(
        [[value(time, slack, up, held, a, k) for k in range(regimes)] for a in range(ages)]
    )


@pytest.mark.parametrize(("holds", "lost"), [(False, 0), (True, 0), (False, 1)])
@pytest.mark.parametrize(
    "family",
    [
        RegimeFamily(stay_scales_s=(3000.0,), away_scales_s=(2000.0,), decay=0.0, age_edges_s=()),
        RegimeFamily(
            stay_scales_s=(1000.0, 8000.0),
            away_scales_s=(900.0, 5000.0),
            age_edges_s=(1300.0,),
            redraws_per_hour=0.2,
        ),
    ],
)
def test_the_table_equals_a_plain_recursion(family: RegimeFamily, holds: bool, lost: int) -> None:
    table = build_table(key(family, holds_for_step=holds, lost_steps=float(lost)))
    for time, slack in ((4, 1), (4, 2), (7, 3), (8, 5), (9, 4)):
        for (up, held), kind in KINDS.items():
            found = table.look_up(
                np.array([float(time)]), np.array([float(slack)]), np.array([99.0]), kind
            )[0]
            assert found == pytest.approx(
                plain_value(family, time, slack, up, held, 0.3, holds, lost), rel=1e-4
            ), (time, slack, up, held)


def test_values_fall_with_slack_and_allowance_and_grow_with_price() -> None:
    family = RegimeFamily()
    cheap, dear = (
        build_table(key(family, price_ratio=ratio, steps=60, slack_steps=60.0))
        for ratio in (0.3, 0.6)
    )
    time, slack = np.full(20, 60.0), np.linspace(1, 40, 20)
    rich, poor = np.full(20, 50.0), np.full(20, 1.2)
    for kind in (SPOT_NONE, GONE_NONE):
        # Less slack is more work in the same time.
        wide = cheap.look_up(time, slack, rich, kind)
        assert np.all(np.diff(wide, axis=0) <= 1e-3)
        assert np.all(wide <= cheap.look_up(time, slack, poor, kind) + 1e-3)
        assert np.all(wide <= dear.look_up(time, slack, rich, kind) + 1e-3)
    assert np.all(cheap.look_up(time, slack, rich, SPOT_NONE) <= 60 - slack[:, None, None] + 1.01)


@pytest.mark.parametrize(("stay", "away", "ratio"), [(0.93, 0.9, 1.2), (0.8, 0.95, 1.4)])
def test_predicted_cost_is_the_mean_cost(stay: float, away: float, ratio: float) -> None:
    """Known rates, Markov-generated traces: no learning is needed, prediction must hold."""
    jobs, work = 300, 120
    tick_s = 600.0
    family = RegimeFamily(
        stay_scales_s=(-tick_s / np.log(stay),),
        away_scales_s=(-tick_s / np.log(away),),
        decay=0.0,
        age_edges_s=(),
        redraws_per_hour=0.0,
        drifts_per_hour=0.0,
    )
    given = terms(
        work_ticks=work, deadline_ticks=work * ratio, tick_s=tick_s, changeover_ticks=1, jobs=jobs
    )
    there = markov_market(
        np.random.default_rng(11),
        jobs=jobs,
        ticks=int(work * ratio) + 1,
        stay_chance=stay,
        away_chance=away,
    )
    policy = SpotUnderDeadline(given, family=family, cap=RiskCap(share=9.0))
    outcome = replay(policy, given, there)
    table = build_table(
        key(family, steps=int(work * ratio) + 2, slack_steps=work * (ratio - 1) + 2)
    )
    point = (np.array([work * ratio]), np.array([work * (ratio - 1)]), np.array([99.0]))
    up_share = (1 - away) / (2 - stay - away)
    up, down = (float(table.look_up(*point, kind)[0, 0, 0]) for kind in (SPOT_NONE, GONE_NONE))
    predicted = (up_share * up + (1 - up_share) * down) / work
    ratios = outcome.cost_usd / on_demand_only_usd(given, there)
    error = float(ratios.std() / np.sqrt(jobs))
    assert abs(float(ratios.mean()) - predicted) < 3.5 * error + 0.004
    assert not outcome.missed.any()


def test_the_shelf_builds_once_and_stays_under_its_limit() -> None:
    family = RegimeFamily()
    shelf = TableShelf(limit_bytes=3 * build_table(key(family)).size_bytes)
    first = shelf.table(key(family))
    assert shelf.table(key(family)) is first
    for ratio in (0.1, 0.2, 0.4, 0.5):
        shelf.table(key(family, price_ratio=ratio))
    assert shelf.size_bytes <= 3 * first.size_bytes
    assert shelf.table(key(family)) is not first
