"""Belief over regimes and ages, learnt online from what was seen: an exact forward filter.

For each offer the belief is a distribution over age class and regime given everything seen so far.
Arrays have the shape (..., A, K); the leading axes are jobs and offers.
"""

from dataclasses import dataclass

import numpy as np

from cloudgavel.policies.spot.regimes import RegimeFamily, StepChain
from cloudgavel.policies.spot.view import Bools, Floats

_MOST_POWER = 6.0
_BISECTIONS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlook:
    """Joint probabilities of the next step, each (..., A, K); together they sum to 1."""

    spot: Floats
    """Spot is there."""
    none: Floats
    """Spot is not there."""

    def loss_chance(self) -> Floats:
        """(...,) chance that there is no spot in the next step."""
        result: Floats = self.none.sum(axis=(-2, -1))
        return result


def first_belief(family: RegimeFamily, available: Bools) -> Floats:
    """Return (..., A, K) belief after one look: the regimes' long-run shares, seen up or down."""
    shares = family.stationary() * family.prior()
    shares = shares / shares.sum(axis=(1, 2), keepdims=True)
    belief: Floats = shares[available.astype(np.intp)]
    return belief


def outlook(belief: Floats, available: Bools, chain: StepChain) -> Outlook:
    """Return what the next step may bring, given what is there now."""
    chance = chain.change[available.astype(np.intp)]
    belief = belief @ chain.mix
    changed = belief * chance
    stayed = belief - changed
    moving = stayed * chain.age_on[:, None]
    aged = stayed - moving
    aged[..., 1:, :] += moving[..., :-1, :]
    fresh = np.zeros_like(aged)
    begun = changed.sum(axis=-2)
    now = available[..., None, None]
    fresh[..., 0, :] = np.where(now[..., 0], begun @ chain.rerun[0], begun @ chain.rerun[1])
    return Outlook(spot=np.where(now, aged, fresh), none=np.where(now, fresh, aged))


def seen(prospect: Outlook, available: Bools) -> Floats:
    """Return the belief after the next look."""
    belief = np.where(available[..., None, None], prospect.spot, prospect.none)
    total = belief.sum(axis=(-2, -1), keepdims=True)
    result: Floats = belief / np.maximum(total, 1e-300)
    return result


def agreeing(
    prospect: Outlook, available: Bools, chain: StepChain, change_chance: Floats
) -> Outlook:
    """Return ``prospect`` with regimes re-weighted to agree with a better forecast of a change.

    A market of several offers has a belief of its own, but its offers' own beliefs foretell its
    next change better. The run that is there now,
    if it goes on, is re-weighted by a power of each regime's hazard, such that its mean hazard is
    ``change_chance`` (...,), as far as the regimes' hazards reach; all else stays.
    """
    hazards = chain.change @ chain.mix.T
    hazard = hazards[available.astype(np.intp)]
    now = available[..., None, None]
    going_on = np.where(now, prospect.spot, prospect.none)
    share = going_on.sum(axis=(-2, -1), keepdims=True)
    wanted = np.clip(change_chance, hazards.min() * 1.01, hazards.max() * 0.99)
    low, high = np.full(wanted.shape, -_MOST_POWER), np.full(wanted.shape, _MOST_POWER)
    logs = np.log(hazard)
    for _ in range(_BISECTIONS):
        power = (low + high) / 2
        weights = going_on * np.exp(power[..., None, None] * logs)
        total = np.maximum(weights.sum(axis=(-2, -1)), 1e-300)
        mean = (weights * hazard).sum(axis=(-2, -1)) / total
        low, high = np.where(mean > wanted, low, power), np.where(mean > wanted, power, high)
    weighted = share * weights / total[..., None, None]
    return Outlook(
        spot=np.where(now, weighted, prospect.spot), none=np.where(now, prospect.none, weighted)
    )
