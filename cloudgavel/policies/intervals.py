"""Time as the planning LP sees it: intervals, and for each job the part of each it may use.

Instants are seconds from the problem's now. A job's window is [release, deadline]; what comes
``after`` other jobs cannot begin before these can be done, and these must leave it the time it
needs. Both hold for every schedule, so they may be used by the lower bound too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cloudgavel.policies.problem import BoolArray, FloatArray, IntArray, JobRow


@dataclass(frozen=True, kw_only=True)
class Windows:
    """(m,) arrays: when each job may run. No deadline: ``deadline_s`` is inf."""

    release_s: FloatArray
    deadline_s: FloatArray


@dataclass(frozen=True, kw_only=True)
class Segments:
    """The parts of intervals that jobs may use: one entry per (job, interval, kept or late)."""

    job: IntArray
    interval: IntArray
    length_s: FloatArray
    late: BoolArray
    """True: after the job's deadline."""


def chain_windows(
    jobs: Sequence[JobRow], fastest_s: FloatArray, *, milestones: bool = False
) -> Windows:
    """Tighten releases and deadlines along ``after``.

    ``fastest_s`` (m,): seconds each job needs at the least (inf: it can run nowhere). A chain is
    passed on by the earliest finish forwards and the latest finish backwards. With ``milestones``
    (plans, not bounds) the slack of a chain is shared among its jobs in proportion: job j of a
    chain that ends at D is given until ``earliest_finish_j * D / earliest_finish_of_the_end``, so
    that successors are not left with the bare minimum; feasible whenever the chain is.
    Names not among ``jobs`` count as done. Jobs on a cycle keep their own windows.
    """
    before = rows_before(jobs)
    order = topological(before)
    release = np.array([max(0.0, job.release_s) for job in jobs], dtype=np.float64)
    deadline = np.array(
        [np.inf if job.deadline_s is None else job.deadline_s for job in jobs], dtype=np.float64
    )
    if not any(before):
        return Windows(release_s=release, deadline_s=deadline)
    finish = release + fastest_s
    for row in order:
        for earlier in before[row]:
            if np.isfinite(finish[earlier]):
                release[row] = max(release[row], finish[earlier])
        finish[row] = release[row] + fastest_s[row]
    latest = deadline.copy()
    known = (finish > 0) & np.isfinite(finish)
    stretch = np.divide(deadline, finish, out=np.full_like(deadline, np.inf), where=known)
    for row in reversed(order):
        for earlier in before[row]:
            if np.isfinite(fastest_s[row]):
                latest[earlier] = min(latest[earlier], latest[row] - fastest_s[row])
                stretch[earlier] = min(stretch[earlier], stretch[row])
    if milestones:
        has_successor = np.zeros(len(jobs), dtype=bool)
        for row in order:
            for earlier in before[row]:
                has_successor[earlier] = True
        for row in np.flatnonzero(has_successor).tolist():
            if 1.0 <= stretch[row] < np.inf and np.isfinite(finish[row]):
                latest[row] = min(latest[row], stretch[row] * finish[row])
        for row in order:
            for earlier in before[row]:
                if np.isfinite(latest[earlier]) and stretch[earlier] >= 1.0:
                    release[row] = max(release[row], latest[earlier])
    return Windows(release_s=release, deadline_s=latest)


def rows_before(jobs: Sequence[JobRow]) -> list[list[int]]:
    """Rows that each job comes ``after``; names not among ``jobs`` count as done."""
    index = {job.name: row for row, job in enumerate(jobs)}
    return [[index[name] for name in job.after if name in index] for job in jobs]


def topological(before: Sequence[Sequence[int]]) -> list[int]:
    """Order rows so that predecessors come first; rows on a cycle are left out."""
    waiting = [len(set(earlier)) for earlier in before]
    after: list[list[int]] = [[] for _ in before]
    for row, earlier_rows in enumerate(before):
        for earlier in set(earlier_rows):
            after[earlier].append(row)
    ready = [row for row, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        row = ready.pop(0)
        order.append(row)
        for later in after[row]:
            waiting[later] -= 1
            if waiting[later] == 0:
                ready.append(later)
    return order


def interval_bounds(
    instants_s: FloatArray, end_s: float, *, count: int, fill: bool = True
) -> FloatArray:
    """Choose ``count + 1`` bounds from 0 to ``end_s``, on the given instants as far as they go.

    Too many instants: those are dropped whose loss shortens a window relatively least. Too few:
    intervals are halved, early and long ones first, so that "now" is short; without ``fill`` there
    are fewer then. ``end_s`` > 0.
    """
    inner = np.unique(instants_s[(instants_s > 0) & (instants_s < end_s)])
    bounds = np.concatenate([[0.0], inner, [end_s]])
    # Instants closer than a millionth of themselves cannot be told apart by a solver.
    bounds = bounds[np.concatenate([[True], np.diff(bounds) > 1e-6 * bounds[1:]])]
    if bounds[-1] < end_s:
        bounds[-1] = end_s
    while bounds.size > count + 1:
        loss = np.diff(bounds)[:-1] / bounds[1:-1]
        bounds = np.delete(bounds, 1 + int(np.argmin(loss)))
    while fill and bounds.size < count + 1:
        lengths = np.diff(bounds)
        widest = int(np.argmax(lengths / (bounds[:-1] + end_s / 16)))
        bounds = np.insert(bounds, widest + 1, (bounds[widest] + bounds[widest + 1]) / 2)
    return bounds


def rounded_down(windows: Windows, bounds_s: FloatArray, needed_s: FloatArray) -> Windows:
    """Round deadlines down to a bound, for plans: quotas then cannot be promised too late.

    Where that would leave less than 1.1 times ``needed_s``, the job keeps its own deadline and
    uses part of an interval.
    """
    deadline = windows.deadline_s
    finite = np.isfinite(deadline)
    place = np.searchsorted(bounds_s, np.where(finite, deadline, 0.0) * (1 + 1e-12), side="right")
    lower = np.where(place > 0, bounds_s[np.maximum(place - 1, 0)], deadline)
    enough = lower - windows.release_s >= 1.1 * needed_s
    return Windows(
        release_s=windows.release_s,
        deadline_s=np.where(finite & enough, np.minimum(lower, deadline), deadline),
    )


def segments(windows: Windows, bounds_s: FloatArray, *, with_late: bool) -> Segments:
    """Cut every job's window at the interval bounds; parts below 1e-9 of theirs drop.

    ``with_late`` adds what lies between the deadline and the last bound, marked late.
    """
    start, end = bounds_s[:-1][None, :], bounds_s[1:][None, :]
    release = windows.release_s[:, None]
    deadline = windows.deadline_s[:, None]
    kept = np.minimum(end, deadline) - np.maximum(start, release)
    tiny = 1e-9 * (end - start)
    kept_at = np.argwhere(kept > tiny)
    parts = [(kept_at, kept[kept_at[:, 0], kept_at[:, 1]], False)]
    if with_late:
        late = end - np.maximum(np.maximum(start, release), deadline)
        late_at = np.argwhere(late > tiny)
        parts.append((late_at, late[late_at[:, 0], late_at[:, 1]], True))
    return Segments(
        job=np.concatenate([at[:, 0] for at, _, _ in parts]).astype(np.int64),
        interval=np.concatenate([at[:, 1] for at, _, _ in parts]).astype(np.int64),
        length_s=np.concatenate([length for _, length, _ in parts]),
        late=np.concatenate([np.full(len(at), flag) for at, _, flag in parts]),
    )
