"""The safety net and the cap on risk: what no forecast may override. No forecast is used here.

One job: spot (or waiting) for one more tick is safe if, after a tick without any progress whose
unsaved work is lost as well, on-demand still ends the job in time from a fresh change-over.
Many jobs that share few on-demand machines: ``joint_on_demand`` tests all of them together.
"""

import numpy as np

from cloudgavel.policies.spot.view import ON_DEMAND, Bools, Floats, SpotTerms, SpotView, slack_s

_ROUNDING_S = 1e-6


def safety_reserve_s(terms: SpotTerms) -> float:
    """Slack below which a job must be on on-demand: one tick, one change-over, the unsaved work."""
    return terms.tick_s + terms.changeover_s + terms.lost_work_s


def must_be_on_demand(terms: SpotTerms, view: SpotView) -> Bools:
    """(J,) whether a tick without progress would put the deadline out of on-demand's reach.

    The exception: a spot machine that ends the job within this tick.
    """
    tight = slack_s(terms, view) < safety_reserve_s(terms) - _ROUNDING_S
    rows = np.arange(len(view.held))
    held = np.maximum(view.held, 0)
    keeps = (view.held >= 0) & view.available[rows, held]
    ends = view.pending_s + view.work_left_s / terms.work_rate[held] <= terms.tick_s + _ROUNDING_S
    return tight & ~(keeps & ends)


def latest_on_demand_start_s(terms: SpotTerms, view: SpotView) -> Floats:
    """(J,) seconds from the start of the job until the net calls for on-demand if nothing happens.

    Later than that, waiting for spot is over; in the past, the net has called already.
    """
    return view.elapsed_s + slack_s(terms, view) - safety_reserve_s(terms) + terms.tick_s


def risk_cap_usd(terms: SpotTerms, on_demand_usd_per_hour: Floats, *, share: float = 0.01) -> Floats:
    """(J,) most a job may ever cost: on-demand only plus max(1 %, two on-demand change-overs)."""
    extra_s = np.maximum(share * terms.work_s, 2 * terms.changeover_s)
    return (terms.work_s + extra_s) / 3600.0 * on_demand_usd_per_hour


def affordable_spot(terms: SpotTerms, view: SpotView, cap_usd: Floats) -> Bools:
    """(J, O) whether a tick on each spot offer keeps the cost under ``cap_usd`` at worst.

    At worst the tick is paid without progress, unsaved work is lost, and on-demand does all that is
    left after a fresh change-over. A held machine past its change-over makes progress in this tick
    for certain only up to what is saved, so the same worst case is taken.
    """
    worst_s = view.work_left_s + terms.lost_work_s + terms.changeover_s
    after = view.spent_usd + worst_s / 3600.0 * view.on_demand_usd_per_hour
    tick_usd = view.spot_usd_per_hour * (terms.tick_s / 3600.0)
    return (after[:, None] + tick_usd) <= cap_usd[:, None] + 1e-9


def affordable_move(terms: SpotTerms, view: SpotView, cap_usd: Floats) -> Bools:
    """(J,) whether starting on-demand *and* coming back from it once more stays under the cap."""
    fresh = np.where(view.held == ON_DEMAND, view.pending_s, terms.changeover_s)
    worst_s = view.work_left_s + fresh
    return view.spent_usd + worst_s / 3600.0 * view.on_demand_usd_per_hour <= cap_usd + 1e-9


__all__ = [
    "affordable_move",
    "affordable_spot",
    "latest_on_demand_start_s",
    "must_be_on_demand",
    "risk_cap_usd",
    "safety_reserve_s",
]
