"""A comparison as one HTML page: inline SVG, no script, no network, light and dark, printable.

Bytes depend on the documents alone.
"""

from collections.abc import Callable, Sequence
from html import escape

from cloudgavel.documents.simulation import SimulationDocument
from cloudgavel.documents.simulation_detail import PolicyDetail
from cloudgavel.views.format import money, share, span
from cloudgavel.views.simulation import simulation_text

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 200, 14, 40
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D00", "#777777")
"""Okabe and Ito's, readable with any colour vision."""
MOST_BARS = 6_000
"""Bars of one drawing; shorter leases are left out first."""

STYLE = """
:root{--ink:#1b1b1b;--dim:#666;--paper:#fff;--line:#ccc}
@media (prefers-color-scheme:dark){:root{--ink:#eee;--dim:#aaa;--paper:#161616;--line:#444}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);
max-width:800px;margin:2em auto;padding:0 1em}
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}
pre{overflow-x:auto;font-size:12px}table{border-collapse:collapse;font-size:12px}
td,th{padding:2px 8px;text-align:right;border-bottom:1px solid var(--line)}
td:first-child,th:first-child{text-align:left}
svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg .dim{fill:var(--dim)}
svg .axis{stroke:var(--line)}figure{margin:0}
footer{margin-top:3em;color:var(--dim);font-size:12px}
"""


def simulation_report(document: SimulationDocument, details: Sequence[PolicyDetail]) -> str:
    """Draw the page."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f"<title>Simulation of {escape(document.workload)}</title>",
        f"<style>{STYLE}</style></head><body>",
        f"<h1>Simulation of {escape(document.workload)}</h1>",
        f"<pre>{escape(simulation_text(document, width=100))}</pre>",
        _cost_figure(document),
        _times_figure(details),
        _busy_figure(document, details),
        *(_lease_figure(document, detail) for detail in details),
        _footer(document),
        "</body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _footer(document: SimulationDocument) -> str:
    seeds = sorted({result.seed for result in document.results if result.seed is not None})
    said = f"Rounds of {document.round_s:g} s"
    said += "." if document.market else f", {document.change_over_s:g} s a move."
    if seeds:
        drawn = f"Seed {seeds[0]}"
        if len(seeds) > 1:
            drawn = f"Seeds {seeds[0]} to {seeds[-1]}; drawn in detail: seed {seeds[0]}"
        said += f" {drawn}."
    return f"<footer>{escape(said)} Written by cloudgavel simulate.</footer>"


class _Axes:
    """Linear axes from 0 over the drawing's inner part."""

    def __init__(self, most_x: float, most_y: float) -> None:
        self.most_x, self.most_y = most_x or 1.0, most_y or 1.0

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / self.most_x

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.most_y

    def frame(
        self,
        x_name: str,
        y_name: str,
        x_form: Callable[[float], str],
        y_form: Callable[[float], str],
    ) -> str:
        lines = [
            f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" '
            f'y2="{HEIGHT - BOTTOM}"/>',
            f'<line class="axis" x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>',
        ]
        for part in (0.0, 0.25, 0.5, 0.75, 1.0):
            x, y = self.x(part * self.most_x), self.y(part * self.most_y)
            lines.append(
                f'<text class="dim" x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">'
                f"{escape(x_form(part * self.most_x))}</text>"
            )
            lines.append(
                f'<text class="dim" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
                f"{escape(y_form(part * self.most_y))}</text>"
            )
        middle = (LEFT + WIDTH - RIGHT) / 2
        lines.append(
            f'<text x="{middle:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_name)}</text>'
        )
        lines.append(f'<text x="{LEFT + 6}" y="{TOP + 10}">{escape(y_name)}</text>')
        return "".join(lines)


