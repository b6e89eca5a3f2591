"""``cloudgavel simulate``: policies on the same workload, before a dollar is spent."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from cloudgavel.cli.commands.simulate_spot import spot
from cloudgavel.cli.streams import answer, answer_json, note, text_width, wants_motion
from cloudgavel.errors import UsageError


class _Simulate(click.Command):
    """A command whose first word may also be ``spot``, a command of its own."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Hand over to ``simulate spot`` where that is meant."""
        if args and args[0] == "spot":
            return spot.make_context(f"{info_name} spot", args[1:], parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)


@click.command(
    "simulate",
    cls=_Simulate,
    epilog="`cloudgavel simulate spot --help`: replay spot availability traces for one job.",
)
@click.argument("file", metavar="[JOBS_YAML]", required=False)
@click.option(
    "--rented", is_flag=True, help="Rent machines for --workload or generated jobs. No cluster."
)
@click.option("--budget", metavar="USD", help="Of the rented run; overrides the file's.")
@click.option(
    "--trace",
    multiple=True,
    metavar="FILE",
    help="Recorded spot availability, like us-east-1a_v100_1.json; may be repeated.",
)
@click.option("--cluster", help="A fixed cluster instead, like v100=8,p100=16,k80=24.")
@click.option("--prices", default="", help="USD/h of one accelerator, like v100=0.74.")
@click.option(
    "--per-instance",
    default="",
    help="Accelerators of one machine, like v100=4: gangs are consolidated or spread.",
)
@click.option(
    "--workload",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Jobs: a .trace or a .csv. Without jobs from anywhere, they are generated.",
)
@click.option("--columns", default="", help="Columns of a .csv, like kind=model,submit=time.")
@click.option(
    "--throughputs",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Measured steps/s by type, kind and gang (JSON).",
)
@click.option(
    "--policies",
    help="With commas.  [default: min_cost,on_demand_only,min_makespan; on a cluster "
    "max_min_fairness,max_min_fairness_agnostic,shortest_remaining,fifo]",
)
@click.option("--seeds", type=click.IntRange(min=1), default=1, help="Markets, generated jobs.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="The first seed.")
@click.option(
    "--generate", "--jobs", "jobs", type=click.IntRange(min=1), default=100, help="Generated jobs."
)
@click.option("--jobs-per-hour", type=click.FloatRange(min=0, min_open=True), default=None)
@click.option("--gangs", is_flag=True, help="Generate jobs of 1, 2, 4 and 8 accelerators.")
@click.option("--deadlines", is_flag=True, help="Generate deadlines of 1.2, 2, 10 x the duration.")
@click.option(
    "--estimate",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Policies know this share of the throughputs at first and estimate the others.",
)
@click.option(
    "--progress-error",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    metavar="SHARE",
    help="Jobs tell up to so much more or less than they have done.",
)
@click.option(
    "--progress-late-s",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="S",
    help="Jobs tell their progress only so often.",
)
@click.option(
    "--spread-share",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    metavar="SHARE",
    help="Rented: part of its steps/s that a gang does on several machines.",
)
@click.option("--round-s", type=click.FloatRange(min=1), help="Seconds of a round.  [default: 360]")
@click.option(
    "--change-over-s",
    type=click.FloatRange(min=0),
    default=0.0,
    help="On a cluster: save and restore of a job that goes on elsewhere or later.",
)
@click.option(
    "--start-s",
    type=click.FloatRange(min=0),
    default=0.0,
    help="On a cluster: a job's very first start.",
)
@click.option(
    "--failures-per-hour",
    type=click.FloatRange(min=0),
    default=0.0,
    help="On a cluster: of one accelerator in use; what is not saved is lost.",
)
@click.option(
    "--save-every-s",
    type=click.FloatRange(min=0, min_open=True),
    default=1800.0,
    show_default=True,
    help="On a cluster: running time between saves.",
)
@click.option("--measured", help="On a cluster: job times over these jobs only, like 400-499.")
@click.option("--workers", type=click.IntRange(min=1), default=1, help="Processes at a time.")
@click.option("--parallel", type=click.Choice(["local", "ray"]), default="local")
@click.option(
    "--results-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep finished simulations here; an interrupted comparison goes on from them.",
)
@click.option("--output", type=click.Choice(["text", "json", "csv"]), default="text")
@click.option("--json", "as_json", is_flag=True, help="Short for --output json.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write one self-contained HTML page with figures.",
)
def simulate(
    workers: int,
    parallel: str,
    results_dir: Path | None,
    output: str,
    as_json: bool,
    report: Path | None,
    **asked: Any,
) -> None:
    """Policies on the same jobs, in virtual time. Nothing is rented.

    With a jobs.yaml (or --rented) machines are rented in simulated markets, by the code that plans
    and runs; with --cluster the jobs share a fixed cluster.
    """
    from cloudgavel.cli.simulating import Asked, comparison_of, details_of
    from cloudgavel.simulator.compare import compare, document_of

    comparison = comparison_of(Asked(**asked))
    results = compare(
        comparison,
        workers=workers,
        results_dir=results_dir,
        done=_progress(),
        parallel=parallel,
    )
    document = document_of(comparison, results)
    if report is not None:
        from cloudgavel.views.simulation_report import simulation_report

        try:
            report.write_text(simulation_report(document, details_of(comparison)), encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"--report: cannot write {report}", facts=[("reason", str(error))]
            ) from (error)
        note(f"Report  {report}")
    if as_json or output == "json":
        answer_json(document.to_json())
    elif output == "csv":
        answer("\n".join(",".join(row) for row in document.csv_rows()))
    else:
        from cloudgavel.views.simulation import simulation_text

        answer(simulation_text(document, width=text_width()))


AT_ONCE_S = 0.5


class _Progress:
    """Finished simulations with the time left, on stderr."""

    def __init__(self, moving: bool, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self._moving = moving
        self._said = 0.0
        self._first: int | None = None

    def __call__(self, finished: int, of: int) -> None:
        if of < 2:
            return
        gone = self._clock() - self._started
        if self._first is None:
            # Kept results are told at once, and say nothing of how long the others take.
            self._first = finished if gone < AT_ONCE_S else finished - 1
        text = f"simulated {finished}/{of}"
        if self._first < finished < of:
            left_s = gone / (finished - self._first) * (of - finished)
            text += f", about {left_s:.0f} s left"
        if self._moving:
            click.echo(f"\r{text:<50}", err=True, nl=finished == of)
        elif finished == of or gone - self._said >= 60:
            self._said = gone
            note(text)


def _progress() -> _Progress:
    from time import monotonic

    return _Progress(wants_motion(sys.stderr, os.environ), monotonic)
