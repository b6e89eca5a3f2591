"""`cloudgavel init`: a commented jobs.yaml to begin with."""

import click


@click.command()
@click.argument("file", default="jobs.yaml", metavar="[FILE]")
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
def init(file: str, force: bool) -> None:
    """Write a commented jobs.yaml to FILE."""
    from cloudgavel.errors import UsageError
    from cloudgavel.jobs.template import JOBS_YAML_TEMPLATE

    try:
        with open(file, "w" if force else "x", encoding="utf-8") as opened:
            opened.write(JOBS_YAML_TEMPLATE)
    except FileExistsError:
        raise UsageError(
            f"`{file}` exists already",
            hints=(
                f"overwrite it with `cloudgavel init {file} --force`",
                "write another file with `cloudgavel init other.yaml`",
            ),
        ) from None
    except OSError as wrong:
        raise UsageError(f"`{file}` cannot be written: {wrong.strerror}") from None
    click.echo(f"wrote {file}; next: `cloudgavel validate {file}`", err=True)
