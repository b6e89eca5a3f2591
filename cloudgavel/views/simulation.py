"""A comparison of policies as text: one row for each policy, then the paired differences."""

from cloudgavel.documents.simulation import (
    Interval,
    PolicySummary,
    SimulationDocument,
    SimulationResult,
)
from cloudgavel.views.format import money, share, span
from cloudgavel.views.table import Column, table

METRIC_NAMES = {
    "avg_jct_s": "mean job time",
    "makespan_s": "makespan",
    "cost_usd": "cost",
    "deadline_misses": "late jobs",
}


def simulation_text(document: SimulationDocument, *, width: int) -> str:
    """Draw the document."""
    lines = [_heading(document)]
    if document.measured_jobs is not None:
        first, last = document.measured_jobs
        lines.append(f"Job times are over jobs {first} to {last}.")
    lines.append("")
    rows = [_row(document, summary) for summary in document.summaries]
    lines += table(_columns(document), rows, width=width)
    if not all(result.complete for result in document.results):
        lines.append("* over the jobs that ended: not to be compared with other policies'")
    if len(document.summaries) > 1:
        lines += ["", *_against_the_first(document)]
    lines += _about_seeds(document)
    lines += [f"note: {note}" for note in document.notes]
    return "\n".join(lines)


def _against_the_first(document: SimulationDocument) -> list[str]:
    first, *others = (summary.policy for summary in document.summaries)
    lines = [f"Against {first}, pair by pair:"]
    for policy in others:
        if not all(each.complete for each in document.results if each.policy in (first, policy)):
            lines.append(f"  {policy}: no times or cost compared, not every job ended")
        compared = [found for found in document.differences if found.policy == policy]
        differing = [found for found in compared if found.difference.mean != 0]
        for found in differing:
            what = METRIC_NAMES.get(found.metric, found.metric)
            relative = "" if found.relative is None else f" ({100 * found.relative:+.1f}%)"
            lines.append(f"  {policy}: {what} {_signed(found.metric, found.difference)}{relative}")
        if compared and not differing:
            same = ", ".join(METRIC_NAMES.get(found.metric, found.metric) for found in compared)
            lines.append(f"  {policy}: the same {same}")
    return lines


def _about_seeds(document: SimulationDocument) -> list[str]:
    summaries = document.summaries
    seeds = max((summary.seeds for summary in summaries), default=0)
    if seeds < 2:
        return []
    if any(summary.utilization.high is not None for summary in summaries):
        return [f"After +/-: half the 95% interval over {seeds} seeds."]
    return [f"Means of {seeds} seeds, too few for an interval."]


def _heading(document: SimulationDocument) -> str:
    if document.market is None:
        place = ", ".join(f"{kind.count} {kind.accelerator}" for kind in document.cluster)
    else:
        place = document.market
        limit = (
            "no budget" if document.budget_usd is None else f"budget {money(document.budget_usd)}"
        )
        place += f", {limit}"
    moves = f", {span(document.change_over_s)} a move" if document.change_over_s else ""
    return f"{document.workload} on {place}, rounds of {span(document.round_s)}{moves}"


def _tells_losses(document: SimulationDocument) -> bool:
    rented = document.market is not None
    return rented or any(result.interruptions for result in document.results)


def _columns(document: SimulationDocument) -> list[Column]:
    head = "FAILED" if document.market is None else "TAKEN"
    taken = [Column(head=head, right=True, drop=3), Column(head="LOST", right=True, drop=5)]
    return [
        Column(head="POLICY"),
        Column(head="ENDED", right=True),
        Column(head="MEAN JOB TIME", right=True),
        Column(head="P99", right=True, drop=1),
        Column(head="MAKESPAN", right=True),
        Column(head="COST", right=True),
        Column(head="LATE", right=True),
        *(taken if _tells_losses(document) else []),
        Column(head="IN USE", right=True, drop=2),
        Column(head="MOVES", right=True, drop=6),
        Column(head="SOLVING", right=True, drop=7),
    ]


def _row(document: SimulationDocument, summary: PolicySummary) -> list[str]:
    own = [result for result in document.results if result.policy == summary.policy]
    taken = [str(_sum(own, "interruptions")), f"{_sum(own, 'lost_steps'):,}"]
    p99 = [result.p99_jct_s for result in own if result.p99_jct_s is not None]
    whole = all(result.complete for result in own)
    mark = "" if whole else "*"
    return [
        summary.policy,
        f"{_sum(own, 'jobs_completed')}/{_sum(own, 'jobs')}",
        _with_half(summary.avg_jct_s, span) + mark,
        span(sum(p99) / len(p99)) + mark if p99 else "-",
        _with_half(summary.makespan_s, span) if whole else "not ended",
        "unknown" if summary.cost_usd is None else _with_half(summary.cost_usd, money),
        f"{_sum(own, 'deadline_misses')}/{_sum(own, 'deadlines')}"
        if _sum(own, "deadlines")
        else "-",
        *(taken if _tells_losses(document) else []),
        share(summary.utilization.mean),
        str(_sum(own, "moves")),
        f"{sum(result.solve_s for result in own):.2f}s",
    ]


def _sum(results: list[SimulationResult], name: str) -> int:
    return sum(int(getattr(result, name)) for result in results)


def _with_half(interval: Interval | None, form: "object") -> str:
    assert callable(form)
    if interval is None:
        return "-"
    text = str(form(interval.mean))
    if interval.high is not None:
        text += f" +/- {form(interval.high - interval.mean)}"
    return text


def _signed(metric: str, interval: Interval) -> str:
    def one(value: float) -> str:
        sign = "+" if value > 0 else ""
        if metric == "cost_usd":
            return f"{sign}{money(value)}"
        if metric == "deadline_misses":
            return f"{sign}{value:.1f}".replace(".0", "")
        return f"{sign}{span(value)}"

    text = one(interval.mean)
    if interval.high is not None:
        text += f" +/- {one(interval.high - interval.mean).lstrip('+')}"
    return text
