"""The clairvoyant optimum: the least cost of a job that knows the whole trace beforehand.

Backward dynamic programming over ticks on a grid of work done, exact under the replay's rules when
the change-over, the tick and every offer's progress per tick are whole numbers of grid units;
otherwise change-overs are rounded down and progress up, so that the result stays a lower bound.
A start is a macro step: whoever knows the future never starts a machine that does not get past its
change-over, so starts run to the first tick with progress and no pending state is needed.
"""

import math
from fractions import Fraction

import numpy as np

from cloudgavel.policies.spot.view import Bools, Floats, SpotTerms

_MOST_UNITS_PER_TICK = 40


def work_unit_s(tick_s: float, changeover_s: float) -> float:
    """Grid unit: the largest part of a tick that divides the change-over too, a 40th at least."""
    share = Fraction(changeover_s / tick_s).limit_denominator(_MOST_UNITS_PER_TICK)
    exact = abs(float(share) * tick_s - changeover_s) < 1e-6 * tick_s
    return tick_s / (share.denominator if exact else _MOST_UNITS_PER_TICK)


def clairvoyant_usd(
    terms: SpotTerms,
    *,
    available: Bools,
    spot_usd_per_hour: Floats,
    on_demand_usd_per_hour: Floats,
) -> Floats:
    """(J,) least cost of each job that keeps its deadline.

    Args:
        terms: all jobs need the same work and deadline (``ValueError`` otherwise).
        available: (J, N, O) with N ticks from each job's start; later ticks have no spot.
        spot_usd_per_hour: (J, N, O).
        on_demand_usd_per_hour: (J,).

    Returns:
        ``inf`` for a job that not even on-demand could end in time.

    """
    if np.ptp(terms.work_s) > 0 or np.ptp(terms.deadline_s) > 0:
        raise ValueError("the jobs of one call must share work and deadline")
    work, deadline, tick = float(terms.work_s[0]), float(terms.deadline_s[0]), terms.tick_s
    jobs, ticks, offers = available.shape
    unit = work_unit_s(tick, terms.changeover_s)
    per_tick = round(tick / unit)
    change_units = math.floor(terms.changeover_s / unit + 1e-9)
    macro = max(1, math.ceil(change_units / per_tick - 1e-9))
    """Ticks from a start to the end of its change-over."""
    steps = math.ceil(deadline / tick - 1e-9)
    last_units = round((deadline - (steps - 1) * tick) / unit, 9)
    """Units of time inside the last, maybe partial, tick."""
    levels = math.ceil(work / unit - 1e-9)
    left = np.maximum(work / unit - np.arange(levels + 1), 0.0)
    """(L,) work left in units at each level of work done; the last level is done."""
    prices = np.concatenate(
        [
            spot_usd_per_hour[:, :steps],
            np.broadcast_to(
                on_demand_usd_per_hour[:, None, None], (jobs, min(steps, ticks), 1)
            ),
        ],
        axis=2,
    ) * (unit / 3600.0)
    there = np.concatenate(
        [available[:, :steps], np.ones((jobs, min(steps, ticks), 1), dtype=bool)], axis=2
    )
    if ticks < steps:
        missing = steps - ticks
        prices = np.concatenate([prices, np.repeat(prices[:, -1:], missing, axis=1)], axis=1)
        gone = np.zeros((jobs, missing, offers + 1), dtype=bool)
        gone[:, :, -1] = True
        there = np.concatenate([there, gone], axis=1)
    rates = np.append(terms.work_rate, 1.0)
    machines = offers + 1
    finished = np.full((jobs, levels + 1), np.inf)
    finished[:, -1] = 0.0
    free = [finished] * (macro + 1)
    """free[i]: cost to go at tick t + 1 + i with nothing held."""
    kept = [[finished] * machines for _ in range(macro + 1)]
    """kept[i][m]: the same with machine m held and past its change-over."""
    for step in range(steps - 1, -1, -1):
        best = free[0].copy()
        new_kept = []
        for machine in range(machines):
            rate = rates[machine]
            up = there[:, step, machine]
            room = last_units if step == steps - 1 else per_tick
            stay = _run(
                kept[0][machine], left, rate, room, per_tick, prices[:, step, machine]
            )
            end = step + macro
            window = there[:, step:end, machine]
            startable = window.all(axis=1) if end <= steps else np.zeros(jobs, dtype=bool)
            start = finished
            if end <= steps and startable.any():
                paid = prices[:, step : end - 1, machine].sum(axis=1) * per_tick
                pending = change_units - (macro - 1) * per_tick
                room = (last_units if end == steps else per_tick) - pending
                last_price = prices[:, end - 1, machine]
                running = _run(
                    kept[macro - 1][machine], left, rate, room, per_tick - pending, last_price
                )
                start = running + (paid + pending * last_price)[:, None]
                start = np.where(startable[:, None], start, np.inf)
                start[:, -1] = 0.0
            np.minimum(best, start, out=best)
            stay = np.where(up[:, None], stay, np.inf)
            stay[:, -1] = 0.0
            new_kept.append(stay)
        new_kept = [np.minimum(best, stay) for stay in new_kept]
        free = [best, *free[:-1]]
        kept = [new_kept, *kept[:-1]]
    result: Floats = free[0][:, 0]
    return result


def _run(
    after: Floats, left: Floats, rate: float, room: float, full_room: float, unit_usd: Floats
) -> Floats:
    """(J, L) cost of running for ``room`` units of time, of which a whole step has ``full_room``."""
    gained = rate * full_room
    shift = min(math.ceil(gained - 1e-9), after.shape[1] - 1)
    moved = np.full(after.shape, np.inf)
    moved[:, : after.shape[1] - shift] = after[:, shift:]
    if room < full_room - 1e-9:
        moved[:] = np.inf
    needed = left / rate
    ends = needed <= room + 1e-9
    paid = np.where(ends, needed, room)
    cost_to_go = np.where(ends, 0.0, moved)
    total: Floats = paid * unit_usd[:, None] + cost_to_go
    return total
