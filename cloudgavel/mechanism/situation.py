"""The state arranged for one decision: jobs that can be worked on, columns, rates, deadlines."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.mechanism import reasons
from cloudgavel.mechanism.change_over import restore_s, useful_stay_s
from cloudgavel.mechanism.checkpoint_costs import (
    expected_usd_per_hour,
    traffic_rates_of,
    traffic_to_come,
)
from cloudgavel.mechanism.columns import (
    Column,
    build_columns,
    column_of_instance,
    rate_steps_per_s,
)
from cloudgavel.mechanism.fleet import Instance
from cloudgavel.mechanism.guards.reserve import on_demand_prices
from cloudgavel.mechanism.state import ClusterState, JobView
from cloudgavel.policies.problem import BoolArray, FloatArray
from cloudgavel.units import HOUR_S

MOST_COLUMNS = 60
"""Above this many, only what is among the best of some job is kept."""
BEST_PER_JOB = 4


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What every step of one decision reads. m jobs, R columns."""

    state: ClusterState
    jobs: tuple[JobView, ...]
    """Active jobs that some column can run, by name."""
    active: tuple[JobView, ...]
    """All active jobs, those that nothing can run now included, by name."""
    refused: Mapping[str, str]
    """Active jobs that nothing can run now, and why."""
    columns: tuple[Column, ...]
    rates: FloatArray
    """(m, R) steps/s of the whole gang, NaN where it cannot run."""
    deadlines: Mapping[str, float | None]
    """Latest finish at_s: own deadline, or what the jobs that come after it leave."""
    held: Mapping[str, int]
    """Column a job's process is in (usable machines only)."""
    instances: Mapping[str, Instance]
    on_demand_usd_per_hour: Mapping[tuple[str, str, str], float]
    order: tuple[str, ...]
    """Names in an order in which nothing precedes what it comes after."""

    rows: Mapping[str, int]
    """Row by name."""
    option_lists: tuple[tuple[int, ...], ...]
    """Columns that can run each job."""
    shared_usd_per_hour: tuple[float, ...]
    """Rent of one job in each column when the jobs at hand share as well as they can."""
    traffic_usd_per_hour: FloatArray
    """(m, R) what each job's checkpoints are expected to cost there on their way to the store."""
    memo: dict[tuple[int, int], Any] = field(default_factory=dict, compare=False, repr=False)
    """Answers of ``expected_way`` already worked out."""

    def alone_usd_per_hour(self, row: int, column: int) -> float:
        """Rent of a job that shares with nobody, and what its checkpoints cost."""
        rent = self.columns[column].alone_usd_per_hour
        return rent + float(self.traffic_usd_per_hour[row, column])

    def row(self, name: str) -> int:
        """Row of a job."""
        return self.rows[name]

    def job(self, name: str) -> JobView:
        """The job of that name."""
        return self.jobs[self.rows[name]]

    def options(self, row: int) -> tuple[int, ...]:
        """Columns in which the job of this row can run."""
        return self.option_lists[row]

    def usd_per_hour(self, column: int) -> float:
        """Rent of one job there when the jobs at hand share as well as they can."""
        return self.shared_usd_per_hour[column]

    def place_usd_per_hour(self, job: JobView) -> float:
        """Rent of a job's place, shared evenly with the jobs beside it."""
        rent = 0.0
        for instance_id in job.instance_ids:
            machine = self.instances.get(instance_id)
            if machine is not None:
                beside = sum(instance_id in each.instance_ids for each in self.active)
                rent += machine.price_usd_per_hour / max(1, beside)
        return rent

    def usable_place(self, job: JobView) -> bool:
        """Whether all machines of its process are there and not being taken."""
        return bool(job.instance_ids) and all(
            each in self.instances and self.instances[each].usable for each in job.instance_ids
        )


