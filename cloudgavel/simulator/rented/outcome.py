"""What a virtual run comes to: its figures, and its machines for the report's drawings."""

import heapq

import numpy as np

from cloudgavel.documents.simulation import SimulationResult
from cloudgavel.documents.simulation_detail import LeaseBar, PolicyDetail
from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.runtime.account import deadline_met
from cloudgavel.runtime.cluster_state import deadline_at_s
from cloudgavel.simulator.metrics import quantile
from cloudgavel.simulator.virtual_run import VirtualRun
from cloudgavel.store.records import InstanceRecord, JobRecord, RunState
from cloudgavel.units import usd


def rented_result(
    done: VirtualRun, *, policy: str, seed: int | None, solve_s: float
) -> SimulationResult:
    """Sum a run up. A job that never ended counts as late if it has a deadline."""
    state = done.state
    jobs = list(state.jobs.values())
    times = np.array(job_times_s(state))
    promised = [job for job in jobs if deadline_at_s(job.spec, state.created_at_s) is not None]
    first_s = min(job.spec.arrives_s for job in jobs)
    ends_s = [end_s for job in jobs if (end_s := _end_s(job, state)) is not None]
    paid_s, used_s = _accelerator_s(state)
    return SimulationResult(
        policy=policy,
        seed=seed,
        jobs=len(jobs),
        jobs_completed=times.size,
        avg_jct_s=float(times.mean()) if times.size else None,
        p50_jct_s=quantile(times, 50),
        p90_jct_s=quantile(times, 90),
        p99_jct_s=quantile(times, 99),
        makespan_s=max(ends_s) - first_s if len(ends_s) == len(jobs) else None,
        cost_usd=state.spent_usd,
        idle_cost_usd=usd(state.unattributed_micro_usd),
        utilization=used_s / paid_s if paid_s > 0 else 0.0,
        deadlines=len(promised),
        deadline_misses=sum(deadline_met(job, state) is not True for job in promised),
        worst_normalised_throughput=None,
        mean_normalised_throughput=None,
        worst_finish_time_ratio=None,
        mean_finish_time_ratio=None,
        rounds=state.decisions,
        moves=sum(job.moves for job in jobs),
        interruptions=sum(job.interruptions for job in jobs),
        lost_steps=sum(job.steps_repeated for job in jobs),
        solves=state.decisions,
        solve_s=solve_s,
        wall_s=0.0,
        gave_up=not done.complete,
    )


def job_times_s(state: RunState) -> list[float]:
    """Seconds from arrival to end of every job that finished, sorted."""
    return sorted(
        end_s - job.spec.arrives_s
        for job in state.jobs.values()
        if (end_s := _end_s(job, state)) is not None
    )


def _end_s(job: JobRecord, state: RunState) -> float | None:
    """When it finished, from the run's creation."""
    if job.phase is not JobPhase.FINISHED or job.finished_at_s is None:
        return None
    return job.finished_at_s - state.created_at_s


def _accelerator_s(state: RunState) -> tuple[float, float]:
    """Accelerator-seconds paid for, and those of them that a job held."""
    paid_s = sum(
        (_gone_s(record, state) - record.launched_at_s) * record.offer.accelerators_per_instance
        for record in state.instances.values()
    )
    used_s = 0.0
    for job in state.jobs.values():
        for attempt in job.attempts:
            end_s = state.at_s if attempt.ended_at_s is None else attempt.ended_at_s
            held = sum(
                len(attempt.accelerator_indices)
                or state.instances[each].offer.accelerators_per_instance
                for each in attempt.instance_ids
            )
            used_s += (end_s - attempt.started_at_s) * held
    return paid_s, used_s


def _gone_s(record: InstanceRecord, state: RunState) -> float:
    return state.at_s if record.ended_at_s is None else record.ended_at_s


def rented_detail(done: VirtualRun, *, policy: str) -> PolicyDetail:
    """Draw the machines: kinds one below the other, each machine in the first row that is free."""
    state = done.state
    records = sorted(state.instances.values(), key=lambda each: (each.launched_at_s, each.token))
    row_of, rows = _rows(records, state)
    held: dict[str, list[LeaseBar]] = {}
    for name, job in state.jobs.items():
        for attempt in job.attempts:
            end_s = state.at_s if attempt.ended_at_s is None else attempt.ended_at_s
            for instance_id in attempt.instance_ids:
                held.setdefault(instance_id, []).append(
                    LeaseBar(
                        accelerator=row_of[instance_id],
                        from_s=attempt.started_at_s - state.created_at_s,
                        to_s=end_s - state.created_at_s,
                        job=name,
                    )
                )
    changes: dict[float, int] = {}
    for record in records:
        size = record.offer.accelerators_per_instance
        for at_s, change in ((record.launched_at_s, size), (_gone_s(record, state), -size)):
            since_s = at_s - state.created_at_s
            changes[since_s] = changes.get(since_s, 0) + change
    busy: list[tuple[float, int]] = []
    total = 0
    for since_s in sorted(changes):
        total += changes[since_s]
        busy.append((since_s, total))
    return PolicyDetail(
        policy=policy,
        job_times_s=tuple(job_times_s(state)),
        busy=tuple(busy),
        bars=tuple(bar for record in records for bar in held.get(record.instance_id, ())),
        rows=rows,
    )


def _rows(
    records: list[InstanceRecord], state: RunState
) -> tuple[dict[str, int], tuple[tuple[str, int], ...]]:
    """Row of every machine, and (kind, rows) from top to bottom."""
    by_kind: dict[str, list[InstanceRecord]] = {}
    for record in records:
        by_kind.setdefault(record.offer.accelerator, []).append(record)
    row_of: dict[str, int] = {}
    rows: list[tuple[str, int]] = []
    first = 0
    for kind in sorted(by_kind):
        free: list[int] = []
        taken: list[tuple[float, int]] = []
        count = 0
        for record in by_kind[kind]:
            while taken and taken[0][0] <= record.launched_at_s:
                heapq.heappush(free, heapq.heappop(taken)[1])
            if free:
                row = heapq.heappop(free)
            else:
                row, count = count, count + 1
            heapq.heappush(taken, (_gone_s(record, state), row))
            row_of[record.instance_id] = first + row
        rows.append((kind, count))
        first += count
    return row_of, tuple(rows)
