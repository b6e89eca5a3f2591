"""The decision for a batch of jobs: what waiting, spot and on-demand are worth now, and the choice.

Stateless: belief comes in as outlooks, values come from the shelf of tables. One step is looked
ahead exactly (real prices, pending change-overs, fractions of a tick, every offer by itself); what
comes after is read from the tables, averaged over the belief.

Several offers: the market as a whole ("is anything to be had?") has a belief of its own, and the
tables are read under it; each offer adds its own chance of being lost next, its price and its pace.
A lost machine whose market lives costs a change-over, not a wait.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cloudgavel.policies.spot.belief import Outlook, agreeing
from cloudgavel.policies.spot.regimes import RegimeFamily, step_chain
from cloudgavel.policies.spot.safety import (
    affordable_spot,
    affordable_wait,
    ends_on_held_spot,
    latest_on_demand_start_s,
    safe_spot,
    safe_wait,
)
from cloudgavel.policies.spot.tables import (
    GONE_NONE,
    GONE_ON_DEMAND,
    SPOT_HELD,
    SPOT_NONE,
    SPOT_ON_DEMAND,
    TableKey,
    TableShelf,
    ValueTable,
)
from cloudgavel.policies.spot.view import (
    ON_DEMAND,
    WAIT,
    Bools,
    Floats,
    Ints,
    SpotTerms,
    SpotView,
)

HOUR_S = 3600.0
LONGEST_STEPS = 700
"""A table never has more steps; jobs with a farther deadline get longer steps."""
RATIO_GRID = 1.5
"""Spacing of the tables' price ratios; values between two are interpolated, so that moving prices
and shadow prices need no new tables."""
SWITCH_GRID = (0.0, 0.01, 0.03, 0.06, 0.12, 0.25)
"""Chances per tick of a switch between offers for which there are tables; the nearest is taken."""
RATIO_RANGE = (0.05, 1.3)
"""Price ratios outside are taken at the nearest end for what comes after this step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpotOpinion:
    """Expected cost from now to the end by what is held in this step, extra prices included."""

    choice: Ints
    """(J,) ``WAIT``, ``ON_DEMAND`` or the index of a spot offer."""
    wait_usd: Floats
    """(J,) ``inf`` where waiting is not allowed."""
    spot_usd: Floats
    """(J, O) ``inf`` where the offer is not available or not allowed."""
    on_demand_usd: Floats
    """(J,)"""
    loss_chance: Floats
    """(J, O) chance that the offer is not there in the next step."""
    forced: Bools
    """(J,) the safety net left no choice."""
    latest_on_demand_start_s: Floats
    """(J,) seconds from the start of the job at which the net calls if nothing happens before."""


