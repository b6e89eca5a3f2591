"""The safety net and the cap on risk: what no forecast may override. No forecast is used here.

One job: spot (or waiting) for one more tick is safe if, after a tick without any progress whose
unsaved work is lost as well, on-demand still ends the job in time from a fresh change-over. Where
what is there when a tick begins is known to stay to its end (replays), a tick on a running spot
machine makes its progress, so that less slack will do.
Many jobs that share few on-demand machines: ``joint_on_demand`` tests all of them together.
"""

import heapq
from dataclasses import dataclass

import numpy as np

from cloudgavel.policies.spot.view import Bools, Floats, SpotTerms, SpotView, slack_s

_ROUNDING_S = 1e-6


def safety_reserve_s(terms: SpotTerms) -> float:
    """Slack below which a job must be on on-demand: one tick, one change-over, the unsaved work."""
    return terms.tick_s + terms.changeover_s + terms.lost_work_s


def must_be_on_demand(terms: SpotTerms, view: SpotView) -> Bools:
    """(J,) whether a tick without progress would put the deadline out of on-demand's reach.

    The exception: a spot machine that ends the job within this tick.
    """
    tight = slack_s(terms, view) < safety_reserve_s(terms) - _ROUNDING_S
    return tight & ~ends_on_held_spot(terms, view)


def ends_on_held_spot(terms: SpotTerms, view: SpotView) -> Bools:
    """(J,) whether the spot machine that is held ends the job within this tick and in time."""
    held = np.maximum(view.held, 0)
    keeps = (view.held >= 0) & view.available[np.arange(len(held)), held]
    needed_s = view.pending_s + view.work_left_s / terms.rate_of(view.held)
    result: Bools = keeps & (needed_s <= _in_tick_s(terms, view))
    return result


def _in_tick_s(terms: SpotTerms, view: SpotView) -> Floats:
    """(J,) seconds in which a machine must end a job to end it within this tick and in time."""
    return np.minimum(terms.tick_s, terms.deadline_s - view.elapsed_s) + _ROUNDING_S


def safe_wait(terms: SpotTerms, view: SpotView) -> Bools:
    """(J,) whether on-demand can still start a tick later and end the job in time."""
    spare_s = slack_s(terms, view) - safety_reserve_s(terms)
    result: Bools = spare_s >= -_ROUNDING_S
    return result


def safe_spot(terms: SpotTerms, view: SpotView) -> Bools:
    """(J, O) whether a tick on each spot offer leaves on-demand time to end the job, at worst.

    At worst the machine is gone with its unsaved work: when the tick ends where availability holds
    for a tick, else at once. A machine that ends the job within the tick is safe.
    """
    keeps = view.held[:, None] == np.arange(view.available.shape[1])
    pending_s = np.where(keeps, view.pending_s[:, None], terms.changeover_s)
    rate = terms.work_rate
    needed_s = pending_s + view.work_left_s[:, None] / rate
    ends = needed_s <= _in_tick_s(terms, view)[:, None]
    spare_s = slack_s(terms, view)[:, None] - terms.changeover_s - terms.tick_s - terms.lost_work_s
    if terms.holds_for_tick:
        gained_s = rate * np.maximum(terms.tick_s - pending_s, 0.0)
        spare_s = spare_s + np.minimum(gained_s, view.work_left_s[:, None])
    else:
        ends = ends & keeps
    result: Bools = ends | (spare_s >= -_ROUNDING_S)
    return result


def latest_on_demand_start_s(terms: SpotTerms, view: SpotView) -> Floats:
    """(J,) seconds from the start of the job until the net calls for on-demand if nothing happens.

    Later than that, waiting for spot is over; in the past, the net has called already.
    """
    return view.elapsed_s + slack_s(terms, view) - safety_reserve_s(terms) + terms.tick_s


