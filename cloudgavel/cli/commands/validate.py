"""`cloudgavel validate`: every mistake of a jobs.yaml at once."""

import click


@click.command()
@click.argument("file", default="jobs.yaml", metavar="[FILE]")
def validate(file: str) -> None:
    """Check FILE (jobs.yaml) and tell every mistake in it at once.

    Nothing is started and no cloud is asked. Exit code 2 if there are mistakes.
    """
    from cloudgavel.cli.spec_file import choice_mistakes, load_run, start_mistakes
    from cloudgavel.errors import SpecError
    from cloudgavel.jobs.parse import notes_of

    run = load_run(file)
    mistakes = choice_mistakes(run)
    if mistakes:
        raise SpecError(f"`{file}` asks for what there is not", mistakes=mistakes)
    noun = "job" if len(run.jobs) == 1 else "jobs"
    click.echo(f"{file}: {len(run.jobs)} {noun}, no mistakes")
    for note in notes_of(run):
        click.echo(f"note: {note}", err=True)
    for mistake in start_mistakes(run):
        click.echo(f"note: `run` on this machine would refuse: {mistake}", err=True)
