"""What a decision expects of each job."""

from collections.abc import Collection, Mapping

import numpy as np

from cloudgavel.mechanism.fleet import InstanceState
from cloudgavel.mechanism.guards.promises import Promises, expected_way
from cloudgavel.mechanism.guards.safety_net import NetAnswer, latest_on_demand_start_at_s
from cloudgavel.mechanism.placement import Assignment
from cloudgavel.mechanism.plan import Forecast
from cloudgavel.mechanism.situation import Situation
from cloudgavel.policies.allocation import Allocation
from cloudgavel.units import HOUR_S


def forecasts(
    situation: Situation,
    assignment: Assignment,
    promises: Promises,
    net: NetAnswer,
    allocation: Allocation,
    also_released: Collection[str],
    covered: Collection[str],
) -> tuple[Forecast, ...]:
    """Expected finish and cost of every active job, and where its promise stands.

    A job with a place: the way it is on. One without: the end of its planned hours, or unknown.
    Costs of what nothing can run now are unknown.
    """
    answer = []
    for job in situation.active:
        name = job.spec.name
        finish_at_s: float | None = None
        cost_usd: float | None = None
        if name in situation.rows:
            row = situation.row(name)
            cost_usd = promises.expected_usd[name]
            placement = assignment.placements.get(name)
            if placement is not None:
                way = expected_way(situation, row, placement.column)
                finish_at_s = situation.state.now_s + way.seconds
                finish_at_s -= _booted_s(situation, placement.machine_ids, placement.stays)
                cost_usd = way.usd
            else:
                finish_at_s = _planned_finish_at_s(situation, row, allocation)
        answer.append(
            Forecast(
                job=name,
                finish_at_s=finish_at_s,
                cost_usd=cost_usd,
                deadline_at_s=job.deadline_at_s,
                promise=_promise(situation, name, promises, net, also_released, covered),
                reserve_usd=promises.worst_usd.get(name) if name in covered else None,
                latest_on_demand_at_s=(
                    latest_on_demand_start_at_s(situation, name) if name in situation.rows else None
                ),
            )
        )
    return tuple(answer)


def _promise(
    situation: Situation,
    name: str,
    promises: Promises,
    net: NetAnswer,
    also_released: Collection[str],
    covered: Collection[str],
) -> str:
    job = next(each for each in situation.active if each.spec.name == name)
    if job.deadline_at_s is None:
        return "none"
    if job.promise_released or name in promises.released or name in also_released:
        return "released"
    if name in covered and name in promises.measured and name not in net.late_by_s:
        return "covered"
    return "expected"


def _booted_s(situation: Situation, machine_ids: Collection[str], stays: bool) -> float:
    """The part of the boot that lies behind machines already rented."""
    if stays:
        return 0.0
    state = situation.state
    behind = []
    for each in machine_ids:
        instance = situation.instances.get(each)
        if instance is None:
            return 0.0
        boot = state.boot_s_by_offer.get(instance.offer.offer_id, state.rules.boot_s)
        if instance.state is InstanceState.READY:
            behind.append(boot)
        else:
            behind.append(min(boot, max(0.0, state.now_s - instance.launched_at_s)))
    return min(behind, default=0.0)


def _planned_finish_at_s(situation: Situation, row: int, allocation: Allocation) -> float | None:
    if allocation.hours is None or allocation.interval_bounds_s is None:
        return None
    busy = np.flatnonzero(allocation.hours[row].sum(axis=0) > 1e-6)
    if not len(busy):
        return None
    # Intervals are long: in the last one only the hours that are left in it are worked.
    last = int(busy[-1])
    begin_s, end_s = (float(each) for each in allocation.interval_bounds_s[last : last + 2])
    worked_s = float(allocation.hours[row, :, last].sum()) * HOUR_S
    return situation.state.now_s + min(end_s, begin_s + worked_s)


def expected_cost_left_usd(forecast: Collection[Forecast]) -> float | None:
    """Sum over the jobs; ``None`` when one is unknown."""
    costs: Mapping[str, float | None] = {each.job: each.cost_usd for each in forecast}
    known = [each for each in costs.values() if each is not None]
    return sum(known) if len(known) == len(costs) else None
