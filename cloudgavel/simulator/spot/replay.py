"""Replay a batch of jobs tick by tick under a policy: accounting and nothing else.

The rules, which the baselines' papers share: availability holds for a whole tick; a machine that
is started pays from the first second and makes progress only after the change-over; a start while
another change-over is pending replaces it; a spot machine whose offer is gone at the next tick is
lost with its pending change-over; money runs by the second, so a job that ends inside a tick pays
for that part only.
"""

from dataclasses import dataclass

import numpy as np

from cloudgavel.errors import BugError
from cloudgavel.policies.spot.view import (
    ON_DEMAND,
    WAIT,
    Bools,
    Floats,
    Ints,
    SpotPolicy,
    SpotTerms,
    SpotView,
)

HOUR_S = 3600.0
_DONE_S = 1e-6
"""Work left below this is rounding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Market:
    """What the market does to J jobs over N ticks with O offers; ticks count from each job's start.

    On-demand is always to be had, at one price per job.
    """

    available: Bools
    """(J, N, O)"""
    spot_usd_per_hour: Floats
    """(J, N, O)"""
    on_demand_usd_per_hour: Floats
    """(J,)"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayOutcome:
    """What happened to each of J jobs."""

    cost_usd: Floats
    finished_s: Floats
    missed: Bools
    changeovers: Ints
    spot_s: Floats
    on_demand_s: Floats
    choices: Ints | None = None
    """(J, steps) answers, when asked for."""


def replay(
    policy: SpotPolicy, terms: SpotTerms, market: Market, *, keep_choices: bool = False
) -> ReplayOutcome:
    """Run every job to its end.

    After the last tick of the market nothing but on-demand is to be had. A policy that answers with
    an offer that is not available, or lets a job run on for twice its deadline, is a bug of the
    policy: ``BugError``.
    """
    jobs, ticks, offers = market.available.shape
    tick_s = terms.tick_s
    rows = np.arange(jobs)
    work_left = terms.work_s.astype(float).copy()
    held = np.full(jobs, WAIT)
    pending = np.zeros(jobs)
    cost, finished = np.zeros(jobs), np.full(jobs, np.nan)
    changeovers = np.zeros(jobs, dtype=np.int64)
    spot_s, on_demand_s = np.zeros(jobs), np.zeros(jobs)
    story: list[Ints] = []
    last_step = int(np.ceil(2 * (terms.deadline_s.max() + terms.changeover_s) / tick_s)) + 2
    nothing = np.zeros((jobs, offers), dtype=bool)
    for step in range(last_step):
        active = work_left > _DONE_S
        if not active.any():
            break
        available = market.available[:, step] if step < ticks else nothing
        prices = market.spot_usd_per_hour[:, min(step, ticks - 1)]
        lost = (held >= 0) & ~available[rows, np.maximum(held, 0)]
        held[lost], pending[lost] = WAIT, 0.0
        view = SpotView(
            elapsed_s=step * tick_s,
            work_left_s=work_left.copy(),
            available=available,
            spot_usd_per_hour=prices,
            on_demand_usd_per_hour=market.on_demand_usd_per_hour,
            held=held.copy(),
            pending_s=pending.copy(),
            spent_usd=cost.copy(),
        )
        choice = np.where(active, policy.decide(view), WAIT)
        if np.any((choice >= 0) & ~available[rows, np.maximum(choice, 0)]):
            raise BugError("the policy chose a spot offer that is not available")
        started = active & (choice != WAIT) & (choice != held)
        changeovers += started
        pending = np.where(started, terms.changeover_s, np.where(choice == held, pending, 0.0))
        held = choice.copy()
        running = active & (held != WAIT)
        on_spot = running & (held >= 0)
        rate = terms.rate_of(held)
        price = np.where(on_spot, prices[rows, np.maximum(held, 0)], market.on_demand_usd_per_hour)
        waited = np.minimum(pending, tick_s)
        useful = np.where(running, np.minimum(tick_s - waited, work_left / rate), 0.0)
        done_now = running & (work_left - useful * rate <= _DONE_S)
        paid_s = np.where(running, np.where(done_now, waited + useful, tick_s), 0.0)
        work_left = np.where(done_now, 0.0, work_left - useful * rate)
        pending = np.where(running, pending - waited, 0.0)
        cost += paid_s / HOUR_S * price
        spot_s += np.where(on_spot, paid_s, 0.0)
        on_demand_s += np.where(running & ~on_spot, paid_s, 0.0)
        finished[done_now] = step * tick_s + (waited + useful)[done_now]
        if keep_choices:
            story.append(choice)
    else:
        raise BugError("the policy never finished a job although on-demand was there")
    return ReplayOutcome(
        cost_usd=cost,
        finished_s=finished,
        missed=finished > terms.deadline_s + 1e-3,
        changeovers=changeovers,
        spot_s=spot_s,
        on_demand_s=on_demand_s,
        choices=np.stack(story, axis=1) if keep_choices else None,
    )


def on_demand_only_usd(terms: SpotTerms, market: Market) -> Floats:
    """(J,) what each job costs on on-demand alone, without its own change-over."""
    return terms.work_s / HOUR_S * market.on_demand_usd_per_hour


__all__ = ["ON_DEMAND", "Market", "ReplayOutcome", "on_demand_only_usd", "replay"]
