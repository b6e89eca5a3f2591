"""``python -m benchmarks.reproduce --data DIR``: every published comparison, as one report.

``--data`` holds the original scheduler's workloads and throughputs (``gavel/``). Finished
simulations are kept in ``--results`` and not done again, as long as the code is the same.
``--quick`` takes small clusters and few jobs, seconds in all; without ``--data`` it makes up
throughputs and jobs, so that only the machinery is exercised.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.reproduce import hierarchy, original, paper, speed
from benchmarks.reproduce.bench import Bench
from benchmarks.reproduce.report import Section, html, markdown

SECTIONS: dict[str, Callable[[Bench], Section]] = {
    "baselines": original.baselines,
    "load": paper.load,
    "makespan": paper.makespan,
    "finish_time": paper.finish_time,
    "cost": paper.cost,
    "sharing": paper.sharing,
    "hierarchy": hierarchy.hierarchical,
    "estimates": paper.estimates,
    "rounds": original.round_length,
    "placement": original.placement,
    "policy_time": speed.policy_time,
    "time": speed.where_time_goes,
}
TITLE = "Published comparisons, reproduced"


def main(arguments: list[str]) -> int:
    """Run the chosen sections; the report so far is written after each of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce", description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, help="Markdown file, and .html beside it")
    parser.add_argument("--results", type=Path, help="folder of finished simulations")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sections", default=",".join(SECTIONS))
    chosen = parser.parse_args(arguments)
    names = chosen.sections.split(",")
    for name in names:
        if name not in SECTIONS:
            parser.error(f"there is no section {name}; there are {', '.join(SECTIONS)}")
    if chosen.data is None and not chosen.quick:
        parser.error("--data DIR is needed (a folder with gavel/), or --quick")
    if chosen.data is not None and not (chosen.data / "gavel").is_dir():
        parser.error(f"{chosen.data} has no folder gavel/")
    bench = Bench(chosen.data, quick=chosen.quick, results=chosen.results, workers=chosen.workers)
    started = time.monotonic()
    sections: list[Section] = []
    for number, name in enumerate(names, start=1):
        spent_s = time.monotonic() - started
        print(f"[{number}/{len(names)}] {name} ({spent_s:.0f} s so far)", file=sys.stderr)
        sections.append(SECTIONS[name](bench))
        if chosen.out is not None:
            chosen.out.parent.mkdir(parents=True, exist_ok=True)
            chosen.out.write_text(markdown(TITLE, sections), encoding="utf-8")
            chosen.out.with_suffix(".html").write_text(html(TITLE, sections), encoding="utf-8")
    if chosen.out is None:
        print(markdown(TITLE, sections))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
