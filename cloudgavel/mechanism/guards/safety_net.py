"""The joint safety net: would every promised deadline still be kept without spot?

No forecast enters. Spot is assumed to vanish now, work that is not saved is lost, boots and
restores take their high quantile. The test builds a schedule on demand (earliest latest-start
first, within quotas and ``max_usd_per_hour``); if it says yes, that schedule exists. It is asked
about the moment of the *next* decision, so that a no comes while there is still time: then the
jobs with the least slack go on demand now, until it passes.
"""

import heapq
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.mechanism.change_over import boot_s, restore_s, save_s, stop_s
from cloudgavel.mechanism.columns import Column
from cloudgavel.mechanism.fleet import Instance, InstanceState
from cloudgavel.mechanism.guards.timeline import Timeline
from cloudgavel.mechanism.situation import Situation, usd
from cloudgavel.mechanism.state import ClusterState, JobView
from cloudgavel.pricing.offer import CapacityType

SPEND_RATE = "max_usd_per_hour"


@dataclass(frozen=True, kw_only=True, slots=True)
class NetAnswer:
    """What the on-demand schedule looks like."""

    finish_at_s: Mapping[str, float]
    """Of every job that it could place, in time or (where nothing is in time) late."""
    late_by_s: Mapping[str, float]
    """Jobs it could not finish in time; infinite where it found no way at all."""
    column: Mapping[str, int]
    """The on-demand column it gives to each job that is not kept where it is."""
    cost_usd: float
    """Rent of the whole schedule, from now."""

    @property
    def holds(self) -> bool:
        """Every deadline it was asked about is met."""
        return not self.late_by_s


@dataclass(slots=True)
class _Bin:
    """A machine of the schedule with accelerators to spare."""

    start_at_s: float
    end_at_s: float
    free: int


@dataclass(slots=True)
class _Draft:
    timeline: Timeline
    bins: dict[int, list[_Bin]] = field(default_factory=dict)
    finish_at_s: dict[str, float] = field(default_factory=dict)
    late_by_s: dict[str, float] = field(default_factory=dict)
    column: dict[str, int] = field(default_factory=dict)
    cost_usd: float = 0.0


def stepping_s(job: JobView, rate_steps_per_s: float, steps: float) -> float:
    """Time of ``steps`` with the periodic saves in between."""
    return steps / rate_steps_per_s * (1 + save_s(job) / max(job.save_every_s, 1.0))


def limits_of(state: ClusterState) -> dict[str, float]:
    """Limits of everything that is scarce: quotas and the spend rate."""
    limits = {f"quota {each.name}": each.limit for each in state.quotas}
    if state.max_usd_per_hour is not None:
        limits[SPEND_RATE] = state.max_usd_per_hour
    return limits


def units_of(state: ClusterState, offer_id: str, usd_per_hour: float) -> dict[str, float]:
    """What one instance of an offer takes of what is scarce."""
    needs = {
        f"quota {each.name}": each.units_per_instance[offer_id]
        for each in state.quotas
        if each.units_per_instance.get(offer_id, 0.0) > 0
    }
    if state.max_usd_per_hour is not None:
        needs[SPEND_RATE] = usd_per_hour
    return needs


def on_demand_columns(situation: Situation, row: int) -> list[int]:
    """Columns on demand that can be asked for now and run the job."""
    return [
        each
        for each in situation.options(row)
        if not situation.columns[each].spot and situation.columns[each].offers
    ]


def restart_s(situation: Situation, job: JobView, column: Column) -> float:
    """Worst time from a launch to the first step there.

    Boot and restore at their high quantile, each noticed late; where it still runs somewhere, it
    works on until the new machine is ready, and then saves and stops.
    """
    rules = situation.state.rules
    span_s = (column.boot_s + restore_s(job)) * rules.change_over_quantile + 2 * rules.wake_lag_s
    return span_s + stop_s(job, rules) if job.instance_ids else span_s


def latest_on_demand_start_at_s(situation: Situation, name: str) -> float | None:
    """Last instant at which launching on demand still keeps the job's deadline, work lost.

    Alone on any on-demand column; ``None`` without a deadline or without such a column.
    """
    deadline_at_s = situation.deadlines[name]
    row = situation.row(name)
    columns = on_demand_columns(situation, row)
    if deadline_at_s is None or not columns:
        return None
    job = situation.jobs[row]
    return max(
        deadline_at_s
        - restart_s(situation, job, situation.columns[each])
        - stepping_s(job, float(situation.rates[row, each]), job.steps_left_if_lost)
        for each in columns
    )


