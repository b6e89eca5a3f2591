"""Small batches of jobs and markets."""

from collections.abc import Sequence

import numpy as np

from cloudgavel.policies.spot.view import SpotTerms, SpotView
from cloudgavel.simulator.spot.replay import Market


def terms(
    *,
    work_ticks: float = 10,
    deadline_ticks: float = 20,
    changeover_ticks: float = 1,
    tick_s: float = 100.0,
    jobs: int = 1,
    rates: Sequence[float] = (1.0,),
    lost_work_s: float = 0.0,
) -> SpotTerms:
    return SpotTerms(
        tick_s=tick_s,
        changeover_s=changeover_ticks * tick_s,
        work_s=np.full(jobs, work_ticks * tick_s),
        deadline_s=np.full(jobs, deadline_ticks * tick_s),
        work_rate=np.array(rates, dtype=float),
        lost_work_s=lost_work_s,
    )


def market(available: np.ndarray, *, spot_usd: float = 0.3, on_demand_usd: float = 1.0) -> Market:
    """``available`` is (J, N, O), or (J, N) for one offer."""
    there = available.astype(bool)
    if there.ndim == 2:
        there = there[:, :, None]
    return Market(
        available=there,
        spot_usd_per_hour=np.full(there.shape, spot_usd),
        on_demand_usd_per_hour=np.full(len(there), on_demand_usd),
    )


def bits(*rows: str) -> np.ndarray:
    """``bits("110", "011")``: (J, N) availability."""
    return np.array([[letter == "1" for letter in row] for row in rows])


def markov_market(
    dice: np.random.Generator,
    *,
    jobs: int,
    ticks: int,
    stay_chance: float,
    away_chance: float,
    offers: int = 1,
    spot_usd: float = 0.3,
) -> Market:
    """Independent two-state chains from their stationary law; chances to stay in a state."""
    shape = (jobs, offers)
    up_share = (1 - away_chance) / (2 - stay_chance - away_chance)
    state = dice.random(shape) < up_share
    columns = []
    for _ in range(ticks):
        columns.append(state)
        state = np.where(state, dice.random(shape) < stay_chance, dice.random(shape) > away_chance)
    return market(np.stack(columns, axis=1), spot_usd=spot_usd)


def view(
    *,
    work_left_s: Sequence[float],
    available: Sequence[Sequence[bool]],
    held: Sequence[int],
    elapsed_s: float = 0.0,
    pending_s: Sequence[float] | None = None,
    spent_usd: Sequence[float] | None = None,
    spot_usd: float = 0.3,
) -> SpotView:
    jobs = len(work_left_s)
    there = np.array(available, dtype=bool)
    return SpotView(
        elapsed_s=elapsed_s,
        work_left_s=np.array(work_left_s, dtype=float),
        available=there,
        spot_usd_per_hour=np.full(there.shape, spot_usd),
        on_demand_usd_per_hour=np.ones(jobs),
        held=np.array(held),
        pending_s=np.zeros(jobs) if pending_s is None else np.array(pending_s, dtype=float),
        spent_usd=np.zeros(jobs) if spent_usd is None else np.array(spent_usd, dtype=float),
    )
