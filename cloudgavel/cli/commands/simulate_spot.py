"""``cloudgavel simulate spot``: replay spot availability traces under several policies."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudgavel.cli.streams import answer, answer_json

if TYPE_CHECKING:
    from cloudgavel.documents.spot_simulation import SpotSimulationDocument


@click.command("spot", help="Replay spot availability traces under several policies.")
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="TRACE")
@click.option("--job-hours", type=float, default=48.0, show_default=True, help="Work of the job.")
@click.option(
    "--deadline-ratio", type=float, default=1.25, show_default=True, help="Deadline over work."
)
@click.option(
    "--tick-s", type=float, default=None, help="Seconds per tick. Default: the trace's own."
)
@click.option(
    "--merge",
    type=click.Choice(["all-up", "any-up", "majority"]),
    default="all-up",
    show_default=True,
    help="When is spot there in a longer tick?",
)
@click.option(
    "--changeover-s",
    type=float,
    default=585.0,
    show_default=True,
    help="Seconds paid without progress after every start.",
)
@click.option(
    "--on-demand-ratio",
    type=float,
    default=3.33,
    show_default=True,
    help="On-demand price over the mean spot price.",
)
@click.option(
    "--runs", type=int, default=20, show_default=True, help="Random starts for each trace."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random starts.")
@click.option(
    "--policies",
    default="min_cost,uniform_progress,greedy,clairvoyant",
    show_default=True,
    help="Names with commas between; also uniform_progress_eager, region_failover, on_demand_only.",
)
@click.option(
    "--together", is_flag=True, help="One job that may use any of the zones, not one per trace."
)
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
@click.option("--json", "as_json", is_flag=True, help="Short for --output json.")
def spot(
    traces: tuple[Path, ...],
    job_hours: float,
    deadline_ratio: float,
    tick_s: float | None,
    merge: str,
    changeover_s: float,
    on_demand_ratio: float,
    runs: int,
    seed: int,
    policies: str,
    together: bool,
    output: str,
    as_json: bool,
) -> None:
    """Load, replay, answer."""
    from cloudgavel.errors import UsageError
    from cloudgavel.policies.spot.tables import TableShelf
    from cloudgavel.simulator.spot.simulation import SpotSimulationSettings, simulate_spot
    from cloudgavel.simulator.spot.table_files import TableFiles
    from cloudgavel.simulator.spot.traces import Merge, load_trace

    if seed < 0:
        raise UsageError(f"--seed must not be negative, not {seed}")
    settings = SpotSimulationSettings(
        job_hours=job_hours,
        deadline_ratio=deadline_ratio,
        tick_s=tick_s,
        merge=Merge(merge),
        changeover_s=changeover_s,
        on_demand_ratio=on_demand_ratio,
        runs=runs,
        seed=seed,
        policies=tuple(dict.fromkeys(name.strip() for name in policies.split(",") if name.strip())),
        together=together,
    )
    shelf = TableShelf(store=TableFiles(table_directory(os.environ)))
    document = simulate_spot([load_trace(path) for path in traces], settings, shelf=shelf)
    if as_json or output == "json":
        answer_json(document.to_json())
    else:
        answer(spot_simulation_text(document))


def table_directory(environment: Mapping[str, str]) -> Path:
    """Where value tables are kept between commands: the user's cache."""
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "cloudgavel" / "spot-tables"


def spot_simulation_text(document: "SpotSimulationDocument") -> str:
    """The document as a table."""
    places = "together" if document.together else "each alone"
    lines = [
        f"{document.job_hours:g} h of work, deadline {document.deadline_ratio:g} x, "
        f"change-over {document.changeover_s:g} s, on-demand {document.on_demand_ratio:g} x spot",
        f"{len(document.traces)} trace(s), {places}, {document.runs_per_trace} random starts each",
        "",
        f"{'policy':<24}{'mean':>8}{'p90':>8}{'max':>8}{'regret':>9}{'misses':>8}{'starts':>8}",
    ]
    lines += [
        f"{row.policy:<24}{row.mean_cost_ratio:>8.3f}{row.p90_cost_ratio:>8.3f}"
        f"{row.max_cost_ratio:>8.3f}{row.mean_regret:>9.3f}{row.deadline_misses:>8}"
        f"{row.changeovers:>8}"
        for row in document.results
    ]
    lines += ["", "Cost over on-demand only; regret against the clairvoyant optimum of each run."]
    return "\n".join(lines)