def arrange(state: ClusterState) -> Situation:
    """Arrange a state; pure and deterministic (jobs sorted by name, columns by price and label)."""
    instances = {each.instance_id: each for each in state.instances}
    active = sorted(
        (_on_live_machines(job, instances) for job in state.jobs if job.active),
        key=lambda job: job.spec.name,
    )
    columns = build_columns(state, active)
    rates = np.full((len(active), len(columns)), np.nan)
    for row, job in enumerate(active):
        for index, column in enumerate(columns):
            rate = rate_steps_per_s(job, column)
            if rate is not None:
                rates[row, index] = rate
    too_dear = _beyond_max_cost(state, active, columns, rates)
    used_up = np.isfinite(rates).any(axis=1) & ~(np.isfinite(rates) & ~too_dear).any(axis=1)
    rates[too_dear] = np.nan
    keep = _undominated(columns, rates, _held(active, columns, instances, rates), state)
    columns = tuple(columns[index] for index in keep)
    rates = rates[:, keep]
    names = {job.spec.name for job in active}
    over = {job.spec.name: reasons.limit_reached(job, state.now_s) for job in active}
    refused: dict[str, str] = {}
    workable = []
    for row, job in enumerate(active):
        name = job.spec.name
        limit = over[name]
        gone = [each for each in job.waits_for if each not in names]
        if limit is not None:
            refused[name] = limit
        elif used_up[row]:
            refused[name] = reasons.MAX_COST
        elif gone:
            refused[name] = reasons.comes_after(gone)
        elif not np.isfinite(rates[row]).any():
            refused[name] = reasons.nothing_fits(state, job)
        else:
            workable.append(row)
    _refuse_dependents(active, refused)
    workable = [row for row in workable if active[row].spec.name not in refused]
    jobs = tuple(active[row] for row in workable)
    rates = rates[workable, :]
    order = _topological(jobs)
    rates.setflags(write=False)
    return Situation(
        state=state,
        jobs=jobs,
        active=tuple(active),
        refused=refused,
        columns=columns,
        rates=rates,
        deadlines=_effective_deadlines(jobs, rates, columns, order),
        held=_held(jobs, columns, instances, rates),
        instances=instances,
        on_demand_usd_per_hour=on_demand_prices(state.offers),
        order=order,
        rows={job.spec.name: row for row, job in enumerate(jobs)},
        option_lists=tuple(
            tuple(int(each) for each in np.flatnonzero(np.isfinite(rates[row])))
            for row in range(len(jobs))
        ),
        shared_usd_per_hour=tuple(
            _shared_usd_per_hour(column, int(np.isfinite(rates[:, index]).sum()))
            for index, column in enumerate(columns)
        ),
        traffic_usd_per_hour=_traffic_usd_per_hour(state, jobs, columns),
    )


def _traffic_usd_per_hour(
    state: ClusterState, jobs: Sequence[JobView], columns: Sequence[Column]
) -> FloatArray:
    traffic = np.zeros((len(jobs), len(columns)))
    if state.store_cloud is not None:
        for row, job in enumerate(jobs):
            traffic[row] = [expected_usd_per_hour(state, job, each) for each in columns]
    traffic.setflags(write=False)
    return traffic


def _shared_usd_per_hour(column: Column, fitting: int) -> float:
    """Rent of one of ``fitting`` jobs that share instances of this column."""
    sharers = max(1, min(column.seats, fitting))
    return column.alone_usd_per_hour / sharers


def _beyond_max_cost(
    state: ClusterState, jobs: Sequence[JobView], columns: Sequence[Column], rates: FloatArray
) -> BoolArray:
    """(m, R) Columns in which what is left of a job's ``max_cost`` pays for no useful stay.

    Only for jobs that are nowhere: one that runs is stopped in time instead. The whole rent
    counts: what neighbours will pay is not known.
    """
    beyond = np.zeros(rates.shape, dtype=np.bool_)
    for row, job in enumerate(jobs):
        if job.spec.max_cost_usd is None or job.instance_ids:
            continue
        left_usd = job.spec.max_cost_usd - job.spent_usd
        for index in np.flatnonzero(np.isfinite(rates[row])):
            column = columns[int(index)]
            to_the_end_s = restore_s(job) + job.steps_left / float(rates[row, index])
            stay_s = min(to_the_end_s, useful_stay_s(job, state.rules))
            traffic = traffic_to_come(state, job, column, machines=column.instance_count)
            rent_usd = usd(column.alone_usd_per_hour + traffic.usd_per_hour, stay_s)
            beyond[row, index] = rent_usd + traffic.once_usd > left_usd
    return beyond


def _on_live_machines(job: JobView, instances: Mapping[str, Instance]) -> JobView:
    """A job whose machines are all gone is nowhere, whatever its phase still says."""
    if job.instance_ids and not any(each in instances for each in job.instance_ids):
        return replace(
            job, instance_ids=(), stopping=False, steps_done=min(job.steps_done, job.saved_steps)
        )
    return job


def _held(
    jobs: Sequence[JobView],
    columns: Sequence[Column],
    instances: Mapping[str, Instance],
    rates: FloatArray,
) -> dict[str, int]:
    """Column of each job whose machines are all usable."""
    held: dict[str, int] = {}
    for row, job in enumerate(jobs):
        if not job.instance_ids or job.request is None:
            continue
        machines = [instances.get(each) for each in job.instance_ids]
        if any(each is None or not each.usable for each in machines):
            continue
        first = machines[0]
        assert first is not None
        index = column_of_instance(columns, first, job.request)
        if index is not None and np.isfinite(rates[row, index]):
            held[job.spec.name] = index
    return held


