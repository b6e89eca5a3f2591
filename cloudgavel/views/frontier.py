"""``plan --frontier`` as text, drawn from its document."""

from cloudgavel.documents.frontier import FrontierDocument, FrontierPoint
from cloudgavel.views.format import money, span
from cloudgavel.views.table import Column, table

COLUMNS = (
    Column(head="BUDGET", right=True),
    Column(head="COST", right=True),
    Column(head="LAST END", right=True),
    Column(head="NO EARLIER THAN", right=True, drop=1),
    Column(head="AN HOUR EARLIER COSTS", right=True, drop=2),
    Column(head="DEADLINES"),
)
S_PER_H = 3600.0


def frontier_text(found: FrontierDocument, *, width: int, next_steps: bool, file: str) -> str:
    """Draw a frontier for a person, cheapest first; ``next_steps`` adds what to type next."""
    count = found.job_count
    lines = [
        f"{found.name} · {count} {'job' if count == 1 else 'jobs'} · cost against the last end · "
        f"prices of {found.prices_as_of}",
        "",
    ]
    if found.points:
        before = (None, *found.points[:-1])
        rows = [_row(each, last) for each, last in zip(found.points, before, strict=True)]
        lines.extend([*table(COLUMNS, rows, width=width), ""])
    lines.append(
        f"Lower bound    {money(found.cost_lower_bound_usd)}: no schedule that keeps the promises "
        "costs less"
    )
    if found.smallest_sufficient_budget_usd is None:
        lines.append("Not kept       no budget keeps every deadline; the points keep what they can")
    elif not found.points:
        lines.append(
            f"Needed         ${found.smallest_sufficient_budget_usd:,.2f} keeps every deadline and "
            "pays, in the expected market, for the on-demand machines that insure them"
        )
    if found.points:
        lines.append(
            f"Budgets        are those of policy {found.policy}: cloudgavel plan {file} "
            f"--policy {found.policy} --budget {found.points[-1].budget_usd:.2f}"
        )
    lines.append(f"{found.runs} runs in virtual time. Nothing has been rented.")
    if next_steps and found.points:
        lines.append(
            f"Apply      cloudgavel run {file} --policy {found.policy} "
            f"--budget {found.points[-1].budget_usd:.2f}"
        )
    return "\n".join(lines)


def _row(point: FrontierPoint, last: FrontierPoint | None) -> tuple[str, ...]:
    bound = point.makespan_lower_bound_s
    dearer = "-"
    if last is not None:
        hours = (last.makespan_s - point.makespan_s) / S_PER_H
        dearer = money((point.cost_usd - last.cost_usd) / hours)
    return (
        f"${point.budget_usd:,.2f}",
        money(point.cost_usd),
        span(point.makespan_s),
        "-" if bound is None else span(bound),
        dearer,
        f"{point.deadlines_met} of {point.deadlines} met" if point.deadlines else "none",
    )
