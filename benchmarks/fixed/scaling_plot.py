"""Time and memory against the number of jobs, drawn as one SVG without any library."""

import math

from benchmarks.fixed.clusters import cluster_problem
from benchmarks.measuring import Case, Measured, allocating, measured
from cloudgavel.policies.fixed.finish_time_fairness import FinishTimeFairness
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.fixed.water_filling import HierarchicalWaterFilling

SIZES = (64, 128, 256, 512, 1024, 2048)
LINES = (
    ("max-min", MaxMinFairness(), {}, "#1b6ca8", (*SIZES, 8192, 30_000)),
    (
        "max-min, pairs, 26 kinds",
        MaxMinFairness(space_sharing=True),
        {"kinds": 26, "sharing": True},
        "#2a9d5c",
        SIZES,
    ),
    (
        "max-min, pairs, all differ",
        MaxMinFairness(space_sharing=True),
        {"sharing": True},
        "#c8553d",
        SIZES,
    ),
    (
        "hierarchical water filling",
        HierarchicalWaterFilling(),
        {"severity": "roomy"},
        "#7b4fa3",
        SIZES,
    ),
    ("finish-time fairness", FinishTimeFairness(), {}, "#b8860b", SIZES),
)


def scaling_svg() -> str:
    """Measure every line and draw both panels on logarithmic axes."""
    series = []
    for name, policy, options, colour, sizes in LINES:
        points = [
            measured(
                Case(
                    size=m,
                    severity=name,
                    prepare=allocating(policy, lambda m=m, o=options: cluster_problem(m, **o)),
                )
            )
            for m in sizes
        ]
        series.append((name, colour, points))
        shown = ", ".join(f"{p.size}: {p.cpu_s:.3f} s {p.more_mb:.0f} MB" for p in points)
        print(f"{name}: {shown}", flush=True)
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="960" height="420" '
        'font-family="sans-serif" font-size="12"><rect width="960" height="420" fill="white"/>'
    ]
    parts.append(_panel(series, 60, "CPU seconds of one call", lambda p: p.cpu_s, -3, 1))
    parts.append(_panel(series, 540, "MB added at the peak", lambda p: max(p.more_mb, 1), 0, 3))
    for row, (name, colour, _) in enumerate(series):
        x = 60 + 185 * row
        parts.append(f'<rect x="{x}" y="398" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="407">{name}</text>')
    parts.append("</svg>\n")
    return "\n".join(parts)


def _panel(series, left: int, title: str, value, low: int, high: int) -> str:
    def x(m: float) -> float:
        return left + 360 * (math.log10(m) - 1.7) / (4.6 - 1.7)

    def y(amount: float) -> float:
        at = min(max(math.log10(max(amount, 1e-9)), low), high)
        return 350 - 300 * (at - low) / (high - low)

    parts = [f'<text x="{left}" y="30" font-size="14">{title}</text>']
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(
            f'<line x1="{left}" x2="{left + 360}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>'
            f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{10.0**power:g}</text>'
        )
    for m in (64, 256, 1024, 4096, 30_000):
        parts.append(f'<text x="{x(m):.1f}" y="370" text-anchor="middle">{m:,}</text>')
    parts.append(f'<text x="{left + 180}" y="388" text-anchor="middle">jobs</text>')
    for _, colour, points in series:
        dots: list[Measured] = points
        path = " ".join(f"{x(p.size):.1f},{y(value(p)):.1f}" for p in dots)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.extend(
            f'<circle cx="{x(p.size):.1f}" cy="{y(value(p)):.1f}" r="3" fill="{colour}"/>'
            for p in dots
        )
    return "\n".join(parts)
