"""From the flags of ``cloudgavel simulate`` to what is compared."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgavel.errors import UsageError

if TYPE_CHECKING:
    from cloudgavel.documents.simulation_detail import PolicyDetail
    from cloudgavel.jobs.spec import RunSpec
    from cloudgavel.simulator.compare import Comparison
    from cloudgavel.simulator.generate import GeneratorSettings
    from cloudgavel.simulator.progress_reports import ProgressReports
    from cloudgavel.simulator.rented.comparison import RentedComparison
    from cloudgavel.simulator.throughputs import ThroughputTable
    from cloudgavel.simulator.workload import Workload

RENTED_POLICIES = ("min_cost", "on_demand_only", "min_makespan")
FIXED_POLICIES = ("max_min_fairness", "max_min_fairness_agnostic", "shortest_remaining", "fifo")
RENTED, FIXED = "rented fleet", "fixed cluster"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The flags that say what is compared, as they were given."""

    file: str | None
    workload: Path | None
    throughputs: Path | None
    columns: str
    rented: bool
    cluster: str | None
    prices: str
    per_instance: str
    budget: str | None
    trace: tuple[str, ...]
    policies: str | None
    seeds: int
    seed: int
    jobs: int
    jobs_per_hour: float | None
    gangs: bool
    deadlines: bool
    estimate: float | None
    progress_error: float
    progress_late_s: float
    spread_share: float
    round_s: float | None
    change_over_s: float
    start_s: float
    failures_per_hour: float
    save_every_s: float
    measured: str | None

    @property
    def folder(self) -> str:
        """Where a policy of one's own may lie: beside the file, or here."""
        return str(Path(self.file or "jobs.yaml").absolute().parent)

    @property
    def reports(self) -> "ProgressReports":
        """What is told of progress."""
        from cloudgavel.simulator.progress_reports import ProgressReports

        return ProgressReports(error_share=self.progress_error, late_s=self.progress_late_s)

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds, first to last."""
        return tuple(range(self.seed, self.seed + self.seeds))


def comparison_of(asked: Asked) -> "Comparison | RentedComparison":
    """Load all that is asked for; ``UsageError`` for what cannot be meant, before anything runs."""
    run = None
    if asked.file is not None:
        from cloudgavel.cli.spec_file import load_run, require_plannable

        if asked.workload is not None:
            raise UsageError(f"`{asked.file}` and --workload both give jobs: one is meant")
        run = load_run(asked.file)
        require_plannable(run)
    on_cluster = asked.cluster is not None or (run is not None and run.cluster is not None)
    if asked.rented or (run is not None and not on_cluster):
        return _rented(asked, run)
    if not on_cluster:
        raise UsageError(
            "nothing says where the jobs run",
            hints=[
                "on rented machines: give a jobs.yaml, or --rented",
                "on a fixed cluster: --cluster v100=8,p100=16",
            ],
        )
    return _fixed(asked, run)


def details_of(comparison: "Comparison | RentedComparison") -> "tuple[PolicyDetail, ...]":
    """Return the first seed of every policy in detail, for the report."""
    from cloudgavel.simulator.rented.comparison import RentedComparison

    if isinstance(comparison, RentedComparison):
        return comparison.details()
    from cloudgavel.simulator.detail import details_of

    return details_of(comparison)


def _rented(asked: Asked, run: "RunSpec | None") -> "RentedComparison":
    from cloudgavel.cli.options import budget_usd
    from cloudgavel.pricing.bundled import bundled_catalog
    from cloudgavel.runtime.assemble import rehearsal_offers
    from cloudgavel.simulator.rented.comparison import RentedComparison, rentable_offers
    from cloudgavel.simulator.rented.jobs import from_start, run_of_workload
    from cloudgavel.simulator.rented.recorded import load_recorded

    for option, given in (
        ("--cluster", asked.cluster is not None),
        ("--prices", bool(asked.prices)),
        ("--per-instance", bool(asked.per_instance)),
        ("--change-over-s", asked.change_over_s > 0),
        ("--start-s", asked.start_s > 0),
        ("--failures-per-hour", asked.failures_per_hour > 0),
        ("--measured", asked.measured is not None),
    ):
        if given:
            raise UsageError(f"{option} is of a fixed cluster, and machines are rented here")
    names = _policies(asked.policies, RENTED_POLICIES, RENTED, asked.folder)
    generator = table = None
    notes: tuple[str, ...] = ()
    budget = budget_usd(asked.budget)
    if run is not None:
        from cloudgavel.runtime.real_clock import now_s

        run = from_start(run, now_s())
        if asked.round_s is not None:
            run = replace(run, round_s=asked.round_s)
        budget = run.budget_usd if budget is None else budget
    else:
        table = _table(asked, rented=True)
        round_s = 360.0 if asked.round_s is None else asked.round_s
        if asked.workload is not None:
            workload = _workload(asked, table)
            notes = workload.notes
            run = run_of_workload(workload, table, round_s=round_s)
        else:
            generator = _generator(asked, table)
    comparison = RentedComparison(
        policies=names,
        offers=(),
        seeds=asked.all_seeds,
        run=run,
        generator=generator,
        table=None if generator is None else table,
        round_s=360.0 if asked.round_s is None else asked.round_s,
        budget_usd=budget,
        measured_share=asked.estimate,
        reports=asked.reports,
        spread_share=asked.spread_share,
        notes=notes,
    )
    # Generated jobs differ from seed to seed; together they accept all that any of them does.
    every = comparison.every_job()
    catalog = bundled_catalog()
    recorded = None
    if asked.trace:
        recorded = load_recorded(asked.trace, rehearsal_offers(every, catalog))
    return replace(comparison, recorded=recorded, offers=rentable_offers(every, catalog, recorded))


def _fixed(asked: Asked, run: "RunSpec | None") -> "Comparison":
    from cloudgavel.simulator.cluster_run import ClusterRunSettings
    from cloudgavel.simulator.clusters import parse_cluster
    from cloudgavel.simulator.compare import Comparison
    from cloudgavel.simulator.jobs_on_cluster import fixed_workload

    for option, is_given in (
        ("--budget", asked.budget is not None),
        ("--trace", bool(asked.trace)),
    ):
        if is_given:
            raise UsageError(f"{option} is of rented machines, and the cluster is fixed here")
    if asked.spread_share != 1.0:
        raise UsageError(
            "--spread-share is of rented machines",
            hints=["on a cluster the table's `_unconsolidated` rates and --per-instance say it"],
        )
    names = _policies(asked.policies, FIXED_POLICIES, FIXED, asked.folder)
    cluster = asked.cluster
    if cluster is None:
        assert run is not None and run.cluster is not None
        cluster = ",".join(f"{name}={count}" for name, count in run.cluster.items())
    types = parse_cluster(cluster, prices=asked.prices, per_instance=asked.per_instance)
    round_s = asked.round_s
    workload: Workload | None
    if run is not None:
        workload, table = fixed_workload(run, [kind.accelerator for kind in types])
        round_s = run.round_s if round_s is None else round_s
    else:
        table = _table(asked, rented=False)
        _check_types([kind.accelerator for kind in types], table.accelerators)
        workload = None if asked.workload is None else _workload(asked, table)
    return Comparison(
        policies=names,
        table=table,
        types=types,
        settings=ClusterRunSettings(
            round_s=360.0 if round_s is None else round_s,
            change_over_s=asked.change_over_s,
            start_s=asked.start_s,
            failures_per_hour=asked.failures_per_hour,
            save_every_s=asked.save_every_s,
            measured_share=asked.estimate,
            reports=asked.reports,
        ),
        workload=workload,
        generator=None if workload is not None else _generator(asked, table),
        seeds=asked.all_seeds,
        measured=_measured(asked.measured, asked.jobs if workload is None else len(workload.jobs)),
    )


def _policies(
    given: str | None, usual: tuple[str, ...], world: str, folder: str
) -> tuple[str, ...]:
    """Names that are known and plan for this kind of machines; modules may lie in ``folder``."""
    from cloudgavel.policies.base import world_of
    from cloudgavel.policies.registry import policies, policy_named

    if given is None:
        return usual
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    if not names:
        raise UsageError("--policies names none")
    for name in names:
        plans_for = world_of(policy_named(name, folder=folder))
        if world not in plans_for:
            fitting = [each.name for each in policies() if world in world_of(each)]
            raise UsageError(
                f"`{name}` plans for a {plans_for}, not for a {world}",
                facts=[(f"for a {world}", ", ".join(fitting))],
            )
    return names


def _table(asked: Asked, *, rented: bool) -> "ThroughputTable":
    from cloudgavel.simulator.roofline import roofline_table
    from cloudgavel.simulator.trace_formats import load_throughputs

    if asked.throughputs is not None:
        return load_throughputs(asked.throughputs)
    if rented:
        return roofline_table()
    raise UsageError(
        "--throughputs is missing: how fast jobs run on each type of a fixed cluster",
        hints=[
            "a JSON file of steps/s, type by type, kind and gang by kind and gang, like "
            + """{"v100": {"('ResNet-50', 1)": {"null": 9.5}}}""",
            "or rent the machines (--rented): five kinds of jobs are known there",
        ],
    )


def _check_types(types: list[str], known: tuple[str, ...]) -> None:
    for accelerator in types:
        if accelerator not in known:
            raise UsageError(
                f"no throughput is known for `{accelerator}`",
                facts=[("known types", ", ".join(known))],
            )


def _workload(asked: Asked, table: "ThroughputTable") -> "Workload":
    from cloudgavel.simulator.trace_formats import load_workload

    assert asked.workload is not None
    return load_workload(asked.workload, columns=_columns(asked.columns), table=table)


def _generator(asked: Asked, table: "ThroughputTable") -> "GeneratorSettings":
    from cloudgavel.simulator.generate import GeneratorSettings
    from cloudgavel.simulator.throughputs import reference_of

    return GeneratorSettings(
        job_count=asked.jobs,
        jobs_per_hour=asked.jobs_per_hour,
        several_accelerators=asked.gangs,
        deadlines=asked.deadlines,
        reference=reference_of(table),
    )


def _columns(text: str) -> dict[str, str]:
    """``field=column`` pairs."""
    from cloudgavel.simulator.csv_jobs import CSV_COLUMNS, OTHER_FIELD_NAMES

    found = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        field, equals, column = part.partition("=")
        field = OTHER_FIELD_NAMES.get(field, field)
        if not equals or field not in CSV_COLUMNS:
            raise UsageError(
                f"--columns: expected field=column, got `{part}`",
                facts=[("fields", ", ".join((*CSV_COLUMNS, *OTHER_FIELD_NAMES)))],
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