def kept_on_demand(situation: Situation, job: JobView) -> int | None:
    """The on-demand column where the job is, or where a machine is getting ready for it."""
    held = situation.held.get(job.spec.name)
    if held is not None and not situation.columns[held].spot and not job.stopping:
        return held
    machines = machines_intended(situation, job)
    for index in situation.options(situation.row(job.spec.name)):
        column = situation.columns[index]
        mine = [
            each
            for each in machines
            if each.offer.capacity_type is not CapacityType.SPOT
            and each.offer.instance_type == column.sample.instance_type
            and each.offer.provider == column.sample.provider
        ]
        if not column.spot and len(mine) >= column.instance_count:
            return index
    return None


def machines_intended(situation: Situation, job: JobView) -> list[Instance]:
    """Usable machines launched for the job where it is not yet, or on its way to.

    A machine keeps the names it was launched for: what is older than the place where the job runs
    now has been left, and a job on its way somewhere goes there and nowhere else.
    """
    found = [
        each
        for each in situation.state.instances
        if each.usable
        and (job.spec.name in each.intended_jobs or each.instance_id in job.move_to)
        and (each.instance_id not in job.instance_ids or job.stopping)
    ]
    on_its_way = [each for each in found if each.instance_id in job.move_to]
    if on_its_way:
        return on_its_way
    if job.instance_ids and job.placed_at_s is not None:
        since_s = job.placed_at_s
        return [each for each in found if each.launched_at_s >= since_s]
    return found


def kept_finish_at_s(situation: Situation, job: JobView, column: int) -> float:
    """Worst finish of a job that stays on demand, or whose machine is on its way."""
    state = situation.state
    quantile = state.rules.change_over_quantile
    rate = float(situation.rates[situation.row(job.spec.name), column])
    if situation.held.get(job.spec.name) == column and not job.stopping:
        if job.phase is JobPhase.STARTING:
            since_s = state.now_s - (state.now_s if job.placed_at_s is None else job.placed_at_s)
            left_s = max(0.0, restore_s(job) * quantile - since_s)
            return state.now_s + left_s + stepping_s(job, rate, job.steps_left_if_lost)
        extra_s = save_s(job) if job.phase is JobPhase.SAVING else 0.0
        return state.now_s + extra_s + stepping_s(job, rate, job.steps_left)
    ready_at_s = max(
        (worst_ready_at_s(situation, each) for each in machines_intended(situation, job)),
        default=state.now_s,
    )
    return going_finish_at_s(situation, job, column, ready_at_s)


def worst_ready_at_s(situation: Situation, machine: Instance) -> float:
    """When a machine takes orders at the latest."""
    state = situation.state
    if machine.state is InstanceState.READY:
        return state.now_s
    longest_s = boot_s(state, machine.offer) * state.rules.change_over_quantile
    return max(state.now_s, machine.launched_at_s + longest_s)


def going_finish_at_s(situation: Situation, job: JobView, column: int, ready_at_s: float) -> float:
    """Worst finish of a job that goes to machines that are ready then, its unsaved work lost.

    Where it still runs it is told to stop once they are ready.
    """
    rules = situation.state.rules
    start_at_s = ready_at_s + rules.wake_lag_s
    if job.instance_ids and not job.stopping:
        start_at_s += stop_s(job, rules) + rules.wake_lag_s
    elif job.instance_ids:
        asked_at_s = job.stop_asked_at_s
        asked_at_s = situation.state.now_s if asked_at_s is None else asked_at_s
        gone_at_s = max(situation.state.now_s, asked_at_s + stop_s(job, rules))
        start_at_s = max(start_at_s, gone_at_s + rules.wake_lag_s)
    rate = float(situation.rates[situation.row(job.spec.name), column])
    start_at_s += restore_s(job) * rules.change_over_quantile
    return start_at_s + stepping_s(job, rate, job.steps_left_if_lost)


