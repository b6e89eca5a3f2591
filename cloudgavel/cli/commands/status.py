"""``cloudgavel status``: a run at this moment."""

from pathlib import Path

import click

from cloudgavel.cli.options import RUN_NAME, STATE, chosen_output, output_options


@click.command()
@RUN_NAME
@STATE
@output_options("text", "json")
def status(name: str | None, state_dir: Path, output: str, as_json: bool) -> None:
    """Show a run (the newest, or RUN): money, promises, machines, events.

    Reads the run's own log only: instant, also when a cloud does not answer.
    """
    from cloudgavel.cli.following import open_reader, run_words
    from cloudgavel.cli.streams import answer, answer_json, text_width
    from cloudgavel.documents.encode import as_json as document_json
    from cloudgavel.runtime.directory import find_run
    from cloudgavel.views.status import status_text

    reader = open_reader(find_run(state_dir.absolute(), name))
    try:
        document = reader.status()
        if chosen_output(output, as_json) == "json":
            answer_json(document_json(document))
        elif document.state in ("running", "stopping"):
            answer(status_text(document, width=text_width()))
        else:
            answer(run_words(reader.account()))
    finally:
        reader.close()
