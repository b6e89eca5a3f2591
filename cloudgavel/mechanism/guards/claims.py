"""The on-demand money that a covered promise still claims, at worst.

A covered job is either *safe* (it runs on demand, or its on-demand machine is on its way) and
claims the rent until its machine has ended; or it is *free* to be anywhere else, and claims what
starting again on demand would cost when the next decision finds its work lost. Free becomes safe
by one decision, and neither claim grows while time passes as the rules assume: so a promise whose
claim is put aside at every decision is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cloudgavel.mechanism.change_over import stop_s
from cloudgavel.mechanism.checkpoint_costs import NO_TRAFFIC, WorstTraffic, traffic_to_come
from cloudgavel.mechanism.guards.reserve import ROUNDING_S, Liability, with_traffic
from cloudgavel.mechanism.guards.safety_net import (
    going_finish_at_s,
    kept_finish_at_s,
    on_demand_columns,
    restart_s,
    stepping_s,
)
from cloudgavel.mechanism.situation import Situation, usd
from cloudgavel.mechanism.state import JobView

ENDING_S = 30.0
"""Running time below which the hard rule stops a job (``settle.RUN_FLOOR_S``)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """What starting again on demand costs at worst."""

    column: int
    usd_per_hour: float
    span_s: float
    """Rent from the launch until the end of the machine is confirmed."""
    beside_s: float
    """How long the machine where it is now lives on beside it before it is told to stop."""
    in_time: bool
    traffic: WorstTraffic = NO_TRAFFIC
    """Of its checkpoints there."""

    @property
    def usd(self) -> float:
        """The money."""
        per_hour = self.usd_per_hour + self.traffic.usd_per_hour
        return usd(per_hour, self.span_s) + self.traffic.once_usd

    def reserve(self, name: str) -> Liability:
        """The claim as something that costs, whenever the next decision comes."""
        plain = Liability(
            instance_id=f"reserve of {name}",
            usd_per_hour=self.usd_per_hour,
            wind_down_s=self.span_s,
            minimum_left_s=0.0,
            ending=True,
        )
        return with_traffic(plain, self.traffic)


def end_s(situation: Situation, job: JobView) -> float:
    """From the last step until the end is confirmed, and what the hard rule wants on top.

    The hard rule keeps money for half a minute more of running, for saving and for stopping even
    of a job that is about to finish.
    """
    rules = situation.state.rules
    late_s = 2 * rules.wake_lag_s + ENDING_S + ROUNDING_S
    return rules.terminate_confirm_s + stop_s(job, rules) + late_s


def restart_claim(
    situation: Situation, row: int, start_at_s: float, *, column: int | None = None
) -> Claim | None:
    """Claim of a job that is launched on demand at ``start_at_s``, its unsaved work lost.

    In the cheapest column in time, else the fastest; ``column`` asks for that one if it is
    dearer. ``None`` where nothing can be had on demand.
    """
    best: tuple[tuple[bool, float, int], Claim] | None = None
    asked: Claim | None = None
    for each in on_demand_columns(situation, row):
        claim = claim_in(situation, row, each, start_at_s)
        in_time = claim.in_time
        key = (not in_time, claim.usd if in_time else claim.span_s, each)
        if best is None or key < best[0]:
            best = (key, claim)
        if each == column:
            asked = claim
    if best is None:
        return None
    if asked is not None and asked.in_time and asked.usd > best[1].usd:
        return asked
    return best[1]


def claim_in(situation: Situation, row: int, column: int, start_at_s: float) -> Claim:
    """Claim of a job in one on-demand column (see ``restart_claim``)."""
    job = situation.jobs[row]
    deadline_at_s = situation.deadlines[job.spec.name]
    rules = situation.state.rules
    there = situation.columns[column]
    work_s = restart_s(situation, job, there) + stepping_s(
        job, float(situation.rates[row, column]), job.steps_left_if_lost
    )
    return Claim(
        column=column,
        usd_per_hour=there.price_limit_usd_per_hour * there.instance_count,
        span_s=work_s + end_s(situation, job),
        beside_s=there.boot_s * rules.change_over_quantile + 2 * rules.wake_lag_s,
        in_time=deadline_at_s is None or start_at_s + work_s <= deadline_at_s,
        traffic=traffic_to_come(situation.state, job, there, machines=there.instance_count),
    )


def safe_span_s(
    situation: Situation, job: JobView, column: int, ready_at_s: float | None = None
) -> float:
    """How long the on-demand machine of a safe job is still paid for, at worst.

    ``ready_at_s``: of a machine where it is not yet; ``None`` = it is there.
    """
    if ready_at_s is None:
        finish_at_s = kept_finish_at_s(situation, job, column)
    else:
        finish_at_s = going_finish_at_s(situation, job, column, ready_at_s)
    return finish_at_s - situation.state.now_s + end_s(situation, job)


def is_safe(situation: Situation, job: JobView) -> bool:
    """Whether its process is on demand and has not been told to leave."""
    here = situation.held.get(job.spec.name)
    return here is not None and not situation.columns[here].spot and not job.stopping


def claims_of(
    situation: Situation,
    names: frozenset[str],
    start_at_s: float,
    columns: Mapping[str, int],
) -> dict[str, Claim]:
    """Claims of the jobs ``names`` should each have to start again at ``start_at_s``.

    ``columns``: on-demand columns of a joint schedule, which limits may make dearer.
    """
    found: dict[str, Claim] = {}
    for name in sorted(names):
        claim = restart_claim(situation, situation.row(name), start_at_s, column=columns.get(name))
        if claim is not None:
            found[name] = claim
    return found
