"""Run benchmarks of the fixed-cluster policies and print a table.

``python benchmarks/fixed/run.py [NAME ...] [--plot docs/concepts/fixed-scaling.svg]``; a name is
that of a file here. Seconds are CPU time of one whole call (build, solve, read back) in a process
of its own, so a busy machine changes them little; memory is the peak the call adds.
"""

import importlib
import pkgutil
import sys
from pathlib import Path

from measuring import BENCHMARKS, Measured, measured

HERE = Path(__file__).parent


def main(arguments: list[str]) -> None:
    for module in pkgutil.iter_modules([str(HERE)]):
        if module.name not in ("run", "measuring", "clusters", "scaling_plot"):
            importlib.import_module(module.name)
    plot = None
    if "--plot" in arguments:
        at = arguments.index("--plot")
        plot = arguments[at + 1]
        arguments = arguments[:at] + arguments[at + 2 :]
    names = arguments or sorted(BENCHMARKS)
    found: dict[str, list[Measured]] = {}
    for name in names:
        print(f"{name}\n{'jobs':>8}  {'CPU s':>8}  {'MB':>6}  case", flush=True)
        for case in BENCHMARKS[name]():
            one = measured(case)
            found.setdefault(name, []).append(one)
            print(
                f"{one.size:8,}  {one.cpu_s:8.3f}  {one.more_mb:6.0f}  {one.severity}: {one.says}",
                flush=True,
            )
        print()
    if plot is not None:
        from scaling_plot import scaling_svg

        Path(plot).write_text(scaling_svg(), encoding="utf-8")
        print(f"wrote {plot}")


if __name__ == "__main__":
    main(sys.argv[1:])