def judge(
    terms: SpotTerms,
    view: SpotView,
    *,
    market: Outlook,
    offer_return: Floats,
    table_ratio: Floats,
    switch_chance: Floats | float = 0.0,
    cap_usd: Floats,
    family: RegimeFamily,
    shelf: TableShelf,
) -> SpotOpinion:
    """Decide for every job of the batch.

    Args:
        terms: what stays the same.
        view: the present.
        market: (J, A, K) outlook of "is any offer there".
        offer_return: (J, O) chance that each offer is there in the next step.
        table_ratio: (J,) expected spot price per work over the on-demand price, in the long run.
        switch_chance: (J,) how often per tick, in the long run, a held machine is lost while
            another offer is there.
        cap_usd: (J,) most each job may cost in all.
        family: the regimes that belief and tables share.
        shelf: where tables come from.

    """
    jobs, offers = view.available.shape
    tick_s, changeover_s = terms.tick_s, terms.changeover_s
    price, spot_price = _effective_prices(view)
    left_s = terms.deadline_s - view.elapsed_s - tick_s
    """(J,) time left after this step."""
    work_s = view.work_left_s
    on_demand_pending_s = np.where(view.held == ON_DEMAND, view.pending_s, changeover_s)
    keeps = view.held[:, None] == np.arange(offers)
    pending_s = np.where(keeps, view.pending_s[:, None], changeover_s)
    rate = terms.work_rate
    on_demand_s = np.minimum(tick_s, work_s + on_demand_pending_s)
    spot_s = np.minimum(tick_s, work_s[:, None] / rate + pending_s)
    # Work left after the step, with the rest of a pending change-over counted as work.
    after_wait_s = work_s
    after_on_demand_s = work_s + on_demand_pending_s - tick_s
    after_spot_s = work_s[:, None] - rate * (tick_s - pending_s)
    gained_s = rate * np.maximum(tick_s - pending_s, 0.0)
    unsaved_s = terms.lost_work_s / 2 * np.ones_like(gained_s)
    lost_s = np.where(keeps, unsaved_s, np.minimum(unsaved_s, gained_s))
    after_loss_s = work_s[:, None] - gained_s + lost_s
    # What may still be wasted above "the rest on on-demand", in seconds of on-demand.
    real_price = view.on_demand_usd_per_hour / HOUR_S
    allowance_s = (cap_usd - view.spent_usd) / real_price
    on_demand_cost = on_demand_s * price / HOUR_S
    spot_cost = spot_s * spot_price / HOUR_S
    paid_s = spot_s * view.spot_usd_per_hour / HOUR_S / real_price[:, None]

    if offers == 1:
        any_there = market.spot.sum(axis=(-2, -1))
        other_there = np.zeros((jobs, 1))
    else:
        any_there = 1 - (1 - offer_return).prod(axis=1)
        other_there = others_there(offer_return)
        there_now: Bools = np.asarray(view.available.any(axis=1))
        change_chance = np.where(there_now, 1 - any_there, any_there)
        market = agreeing(market, there_now, step_chain(family, tick_s), change_chance)
    next_any = market.spot.sum(axis=(-2, -1))
    up = market.spot / np.maximum(next_any, 1e-300)[:, None, None]
    down = market.none / np.maximum(1 - next_any, 1e-300)[:, None, None]

    wait_usd, on_demand_usd = np.zeros(jobs), on_demand_cost.copy()
    spot_usd = spot_cost.copy()
    for rows, share, table in _tables(terms, table_ratio, switch_chance, family, shelf):
        scale = price[rows] / HOUR_S * table.key.step_s

        def value(
            kind: int,
            chances: Floats,
            after_s: Floats,
            spent_s: Floats,
            rows: Ints = rows,
            table: ValueTable = table,
            scale: Floats = scale,
        ) -> Floats:
            step_s = table.key.step_s
            room = (allowance_s[rows] - spent_s - after_s) / max(changeover_s, 1e-9)
            values = table.look_up(
                left_s[rows] / step_s, (left_s[rows] - after_s) / step_s, room, kind
            )
            result: Floats = (chances[rows] * values).sum(axis=(-2, -1)) * scale
            return result

        nothing = np.zeros(len(rows))
        there = any_there[rows]
        wait = there * value(SPOT_NONE, up, after_wait_s[rows], nothing) + (1 - there) * value(
            GONE_NONE, down, after_wait_s[rows], nothing
        )
        spent_s, after_s = on_demand_s[rows], after_on_demand_s[rows]
        keep = there * value(SPOT_ON_DEMAND, up, after_s, spent_s) + (1 - there) * value(
            GONE_ON_DEMAND, down, after_s, spent_s
        )
        wait_usd[rows] += share * wait
        on_demand_usd[rows] += share * keep
        for offer in range(offers):
            stays, other = offer_return[rows, offer], other_there[rows, offer]
            spent_s = paid_s[rows, offer]
            after_s, loss_s = after_spot_s[rows, offer], after_loss_s[rows, offer]
            run = stays * value(SPOT_HELD, up, after_s, spent_s)
            if offers > 1:
                run += (1 - stays) * other * value(SPOT_NONE, up, loss_s, spent_s)
            run += (1 - stays) * (1 - other) * value(GONE_NONE, down, loss_s, spent_s)
            spot_usd[rows, offer] += share * run

    safe = safe_spot(terms, view)
    can_spot = view.available & safe & affordable_spot(terms, view, cap_usd)
    spot_usd = np.where(can_spot, spot_usd, np.inf)
    can_wait = safe_wait(terms, view) & affordable_wait(terms, view, cap_usd)
    wait_usd = np.where(can_wait, wait_usd, np.inf)
    best = spot_usd.argmin(axis=1)
    best_usd = spot_usd[np.arange(jobs), best]
    choice = np.where(
        best_usd <= np.minimum(wait_usd, on_demand_usd),
        best,
        np.where(wait_usd <= on_demand_usd, WAIT, ON_DEMAND),
    )
    forced = ~safe_wait(terms, view) & ~(view.available & safe).any(axis=1)
    choice = np.where(ends_on_held_spot(terms, view), view.held, choice)
    return SpotOpinion(
        choice=np.where(work_s > 0, choice, WAIT),
        wait_usd=wait_usd,
        spot_usd=spot_usd,
        on_demand_usd=on_demand_usd,
        loss_chance=1 - offer_return,
        forced=forced,
        latest_on_demand_start_s=latest_on_demand_start_s(terms, view),
    )


