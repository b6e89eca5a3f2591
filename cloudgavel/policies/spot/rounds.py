"""Spot decisions for the jobs of a round: offers by name in, one verdict per job out.

The round mechanism calls ``decide_round`` with what it knows (work, deadline, what is held, offers
with prices, what has been seen of each spot offer) and gets, for each job, what to hold, what each
alternative is worth and when the safety net will call: everything ``explain`` shows. Stateless:
belief is computed from the sightings each time (``sighted``).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cloudgavel.policies.spot.belief import outlook
from cloudgavel.policies.spot.controller import GENERIC_FAMILY
from cloudgavel.policies.spot.decision import RATIO_GRID, RATIO_RANGE, judge
from cloudgavel.policies.spot.regimes import RegimeFamily, StepChain, step_chain
from cloudgavel.policies.spot.safety import RiskCap, joint_on_demand
from cloudgavel.policies.spot.sighted import Beliefs, SeenOffer, beliefs_of
from cloudgavel.policies.spot.tables import TableShelf
from cloudgavel.policies.spot.verdict import SpotVerdict
from cloudgavel.policies.spot.view import ON_DEMAND, WAIT, Bools, Floats, SpotTerms, SpotView
from cloudgavel.pricing.sightings import Sighting

_CLASS_GROWTH = 1.25
"""Change-overs, and work that may be lost, are rounded up to powers of this, so that jobs share
tables and passes; never down."""
_TYPICAL_SWITCH_CHANCE = 0.03
"""Per round, that a held machine is lost while another offer is there: one class for all rounds, so
that no round has to wait for new tables; this step itself is looked at exactly."""
_FARTHEST_DEADLINE = 6.0
"""Times the work left."""
MOST_OFFERS = 4
"""Spot offers weighed one by one for each job: the cheapest per work that can be had now before
those that cannot, and what is held. All that it may use count in what is believed of the market."""
_PADDING_USD_PER_HOUR = 1e6
"""Price of a place in the arrays that no offer fills; it is never available."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpotOffer:
    """A spot offer in this round."""

    offer_id: str
    usd_per_hour: float
    """Of the gang's machines together."""
    available: bool
    """Whether it is thought to be had now; the last sighting, if nothing else is known."""
    sightings: tuple[Sighting, ...] = ()
    """What was seen of it, in order of time."""
    extra_usd_per_hour: float = 0.0
    """Quota duals and the budget's multiplier: steer, are not paid."""
    interruption_rate_per_hour: float | None = None
    """The catalogue's word on how often it is lost: where belief begins. ``None`` = no word."""
    siblings: str | None = None
    """Offers of one name here are alike (other zones, other gangs): what was seen of the others
    counts for one of which nothing was. ``None`` = it has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OnDemandOffer:
    """An on-demand fall-back in this round, always to be had within quota."""

    offer_id: str
    usd_per_hour: float
    extra_usd_per_hour: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundJob:
    """One job with a deadline."""

    name: str
    steps_left: float
    steps_total: float
    steps_per_s: Mapping[str, float]
    """By offer id; offers that are missing are not for this job."""
    deadline_left_s: float
    changeover_s: float
    """Boot and restore."""
    spent_usd: float = 0.0
    held: str | None = None
    """Offer id held now; ``None`` = nothing."""
    pending_s: float = 0.0
    """Seconds of change-over that the held machine still has to go through."""
    lost_work_s: float = 0.0
    """Most seconds of unsaved work an interruption costs (the save interval)."""
    cap_usd: float | None = None
    """Most it may ever cost; ``None`` = what the cap on risk gives at its fall-back's price."""


