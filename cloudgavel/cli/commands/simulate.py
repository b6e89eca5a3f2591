"""``cloudgavel simulate``: policies on the same workload, before a dollar is spent."""

import os
import sys
from pathlib import Path

import click

from cloudgavel.cli.commands.simulate_spot import spot
from cloudgavel.cli.streams import answer, answer_json, note, text_width, wants_motion
from cloudgavel.errors import UsageError

DEFAULT_POLICIES = "max_min_fairness,max_min_fairness_agnostic,shortest_remaining,fifo"


@click.group(
    "simulate",
    invoke_without_command=True,
    help="Policies on the same workload and cluster, in virtual time. Nothing is rented.",
)
@click.option(
    "--workload",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Jobs: a .trace or a .csv. Without one, jobs are generated.",
)
@click.option(
    "--throughputs",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Measured steps/s by type, kind and gang (JSON).",
)
@click.option("--cluster", help="Accelerators, like v100=8,p100=16,k80=24.")
@click.option("--prices", default="", help="USD/h of one accelerator, like v100=0.74.")
@click.option(
    "--per-instance",
    default="",
    help="Accelerators of one machine, like v100=4: gangs are consolidated or spread.",
)
@click.option("--policies", default=DEFAULT_POLICIES, show_default=True, help="With commas.")
@click.option("--columns", default="", help="Columns of a .csv, like kind=model,arrives_s=submit.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, help="Generated workloads.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="The first seed.")
@click.option("--jobs", type=click.IntRange(min=1), default=100, help="Generated jobs.")
@click.option("--jobs-per-hour", type=click.FloatRange(min=0, min_open=True), default=None)
@click.option("--gangs", is_flag=True, help="Generate jobs of 1, 2, 4 and 8 accelerators.")
@click.option("--deadlines", is_flag=True, help="Generate deadlines.")
@click.option("--round-s", type=click.FloatRange(min=1), default=360.0, show_default=True)
@click.option(
    "--change-over-s",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Save and restore of a job that goes on elsewhere or later.",
)
@click.option(
    "--start-s", type=click.FloatRange(min=0), default=0.0, help="A job's very first start."
)
@click.option("--measured", help="Job times over these jobs only, like 400-499.")
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
@click.pass_context
def simulate(
    context: click.Context,
    workload: Path | None,
    throughputs: Path | None,
    cluster: str | None,
    prices: str,
    per_instance: str,
    policies: str,
    columns: str,
    seeds: int,
    seed: int,
    jobs: int,
    jobs_per_hour: float | None,
    gangs: bool,
    deadlines: bool,
    round_s: float,
    change_over_s: float,
    start_s: float,
    measured: str | None,
    workers: int,
    parallel: str,
    results_dir: Path | None,
    output: str,
    as_json: bool,
    report: Path | None,
) -> None:
    """Load, simulate every policy, answer."""
    if context.invoked_subcommand is not None:
        return
    if throughputs is None or cluster is None:
        missing = "--throughputs" if throughputs is None else "--cluster"
        raise UsageError(f"{missing} is missing", hints=["see `cloudgavel simulate --help`"])
    from cloudgavel.simulator.cluster_run import ClusterRunSettings
    from cloudgavel.simulator.clusters import parse_cluster
    from cloudgavel.simulator.compare import Comparison, compare, document_of
    from cloudgavel.simulator.generate import GeneratorSettings
    from cloudgavel.simulator.trace_formats import load_throughputs, load_workload

    names = tuple(dict.fromkeys(name.strip() for name in policies.split(",") if name.strip()))
    if not names:
        raise UsageError("--policies names none")
    types = parse_cluster(cluster, prices=prices, per_instance=per_instance)
    table = load_throughputs(throughputs)
    _check(names, [kind.accelerator for kind in types], table.accelerators)
    given = None if workload is None else load_workload(workload, columns=_columns(columns))
    comparison = Comparison(
        policies=names,
        table=table,
        types=types,
        settings=ClusterRunSettings(round_s=round_s, change_over_s=change_over_s, start_s=start_s),
        workload=given,
        generator=GeneratorSettings(
            job_count=jobs,
            jobs_per_hour=jobs_per_hour,
            several_accelerators=gangs,
            deadlines=deadlines,
        ),
        seeds=tuple(range(seed, seed + seeds)),
        measured=_measured(measured, jobs if given is None else len(given.jobs)),
    )
    results = compare(
        comparison,
        workers=workers,
        results_dir=results_dir,
        done=_progress(),
        parallel=parallel,
    )
    document = document_of(comparison, results)
    if report is not None:
        from cloudgavel.simulator.detail import details_of
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


simulate.add_command(spot)


def _check(policies: tuple[str, ...], types: list[str], known: tuple[str, ...]) -> None:
    """Refuse names that nothing is known of before anything is simulated."""
    from cloudgavel.policies.registry import policy_named

    for name in policies:
        policy_named(name)
    for accelerator in types:
        if accelerator not in known:
            raise UsageError(
                f"no throughput is known for `{accelerator}`",
                facts=[("known types", ", ".join(known))],
            )


def _columns(text: str) -> dict[str, str]:
    """``field=column`` pairs."""
    from cloudgavel.simulator.trace_formats import CSV_COLUMNS

    found = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        field, equals, column = part.partition("=")
        if not equals or field not in CSV_COLUMNS:
            raise UsageError(
                f"--columns: expected field=column, got `{part}`",
                facts=[("fields", ", ".join(CSV_COLUMNS))],
            )
        found[field] = column
    return found


def _measured(text: str | None, job_count: int) -> tuple[int, int] | None:
    if text is None:
        return None
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal()) or int(first) > int(last):
        raise UsageError(f"--measured: expected first-last like 400-499, got `{text}`")
    if int(last) >= job_count:
        raise UsageError(f"--measured ends at job {last}, the last one is {job_count - 1}")
    return int(first), int(last)


class _Progress:
    """Finished simulations with the time left, on stderr."""

    def __init__(self, moving: bool) -> None:
        from time import monotonic

        self._clock = monotonic
        self._started = monotonic()
        self._moving = moving
        self._said = 0.0
        self._first: int | None = None

    def __call__(self, finished: int, of: int) -> None:
        if of < 2:
            return
        if self._first is None:
            self._first = finished - 1
        gone = self._clock() - self._started
        left_s = gone / max(finished - self._first, 1) * (of - finished)
        text = f"simulated {finished}/{of}" + (f", about {left_s:.0f} s left" if left_s else "")
        if self._moving:
            click.echo(f"\r{text:<50}", err=True, nl=finished == of)
        elif finished == of or gone - self._said >= 60:
            self._said = gone
            note(text)


def _progress() -> _Progress:
    return _Progress(wants_motion(sys.stderr, os.environ))
