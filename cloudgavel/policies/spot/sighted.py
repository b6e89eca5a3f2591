"""From what was seen of offers to belief now: an exact filter over steps seen and not seen.

A machine that lived saw its offer all the while; a refusal or an interruption is seen in its step;
in between nothing is known, and belief drifts towards the long run. All offers and markets (sets of
offers: is any of them there?) go through one pass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cloudgavel.policies.spot.belief import outlook
from cloudgavel.policies.spot.regimes import RegimeFamily, step_chain
from cloudgavel.policies.spot.view import Floats
from cloudgavel.pricing.sightings import Sighting
from cloudgavel.units import HOUR_S

LONGEST_HISTORY = 200
"""Steps looked back at; older sightings say little about today's regime."""
RATE_SPREAD = 1.0
"""How far, in factors of e, the truth may lie from a catalogue's interruption rate."""
SIBLING_SHARE = 0.5
"""Weight of what siblings suggest against the catalogue, where nothing was seen of the offer."""
_UNSEEN, _GONE, _THERE = -1, 0, 1

Marks = NDArray[np.int8]


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenOffer:
    """A spot offer and what was seen of it."""

    name: str
    available: bool
    """Whether it is thought to be had now."""
    sightings: Sequence[Sighting]
    rate_per_hour: float | None
    """How often the catalogue says it is lost."""
    siblings: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Beliefs:
    """What is believed now."""

    return_chance: Mapping[str, float]
    """By offer: chance that it is there in the next step."""
    market: Mapping[tuple[str, ...], Floats]
    """By set of offers: (A, K) belief about "is any of them there", given that one is, or none."""


def beliefs_of(
    offers: Sequence[SeenOffer],
    markets: Sequence[tuple[str, ...]],
    *,
    now_s: float,
    step_s: float,
    family: RegimeFamily,
) -> Beliefs:
    """Filter what was seen; ``markets`` are sets of names of ``offers`` (one may be empty)."""
    by_name = {offer.name: place for place, offer in enumerate(offers)}
    weights = np.array([rate_weights(family, offer.rate_per_hour) for offer in offers])
    weights = weights.reshape(len(offers), family.count)
    steps = _history_steps(offers, now_s, step_s)
    there = np.zeros((len(offers), steps + 1), dtype=bool)
    gone = np.zeros_like(there)
    for place, offer in enumerate(offers):
        _mark(offer, there[place], gone[place], now_s, step_s)
    # An end within a step is a loss, however soon the next machine came.
    marks = np.where(gone, _GONE, np.where(there, _THERE, _UNSEEN)).astype(np.int8)
    marks[:, -1] = [offer.available for offer in offers]
    joint = _filtered(marks, weights, family, step_s)
    joint = _with_siblings(offers, marks, weights, joint, family)
    chain = step_chain(family, step_s)
    available = np.array([offer.available for offer in offers], dtype=bool)
    belief = joint[np.arange(len(offers)), available.astype(np.intp)]
    losses = outlook(belief, available, chain).loss_chance() if offers else np.zeros(0)
    grids, priors = [], []
    for names in markets:
        rows = [by_name[name] for name in names]
        grids.append(_market_marks(marks[rows], there[rows], gone[rows]))
        priors.append(weights[rows].mean(axis=0) if rows else family.prior())
    whole = np.array(grids, dtype=np.int8).reshape(len(markets), steps + 1)
    prior = np.array(priors).reshape(len(markets), family.count)
    together = _filtered(whole, prior, family, step_s)
    return Beliefs(
        return_chance={
            offer.name: 1 - float(loss) for offer, loss in zip(offers, losses, strict=True)
        },
        market={
            names: together[place, int(whole[place, -1])] for place, names in enumerate(markets)
        },
    )


def rate_weights(family: RegimeFamily, rate_per_hour: float | None) -> Floats:
    """(K,) prior weights of the regimes for an offer that is lost so often, sum 1.

    Log-normal about the rate with a spread of ``RATE_SPREAD``; the family's own without a rate. A
    rate beyond what any regime knows takes the nearest.
    """
    prior = family.prior()
    if rate_per_hour is None:
        return prior
    mean_stay_h = _mean_stay_h(family)
    wanted_h = np.clip(1 / max(rate_per_hour, 1e-9), mean_stay_h.min(), mean_stay_h.max())
    weights = prior * np.exp(-(np.log(mean_stay_h / wanted_h) ** 2) / (2 * RATE_SPREAD**2))
    result: Floats = weights / weights.sum()
    return result


