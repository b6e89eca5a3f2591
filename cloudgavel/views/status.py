"""A run at one moment as text: money first, then promises, then machines, then events."""

from cloudgavel.documents.status import StatusDocument, StatusFleetLine, StatusJob
from cloudgavel.views.format import bar, capacity, lateness, money, rate, share, span, steps_rate
from cloudgavel.views.table import Column, table

JOB_COLUMNS = (
    Column(head="JOB"),
    Column(head="STATE"),
    Column(head="ON", most=44),
    Column(head="STEPS/S", right=True, drop=3),
    Column(head="PROGRESS", drop=1),
    Column(head="FINISH"),
    Column(head="SPENT", right=True, drop=2),
)
FLEET_COLUMNS = (
    Column(head="FLEET"),
    Column(head="N", right=True),
    Column(head="AGE", right=True),
    Column(head="BUSY", right=True, drop=2),
    Column(head="$/H", right=True),
    Column(head="INTERRUPTED", right=True, drop=3),
    Column(head="NOTE", drop=1),
)


def status_text(status: StatusDocument, *, width: int, events: int = 8) -> str:
    """Draw one frame, at most ``width`` wide, with the newest ``events`` events."""
    return "\n".join(frame_lines(status, width=width, events=events))


def frame_lines(status: StatusDocument, *, width: int, events: int) -> list[str]:
    """Return the lines of one frame."""
    lines = [*_head(status, width), ""]
    planned = status.round > 0
    rows = [_job(job, planned=planned) for job in status.jobs]
    lines.extend(table(JOB_COLUMNS, rows, width=width))
    if status.fleet:
        lines.append("")
        lines.extend(table(FLEET_COLUMNS, [_fleet(f) for f in status.fleet], width=width))
    for orphan in status.orphans:
        lines.append(
            _cut(f"  orphan       {orphan}: may cost money, `cloudgavel down` ends it", width)
        )
    if status.events and events:
        lines.append("")
        for event in status.events[:events]:
            lines.append(_cut(f"  {event.at[11:19]}  {event.subject:<16} {event.text}", width))
    return lines


def _head(status: StatusDocument, width: int) -> list[str]:
    state = status.state
    if state == "running":
        if not status.controller_alive:
            seen = status.controller_seen_s_ago
            state = "controller gone" + (f" (seen {span(seen)} ago)" if seen is not None else "")
        elif status.next_decision_s is not None:
            state = f"next decision in {span(max(0.0, status.next_decision_s - status.now_s))}"
    name = f"{status.name} (rehearsal)" if status.rehearsal else status.name
    parts = [name, f"round {status.round}", f"{status.now[11:19]} UTC", state]
    return [
        " " + _fitting([*parts, f"policy {status.policy}"], " · ", width - 1),
        " " + _fitting(_money(status), "  ", width - 1),
    ]


def _money(status: StatusDocument) -> list[str]:
    """What was spent, at which rate, where it leads: the weightiest first."""
    spent = f"spent {money(status.spent_usd)}"
    if status.budget_usd:
        part = status.spent_usd / status.budget_usd
        spent += f" of {money(status.budget_usd)}  {bar(part, 20)}"
    parts = [spent, f"rate {rate(status.usd_per_hour)}"]
    finished = all(job.state == "FINISHED" for job in status.jobs)
    if status.expected_total_usd is not None and (finished or status.state == "running"):
        if not finished:
            parts.append(f"on course for {money(status.expected_total_usd)}")
        if status.on_demand_only_usd is not None and not _leaves_work(status):
            saved = status.on_demand_only_usd - status.expected_total_usd
            parts.append(f"saves {money(saved)} vs on-demand")
        if status.lower_bound_usd is not None:
            parts.append(f"(bound {money(status.lower_bound_usd)})")
    return parts


def _leaves_work(status: StatusDocument) -> bool:
    """Whether a job ended undone: what the others cost is not to be set against all the work."""
    return any(job.state in ("FAILED", "CANCELLED") for job in status.jobs)


def _fitting(parts: list[str], between: str, width: int) -> str:
    """As many of the parts, from the first on, as fit."""
    text = parts[0]
    for part in parts[1:]:
        if len(text) + len(between) + len(part) > width:
            break
        text += between + part
    return _cut(text, width)


def _job(job: StatusJob, *, planned: bool) -> tuple[str, ...]:
    done = job.steps_done / job.steps_total
    measured = steps_rate(job.steps_per_s_measured)
    expected = steps_rate(job.steps_per_s_expected)
    finish = lateness(job.finish_s, job.deadline_s)
    verdict = {
        "covered": "ok",
        "kept": "kept",
        "expected": "likely",
        "released": "released",
        "missed": "missed",
        "none": "",
    }.get(job.promise, job.promise)
    if job.promise == "none":
        finish = "-" if job.finish_s is None else span(job.finish_s)
    elif job.finish_s is None and not planned:
        verdict, finish = "", "not planned yet"
    return (
        job.name,
        job.state.lower(),
        _where(job),
        f"{measured} / {expected}",
        f"{bar(done, 6)} {share(done):>4}",
        f"{verdict} {finish}".strip(),
        money(job.spent_usd),
    )


def _where(job: StatusJob) -> str:
    """The machine it is on, or why it waits."""
    if job.on is not None:
        return job.on.replace(" on-demand", " od")
    return job.reason if job.state == "WAITING" and job.reason else "-"


def _fleet(line: StatusFleetLine) -> tuple[str, ...]:
    hazard = line.interruption_rate_per_hour
    return (
        f"{line.provider} {line.instance_type} {capacity(line.capacity_type)}",
        str(line.count),
        span(line.age_s),
        "-" if line.busy_share is None else share(line.busy_share),
        money(line.usd_per_hour),
        "-" if hazard is None or line.capacity_type == "on_demand" else f"{100 * hazard:.0f}%/h",
        line.note or "",
    )


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "~"