def _figure(title: str, finding: str, inner: str, table: str, height: int = HEIGHT) -> str:
    return (
        f"<h2>{escape(title)}</h2><p>{escape(finding)}</p><figure>"
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img"><title>{escape(title)}</title>'
        f"<desc>{escape(finding)}</desc>{inner}</svg></figure>"
        + (f"<details><summary>Data</summary>{table}</details>" if table else "")
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["<table><tr>", *(f"<th>{escape(cell)}</th>" for cell in head), "</tr>"]
    for row in rows:
        lines += ["<tr>", *(f"<td>{escape(cell)}</td>" for cell in row), "</tr>"]
    return "".join([*lines, "</table>"])


def _label(number: int, name: str, x: float, y: float) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" style="fill:{_colour(number)}">{escape(name)}</text>'


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _cost_figure(document: SimulationDocument) -> str:
    known = [
        (number, each.policy, each.makespan_s.mean, each.cost_usd.mean)
        for number, each in enumerate(document.summaries)
        if each.cost_usd is not None and each.makespan_s is not None
    ]
    if not known:
        return ""
    axes = _Axes(1.1 * max(item[2] for item in known), 1.1 * max(usd for *_, usd in known))
    inner = [axes.frame("makespan", "cost", span, money)]
    below = -1e9
    for number, policy, makespan_s, usd in sorted(known, key=lambda item: -item[3]):
        x, y = axes.x(makespan_s), axes.y(usd)
        below = max(y + 4, below + 13)
        inner.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{_colour(number)}"/>')
        inner.append(_label(number, policy, WIDTH - RIGHT + 8, below))
    cheapest = min(known, key=lambda item: item[3])
    fastest = min(known, key=lambda item: item[2])
    finding = (
        f"{cheapest[1]} costs least ({money(cheapest[3])}); {fastest[1]} is done "
        f"first ({span(fastest[2])})."
    )
    rows = [[policy, span(makespan_s), money(usd)] for _, policy, makespan_s, usd in known]
    return _figure(
        "Cost against makespan",
        finding,
        "".join(inner),
        _table(("policy", "makespan", "cost"), rows),
    )


def _times_figure(details: Sequence[PolicyDetail]) -> str:
    drawn = [(number, each) for number, each in enumerate(details) if each.job_times_s]
    if not drawn:
        return ""
    axes = _Axes(max(each.job_times_s[-1] for _, each in drawn), 1.0)
    inner = [axes.frame("job time", "part of the jobs", span, share)]
    for place, (number, each) in enumerate(drawn):
        count = len(each.job_times_s)
        points = [f"{axes.x(0):.1f},{axes.y(0):.1f}"]
        for done, time_s in enumerate(each.job_times_s):
            points.append(f"{axes.x(time_s):.1f},{axes.y(done / count):.1f}")
            points.append(f"{axes.x(time_s):.1f},{axes.y((done + 1) / count):.1f}")
        inner.append(
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{_colour(number)}" '
            'stroke-width="1.5"/>'
        )
        inner.append(_label(number, each.policy, WIDTH - RIGHT + 8, TOP + 12 + 15 * place))
    means = [(sum(each.job_times_s) / len(each.job_times_s), each.policy) for _, each in drawn]
    finding = f"{min(means)[1]} has the least mean job time ({span(min(means)[0])})."
    rows = [
        [each.policy, *(span(_at(each.job_times_s, part)) for part in (0.25, 0.5, 0.75, 0.9, 0.99))]
        for _, each in drawn
    ]
    return _figure(
        "Job times",
        finding,
        "".join(inner),
        _table(("policy", "25%", "50%", "75%", "90%", "99%"), rows),
    )


def _at(times: Sequence[float], part: float) -> float:
    return times[min(len(times) - 1, int(part * len(times)))]


def _busy_figure(document: SimulationDocument, details: Sequence[PolicyDetail]) -> str:
    rented = document.market is not None
    drawn = [(number, each) for number, each in enumerate(details) if each.busy]
    if not drawn:
        return ""
    total = sum(kind.count for kind in document.cluster)
    if rented:
        total = max(count for _, each in drawn for _, count in each.busy)
    what = "accelerators rented" if rented else "accelerators in use"
    axes = _Axes(max(each.busy[-1][0] for _, each in drawn), float(total))
    inner = [axes.frame("time", what, span, lambda value: f"{value:.0f}")]
    for place, (number, each) in enumerate(drawn):
        points = []
        before = 0
        for at_s, count in each.busy:
            points.append(f"{axes.x(at_s):.1f},{axes.y(before):.1f}")
            points.append(f"{axes.x(at_s):.1f},{axes.y(count):.1f}")
            before = count
        inner.append(
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{_colour(number)}"/>'
        )
        inner.append(_label(number, each.policy, WIDTH - RIGHT + 8, TOP + 12 + 15 * place))
    rows = [[each.policy, share(each.utilization.mean)] for each in document.summaries]
    return _figure(
        what.capitalize(),
        f"At most {total} at a time." if rented else f"Of {total}; until the last job ended.",
        "".join(inner),
        _table(("policy", "in use"), rows),
    )


def _lease_figure(document: SimulationDocument, detail: PolicyDetail) -> str:
    if not detail.bars:
        return ""
    total = sum(count for _, count in detail.rows)
    row_px = max(2.0, min(15.0, 420.0 / total))
    left = max(LEFT, 12 + 7 * max(len(kind) for kind, _ in detail.rows))
    height = int(TOP + BOTTOM + total * row_px)
    most_s = max(bar.to_s for bar in detail.bars)
    width = WIDTH - left - 10
    kept = sorted(detail.bars, key=lambda bar: bar.from_s - bar.to_s)[:MOST_BARS]
    numbers: dict[str, int] = {}
    inner = []
    for bar in sorted(kept, key=lambda bar: (bar.from_s, bar.accelerator)):
        colour = _colour(numbers.setdefault(bar.job, len(numbers)))
        x = left + width * bar.from_s / most_s
        inner.append(
            f'<rect x="{x:.1f}" y="{TOP + bar.accelerator * row_px:.1f}" '
            f'width="{max(width * (bar.to_s - bar.from_s) / most_s, 0.3):.1f}" '
            f'height="{row_px * 0.85:.1f}" fill="{colour}"><title>{escape(bar.job)}</title></rect>'
        )
    row = 0
    for kind, count in detail.rows:
        y = TOP + (row + count / 2) * row_px + 4
        inner.append(f'<text x="{left - 6}" y="{y:.1f}" text-anchor="end">{escape(kind)}</text>')
        row += count
    inner.append(
        f'<text x="{left}" y="{height - 10}">0</text><text x="{WIDTH - 10}" y="{height - 10}" '
        f'text-anchor="end">{escape(span(most_s))}</text>'
    )
    left_out = len(detail.bars) - len(kept)
    what = "accelerator" if document.market is None else "rented machine"
    finding = f"One row for each {what}, one colour for each job."
    if left_out:
        finding += f" The {left_out} shortest leases are left out."
    return _figure(f"Who ran where: {detail.policy}", finding, "".join(inner), "", height)