def others_there(offer_return: Floats) -> Floats:
    """(J, O) chance that at least one other offer is there in the next step."""
    absent = 1 - offer_return
    return 1 - np.stack(
        [np.delete(absent, index, axis=1).prod(axis=1) for index in range(absent.shape[1])], axis=1
    )


def switch_chances(available: Bools, offer_return: Floats) -> Floats:
    """(J,) chance that the safest offer now there is lost while another is there; 0 if none is."""
    lost = (1 - offer_return) * others_there(offer_return)
    safest = np.where(available, 1 - offer_return, np.inf).argmin(axis=1)
    chosen = lost[np.arange(len(lost)), safest]
    result: Floats = np.where(available.any(axis=1), chosen, 0.0)
    return result


def _effective_prices(view: SpotView) -> tuple[Floats, Floats]:
    """(J,) and (J, O) prices with the shadow prices on top, on-demand kept above nothing."""
    price, spot_price = view.on_demand_usd_per_hour, view.spot_usd_per_hour
    if view.extra_on_demand_usd_per_hour is not None:
        price = price + view.extra_on_demand_usd_per_hour
    if view.extra_spot_usd_per_hour is not None:
        spot_price = spot_price + view.extra_spot_usd_per_hour
    return np.maximum(price, 1e-9), spot_price


def table_step_s(terms: SpotTerms, deadline_s: float) -> float:
    """Length of a table's steps: the tick, or half a change-over, doubled until the job fits."""
    step_s = max(terms.tick_s, terms.changeover_s / 2)
    while deadline_s / step_s > LONGEST_STEPS:
        step_s *= 2
    return step_s


def _tables(
    terms: SpotTerms,
    ratios: Floats,
    switch_chance: Floats | float,
    family: RegimeFamily,
    shelf: TableShelf,
) -> Iterator[tuple[Ints, Floats, ValueTable]]:
    """Yield rows, the share of the table in their values, the table; shares of a row sum to 1."""
    steps_s = np.array(
        [table_step_s(terms, value) for value in np.unique(terms.deadline_s).tolist()]
    )
    step_of = dict(zip(np.unique(terms.deadline_s).tolist(), steps_s.tolist(), strict=True))
    step_s = np.array([step_of[value] for value in terms.deadline_s.tolist()])
    place = np.log(np.clip(ratios, *RATIO_RANGE)) / np.log(RATIO_GRID)
    low = np.floor(place).astype(int)
    # Values are concave in the price: a straight line between two tables is a lower bound.
    low_ratio, high_ratio = RATIO_GRID ** low.astype(float), RATIO_GRID ** (low + 1.0)
    share = (np.clip(ratios, *RATIO_RANGE) - low_ratio) / (high_ratio - low_ratio)
    classes = np.array(SWITCH_GRID)
    distance = np.abs(np.asarray(switch_chance, dtype=float)[..., None] - classes)
    switch = np.broadcast_to(classes[distance.argmin(axis=-1)], step_s.shape)
    for step, chance in np.unique(np.stack([step_s, switch], axis=1), axis=0).tolist():
        group = (step_s == step) & (switch == chance)
        steps = _steps_class(terms.deadline_s[group].max() / step)
        for level in np.unique([low[group], low[group] + 1]).tolist():
            weight = np.where(low == level, 1 - share, np.where(low + 1 == level, share, 0.0))
            rows = np.flatnonzero(group & (weight > 1e-6))
            if rows.size:
                ratio = float(RATIO_GRID**level)
                key = _key(terms, family, ratio, step, steps, chance)
                yield rows, weight[rows], shelf.table(key)


def _lost_class(steps: float) -> float:
    """Few amounts of unsaved work, so that jobs share tables."""
    if steps < 0.02:
        return 0.0
    return round(float(1.5 ** np.round(np.log(steps) / np.log(1.5))), 6)


def _steps_class(steps: float) -> int:
    """Few lengths of tables, so that jobs share them."""
    return next(size for size in (88, 175, 350, LONGEST_STEPS) if steps <= size)


def _key(
    terms: SpotTerms,
    family: RegimeFamily,
    ratio: float,
    step_s: float,
    steps: int,
    switch_chance: float,
) -> TableKey:
    return TableKey(
        family=family,
        price_ratio=round(ratio, 6),
        changeover_steps=round(terms.changeover_s / step_s, 9),
        step_s=step_s,
        steps=steps,
        slack_steps=float(steps),
        holds_for_step=terms.holds_for_tick,
        lost_steps=_lost_class(terms.lost_work_s / 2 / step_s),
        switch_chance=round(1 - (1 - switch_chance) ** (step_s / terms.tick_s), 9),
    )