def decide_round(
    jobs: Sequence[RoundJob],
    spot_offers: Sequence[SpotOffer],
    on_demand_offers: Sequence[OnDemandOffer],
    *,
    now_s: float,
    round_s: float,
    shelf: TableShelf,
    family: RegimeFamily = GENERIC_FAMILY,
    cap: RiskCap | None = None,
    on_demand_slots: int | None = None,
) -> dict[str, SpotVerdict]:
    """Decide for all jobs of a round, by job name.

    Args:
        jobs: names are unique; each must be able to use at least one on-demand offer
            (``ValueError``).
        spot_offers: all spot offers of the round.
        on_demand_offers: all on-demand offers of the round.
        now_s: the instant of the round, on the clock of the sightings.
        round_s: seconds to the next round.
        shelf: tables; keep one between rounds.
        family: regimes and prior; from catalogue or siblings where there is more to know.
        cap: the cap on risk.
        on_demand_slots: on-demand machines there may be at once for these jobs, ``None`` = enough.

    """
    cap = RiskCap() if cap is None else cap
    chain = step_chain(family, round_s)
    by_id = {offer.offer_id: offer for offer in spot_offers}
    falls = {job.name: _fall_back(job, on_demand_offers, round_s) for job in jobs}
    batches: dict[tuple[float, float, bool], list[_Row]] = {}
    for job in sorted(jobs, key=lambda job: job.name):
        usable = tuple(name for name in by_id if job.steps_per_s.get(name, 0.0) > 0)
        row = _Row(job=job, market=usable, offers=_weighed(job, usable, by_id))
        key = (_class_of(job.changeover_s), _class_of(job.lost_work_s), len(usable) > 1)
        batches.setdefault(key, []).append(row)
    markets = sorted({row.market for rows in batches.values() for row in rows})
    beliefs = beliefs_of(
        [
            SeenOffer(
                name=offer.offer_id,
                available=offer.available,
                sightings=offer.sightings,
                rate_per_hour=offer.interruption_rate_per_hour,
                siblings=offer.siblings,
            )
            for offer in spot_offers
        ],
        markets,
        now_s=now_s,
        step_s=round_s,
        family=family,
    )
    verdicts: dict[str, SpotVerdict] = {}
    for (changeover_s, lost_work_s, several), rows in batches.items():
        verdicts |= _decide_batch(
            rows,
            by_id,
            falls,
            beliefs=beliefs,
            changeover_s=changeover_s,
            lost_work_s=lost_work_s,
            switch_chance=_TYPICAL_SWITCH_CHANCE if several else 0.0,
            round_s=round_s,
            chain=chain,
            family=family,
            shelf=shelf,
            cap=cap,
        )
    if on_demand_slots is not None:
        verdicts = _within_slots(jobs, falls, verdicts, on_demand_slots, round_s)
    return verdicts


@dataclass(frozen=True, slots=True)
class _Row:
    """One job of a batch."""

    job: RoundJob
    market: tuple[str, ...]
    """All spot offers it can use."""
    offers: tuple[str, ...]
    """Those weighed one by one."""


def _weighed(
    job: RoundJob, usable: Sequence[str], by_id: Mapping[str, SpotOffer]
) -> tuple[str, ...]:
    def rank(name: str) -> tuple[bool, bool, float, str]:
        offer = by_id[name]
        price = (offer.usd_per_hour + offer.extra_usd_per_hour) / job.steps_per_s[name]
        return (name != job.held, not offer.available, price, name)

    return tuple(sorted(usable, key=rank)[:MOST_OFFERS])


def _fall_back(
    job: RoundJob, offers: Sequence[OnDemandOffer], round_s: float
) -> tuple[OnDemandOffer, float]:
    """The on-demand offer a job would end on, and its pace: the cheapest that is in time, else the
    fastest. Leaving a held one costs a change-over.
    """
    best: tuple[tuple[bool, float, str], OnDemandOffer, float] | None = None
    for offer in offers:
        pace = job.steps_per_s.get(offer.offer_id, 0.0)
        if pace <= 0:
            continue
        start_s = job.pending_s if offer.offer_id == job.held else job.changeover_s
        needed_s = job.steps_left / pace + start_s
        late = needed_s + round_s > job.deadline_left_s
        price = offer.usd_per_hour + offer.extra_usd_per_hour
        rank = (late, needed_s if late else needed_s * price, offer.offer_id)
        if best is None or rank < best[0]:
            best = (rank, offer, pace)
    if best is None:
        raise ValueError(f"job {job.name} can use no on-demand offer")
    return best[1], best[2]


def _class_of(span_s: float) -> float:
    if span_s <= 1.0:
        return max(0.0, span_s)
    power = math.ceil(math.log(span_s) / math.log(_CLASS_GROWTH) - 1e-9)
    return float(_CLASS_GROWTH**power)


