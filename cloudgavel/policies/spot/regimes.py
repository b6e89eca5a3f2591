"""Hidden regimes: how long spot stays and stays away, as a broad family with a prior.

An offer is, at any time, in one of K regimes that nobody sees. A regime has a scale for how long
spot stays and one for how long it stays away, both spaced evenly in the logarithm over what spot
markets show anywhere (minutes to days). Within a run the hazard of a change falls with the age of
the run,

    rate(age) = max(1 / (1 + decay * age / scale), floor) / scale,

so that a run that has lasted is likely to last (a Lomax law with a floor: no run lasts for ever).
With a small rate the regime is drawn anew from the prior, so that belief never freezes. Nothing
here is fitted to a trace; ``reweighted`` takes a prior from a training set, a catalogue or
siblings.
"""

from dataclasses import dataclass

import numpy as np

from cloudgavel.policies.spot.view import Floats

HOUR_S = 3600.0


def _log_spaced(lowest: float, highest: float, count: int) -> tuple[float, ...]:
    return tuple(float(value) for value in np.geomspace(lowest, highest, count))


@dataclass(frozen=True, kw_only=True, slots=True)
class RegimeFamily:
    """The family's shape: all that a table or a belief depends on, hashable for caches."""

    stay_scales_s: tuple[float, ...] = _log_spaced(400.0, 20_000.0, 4)
    """Scales of runs with spot. Seven minutes to five and a half hours; with the default decay and
    floor the mean run is 3.3 scales, and an old one of the longest kind lasts two days more."""
    away_scales_s: tuple[float, ...] = _log_spaced(400.0, 20_000.0, 4)
    """Scales of runs without."""
    decay: float = 1.0
    """How fast the hazard falls with age; 0 = it does not (a two-state Markov chain)."""
    floor: float = 0.1
    """The hazard never falls below this share of its first value."""
    redraws_per_hour: float = 0.03
    """Rate at which an offer's regime is drawn anew."""
    drifts_per_hour: float = 0.1
    """Rate at which each scale moves to a neighbour on its grid."""
    rerun_share: float = 0.0
    """Chance that a new run has a scale drawn anew (the other kind's scale stays)."""
    rerun_spread: float = 2.0
    """How far, in neighbours of the scale grid, a scale drawn anew strays (exponential)."""
    age_edges_s: tuple[float, ...] = (1800.0, 15_000.0)
    """Bounds between the age classes; one class more than bounds."""
    weights: tuple[float, ...] | None = None
    """(K,) prior weights, stay scale slowest; ``None`` = equal."""

    @property
    def count(self) -> int:
        """K, the number of regimes."""
        return len(self.stay_scales_s) * len(self.away_scales_s)

    @property
    def ages(self) -> int:
        """A, the number of age classes."""
        return len(self.age_edges_s) + 1

    def prior(self) -> Floats:
        """(K,) prior probabilities of the regimes."""
        if self.weights is None:
            return np.full(self.count, 1.0 / self.count)
        weights = np.asarray(self.weights, dtype=float)
        if weights.shape != (self.count,) or not np.all(weights >= 0) or not weights.sum() > 0:
            raise ValueError(f"need {self.count} non-negative weights")
        result: Floats = weights / weights.sum()
        return result

    def change_rates_per_s(self) -> Floats:
        """(2, A, K) hazard of the end of a run: [0] of spot's absence, [1] of its presence."""
        edges = np.array(self.age_edges_s or (HOUR_S,))
        # The middle of a class by geometric mean: hazards fall like a power of the age.
        middles = np.concatenate(
            [[edges[0] / 2], np.sqrt(edges[:-1] * edges[1:]), [edges[-1] * 1.5]]
        )[: self.ages]
        away = np.tile(self.away_scales_s, len(self.stay_scales_s))
        stay = np.repeat(self.stay_scales_s, len(self.away_scales_s))
        scales = np.stack([away, stay])[:, None, :]
        falling = 1.0 / (1.0 + self.decay * middles[None, :, None] / scales)
        rates: Floats = np.maximum(falling, self.floor) / scales
        return rates

    def aging_rates_per_s(self) -> Floats:
        """(A,) rate of moving to the next age class: one over its width; 0 for the last."""
        edges = np.array((0.0, *self.age_edges_s))
        return np.append(1.0 / np.diff(edges), 0.0)

    def stationary(self) -> Floats:
        """(2, A, K) long-run probability of [no spot, spot] and age class in each regime."""
        rates, aging = self.change_rates_per_s(), self.aging_rates_per_s()
        leave = rates + aging[None, :, None]
        reach = np.ones_like(rates)
        for age in range(1, self.ages):
            reach[:, age] = reach[:, age - 1] * aging[age - 1] / leave[:, age - 1]
        time_s = reach / leave
        shares: Floats = time_s / time_s.sum(axis=(0, 1))
        return shares

    def rerun_matrix(self, kind: int) -> Floats:
        """(K, K) chance of each regime given the one before when a run of ``kind`` begins.

        Kind 0 is a run without spot, 1 with; rows sum to 1.
        """
        stays, aways = len(self.stay_scales_s), len(self.away_scales_s)
        count = stays if kind else aways
        places = np.arange(count, dtype=np.float64)
        kernel = np.exp(-np.abs(places[:, None] - places) / self.rerun_spread)
        kernel = kernel / kernel.sum(axis=1, keepdims=True)
        share = self.rerun_share
        mixed = (1 - share) * np.eye(count) + share * kernel
        result: Floats = np.asarray(
            np.kron(mixed, np.eye(aways)) if kind else np.kron(np.eye(stays), mixed),
            dtype=np.float64,
        )
        return result


@dataclass(frozen=True, kw_only=True, slots=True)
class StepChain:
    """The family's chain over one step of given length."""

    change: Floats
    """(2, A, K) chance that a run of that kind and age ends within the step."""
    age_on: Floats
    """(A,) chance to be in the next age class after a step that did not end the run."""
    mix: Floats
    """(K, K) regime before to regime after: drift, and now and then a draw from the prior."""
    rerun: Floats
    """(2, K, K) regime before to regime of the run that begins: [0] without spot, [1] with."""


def step_chain(family: RegimeFamily, step_s: float) -> StepChain:
    """Return the chain over ``step_s`` seconds."""
    redraw = float(-np.expm1(-family.redraws_per_hour * step_s / HOUR_S))
    drift = float(-np.expm1(-family.drifts_per_hour * step_s / HOUR_S))
    stays, aways = len(family.stay_scales_s), len(family.away_scales_s)
    moved = np.kron(_to_neighbours(stays, drift), _to_neighbours(aways, drift))
    return StepChain(
        change=-np.expm1(-family.change_rates_per_s() * step_s),
        age_on=-np.expm1(-family.aging_rates_per_s() * step_s),
        mix=(1 - redraw) * moved + redraw * family.prior(),
        rerun=np.stack([family.rerun_matrix(0), family.rerun_matrix(1)]),
    )


def _to_neighbours(count: int, chance: float) -> Floats:
    """(count, count) half the chance each way, staying at the ends."""
    matrix = np.eye(count) * (1 - chance)
    for index in range(count):
        matrix[index, max(index - 1, 0)] += chance / 2
        matrix[index, min(index + 1, count - 1)] += chance / 2
    return matrix
