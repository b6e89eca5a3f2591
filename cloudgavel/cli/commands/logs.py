"""``cloudgavel logs``: what a job printed."""

from pathlib import Path

import click

from cloudgavel.cli.options import STATE


@click.command()
@click.argument("job")
@click.option("--run", "name", metavar="RUN", help="The newest run when not given.")
@click.option("-f", "--follow", "following", is_flag=True, help="Go on as more is printed.")
@STATE
def logs(job: str, name: str | None, following: bool, state_dir: Path) -> None:
    """Print the output of JOB, all attempts in order."""
    import sys
    import time

    from cloudgavel.cli.following import open_reader
    from cloudgavel.errors import UsageError
    from cloudgavel.messages.layout import log_key
    from cloudgavel.objects.open import open_store
    from cloudgavel.runtime.directory import find_run

    directory = find_run(state_dir.absolute(), name)
    reader = open_reader(directory)
    try:
        spec = reader.state.spec
        names = [] if spec is None else [each.name for each in spec.jobs]
        if spec is None or job not in names:
            raise UsageError(
                f"there is no job `{job}` in run `{directory.name}`",
                facts=[("jobs", ", ".join(names))],
            )
        store = open_store(directory.store_url(spec.store))
        printed: set[str] = set()
        while True:
            status = reader.status()
            going_on = status.state in ("running", "stopping") and status.controller_alive
            attempts = reader.state.jobs[job].attempt
            for attempt in range(1, attempts + 1):
                for info in sorted(store.list(log_key(job, attempt)), key=lambda each: each.key):
                    if info.key not in printed:
                        printed.add(info.key)
                        sys.stdout.write(store.get(info.key).decode(errors="replace"))
            sys.stdout.flush()
            if not following or not going_on:
                return
            time.sleep(0.5)
            reader.poll()
    finally:
        reader.close()
