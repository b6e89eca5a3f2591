"""Run benchmarks of the policies and print one table, the goal beside each figure.

``python -m benchmarks.table [NAME ...] [--plot docs/concepts/fixed-scaling.svg]``; a name is that
of a file here or in ``fixed``. Seconds are CPU time of one whole call (build, solve, read back) in
a process of its own, so a busy machine changes them little; memory is the peak the call adds.
Exits with 1 if a goal is missed.
"""

import importlib
import pkgutil
import sys
from pathlib import Path

import benchmarks.fixed
from benchmarks.measuring import BENCHMARKS, Measured, measured

NOT_PROBLEMS = ("clusters", "scaling_plot")


def main(arguments: list[str]) -> int:
    for module in pkgutil.iter_modules(benchmarks.fixed.__path__):
        if module.name not in NOT_PROBLEMS:
            importlib.import_module(f"benchmarks.fixed.{module.name}")
    importlib.import_module("benchmarks.planning")
    plot = None
    if "--plot" in arguments:
        at = arguments.index("--plot")
        plot = arguments[at + 1]
        arguments = arguments[:at] + arguments[at + 2 :]
    print(
        f"{'problem':<14}{'jobs':>7}{'CPU s':>9}{'goal':>7}{'MB':>6}{'goal':>6}  case", flush=True
    )
    found: list[Measured] = []
    for name in arguments or sorted(BENCHMARKS):
        for case in BENCHMARKS[name]():
            one = measured(case)
            found.append(one)
            print(line(name, one), flush=True)
    missed = [each for each in found if each.verdict == "MISSED"]
    with_goal = sum(bool(each.verdict) for each in found)
    print(f"{with_goal - len(missed)} of {with_goal} goals met")
    if plot is not None:
        from benchmarks.fixed.scaling_plot import scaling_svg

        Path(plot).write_text(scaling_svg(), encoding="utf-8")
        print(f"wrote {plot}")
    return 1 if missed else 0


def line(name: str, one: Measured) -> str:
    """A row of the table."""
    goal_s = "" if one.goal_s is None else f"{one.goal_s:g}"
    goal_mb = "" if one.goal_mb is None else f"{one.goal_mb:g}"
    return (
        f"{name:<14}{one.size:>7,}{one.cpu_s:>9.4f}{goal_s:>7}{one.more_mb:>6.0f}{goal_mb:>6}  "
        f"{one.verdict:<7}{one.severity}: {one.says}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
