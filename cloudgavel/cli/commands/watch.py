"""``cloudgavel watch``: attach the live view to a run."""

from pathlib import Path

import click

from cloudgavel.cli.options import RUN_NAME, STATE, chosen_output, output_options


@click.command()
@RUN_NAME
@STATE
@output_options("text", "json")
def watch(name: str | None, state_dir: Path, output: str, as_json: bool) -> int:
    """Follow a run (the newest, or RUN) until it ends; leaving does not stop it."""
    from cloudgavel.cli.following import follow
    from cloudgavel.runtime.directory import find_run

    directory = find_run(state_dir.absolute(), name)
    return follow(directory, as_json=chosen_output(output, as_json) == "json")
