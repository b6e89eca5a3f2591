"""Jobs from a CSV by column names: our own, and traces of other clusters (Alibaba, Philly, Helios).

Such traces say how long a job ran on how many GPUs, not what it was: without a ``kind`` each job
gets one of the table's by a hash of its name, and without ``total_steps`` as many steps as its kind
does in its ``duration`` on the reference type (V100).
"""

import csv
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import ceil, isfinite
from pathlib import Path

from cloudgavel.errors import UsageError
from cloudgavel.simulator.throughputs import ThroughputTable, reference_of
from cloudgavel.simulator.workload import Workload, WorkloadJob, workload_of

CSV_COLUMNS: Mapping[str, str] = {
    "name": "job_id",
    "kind": "job_type",
    "gang_size": "scale_factor",
    "total_steps": "total_steps",
    "arrives_s": "arrival_s",
    "duration_s": "duration_on_v100_s",
    "slo_factor": "slo_factor",
    "deadline_s": "deadline_s",
    "weight": "weight",
    "entity": "entity",
}
"""Field -> column of a generated workload; ``--columns`` replaces any of them."""
OTHER_FIELD_NAMES: Mapping[str, str] = {
    "job": "name",
    "submit": "arrives_s",
    "gpus": "gang_size",
    "duration": "duration_s",
    "steps": "total_steps",
    "user": "entity",
}
"""What cluster traces call these fields."""
LEAST_INSTANT_S = 1e8
"""Arrivals beyond this are UNIX instants and count from the first one."""

Cell = Callable[[str], str | None]


def jobs_from_csv(
    path: Path,
    text: str,
    columns: Mapping[str, str] | None = None,
    table: ThroughputTable | None = None,
) -> Workload:
    """Read a CSV; ``columns`` maps fields to columns: ``a``, ``a-b``, ``a*b``, and ``/100`` behind.

    A deadline is ``deadline_s``, or the arrival + ``slo_factor`` x duration. Rows without GPUs or
    without a duration, and gangs that the table knows nothing of, are left out, which
    ``Workload.notes`` says. Raises ``UsageError`` with the line for what cannot be read.
    """
    named = {**CSV_COLUMNS, **(columns or {})}
    reader = csv.DictReader(text.splitlines())
    there = reader.fieldnames or []
    needed = list(columns or ())
    has_duration = "duration_s" in needed or _has(named["duration_s"], there)
    if table is None or not has_duration:
        needed.append("total_steps")
    if table is None:
        needed.append("kind")
    missing = [
        named[field] for field in CSV_COLUMNS if field in needed and not _has(named[field], there)
    ]
    if missing:
        raise UsageError(
            f"{path} has no column {', '.join(missing)}",
            facts=[("columns", ", ".join(there))],
            hints=[
                "name them with --columns kind=...,total_steps=...",
                "or, of a cluster's trace, --columns job=...,submit=...,gpus=...,duration=...",
            ],
        )
    kinds = _Kinds(table)
    jobs: list[WorkloadJob] = []
    left_out: dict[str, int] = {}
    for number, row in enumerate(reader, start=2):

        def cell(field: str, row: Mapping[str, str | None] = row) -> str | None:
            return _value(named[field], row, there)

        try:
            job = _job(cell, str(len(jobs)), kinds)
        except ValueError as error:
            raise UsageError(f"{path}:{number} is not a job", facts=[("reason", str(error))]) from (
                error
            )
        if isinstance(job, str):
            left_out[job] = left_out.get(job, 0) + 1
        else:
            jobs.append(job)
    notes = tuple(
        f"{count} {'row is' if count == 1 else 'rows are'} left out: {why}"
        for why, count in left_out.items()
    )
    return workload_of(path.name, _from_first(jobs), notes=notes)