@lru_cache(maxsize=8)
def _mean_stay_h(family: RegimeFamily) -> Floats:
    """(K,) mean hours of a run with spot in each regime."""
    rates, aging = family.change_rates_per_s()[1], family.aging_rates_per_s()
    mean_s, reach = np.zeros(family.count), np.ones(family.count)
    for age in range(family.ages):
        leave = rates[age] + aging[age]
        mean_s += reach / leave
        reach = reach * aging[age] / leave
    return mean_s / HOUR_S


@lru_cache(maxsize=8)
def _transition(family: RegimeFamily, step_s: float) -> Floats:
    """(2 A K, 2 A K) one step of the chain, by rows: kind (gone, there), age class, regime."""
    size = family.ages * family.count
    chain = step_chain(family, step_s)
    basis = np.eye(size).reshape(size, family.ages, family.count)
    rows = []
    for kind in (False, True):
        ahead = outlook(basis, np.full(size, kind), chain)
        rows.append(np.concatenate([ahead.none.reshape(size, -1), ahead.spot.reshape(size, -1)], 1))
    return np.concatenate(rows)


def _filtered(marks: Marks, weights: Floats, family: RegimeFamily, step_s: float) -> Floats:
    """(N, 2, A, K) belief after the last step, given it; rows of a kind sum to 1 where possible."""
    count, size = len(marks), family.ages * family.count
    start = family.stationary()[None] * weights[:, None, None, :]
    joint = start.reshape(count, 2, size)
    move = _transition(family, step_s)
    for step in range(marks.shape[1]):
        if step:
            joint = (joint.reshape(count, 2 * size) @ move).reshape(count, 2, size)
        seen = marks[:, step]
        if (seen != _UNSEEN).any():
            joint[seen == _THERE, 0] = 0.0
            joint[seen == _GONE, 1] = 0.0
            joint /= np.maximum(joint.sum(axis=(1, 2), keepdims=True), 1e-300)
    result: Floats = joint.reshape(count, 2, family.ages, family.count)
    return result


def _with_siblings(
    offers: Sequence[SeenOffer],
    marks: Marks,
    weights: Floats,
    joint: Floats,
    family: RegimeFamily,
) -> Floats:
    """Where nothing was seen of an offer, half of its belief comes from its siblings' regimes."""
    seen = (marks[:, :-1] != _UNSEEN).any(axis=1)
    regimes = joint.sum(axis=(1, 2))
    by_group: dict[str, list[int]] = {}
    for place, offer in enumerate(offers):
        if offer.siblings is not None and seen[place]:
            by_group.setdefault(offer.siblings, []).append(place)
    result = joint.copy()
    for place, offer in enumerate(offers):
        others = by_group.get(offer.siblings or "", [])
        if seen[place] or not others:
            continue
        hint = regimes[others].mean(axis=0)
        mixed = (1 - SIBLING_SHARE) * weights[place] + SIBLING_SHARE * hint
        kind = int(offer.available)
        own = family.stationary()[kind] * mixed
        result[place, kind] = own / own.sum()
    return result


def _history_steps(offers: Sequence[SeenOffer], now_s: float, step_s: float) -> int:
    first_s = min(
        (each.at_s for offer in offers for each in offer.sightings if each.at_s <= now_s),
        default=now_s,
    )
    return min(int((now_s - first_s) // step_s) + 1, LONGEST_HISTORY)


def _mark(
    offer: SeenOffer,
    there: NDArray[np.bool_],
    gone: NDArray[np.bool_],
    now_s: float,
    step_s: float,
) -> None:
    """Lay the sightings on the grid whose last step is now."""
    last = len(there) - 1

    def step_of(at_s: float) -> int:
        return last - int((now_s - at_s) // step_s)

    for each in offer.sightings:
        if each.at_s > now_s:
            continue
        until = last if each.until_s is None or each.until_s > now_s else step_of(each.until_s)
        begin = step_of(each.at_s)
        if each.until_s is None:
            until = begin
        if until < 0:
            continue
        (there if each.available else gone)[max(0, begin) : until + 1] = True


def _market_marks(marks: Marks, there: NDArray[np.bool_], gone: NDArray[np.bool_]) -> Marks:
    """(steps,) whether any of a market's offers was there."""
    result: Marks = marks[0].copy() if len(marks) == 1 else _together(there, gone)
    result[-1] = _THERE if (marks[:, -1] == _THERE).any() else _GONE
    return result


def _together(there: NDArray[np.bool_], gone: NDArray[np.bool_]) -> Marks:
    """(steps,) there if one was; gone if one was asked for and none was there."""
    result: Marks = np.where(
        there.any(axis=0), _THERE, np.where(gone.any(axis=0), _GONE, _UNSEEN)
    ).astype(np.int8)
    return result