def _decide_batch(
    rows: Sequence[_Row],
    by_id: Mapping[str, SpotOffer],
    falls: Mapping[str, tuple[OnDemandOffer, float]],
    *,
    beliefs: Beliefs,
    changeover_s: float,
    lost_work_s: float,
    switch_chance: float,
    round_s: float,
    chain: StepChain,
    family: RegimeFamily,
    shelf: TableShelf,
    cap: RiskCap,
) -> dict[str, SpotVerdict]:
    count, width = len(rows), max(1, *(len(row.offers) for row in rows))
    jobs = [row.job for row in rows]
    pace = np.array([falls[job.name][1] for job in jobs])
    available = np.zeros((count, width), dtype=bool)
    rates, extra, returns = (np.ones((count, width)), *np.zeros((2, count, width)))
    prices = np.full((count, width), _PADDING_USD_PER_HOUR)
    held = np.full(count, WAIT)
    for place, row in enumerate(rows):
        held[place] = _held(row.job, falls[row.job.name][0], row.offers)
        for column, name in enumerate(row.offers):
            offer = by_id[name]
            rates[place, column] = row.job.steps_per_s[name] / pace[place]
            available[place, column] = offer.available
            prices[place, column] = offer.usd_per_hour
            extra[place, column] = offer.extra_usd_per_hour
            returns[place, column] = beliefs.return_chance[name]
    fall_price = np.array([falls[job.name][0].usd_per_hour for job in jobs])
    fall_extra = np.array([falls[job.name][0].extra_usd_per_hour for job in jobs])
    true_s = np.array([job.deadline_left_s for job in jobs])
    # Tables resolve work against the deadline: one that is very far is taken nearer, which is safe.
    left_s = np.array([job.steps_left for job in jobs]) / pace
    near_s = np.minimum(true_s, _FARTHEST_DEADLINE * left_s + 50 * round_s)
    terms = SpotTerms(
        tick_s=round_s,
        changeover_s=changeover_s,
        work_s=np.array([job.steps_total for job in jobs]) / pace,
        deadline_s=near_s,
        work_rate=rates,
        lost_work_s=lost_work_s,
    )
    view = SpotView(
        elapsed_s=0.0,
        work_left_s=left_s,
        available=available,
        spot_usd_per_hour=prices,
        on_demand_usd_per_hour=fall_price,
        held=held,
        pending_s=np.array([job.pending_s for job in jobs]),
        spent_usd=np.array([job.spent_usd for job in jobs]),
        extra_spot_usd_per_hour=extra,
        extra_on_demand_usd_per_hour=fall_extra,
    )
    market = np.stack([beliefs.market[row.market] for row in rows])
    cap_usd = _caps_usd(cap, jobs, terms, fall_price)
    per_work = (prices + extra) / rates
    # Where only dear offers are left, the time until a cheaper one is back is paid at their price.
    there_now = np.where(available, per_work, np.inf).min(axis=1)
    per_work = np.where(np.isfinite(there_now), there_now, per_work.min(axis=1))
    opinion = judge(
        terms,
        view,
        market=outlook(market, _anything_there(rows, by_id), chain),
        offer_return=returns,
        table_ratio=_level(per_work / np.maximum(fall_price + fall_extra, 1e-9)),
        switch_chance=switch_chance,
        cap_usd=cap_usd,
        family=family,
        shelf=shelf,
    )
    verdicts = {}
    for place, row in enumerate(rows):
        choice = int(opinion.choice[place])
        wait = float(opinion.wait_usd[place])
        fall = falls[row.job.name][0].offer_id
        verdicts[row.job.name] = SpotVerdict(
            job=row.job.name,
            hold={WAIT: "wait", ON_DEMAND: "on_demand"}.get(choice, "spot"),
            offer_id={WAIT: None, ON_DEMAND: fall}.get(choice)
            if choice < 0
            else row.offers[choice],
            wait_usd=wait if math.isfinite(wait) else None,
            spot_usd={
                name: float(opinion.spot_usd[place, column])
                for column, name in enumerate(row.offers)
                if math.isfinite(opinion.spot_usd[place, column])
            },
            on_demand_usd=float(opinion.on_demand_usd[place]),
            on_demand_offer_id=fall,
            loss_chance={
                name: float(opinion.loss_chance[place, column])
                for column, name in enumerate(row.offers)
            },
            latest_on_demand_start_s=float(
                opinion.latest_on_demand_start_s[place] + true_s[place] - near_s[place]
            ),
            cap_usd=float(cap_usd[place]),
            forced_by="own deadline" if opinion.forced[place] else None,
        )
    return verdicts