def check_net(
    situation: Situation,
    names: Collection[str],
    *,
    kept: Mapping[str, int],
    on_demand_now: Collection[str],
    start_at_s: float,
) -> NetAnswer:
    """Build the on-demand schedule of the jobs ``names`` and say who would be late.

    ``kept``: jobs that stay in (or go to a machine already rented in) an on-demand column.
    ``on_demand_now``: jobs that this plan launches on demand. All others start at ``start_at_s``.
    """
    state = situation.state
    draft = _Draft(timeline=Timeline(limits_of(state)))
    _occupy(situation, draft, kept, start_at_s)
    chosen = set(names)
    waits = {
        name: {each for each in situation.job(name).waits_for if each in chosen} for name in chosen
    }
    followers: dict[str, list[str]] = {}
    for name, before in waits.items():
        for each in before:
            followers.setdefault(each, []).append(name)
    queue = [(_urgency(situation, name), name) for name in sorted(chosen) if not waits[name]]
    heapq.heapify(queue)
    while queue:
        _, name = heapq.heappop(queue)
        start = state.now_s if name in on_demand_now else start_at_s
        _place(situation, draft, name, kept.get(name), start)
        for follower in sorted(followers.get(name, ())):
            waits[follower].discard(name)
            if not waits[follower]:
                heapq.heappush(queue, (_urgency(situation, follower), follower))
    for name in chosen - set(draft.finish_at_s) - set(draft.late_by_s):
        draft.late_by_s[name] = math.inf
    return NetAnswer(
        finish_at_s=draft.finish_at_s,
        late_by_s=draft.late_by_s,
        column=draft.column,
        cost_usd=draft.cost_usd,
    )


def demand_now(
    situation: Situation,
    names: Collection[str],
    *,
    kept: Mapping[str, int],
    start_at_s: float,
    may_be_sent: Collection[str],
) -> tuple[dict[str, int], NetAnswer]:
    """Jobs that must be launched on demand by this very plan, with their columns, and the test.

    In order of slack, as few as make the test pass for everyone who is not late anyway. Only jobs
    of ``may_be_sent`` (arrived, affordable) are sent.
    """
    now = check_net(situation, names, kept=kept, on_demand_now=(), start_at_s=start_at_s)
    if now.holds:
        return {}, now
    ready = [
        name
        for name in names
        if name in may_be_sent
        and name not in kept
        and on_demand_columns(situation, situation.row(name))
    ]
    ready.sort(key=lambda name: (_urgency(situation, name), name))

    def test(count: int) -> NetAnswer:
        return check_net(
            situation, names, kept=kept, on_demand_now=set(ready[:count]), start_at_s=start_at_s
        )

    best = test(len(ready))
    unavoidable = set(best.late_by_s)
    low, high = 0, len(ready)
    while low < high:
        middle = (low + high) // 2
        answer = test(middle)
        if set(answer.late_by_s) <= unavoidable:
            high, best = middle, answer
        else:
            low = middle + 1
    # Who is late anyway is sent as well: the sooner, the less late.
    sent = [*ready[:high], *(name for name in ready[high:] if name in unavoidable)]
    return {name: best.column[name] for name in sent if name in best.column}, best


def _urgency(situation: Situation, name: str) -> float:
    latest = latest_on_demand_start_at_s(situation, name)
    return math.inf if latest is None else latest


def _occupy(
    situation: Situation, draft: _Draft, kept: Mapping[str, int], start_at_s: float
) -> None:
    """Machines on demand: for kept jobs until their end, others until they can be gone."""
    state = situation.state
    until: dict[str, float] = {}
    for name, column in kept.items():
        job = situation.job(name)
        finish_at_s = kept_finish_at_s(situation, job, column)
        held = situation.held.get(name) == column and not job.stopping
        ids = (
            job.instance_ids
            if held
            else tuple(each.instance_id for each in machines_intended(situation, job))
        )
        for each in ids:
            until[each] = max(until.get(each, 0.0), finish_at_s)
    longest_stop_s = max((stop_s(job, state.rules) for job in situation.jobs), default=0.0)
    for machine in state.instances:
        if machine.offer.capacity_type is CapacityType.SPOT:
            continue
        needs = units_of(state, machine.offer.offer_id, machine.price_usd_per_hour)
        end_at_s = until.get(machine.instance_id, start_at_s + longest_stop_s)
        draft.timeline.take(needs, state.now_s, end_at_s + state.rules.terminate_confirm_s)
        if machine.instance_id in until:
            draft.cost_usd += usd(machine.price_usd_per_hour, end_at_s - state.now_s)


