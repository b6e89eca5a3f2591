"""Spot decisions for the jobs of a round: offers by name in, one verdict per job out.

The round mechanism calls ``decide_round`` with what it knows (work, deadline, what is held, offers
with prices, what has been seen of each spot offer) and gets, for each job, what to hold, what each
alternative is worth and when the safety net will call: everything ``explain`` shows. Stateless:
belief is computed from the sightings each time.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cloudgavel.policies.spot.belief import Outlook, first_belief, outlook, seen
from cloudgavel.policies.spot.controller import GENERIC_FAMILY
from cloudgavel.policies.spot.decision import judge
from cloudgavel.policies.spot.regimes import RegimeFamily, StepChain, step_chain
from cloudgavel.policies.spot.safety import RiskCap, joint_on_demand
from cloudgavel.policies.spot.tables import TableShelf
from cloudgavel.policies.spot.view import ON_DEMAND, WAIT, Floats, SpotTerms, SpotView

_CHANGEOVER_CLASS = 1.25
"""Change-overs are rounded up to powers of this, so that jobs share tables; never down."""
_TYPICAL_SWITCH_CHANCE = 0.03
"""Per round, that a held machine is lost while another offer is there: one class for all rounds, so
that no round has to wait for new tables; this step itself is looked at exactly."""
_FARTHEST_DEADLINE = 6.0
"""Times the work left."""
_LONGEST_HISTORY = 400
"""Sightings are filtered in at most so many steps; older ones say little about today's regime."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sighting:
    """A spot offer could or could not be had then (a start, a refusal, an interruption)."""

    at_s: float
    available: bool


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


@dataclass(frozen=True, kw_only=True, slots=True)
class SpotVerdict:
    """What a job should hold in this round, and why."""

    job: str
    hold: str
    """``wait``, ``spot`` or ``on_demand``."""
    offer_id: str | None
    wait_usd: float | None
    """Expected cost to the end if nothing is held this round; ``None`` = not allowed."""
    spot_usd: Mapping[str, float]
    """The same by spot offer that may be held this round."""
    on_demand_usd: float
    on_demand_offer_id: str
    """The fall-back these figures count on."""
    loss_chance: Mapping[str, float]
    """By spot offer: chance that it is gone by the next round."""
    latest_on_demand_start_s: float
    """Seconds from now until the safety net calls for on-demand if nothing happens before;
    negative = it has called."""
    forced_by: str | None
    """``own deadline`` or ``shared on-demand slots`` when the safety net decided, else ``None``."""


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
    falls = {job.name: _fall_back(job, on_demand_offers, round_s) for job in jobs}
    batches: dict[tuple[float, tuple[str, ...]], list[RoundJob]] = {}
    for job in sorted(jobs, key=lambda job: job.name):
        usable = tuple(
            offer.offer_id for offer in spot_offers if job.steps_per_s.get(offer.offer_id, 0.0) > 0
        )
        key = (_changeover_class(job.changeover_s), usable)
        batches.setdefault(key, []).append(job)
    by_id = {offer.offer_id: offer for offer in spot_offers}
    filtered = {
        offer.offer_id: _belief(offer.sightings, offer.available, now_s, round_s, chain, family)
        for offer in spot_offers
    }
    verdicts: dict[str, SpotVerdict] = {}
    for (changeover_s, usable), members in batches.items():
        offers = [by_id[name] for name in usable]
        verdicts |= _decide_batch(
            members,
            offers,
            falls,
            beliefs=[filtered[name] for name in usable],
            market=_market_belief(offers, now_s, round_s, chain, family),
            changeover_s=changeover_s,
            round_s=round_s,
            chain=chain,
            family=family,
            shelf=shelf,
            cap=cap,
        )
    if on_demand_slots is not None:
        verdicts = _within_slots(jobs, falls, verdicts, on_demand_slots, round_s)
    return verdicts


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


def _changeover_class(changeover_s: float) -> float:
    if changeover_s <= 1.0:
        return changeover_s
    power = math.ceil(math.log(changeover_s) / math.log(_CHANGEOVER_CLASS) - 1e-9)
    return float(_CHANGEOVER_CLASS**power)


