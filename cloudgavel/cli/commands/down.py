"""``cloudgavel down``: save every job, end every machine, look for leftovers."""

from pathlib import Path

import click

from cloudgavel.cli.options import RUN_NAME, STATE, chosen_output, output_options


@click.command()
@RUN_NAME
@STATE
@output_options("text", "json")
@click.option("--yes", is_flag=True, help="Do not ask.")
def down(name: str | None, state_dir: Path, output: str, as_json: bool, yes: bool) -> int:
    """Save every job of a run (the newest, or RUN) and end every machine.

    Checkpoints are kept: the same `cloudgavel run` command goes on later. Works whether or not the
    run's controller is alive.
    """
    import sys

    from cloudgavel.cli.following import follow, has_controller, open_reader, print_account
    from cloudgavel.cli.streams import note
    from cloudgavel.errors import ExitCode, UsageError
    from cloudgavel.runtime.controller import start_controller
    from cloudgavel.runtime.directory import find_run
    from cloudgavel.runtime.real_clock import now_s
    from cloudgavel.runtime.requests import ask_down

    wants_json = chosen_output(output, as_json) == "json"
    directory = find_run(state_dir.absolute(), name)
    reader = open_reader(directory)
    status = reader.status()
    account = reader.account()
    reader.close()
    if status.state not in ("running", "stopping"):
        note(f"{status.name} has ended ({status.state}): no machine of it is left")
        print_account(account, as_json=wants_json)
        return ExitCode.DONE
    machines = sum(line.count for line in status.fleet)
    note(
        f"This saves and stops every job and ends every machine of `{status.name}`: "
        f"{machines} machines, ${status.usd_per_hour:.2f}/h. Checkpoints are kept."
    )
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(
                "this would stop every job and nobody can be asked",
                hints=["agree beforehand with --yes; everything is saved first"],
            )
        typed = click.prompt("Type the run's name to continue", default="", err=True)
        if typed.strip() != status.name:
            note("Nothing was stopped.")
            return ExitCode.FAILED
    database = directory.open_database()
    try:
        request_id = ask_down(database, reason="asked for by `down`", asked_at_s=now_s())
    finally:
        database.close()
    if not has_controller(directory):
        start_controller(directory)
    code = follow(directory, as_json=wants_json, live=False, request_id=request_id)
    return ExitCode.DONE if code == ExitCode.FAILED else code
