"""Workloads and throughputs from files: the 2020 scheduler's formats, and CSV by column names."""

import ast
import json
from collections.abc import Mapping
from pathlib import Path

from cloudgavel.errors import UsageError
from cloudgavel.simulator.csv_jobs import jobs_from_csv
from cloudgavel.simulator.throughputs import JobKind, ThroughputTable
from cloudgavel.simulator.workload import Workload, WorkloadJob, workload_of

SPREAD_SUFFIX = "_unconsolidated"


def load_workload(
    path: Path,
    *,
    columns: Mapping[str, str] | None = None,
    table: ThroughputTable | None = None,
) -> Workload:
    """Read a ``.trace`` (the 2020 scheduler's tab-separated jobs) or a ``.csv``.

    ``table`` says what jobs do of which a CSV has only the duration. Raises ``UsageError`` with the
    line for what cannot be read.
    """
    text = _text(path, "--workload")
    if path.suffix == ".csv":
        return jobs_from_csv(path, text, columns, table)
    return _from_trace(path, text)


def load_throughputs(path: Path) -> ThroughputTable:
    """Read the 2020 scheduler's ``simulation_throughputs.json``.

    ``{type: {"('kind', gang)": {"null": alone, "('other', gang)": [mine, theirs]}}}``; a type
    ending in ``_unconsolidated`` holds the figures of gangs spread over machines.
    """
    try:
        content = json.loads(_text(path, "--throughputs"))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON", facts=[("reason", str(error))]) from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} is not a table of throughputs")
    alone: dict[tuple[str, bool], dict[JobKind, float]] = {}
    beside: dict[str, dict[tuple[JobKind, JobKind], float]] = {}
    kinds: dict[str, JobKind] = {}

    def kind_of(text: str) -> JobKind:
        if text not in kinds:
            try:
                name, gang = ast.literal_eval(text)
                kinds[text] = (str(name), int(gang))
            except (ValueError, SyntaxError, TypeError) as error:
                raise UsageError(f"{path}: `{text}` is not a kind and a gang size") from error
        return kinds[text]

    for type_name, rows in content.items():
        spread = type_name.endswith(SPREAD_SUFFIX)
        accelerator = type_name.removesuffix(SPREAD_SUFFIX)
        own = alone.setdefault((accelerator, spread), {})
        pairs = beside.setdefault(accelerator, {})
        for row, cells in rows.items():
            kind = kind_of(row)
            for other, value in cells.items():
                if other == "null":
                    own[kind] = float(value)
                elif not spread:
                    pairs[kind, kind_of(other)] = float(value[0])
                    pairs.setdefault((kind_of(other), kind), float(value[1]))
    return ThroughputTable(alone=alone, beside=beside)


def _text(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{option}: cannot read {path}", facts=[("reason", str(error))]) from error


def _from_trace(path: Path, text: str) -> Workload:
    """Ten columns: kind, command, directory, flag, needs data, steps, gang, weight, SLO, arrival.

    Older files have eight: kind, command, flag, needs data, steps, arrival, gang. Kinds may carry
    the gang as ``(batch size 64)`` only; an SLO of -1 is none, else it is seconds after arrival.
    """
    jobs: list[WorkloadJob] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        cells = line.split("\t")
        try:
            if len(cells) == 7:
                kind, steps, arrival, gang = cells[0], cells[4], cells[5], cells[6]
                weight, slo = "1", "-1"
            else:
                kind, steps, gang, weight, slo, arrival = (cells[0], *cells[5:10])
            deadline = float(slo)
            jobs.append(
                WorkloadJob(
                    name=str(len(jobs)),
                    kind=kind,
                    gang_size=int(gang),
                    total_steps=float(steps),
                    arrives_s=float(arrival),
                    weight=float(weight),
                    deadline_s=float(arrival) + deadline if deadline > 0 else None,
                )
            )
        except (IndexError, ValueError) as error:
            raise UsageError(
                f"{path}:{number} is not a job",
                facts=[("reason", str(error))],
                hints=[
                    "expected tab-separated: kind, command, ..., steps, gang, weight, SLO, time"
                ],
            ) from error
    return workload_of(path.name, jobs)
