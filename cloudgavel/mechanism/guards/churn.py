"""No needless moves: a move must save more than it costs, by a margin."""

import math

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.mechanism.change_over import restore_s, save_s
from cloudgavel.mechanism.situation import Situation, usd
from cloudgavel.mechanism.state import JobView
from cloudgavel.units import HOUR_S

MARGIN = 1.25
"""A move must save this many times what it costs."""
LEAST_SAVING_USD = 0.01


def may_be_moved(job: JobView) -> bool:
    """Whether a running job may be moved at all for money.

    Not while its last save failed, and not before it runs: what was just started has not earned
    its start yet.
    """
    return job.save_error is None and job.phase is JobPhase.RUNNING and not job.stopping


def move_cost_usd(situation: Situation, job: JobView, here_usd_per_hour: float, to: int) -> float:
    """What a move costs: both rents while saving and restoring, the new one while booting.

    The old place works on while the new one boots, so only the new rent is lost then.
    """
    column = situation.columns[to]
    there = situation.usd_per_hour(to)
    both_s = save_s(job) + restore_s(job)
    return usd(there, column.boot_s) + usd(here_usd_per_hour + there, both_s)


def saving_usd(
    situation: Situation,
    job: JobView,
    here: int,
    here_usd_per_hour: float,
    to: int,
    there_usd_per_hour: float,
) -> float:
    """What the stay at the new place is expected to save over the old one.

    USD per step times the steps expected to be done there: all that are left, or what fits in the
    mean time to its next interruption, or to the old place's, whichever is least.
    """
    row = situation.row(job.spec.name)
    rate_here = float(situation.rates[row, here])
    rate_there = float(situation.rates[row, to])
    per_step = here_usd_per_hour / rate_here - there_usd_per_hour / rate_there
    hazard = situation.columns[to].pool.interruption_rate_per_hour
    stay_s = math.inf if hazard <= 0 else HOUR_S / hazard
    hazard_here = situation.columns[here].pool.interruption_rate_per_hour
    if hazard_here > 0:
        stay_s = min(stay_s, HOUR_S / hazard_here)
    steps = min(float(job.steps_left), rate_there * stay_s)
    return per_step * steps / HOUR_S


def is_worth_moving(
    situation: Situation,
    job: JobView,
    here: int,
    here_usd_per_hour: float,
    to: int,
    there_usd_per_hour: float,
) -> bool:
    """Whether a move saves clearly more than it costs; never for equal prices."""
    if not may_be_moved(job) or to == here:
        return False
    saving = saving_usd(situation, job, here, here_usd_per_hour, to, there_usd_per_hour)
    cost = move_cost_usd(situation, job, here_usd_per_hour, to)
    return saving > MARGIN * cost + LEAST_SAVING_USD
