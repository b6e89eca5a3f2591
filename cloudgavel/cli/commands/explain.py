"""``cloudgavel explain``: why a job is where it is."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudgavel.cli.options import BUDGET, STATE, budget_usd, chosen_output, output_options

if TYPE_CHECKING:
    from cloudgavel.documents.explain import ExplainDocument


@click.command()
@click.argument("job")
@click.argument("file", required=False)
@click.option("--run", "name", metavar="RUN", help="The newest run when not given.")
@BUDGET
@STATE
@output_options("text", "json")
def explain(
    job: str,
    file: str | None,
    name: str | None,
    budget: str | None,
    state_dir: Path,
    output: str,
    as_json: bool,
) -> None:
    """Say why JOB is where it is: of a plan of FILE, or of a run as it is now.

    What waiting, each spot offer and on-demand are worth; how likely a loss is; when the safety net
    calls; what is promised, kept aside and binding; how often it saves, and why.
    """
    from cloudgavel.cli.streams import answer, answer_json, text_width
    from cloudgavel.documents.encode import as_json as document_json
    from cloudgavel.views.explain import explain_text

    if file is not None:
        document = _of_plan(file, job, budget_usd(budget))
    else:
        document = _of_run(state_dir, name, job)
    if chosen_output(output, as_json) == "json":
        answer_json(document_json(document))
    else:
        answer(explain_text(document, width=text_width()))


def _of_plan(file: str, job: str, limit_usd: float | None) -> "ExplainDocument":
    from cloudgavel.cli.planning import known_offers
    from cloudgavel.cli.spec_file import load_run, require_plannable
    from cloudgavel.runtime.real_clock import now_s
    from cloudgavel.simulator.explain import explain_plan

    run = load_run(file)
    require_plannable(run)
    _require(job, [each.name for each in run.jobs], file)
    return explain_plan(
        run,
        job,
        offers=known_offers(run),
        budget_usd=run.budget_usd if limit_usd is None else limit_usd,
        now_s=now_s(),
    )


def _of_run(state_dir: Path, name: str | None, job: str) -> "ExplainDocument":
    from cloudgavel.cli.following import open_reader
    from cloudgavel.runtime.directory import find_run
    from cloudgavel.runtime.explain import explain_document

    directory = find_run(state_dir.absolute(), name)
    reader = open_reader(directory)
    try:
        _require(job, list(reader.state.jobs), f"run `{directory.name}`")
        return explain_document(reader.state, job)
    finally:
        reader.close()


def _require(job: str, names: list[str], where: str) -> None:
    from cloudgavel.errors import UsageError

    if job not in names:
        raise UsageError(f"there is no job `{job}` in {where}", facts=[("jobs", ", ".join(names))])