def _belief(
    sightings: Sequence[Sighting],
    available: bool,
    now_s: float,
    round_s: float,
    chain: StepChain,
    family: RegimeFamily,
) -> Floats:
    """(A, K) belief now: the sightings laid on a grid of rounds, each holding until the next."""
    past = [sighting for sighting in sightings if sighting.at_s <= now_s]
    if not past:
        return first_belief(family, np.array(available))
    span_s = min(now_s - past[0].at_s, _LONGEST_HISTORY * round_s)
    steps = int(span_s // round_s)
    instants = now_s - round_s * np.arange(steps, -1, -1)
    times = np.array([sighting.at_s for sighting in past])
    states = np.array([sighting.available for sighting in past])
    place = np.maximum(np.searchsorted(times, instants + 1e-9, side="right") - 1, 0)
    grid = states[place]
    grid[-1] = available
    belief = first_belief(family, grid[0])
    for before, after in pairwise(grid):
        belief = seen(outlook(belief, before, chain), after)
    return belief


def _market_belief(
    offers: Sequence[SpotOffer],
    now_s: float,
    round_s: float,
    chain: StepChain,
    family: RegimeFamily,
) -> Floats:
    """(A, K) belief about "is any of them there", from the sightings of all."""
    if len(offers) == 1:
        only = offers[0]
        return _belief(only.sightings, only.available, now_s, round_s, chain, family)
    events = sorted(
        (sighting.at_s, index, sighting.available)
        for index, offer in enumerate(offers)
        for sighting in offer.sightings
    )
    last: dict[int, bool] = {}
    merged = []
    for at_s, index, there in events:
        last[index] = there
        merged.append(Sighting(at_s=at_s, available=any(last.values())))
    present = any(offer.available for offer in offers)
    return _belief(merged, present, now_s, round_s, chain, family)


def _decide_batch(
    jobs: Sequence[RoundJob],
    offers: Sequence[SpotOffer],
    falls: Mapping[str, tuple[OnDemandOffer, float]],
    *,
    beliefs: Sequence[Floats],
    market: Floats,
    changeover_s: float,
    round_s: float,
    chain: StepChain,
    family: RegimeFamily,
    shelf: TableShelf,
    cap: RiskCap,
) -> dict[str, SpotVerdict]:
    count, width = len(jobs), max(1, len(offers))
    index_of = {offer.offer_id: index for index, offer in enumerate(offers)}
    pace = np.array([falls[job.name][1] for job in jobs])
    rates = np.ones((count, width))
    for row, job in enumerate(jobs):
        for offer in offers:
            rates[row, index_of[offer.offer_id]] = job.steps_per_s[offer.offer_id] / pace[row]
    held = np.array([_held(job, falls[job.name][0], index_of) for job in jobs])
    available = np.zeros((count, width), dtype=bool)
    prices, extra = np.ones((count, width)), np.zeros((count, width))
    for offer in offers:
        column = index_of[offer.offer_id]
        available[:, column] = offer.available
        prices[:, column] = offer.usd_per_hour
        extra[:, column] = offer.extra_usd_per_hour
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
        lost_work_s=max(job.lost_work_s for job in jobs),
    )
    view = SpotView(
        elapsed_s=0.0,
        work_left_s=np.array([job.steps_left for job in jobs]) / pace,
        available=available,
        spot_usd_per_hour=prices,
        on_demand_usd_per_hour=fall_price,
        held=held,
        pending_s=np.array([job.pending_s for job in jobs]),
        spent_usd=np.array([job.spent_usd for job in jobs]),
        extra_spot_usd_per_hour=extra,
        extra_on_demand_usd_per_hour=fall_extra,
    )
    prospect = outlook(market, np.array(bool(available[0].any())), chain)
    shape = (count, *market.shape)
    returns = np.zeros((count, width))
    for offer, belief in zip(offers, beliefs, strict=True):
        ahead = outlook(belief, np.array(offer.available), chain)
        returns[:, index_of[offer.offer_id]] = 1 - float(ahead.loss_chance())
    per_work = ((prices + extra) / rates).min(axis=1)
    opinion = judge(
        terms,
        view,
        market=Outlook(
            spot=np.broadcast_to(prospect.spot, shape), none=np.broadcast_to(prospect.none, shape)
        ),
        offer_return=returns,
        table_ratio=per_work / np.maximum(fall_price + fall_extra, 1e-9),
        switch_chance=_TYPICAL_SWITCH_CHANCE if width > 1 else 0.0,
        cap_usd=cap.usd(terms, fall_price),
        family=family,
        shelf=shelf,
    )
    verdicts = {}
    for row, job in enumerate(jobs):
        choice = int(opinion.choice[row])
        wait = float(opinion.wait_usd[row])
        fall = falls[job.name][0].offer_id
        verdicts[job.name] = SpotVerdict(
            job=job.name,
            hold={WAIT: "wait", ON_DEMAND: "on_demand"}.get(choice, "spot"),
            offer_id={WAIT: None, ON_DEMAND: fall}.get(choice)
            if choice < 0
            else offers[choice].offer_id,
            wait_usd=wait if math.isfinite(wait) else None,
            spot_usd={
                offer.offer_id: float(opinion.spot_usd[row, column])
                for offer, column in zip(offers, range(width), strict=False)
                if math.isfinite(opinion.spot_usd[row, column])
            },
            on_demand_usd=float(opinion.on_demand_usd[row]),
            on_demand_offer_id=fall,
            loss_chance={
                offer.offer_id: float(opinion.loss_chance[row, column])
                for offer, column in zip(offers, range(width), strict=False)
            },
            latest_on_demand_start_s=float(
                opinion.latest_on_demand_start_s[row] + true_s[row] - near_s[row]
            ),
            forced_by="own deadline" if opinion.forced[row] else None,
        )
    return verdicts


def _held(job: RoundJob, fall: OnDemandOffer, index_of: Mapping[str, int]) -> int:
    """What is held, in the words of a view; an on-demand offer other than the fall-back is left."""
    if job.held is None:
        return WAIT
    if job.held == fall.offer_id:
        return ON_DEMAND
    return index_of.get(job.held, WAIT)


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
    return SpotVerdict(
        job=verdict.job,
        hold=hold,
        offer_id=offer_id,
        wait_usd=verdict.wait_usd,
        spot_usd=verdict.spot_usd,
        on_demand_usd=verdict.on_demand_usd,
        on_demand_offer_id=verdict.on_demand_offer_id,
        loss_chance=verdict.loss_chance,
        latest_on_demand_start_s=verdict.latest_on_demand_start_s,
        forced_by=why,
    )
