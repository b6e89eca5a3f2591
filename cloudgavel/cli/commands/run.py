"""``cloudgavel run``: start the jobs, or go on with an unfinished run."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudgavel.cli.options import (
    BUDGET,
    FILE,
    POLICY,
    STATE,
    budget_usd,
    chosen_output,
    output_options,
)

if TYPE_CHECKING:
    from cloudgavel.documents.plan import PlanDocument
    from cloudgavel.documents.status import StatusDocument
    from cloudgavel.jobs.spec import RunSpec
    from cloudgavel.runtime.begin import Begun, PlanFacts
    from cloudgavel.runtime.directory import RunDirectory


@click.command()
@FILE
@BUDGET
@POLICY
@STATE
@output_options("text", "json")
@click.option("--yes", is_flag=True, help="Do not ask; the budget is obeyed all the same.")
@click.option(
    "--best-effort", is_flag=True, help="Start although not every deadline fits the budget."
)
@click.option("--plan", "plan_id", metavar="ID", help="Refuse unless the plan is still this one.")
@click.option("--update", is_flag=True, help="Go on with a changed file.")
@click.option("--foreground", is_flag=True, help="Keep the controller in this process.")
@click.option("--dry-run", is_flag=True, help="Same as `plan`.")
@click.pass_context
def run(
    ctx: click.Context,
    file: str,
    budget: str | None,
    policy: str | None,
    state_dir: Path,
    output: str,
    as_json: bool,
    yes: bool,
    best_effort: bool,
    plan_id: str | None,
    update: bool,
    foreground: bool,
    dry_run: bool,
) -> int:
    """Run the jobs of FILE within the budget.

    A controller process of its own rents, saves, moves and returns machines; this command shows
    it. Leaving the view leaves the run going. The same name again goes on with an unfinished run.
    Without `clouds:` in the file it is a rehearsal: real processes and prices, no money.
    """
    from cloudgavel.cli.commands.plan import plan as plan_command
    from cloudgavel.runtime.begin import BeginKind

    if dry_run:
        code = ctx.invoke(
            plan_command, file=file, budget=budget, policy=policy, best_effort=best_effort,
            output=output, as_json=as_json, exit_code=False,
        )  # fmt: skip
        return int(code)
    wants_json = chosen_output(output, as_json) == "json"
    begun = _begin(
        file, budget_usd(budget), policy, state_dir,
        yes=yes, best_effort=best_effort, plan_id=plan_id, update=update, as_json=wants_json,
    )  # fmt: skip
    if isinstance(begun, int):
        return begun
    return _control(
        begun.directory,
        foreground=foreground,
        as_json=wants_json,
        whole=begun.kind is BeginKind.NEW,
    )


def _begin(
    file: str,
    flag_usd: float | None,
    policy: str | None,
    state_dir: Path,
    *,
    yes: bool,
    best_effort: bool,
    plan_id: str | None,
    update: bool,
    as_json: bool,
) -> "Begun | int":
    """Check everything that can be checked before a machine is rented, then write the run down."""
    from cloudgavel.cli.planning import with_policy
    from cloudgavel.cli.spec_file import load_run, require_startable
    from cloudgavel.cli.streams import note
    from cloudgavel.errors import ExitCode, UsageError
    from cloudgavel.jobs.parse import notes_of
    from cloudgavel.runtime.begin import begin_run
    from cloudgavel.runtime.directory import RunDirectory, read_state
    from cloudgavel.runtime.notify import unreachable
    from cloudgavel.runtime.real_clock import now_s

    spec = load_run(file, past_deadlines=True)
    directory = RunDirectory(state_dir.absolute(), spec.name)
    before = read_state(directory) if directory.exists else None
    resuming = (
        before is not None
        and before.spec is not None
        and before.ended not in ("finished", "failed")
    )
    facts = None
    if resuming:
        assert before is not None
        limit = flag_usd if flag_usd is not None else before.budget_usd
        spec = with_policy(spec, policy)
        require_startable(spec)
        _require_controllable(spec)
    else:
        spec = with_policy(load_run(file), policy)
        require_startable(spec)
        _require_controllable(spec)
        limit = flag_usd if flag_usd is not None else spec.budget_usd
        if limit is None:
            raise UsageError(
                "a run needs a budget: the most that it may ever cost",
                hints=[f"cloudgavel run {file} --budget 500", "or write `budget: 500` in the file"],
            )
        for sentence in notes_of(spec):
            note(f"note: {sentence}")
        try:
            checked = _checked_plan(
                spec, limit, file,
                yes=yes, best_effort=best_effort, plan_id=plan_id, as_json=as_json,
            )  # fmt: skip
        except (KeyboardInterrupt, click.Abort):
            note("interrupted before the run began: nothing was started, nothing was rented")
            return int(ExitCode.INTERRUPTED)
        if isinstance(checked, int):
            return checked
        facts = checked
    for place in unreachable(spec.notify):
        note(f"warning: notify: {place} cannot be reached from here; its messages may be lost")
    begun = begin_run(
        state_dir, spec,
        budget_usd=limit, now_s=now_s(), best_effort=best_effort, update=update, facts=facts,
    )  # fmt: skip
    if resuming:
        note(f"{spec.name}: going on with run {begun.run_id}")
    if begun.put_aside is not None:
        note(f"an earlier run of this name is kept in {begun.put_aside}")
    return begun


def _require_controllable(spec: "RunSpec") -> None:
    """Refuse here what would end the controller at once: its clouds, its store, its market."""
    import os

    from cloudgavel.cli.commands.check import check_store
    from cloudgavel.documents.check import CheckStatus
    from cloudgavel.errors import UsageError
    from cloudgavel.objects.open import open_store
    from cloudgavel.runtime.assemble import rehearsal_offers
    from cloudgavel.runtime.controller import require_rentable
    from cloudgavel.runtime.price_cache import known_catalog

    require_rentable(spec, os.environ)
    rehearsal_offers(spec, known_catalog(os.environ))
    # Without a store of its own the run keeps its objects beside its log.
    lines = check_store(open_store(spec.store)) if spec.store is not None else []
    for line in lines:
        if line.status is CheckStatus.FAILED:
            raise UsageError(
                "the store of this run cannot be used; nothing was started",
                facts=[("store", str(spec.store)), ("it said", line.detail)],
                hints=[
                    *([line.hint] if line.hint is not None else []),
                    "try it alone: cloudgavel check --store URL",
                ],
            )


def _checked_plan(
    spec: "RunSpec",
    limit_usd: float,
    file: str,
    *,
    yes: bool,
    best_effort: bool,
    plan_id: str | None,
    as_json: bool,
) -> "PlanFacts | int":
    """Plan the run and refuse what cannot work; ask the person where money is at stake."""
    import sys

    from cloudgavel.cli.planning import make_plan
    from cloudgavel.cli.streams import answer_json, note, text_width
    from cloudgavel.documents.encode import as_json as document_json
    from cloudgavel.errors import CloudgavelError, ExitCode, InfeasibleError, UsageError
    from cloudgavel.runtime.begin import PlanFacts
    from cloudgavel.views.plan import plan_text

    note("planning the whole run in virtual time ...")
    plan = make_plan(spec, limit_usd, best_effort=best_effort)
    if plan_id is not None and plan.plan_id != plan_id:
        raise CloudgavelError(
            "the plan is no longer the one that was shown; nothing was rented",
            facts=[("shown", plan_id), ("now", plan.plan_id)],
            hints=[f"look again: cloudgavel plan {file} --budget {limit_usd:g}"],
        )
    note(plan_text(plan, width=text_width(), next_steps=False, file=file))
    if not plan.feasible and not best_effort:
        if as_json:
            answer_json(document_json(plan))
        raise InfeasibleError(
            f"${limit_usd:g} does not keep and insure every deadline; nothing was rented",
            facts=_shortfall(plan),
            hints=_ways_out(plan, file, limit_usd),
        )
    if not plan.rehearsal:
        note(
            "note: renting was tested on mocked clouds only; begin with a small budget, watch it, "
            "and look with `cloudgavel reap` afterwards"
        )
    if not plan.rehearsal and not yes:
        if not sys.stdin.isatty():
            raise UsageError(
                "this would rent machines and nobody can be asked",
                hints=["agree beforehand with --yes; the budget is obeyed all the same"],
            )
        if not click.confirm("Go ahead?", default=False, err=True):
            note("Nothing was rented.")
            return int(ExitCode.FAILED)
    return PlanFacts(
        on_demand_only_usd=plan.cost.on_demand_only_usd,
        lower_bound_usd=plan.cost.lower_bound_usd,
        prices_as_of=plan.prices_as_of,
    )


def _shortfall(plan: "PlanDocument") -> list[tuple[str, str]]:
    facts = []
    if plan.smallest_sufficient_budget_usd is not None:
        facts.append(("needed", f"${plan.smallest_sufficient_budget_usd:,.2f}"))
    for relaxed in plan.relaxed:
        facts.append(("not kept", f"{relaxed.promise} of {relaxed.job}"))
    bare = [job.name for job in plan.jobs if job.deadline_met and job.insured_from_s is None]
    if bare:
        facts.append(("not insured", f"deadlines of {', '.join(bare)}"))
    return facts


def _ways_out(plan: "PlanDocument", file: str, limit_usd: float) -> list[str]:
    hints = []
    if plan.smallest_sufficient_budget_usd is not None:
        needed = plan.smallest_sufficient_budget_usd
        hints.append(f"give it what it needs: cloudgavel run {file} --budget {needed:.2f}")
    hints.append(
        f"keep what can be kept: cloudgavel run {file} --budget {limit_usd:g} --best-effort"
    )
    return hints


def _control(directory: "RunDirectory", *, foreground: bool, as_json: bool, whole: bool) -> int:
    from cloudgavel.cli.following import follow, has_controller
    from cloudgavel.runtime.controller import start_controller

    if foreground:
        return _in_foreground(directory, as_json=as_json)
    if not has_controller(directory):
        start_controller(directory)
    return follow(directory, as_json=as_json, whole=whole)


def _in_foreground(directory: "RunDirectory", *, as_json: bool) -> int:
    """The controller in this thread, its events as lines from another one."""
    import threading

    from cloudgavel.cli.following import gone_error, leaving_words, open_reader, print_account
    from cloudgavel.cli.live import follow_plainly
    from cloudgavel.cli.streams import note
    from cloudgavel.errors import ExitCode
    from cloudgavel.runtime.controller import run_controller

    over = threading.Event()

    def tell() -> None:
        reader = open_reader(directory)

        def read() -> "StatusDocument":
            reader.poll()
            return reader.status()

        while not over.is_set():
            if follow_plainly(read, over.wait).ended:
                break
            over.wait(0.2)
        reader.close()

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        run_controller(directory)
    finally:
        over.set()
        teller.join(timeout=5.0)
    reader = open_reader(directory)
    try:
        status = reader.status()
        if status.state in ("running", "stopping"):
            if status.fleet:
                note(leaving_words(status))
                return ExitCode.INTERRUPTED
            raise gone_error(status, directory)
        return print_account(reader.account(), as_json=as_json)
    finally:
        reader.close()
