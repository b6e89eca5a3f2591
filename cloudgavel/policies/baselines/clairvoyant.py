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
    start_usd: float = 0.0,
) -> Floats:
    """(J,) least cost of each job that keeps its deadline.

    Args:
        terms: all jobs need the same work and deadline (``ValueError`` otherwise).
        available: (J, N, O) with N ticks from each job's start; later ticks have no spot.
        spot_usd_per_hour: (J, N, O).
        on_demand_usd_per_hour: (J,).
        start_usd: added for every start; the derivative of the result with respect to it is the
            number of change-overs (``clairvoyant_changeovers``).

    Returns:
        ``inf`` for a job that not even on-demand could end in time.

    """
    if np.ptp(terms.work_s) > 0 or np.ptp(terms.deadline_s) > 0:
        raise ValueError("the jobs of one call must share work and deadline")
    work, deadline, tick = float(terms.work_s[0]), float(terms.deadline_s[0]), terms.tick_s
    jobs, offers = available.shape[0], available.shape[2]
    unit = work_unit_s(tick, terms.changeover_s)
    per_tick = round(tick / unit)
    change_units = math.floor(terms.changeover_s / unit + 1e-9)
    macro = max(1, math.ceil(change_units / per_tick - 1e-9))
    """Ticks from a start to the end of its change-over."""
    steps = math.ceil(deadline / tick - 1e-9)
    last_room = round((deadline - (steps - 1) * tick) / unit, 9)
    """Units of time inside the last, maybe partial, tick."""
    levels = math.ceil(work / unit - 1e-9)
    left = np.maximum(work / unit - np.arange(levels + 1), 0.0)
    """(L,) work left in units at each level of work done; the last level is done."""
    there, prices = _with_on_demand(available, spot_usd_per_hour, on_demand_usd_per_hour, steps)
    prices = prices * (unit / 3600.0)
    rates = np.append(terms.work_rate, 1.0)
    machines = offers + 1
    fastest = float(rates.max())
    finished = np.full((jobs, levels + 1), np.inf)
    finished[:, -1] = 0.0
    free = [finished] * macro
    """free[i]: cost to go with nothing held, i + 1 ticks on."""
    kept = [[finished] * machines for _ in range(macro)]
    """kept[i][m]: the same with machine m held and past its change-over."""
    for step in range(steps - 1, -1, -1):
        # Levels that can be reached from the start and from which the end can be reached.
        low = max(0, math.floor(levels - fastest * (steps - step) * per_tick) - 1)
        high = min(levels - 1, math.ceil(fastest * step * per_tick))
        band = slice(low, high + 1)
        best = finished.copy()
        best[:, band] = free[0][:, band]
        stays = []
        end = step + macro
        room = last_room if step == steps - 1 else per_tick
        end_room = last_room if end == steps else per_tick
        pending = change_units - (macro - 1) * per_tick
        for machine in range(machines):
            price = prices[:, step, machine]
            stay = _run(kept[0][machine], left, rates[machine], room, per_tick, price, band)
            stays.append(np.where(there[:, step, machine, None], stay, np.inf))
            if end > steps:
                continue
            startable = np.logical_and.reduce(there[:, step:end, machine], axis=1)
            if not startable.any():
                continue
            last_price = prices[:, end - 1, machine]
            paid = prices[:, step : end - 1, machine].sum(axis=1) * per_tick
            running = _run(
                kept[macro - 1][machine],
                left,
                rates[machine],
                end_room - pending,
                per_tick - pending,
                last_price,
                band,
            )
            start = running + (paid + pending * last_price + start_usd)[:, None]
            start = np.where(startable[:, None], start, np.inf)
            np.minimum(best[:, band], start, out=best[:, band])
        held = []
        for stay in stays:
            whole = best.copy()
            np.minimum(whole[:, band], stay, out=whole[:, band])
            held.append(whole)
        free = [best, *free[:-1]]
        kept = [held, *kept[:-1]]
    result: Floats = free[0][:, 0]
    return result


def clairvoyant_changeovers(
    terms: SpotTerms,
    costs_usd: Floats,
    *,
    available: Bools,
    spot_usd_per_hour: Floats,
    on_demand_usd_per_hour: Floats,
) -> Floats:
    """(J,) change-overs of an optimum with fewest of them, by what a tiny price on starts adds."""
    probe_usd = 1e-7 * float(costs_usd.max())
    dearer = clairvoyant_usd(
        terms,
        available=available,
        spot_usd_per_hour=spot_usd_per_hour,
        on_demand_usd_per_hour=on_demand_usd_per_hour,
        start_usd=probe_usd,
    )
    result: Floats = np.round((dearer - costs_usd) / probe_usd)
    return result


def _with_on_demand(
    available: Bools, spot_usd_per_hour: Floats, on_demand_usd_per_hour: Floats, steps: int
) -> tuple[Bools, Floats]:
    """(J, steps, O + 1) both, on-demand as the last machine, no spot after the trace's end."""
    jobs, ticks, offers = available.shape
    there = np.zeros((jobs, steps, offers + 1), dtype=bool)
    prices = np.zeros((jobs, steps, offers + 1))
    known = min(steps, ticks)
    there[:, :known, :-1] = available[:, :known]
    there[:, :, -1] = True
    prices[:, :known, :-1] = spot_usd_per_hour[:, :known]
    prices[:, :, -1] = on_demand_usd_per_hour[:, None]
    return there, prices


def _run(
    after: Floats,
    left: Floats,
    rate: float,
    room: float,
    full_room: float,
    unit_usd: Floats,
    band: slice,
) -> Floats:
    """(J, band) cost of running for ``room`` units of time, of which a whole step has
    ``full_room``; in the last, shorter step only who ends the job may run.
    """
    shift = math.ceil(rate * full_room - 1e-9)
    whole = after.shape[1]
    moved = np.full((after.shape[0], band.stop - band.start), np.inf)
    first, last = band.start + shift, min(band.stop + shift, whole)
    if room >= full_room - 1e-9 and first < whole:
        moved[:, : last - first] = after[:, first:last]
    needed = left[band] / rate
    ends = needed <= room + 1e-9
    paid = np.where(ends, needed, room)
    total: Floats = paid * unit_usd[:, None] + np.where(ends, 0.0, moved)
    return total