def _place(
    situation: Situation, draft: _Draft, name: str, kept_column: int | None, start_at_s: float
) -> None:
    """Give one job its cheapest way in time, or its earliest late one."""
    row = situation.row(name)
    job = situation.jobs[row]
    deadline_at_s = situation.deadlines[name]
    limit_at_s = math.inf if deadline_at_s is None else deadline_at_s
    if kept_column is not None:
        finish_at_s = kept_finish_at_s(situation, job, kept_column)
        draft.finish_at_s[name] = finish_at_s
        if finish_at_s > limit_at_s:
            draft.late_by_s[name] = finish_at_s - limit_at_s
        return
    ready_at_s = max(
        start_at_s,
        job.release_at_s,
        *(draft.finish_at_s.get(each, 0.0) for each in job.waits_for),
    )
    ways = []
    for column in on_demand_columns(situation, row):
        each = situation.columns[column]
        work_s = restart_s(situation, job, each) + stepping_s(
            job, float(situation.rates[row, column]), job.steps_left_if_lost
        )
        ways.append((usd(each.alone_usd_per_hour, work_s), work_s, column))
    ways.sort()
    for latest_at_s in (limit_at_s, math.inf):
        if latest_at_s is math.inf and limit_at_s is not math.inf:
            ways.sort(key=lambda way: (way[1], way[2]))
        for _, work_s, column in ways:
            if _join(situation, draft, name, column, ready_at_s, work_s, latest_at_s) or _open(
                situation, draft, name, column, ready_at_s, work_s, latest_at_s
            ):
                if draft.finish_at_s[name] > limit_at_s:
                    draft.late_by_s[name] = draft.finish_at_s[name] - limit_at_s
                return
    draft.late_by_s[name] = math.inf


def _join(
    situation: Situation,
    draft: _Draft,
    name: str,
    column: int,
    ready_at_s: float,
    work_s: float,
    latest_at_s: float,
) -> bool:
    """Share a machine that the schedule has opened, prolonging it where the limits allow."""
    each = situation.columns[column]
    if each.seats == 1:
        return False
    confirm_s = situation.state.rules.terminate_confirm_s
    needs = units_of(situation.state, each.pool.offer_id, each.pool.price_usd_per_hour)
    for open_bin in draft.bins.get(column, ()):
        begin_at_s = max(ready_at_s, open_bin.start_at_s)
        finish_at_s = begin_at_s + work_s
        if open_bin.free < each.accelerators_used or finish_at_s > latest_at_s:
            continue
        if begin_at_s > open_bin.end_at_s:
            continue
        end_at_s = max(open_bin.end_at_s, finish_at_s)
        old_end_at_s = open_bin.end_at_s + confirm_s
        if not draft.timeline.fits(needs, old_end_at_s, end_at_s + confirm_s):
            continue
        draft.timeline.take(needs, old_end_at_s, end_at_s + confirm_s)
        draft.cost_usd += usd(each.pool.price_usd_per_hour, end_at_s - open_bin.end_at_s)
        open_bin.end_at_s = end_at_s
        open_bin.free -= each.accelerators_used
        draft.finish_at_s[name] = finish_at_s
        draft.column[name] = column
        return True
    return False


def _open(
    situation: Situation,
    draft: _Draft,
    name: str,
    column: int,
    ready_at_s: float,
    work_s: float,
    latest_at_s: float,
) -> bool:
    """Rent a machine (or the machines of a gang) for the job."""
    each = situation.columns[column]
    confirm_s = situation.state.rules.terminate_confirm_s
    one = units_of(situation.state, each.pool.offer_id, each.pool.price_usd_per_hour)
    needs = {resource: units * each.instance_count for resource, units in one.items()}
    start = draft.timeline.earliest(needs, ready_at_s, work_s + confirm_s, latest_at_s - work_s)
    if start is None:
        return False
    finish_at_s = start + work_s
    draft.timeline.take(needs, start, finish_at_s + confirm_s)
    draft.cost_usd += usd(each.alone_usd_per_hour, work_s + confirm_s)
    draft.finish_at_s[name] = finish_at_s
    draft.column[name] = column
    if each.seats > 1:
        spare = each.pool.accelerators_per_instance - each.accelerators_used
        draft.bins.setdefault(column, []).append(
            _Bin(start_at_s=start, end_at_s=finish_at_s, free=spare)
        )
    return True