def _undominated(
    columns: Sequence[Column],
    rates: FloatArray,
    held: Mapping[str, int],
    state: ClusterState,
) -> list[int]:
    """Columns that are worth keeping.

    A column goes when another of the same capacity type that no quota limits is at least as cheap
    per step, alone and by the hour, as fast and as calm for every job. Of more than
    ``MOST_COLUMNS`` only those among the best of some job stay.
    """
    if not columns:
        return []
    limited = {
        offer_id
        for quota in state.quotas
        for offer_id, units in quota.units_per_instance.items()
        if units > 0
    }
    kinds: dict[bytes, int] = {}
    for row in range(rates.shape[0]):
        kinds.setdefault(rates[row].tobytes(), row)
    rows = sorted(kinds.values())
    speed = np.nan_to_num(rates[rows], nan=0.0)
    share = np.array(
        [each.pool.price_usd_per_hour * each.pool.instances_per_job for each in columns]
    )
    alone = np.array([each.alone_usd_per_hour for each in columns])
    with np.errstate(divide="ignore"):
        usd_per_step = np.where(speed > 0, share / np.maximum(speed, 1e-300), np.inf)
        alone_per_step = np.where(speed > 0, alone / np.maximum(speed, 1e-300), np.inf)
    calm = np.array([each.pool.interruption_rate_per_hour for each in columns])
    available = np.array([each.pool.availability_share for each in columns])
    spot = np.array([each.spot for each in columns])
    used = speed.any(axis=0)
    able = np.array(
        [
            bool(each.offers) and not any(offer.offer_id in limited for offer in each.offers)
            for each in columns
        ]
    )
    # as_good[i, j]: column i is at least as good as column j in everything.
    as_good = spot[:, None] == spot[None, :]
    paid = [traffic_rates_of(state, each.sample) for each in columns]
    saves = np.array([each.save_usd_per_gib for each in paid])
    restores = np.array([each.restore_usd_per_gib for each in paid])
    figures = (alone, calm, -available, saves, restores, *-speed, *usd_per_step, *alone_per_step)
    for figure in figures:
        as_good &= figure[:, None] <= figure[None, :]
    earlier = np.tri(len(columns), k=-1, dtype=bool).T
    beats = as_good & (~as_good.T | earlier) & (able & used)[:, None]
    gone = beats.any(axis=0)
    gone[list(held.values())] = False
    kept = [int(index) for index in np.flatnonzero(used & ~gone)]
    if len(kept) <= MOST_COLUMNS:
        return kept
    best: set[int] = set(held.values())
    for row in range(len(rows)):
        for wants_spot in (False, True):
            own = [each for each in kept if spot[each] == wants_spot and speed[row, each] > 0]
            own.sort(key=lambda each: (usd_per_step[row, each], each))
            best.update(own[:BEST_PER_JOB])
            own.sort(key=lambda each: (alone_per_step[row, each], each))
            best.update(own[:2])
            own.sort(key=lambda each: (-speed[row, each], usd_per_step[row, each], each))
            best.update(own[:2])
    return [each for each in kept if each in best]


def _refuse_dependents(jobs: Sequence[JobView], refused: dict[str, str]) -> None:
    """What comes after a job that cannot run cannot run either."""
    changed = True
    while changed:
        changed = False
        for job in jobs:
            blocked = [each for each in job.waits_for if each in refused]
            if blocked and job.spec.name not in refused:
                refused[job.spec.name] = reasons.comes_after(blocked)
                changed = True


def _topological(jobs: Sequence[JobView]) -> tuple[str, ...]:
    """Names, predecessors first; jobs on a cycle keep their place at the end."""
    names = [job.spec.name for job in jobs]
    waits = {job.spec.name: [each for each in job.waits_for if each in set(names)] for job in jobs}
    done: list[str] = []
    placed: set[str] = set()
    left = names
    while left:
        ready = [name for name in left if all(each in placed for each in waits[name])]
        if not ready:
            return (*done, *left)
        done.extend(ready)
        placed.update(ready)
        left = [name for name in left if name not in placed]
    return tuple(done)


def _effective_deadlines(
    jobs: Sequence[JobView], rates: FloatArray, columns: Sequence[Column], order: Sequence[str]
) -> dict[str, float | None]:
    """Own deadlines, and for predecessors what the least time of their successors leaves."""
    rows = {job.spec.name: row for row, job in enumerate(jobs)}
    latest = {
        job.spec.name: math.inf if job.deadline_at_s is None else job.deadline_at_s for job in jobs
    }
    for name in reversed(order):
        row = rows[name]
        job = jobs[row]
        if math.isinf(latest[name]) or not job.waits_for:
            continue
        # The fastest on-demand way, or the fastest way of a job that has no on-demand way.
        certain = [
            index
            for index, column in enumerate(columns)
            if np.isfinite(rates[row, index]) and not column.spot
        ] or [index for index in range(len(columns)) if np.isfinite(rates[row, index])]
        least_s = min(
            columns[index].boot_s + restore_s(job) + job.steps_left_if_lost / rates[row, index]
            for index in certain
        )
        for before in job.waits_for:
            if before in latest:
                latest[before] = min(latest[before], latest[name] - float(least_s))
    return {name: None if math.isinf(at_s) else at_s for name, at_s in latest.items()}


def unsaved_share(job: JobView) -> float:
    """Part of the job's steps that is done but not saved."""
    return max(0, job.steps_done - job.saved_steps) / max(1, job.spec.steps_total)


def is_placed(job: JobView) -> bool:
    """Whether a process of it may be running somewhere."""
    return bool(job.instance_ids) and job.phase in (
        JobPhase.STARTING,
        JobPhase.RUNNING,
        JobPhase.SAVING,
        JobPhase.MOVING,
    )


def usd(usd_per_hour: float, span_s: float) -> float:
    """Rent of a span."""
    return usd_per_hour * span_s / HOUR_S
