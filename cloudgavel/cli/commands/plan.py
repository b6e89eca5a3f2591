"""``cloudgavel plan``: the whole run in virtual time; rents nothing."""

from typing import TYPE_CHECKING

import click

from cloudgavel.cli.options import BUDGET, FILE, POLICY, budget_usd, chosen_output, output_options

if TYPE_CHECKING:
    from cloudgavel.jobs.spec import RunSpec


@click.command()
@FILE
@BUDGET
@POLICY
@click.option("--best-effort", is_flag=True, help="Plan what the budget can keep.")
@click.option(
    "--show-calls", is_flag=True, help="List the calls to the clouds of the file, made of mocks."
)
@click.option(
    "--markets",
    type=click.IntRange(0, 200),
    metavar="N",
    help="Simulated markets behind the cost range.  "
    "[default: 10 on clouds, fewer for many jobs, 0 in a rehearsal]",
)
@click.option(
    "--frontier", is_flag=True, help="What an earlier end costs: one plan per budget, none beaten."
)
@output_options("text", "json")
@click.option("--exit-code", is_flag=True, help="Exit 3 when there is something to run.")
def plan(
    file: str,
    budget: str | None,
    policy: str | None,
    best_effort: bool,
    output: str,
    as_json: bool,
    exit_code: bool,
    show_calls: bool = False,
    markets: int | None = None,
    frontier: bool = False,
) -> int:
    """Make the whole run in virtual time and say what it costs.

    Prices are the catalogue's, interruptions happen as often as expected. Nothing is rented. With
    `clouds:` in the file every launch and end passes through the code that a run uses, against
    mocked clouds: no credentials are needed, and nothing leaves this machine.
    Exit code 5 when the budget does not keep every deadline, or keeps some only if spot holds and
    cannot pay for the on-demand machines that insure them: they are named, and the smallest budget
    that suffices.
    """
    import sys

    from cloudgavel.cli.planning import make_plan
    from cloudgavel.cli.spec_file import load_run, require_plannable
    from cloudgavel.cli.streams import answer, answer_json, note, text_width
    from cloudgavel.documents.encode import as_json as document_json
    from cloudgavel.errors import ExitCode
    from cloudgavel.jobs.parse import notes_of
    from cloudgavel.simulator.market_range import usual_markets
    from cloudgavel.views.plan import plan_text

    run = load_run(file)
    require_plannable(run)
    for sentence in notes_of(run):
        note(f"note: {sentence}")
    in_json = chosen_output(output, as_json) == "json"
    note("planning the whole run in virtual time ...")
    if frontier:
        return _frontier(run, file, budget, policy, as_json=in_json)
    if markets is None:
        markets = usual_markets(len(run.jobs)) if run.clouds else 0
    document = make_plan(
        run, budget_usd(budget), policy=policy, best_effort=best_effort,
        show_calls=show_calls, markets=markets,
    )  # fmt: skip
    if in_json:
        answer_json(document_json(document))
    else:
        talk = sys.stdout.isatty()
        answer(plan_text(document, width=text_width(), next_steps=talk, file=file))
    if not document.feasible and not best_effort:
        return ExitCode.INFEASIBLE
    return ExitCode.CHANGES_PENDING if exit_code else ExitCode.DONE


def _frontier(
    run: "RunSpec", file: str, budget: str | None, policy: str | None, *, as_json: bool
) -> int:
    """Answer with the frontier of cost and makespan."""
    import sys

    from cloudgavel.cli.planning import make_frontier
    from cloudgavel.cli.streams import answer, answer_json, text_width
    from cloudgavel.documents.encode import as_json as document_json
    from cloudgavel.errors import ExitCode, UsageError
    from cloudgavel.views.frontier import frontier_text

    if policy is not None:
        raise UsageError(
            "the frontier is between cost and makespan; it takes no policy",
            hints=["leave out `--policy`, or `--frontier`"],
        )
    document = make_frontier(run, budget_usd(budget))
    if as_json:
        answer_json(document_json(document))
    else:
        talk = sys.stdout.isatty()
        answer(frontier_text(document, width=text_width(), next_steps=talk, file=file))
    return ExitCode.DONE if document.feasible and document.points else ExitCode.INFEASIBLE