def _level(ratio: Floats) -> Floats:
    """(J,) nearest price ratio that has a table of its own: one table in place of two, as prices
    move. This step itself is weighed at real prices.
    """
    place = np.log(np.clip(ratio, *RATIO_RANGE)) / math.log(RATIO_GRID)
    result: Floats = RATIO_GRID ** np.round(place)
    return result


def _caps_usd(
    cap: RiskCap, jobs: Sequence[RoundJob], terms: SpotTerms, fall_price: Floats
) -> Floats:
    """(J,) most each job may cost: by its own change-over, not by that of its class."""
    found = np.zeros(len(jobs))
    own_s = np.array([job.changeover_s for job in jobs])
    for changeover_s in np.unique(own_s).tolist():
        rows = own_s == changeover_s
        found[rows] = cap.usd(replace(terms, changeover_s=changeover_s), fall_price)[rows]
    given = np.array([math.nan if job.cap_usd is None else job.cap_usd for job in jobs])
    result: Floats = np.where(np.isnan(given), found, given)
    return result


def _anything_there(rows: Sequence[_Row], by_id: Mapping[str, SpotOffer]) -> Bools:
    """(J,) whether anything of each job's market can be had now."""
    return np.array([any(by_id[name].available for name in row.market) for row in rows])


def _held(job: RoundJob, fall: OnDemandOffer, offers: Sequence[str]) -> int:
    """What is held, in the words of a view; an on-demand offer other than the fall-back is left."""
    if job.held is None:
        return WAIT
    if job.held == fall.offer_id:
        return ON_DEMAND
    return offers.index(job.held) if job.held in offers else WAIT


def _within_slots(
    jobs: Sequence[RoundJob],
    falls: Mapping[str, tuple[OnDemandOffer, float]],
    verdicts: dict[str, SpotVerdict],
    slots: int,
    round_s: float,
) -> dict[str, SpotVerdict]:
    """The joint safety net: who must be on on-demand because slots are shared; the rest of the
    slots go to those who asked, least slack first, and who gets none takes its next best choice.
    """
    ordered = sorted(jobs, key=lambda job: job.name)
    needed = np.array([job.steps_left / falls[job.name][1] for job in ordered])
    left = np.array([job.deadline_left_s for job in ordered])
    keeps = np.array([job.held == falls[job.name][0].offer_id for job in ordered])
    must = joint_on_demand(
        needed_s=needed,
        deadline_left_s=left,
        changeover_s=max(job.changeover_s for job in ordered),
        on_demand_held=keeps,
        slots=slots,
        tick_s=round_s,
        lost_work_s=max(job.lost_work_s for job in ordered),
    )
    result = dict(verdicts)
    free = slots - int(must.sum())
    slack = left - needed
    for row in np.argsort(slack, kind="stable").tolist():
        verdict = verdicts[ordered[row].name]
        if must[row]:
            if verdict.hold != "on_demand":
                result[verdict.job] = _changed(
                    verdict, "on_demand", verdict.on_demand_offer_id, "shared on-demand slots"
                )
        elif verdict.hold == "on_demand":
            if free > 0:
                free -= 1
            elif verdict.spot_usd:
                cheapest = min(verdict.spot_usd, key=lambda name: (verdict.spot_usd[name], name))
                result[verdict.job] = _changed(verdict, "spot", cheapest, "shared on-demand slots")
            else:
                result[verdict.job] = _changed(verdict, "wait", None, "shared on-demand slots")
    return result


def _changed(verdict: SpotVerdict, hold: str, offer_id: str | None, why: str) -> SpotVerdict:
    return replace(verdict, hold=hold, offer_id=offer_id, forced_by=why)


__all__ = [
    "OnDemandOffer",
    "RoundJob",
    "Sighting",
    "SpotOffer",
    "SpotVerdict",
    "decide_round",
]