class _Kinds:
    """The kinds a table knows, by gang, and what they do on the reference type."""

    def __init__(self, table: ThroughputTable | None) -> None:
        measured = {} if table is None else table.alone.get((reference_of(table), False), {})
        self.rate = {kind: rate for kind, rate in measured.items() if rate > 0}
        self._of_gang: dict[int, list[str]] = {}
        for name, gang in sorted(self.rate):
            self._of_gang.setdefault(gang, []).append(name)

    def drawn(self, job: str, gang: int) -> str | None:
        """The kind of a job of which nothing is known; always the same for the same name."""
        there = self._of_gang.get(gang)
        if not there:
            return None
        digest = hashlib.blake2b(job.encode(), digest_size=8).digest()
        return there[int.from_bytes(digest, "big") % len(there)]


def _job(cell: Cell, number: str, kinds: _Kinds) -> WorkloadJob | str:
    """Return one job, or why its row is left out."""
    name = cell("name") or number
    gang = ceil(float(cell("gang_size") or 1) - 1e-9)
    if gang <= 0:
        return "no GPU"
    arrives_s = _instant_s(cell("arrives_s") or "0")
    duration = cell("duration_s")
    duration_s = None if duration is None else float(duration)
    kind = cell("kind") or kinds.drawn(name, gang)
    steps = cell("total_steps")
    if kind is None:
        return f"no throughput is known of {gang} GPUs at once"
    if steps is not None:
        total_steps = float(steps)
    elif duration_s is None or not isfinite(duration_s) or duration_s <= 0:
        return "no duration"
    elif (kind, gang) not in kinds.rate:
        return f"no throughput is known of {kind} on {gang} GPUs"
    else:
        total_steps = duration_s * kinds.rate[kind, gang]
    deadline, factor = cell("deadline_s"), cell("slo_factor")
    deadline_s = None if deadline is None else _instant_s(deadline)
    if deadline_s is None and factor is not None and duration_s is not None:
        deadline_s = arrives_s + float(factor) * duration_s
    return WorkloadJob(
        name=name,
        kind=kind,
        gang_size=gang,
        total_steps=total_steps,
        arrives_s=arrives_s,
        weight=float(cell("weight") or 1.0),
        deadline_s=deadline_s,
        entity=cell("entity"),
    )


def _from_first(jobs: list[WorkloadJob]) -> list[WorkloadJob]:
    """Count instants from the first arrival; spans stay what they are."""
    first_s = min((job.arrives_s for job in jobs), default=0.0)
    if first_s < LEAST_INSTANT_S:
        return jobs
    return [
        replace(
            job,
            arrives_s=job.arrives_s - first_s,
            deadline_s=None if job.deadline_s is None else job.deadline_s - first_s,
        )
        for job in jobs
    ]


def _instant_s(text: str) -> float:
    """Seconds, or a date and time (UTC unless it says otherwise) as UNIX seconds."""
    try:
        return float(text)
    except ValueError:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def _parsed(column: str, there: Sequence[str]) -> tuple[list[str], str, float]:
    """The columns of ``a``, ``a-b`` or ``a*b``, what joins them, and the number after a ``/``."""
    if column in there:
        return [column], "", 1.0
    body, slash, divisor = column.rpartition("/")
    scale = 1.0
    if slash and _is_number(divisor):
        scale = float(divisor)
    else:
        body = column
    for sign in "*-":
        before, found, after = body.partition(sign)
        if found:
            return [before, after], sign, scale
    return [body], "", scale


def _has(column: str, there: Sequence[str]) -> bool:
    return all(each in there for each in _parsed(column, there)[0])


def _value(column: str, row: Mapping[str, str | None], there: Sequence[str]) -> str | None:
    """The cell of a column, or what its expression comes to; ``None`` where a cell is empty."""
    parts, sign, scale = _parsed(column, there)
    cells = [cell for part in parts if (cell := (row.get(part) or "").strip())]
    if len(cells) < len(parts):
        return None
    if not sign and scale == 1.0:
        return cells[0]
    numbers = [_instant_s(cell) for cell in cells]
    value = numbers[0]
    if sign == "-":
        value -= numbers[1]
    elif sign == "*":
        value *= numbers[1]
    return repr(value / scale)


def _is_number(text: str) -> bool:
    try:
        return float(text) != 0
    except ValueError:
        return False
