"""The decision on a fixed cluster: snapshot in, leases out. Pure, total, deterministic."""

import numpy as np

from cloudgavel.mechanism.fixed_cluster.places import place
from cloudgavel.mechanism.fixed_cluster.shares import standing_of
from cloudgavel.mechanism.fixed_cluster.state import (
    FixedClusterState,
    FixedDecision,
    Leases,
    Standing,
)
from cloudgavel.mechanism.fixed_cluster.turns import (
    claim_free,
    fill_idle,
    keep_turns,
    run_ahead,
    take_turns,
)
from cloudgavel.policies.base import Policy
from cloudgavel.policies.problem import FloatArray

MOST_OWED = 50.0
"""Rounds a job can be owed."""
MOST_AHEAD = 3.0
"""Rounds a job can be ahead: what it had under an older allocation does not hold it back long."""


def decide_leases(
    state: FixedClusterState, policy: Policy, *, exact_rounds: bool = False
) -> FixedDecision:
    """Decide who holds which accelerators from now on.

    The policy is asked only if the snapshot has no allocation in force. At a boundary turns are
    taken anew (with the lease extended for whoever stays); within a round only what is free is
    given on, first to whom it is owed, then to whoever waits.
    """
    solved = state.standing is None
    standing = standing_of(state, policy) if state.standing is None else state.standing
    if state.is_boundary:
        turns = take_turns(state, standing, exact=exact_rounds)
    else:
        turns = keep_turns(state)
        claim_free(state, standing, turns)
    if standing.fills_idle:
        fill_idle(state, standing, turns)
    else:
        run_ahead(state, standing, turns)
    return FixedDecision(leases=place(state, turns), standing=standing, solved=solved)


def credits_after(
    credits: FloatArray, standing: Standing, leases: Leases, elapsed_rounds: float
) -> FloatArray:
    """(m, R) credits after part of a round: shares come in, service goes out.

    What ran on accelerators that no share had claimed is not charged. More than ``MOST_OWED``
    rounds owed, or ``MOST_AHEAD`` had too many, are not remembered.
    """
    after = credits + standing.time_share * elapsed_rounds
    served = np.flatnonzero((leases.pool >= 0) & (leases.is_extra == 0))
    after[served, leases.pool[served]] -= elapsed_rounds
    after[standing.time_share <= 0] *= 0.0
    return np.clip(after, -MOST_AHEAD, MOST_OWED)