def joint_on_demand(
    *,
    needed_s: Floats,
    deadline_left_s: Floats,
    changeover_s: float,
    on_demand_held: Bools,
    slots: int,
    tick_s: float,
    lost_work_s: float = 0.0,
) -> Bools:
    """(J,) which jobs must be on on-demand in this tick, all jobs together on ``slots`` machines.

    No forecast: assume that spot vanishes now and this tick's work is lost. If a schedule exists
    that starts one tick later and ends every job in time, nobody must. Else the jobs that run in
    the first tick of a schedule that starts now must. Schedules are lists by deadline, each job in
    one piece from a fresh change-over, so they can be carried out as they are; whatever progress
    is made meanwhile, the order stays and nobody starts later, so a list that exists once exists
    for ever. Where there is none by deadline, one by latest start is tried (which may not last);
    where there is none at all, the most urgent jobs are returned.

    Args:
        needed_s: (J,) on-demand seconds each job still needs, without a change-over; 0 = done.
        deadline_left_s: (J,) seconds to each deadline.
        changeover_s: seconds of a start.
        on_demand_held: (J,) jobs on on-demand now; they need no change-over if they stay.
        slots: on-demand machines there may be at once.
        tick_s: seconds between decisions.
        lost_work_s: unsaved work that goes with a spot machine.

    """
    live = needed_s > 0
    spot_loss_s = np.where(on_demand_held, 0.0, lost_work_s)
    fresh_s = needed_s + changeover_s + spot_loss_s
    later_s = deadline_left_s - tick_s
    if _listed(fresh_s, later_s, live, slots, tick_s, order_by=later_s) is not None:
        return np.zeros(len(needed_s), dtype=bool)
    now_s = np.where(on_demand_held, needed_s, needed_s + changeover_s)
    first = _listed(now_s, deadline_left_s, live, slots, tick_s, order_by=deadline_left_s)
    if first is None:
        latest_s = deadline_left_s - now_s
        first = _listed(now_s, deadline_left_s, live, slots, tick_s, order_by=latest_s)
    if first is None:
        latest = np.where(live, deadline_left_s - now_s, np.inf)
        order = np.argsort(latest, kind="stable")[:slots]
        first = np.zeros(len(needed_s), dtype=bool)
        first[order] = live[order]
    return first


def _listed(
    needed_s: Floats,
    deadline_left_s: Floats,
    live: Bools,
    slots: int,
    tick_s: float,
    *,
    order_by: Floats,
) -> Bools | None:
    """(J,) who runs first if jobs go to machines in this order; ``None`` if one would be late.

    Machines change hands at ticks only.
    """
    first = np.zeros(len(needed_s), dtype=bool)
    free_at = [0.0] * slots
    for job in np.flatnonzero(live)[np.argsort(order_by[live], kind="stable")].tolist():
        if not slots:
            return None
        start_s = heapq.heappop(free_at)
        end_s = start_s + float(needed_s[job])
        if end_s > deadline_left_s[job] + _ROUNDING_S:
            return None
        first[job] = start_s == 0.0
        heapq.heappush(free_at, float(np.ceil(end_s / tick_s - 1e-9)) * tick_s)
    return first


@dataclass(frozen=True, kw_only=True, slots=True)
class RiskCap:
    """How far above on-demand only a run may end: the larger of a share and some change-overs.

    On-demand only starts a machine as well; ``own_starts`` = 1 counts that start as part of it.
    """

    share: float = 0.01
    changeovers: float = 2.0
    own_starts: float = 1.0

    def usd(self, terms: SpotTerms, on_demand_usd_per_hour: Floats) -> Floats:
        """(J,) most each job may ever cost."""
        extra_s = np.maximum(self.share * terms.work_s, self.changeovers * terms.changeover_s)
        own_s = self.own_starts * terms.changeover_s
        result: Floats = (terms.work_s + own_s + extra_s) / 3600.0 * on_demand_usd_per_hour
        return result


def affordable_spot(terms: SpotTerms, view: SpotView, cap_usd: Floats) -> Bools:
    """(J, O) whether a tick on each spot offer keeps the cost under ``cap_usd`` at worst.

    At worst the machine is gone at the next tick, its unsaved work is lost (``lost_work_s``), and
    on-demand does all that is left after a fresh change-over. A start must be able to afford its
    whole change-over, or it would be given up half-way.
    """
    offers = np.arange(view.available.shape[1])
    keeps = view.held[:, None] == offers
    pending_s = np.where(keeps, view.pending_s[:, None], terms.changeover_s)
    paid_s = np.maximum(terms.tick_s, pending_s)
    gained_s = np.maximum(terms.tick_s - pending_s, 0.0) * terms.work_rate
    lost_s = np.minimum(gained_s + np.where(keeps, terms.lost_work_s, 0.0), terms.lost_work_s)
    left_s = np.maximum(view.work_left_s[:, None] - gained_s, 0.0) + lost_s
    fall_back_usd = (left_s + terms.changeover_s) * view.on_demand_usd_per_hour[:, None]
    total = view.spent_usd[:, None] + (paid_s * view.spot_usd_per_hour + fall_back_usd) / 3600.0
    result: Bools = total <= cap_usd[:, None] * (1 + 1e-12) + 1e-12
    return result


def affordable_wait(terms: SpotTerms, view: SpotView, cap_usd: Floats) -> Bools:
    """(J,) whether holding nothing keeps the cost under the cap: on-demand must start once more."""
    left_s = view.work_left_s + terms.changeover_s
    total = view.spent_usd + left_s / 3600.0 * view.on_demand_usd_per_hour
    result: Bools = total <= cap_usd * (1 + 1e-12) + 1e-12
    return result


__all__ = [
    "RiskCap",
    "affordable_spot",
    "affordable_wait",
    "ends_on_held_spot",
    "joint_on_demand",
    "latest_on_demand_start_s",
    "must_be_on_demand",
    "safe_spot",
    "safe_wait",
    "safety_reserve_s",
]
