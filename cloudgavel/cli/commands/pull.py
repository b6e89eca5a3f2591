"""``cloudgavel pull``: the checkpoint and the output of a job, brought here."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudgavel.cli.options import STATE, chosen_output, output_options

if TYPE_CHECKING:
    from cloudgavel.documents.pull import PullFile
    from cloudgavel.objects.pull import PulledFile


@click.command()
@click.argument("job")
@click.option("--run", "name", metavar="RUN", help="The newest run when not given.")
@click.option("--to", "to", metavar="DIR", type=click.Path(path_type=Path), help="Default: ./JOB.")
@click.option(
    "--checkpoint",
    "which",
    metavar="latest|STEP",
    default="latest",
    show_default=True,
    help="Which checkpoint; `none` for the logs alone.",
)
@click.option("--force", is_flag=True, help="Write over files of other content.")
@STATE
@output_options("text", "json")
def pull(
    job: str,
    name: str | None,
    to: Path | None,
    which: str,
    force: bool,
    state_dir: Path,
    output: str,
    as_json: bool,
) -> None:
    """Bring the newest checkpoint and the output of JOB from the run's store.

    Works while the run goes on and after it. Every file is compared with its SHA-256; what is here
    already is not read again, and a transfer that broke goes on when the command is repeated.
    """
    from cloudgavel.cli.streams import answer, answer_json
    from cloudgavel.cli.transfer import Transfer
    from cloudgavel.documents.encode import as_json as document_json
    from cloudgavel.documents.pull import PullDocument
    from cloudgavel.errors import UsageError
    from cloudgavel.objects.open import open_store
    from cloudgavel.objects.pull import pull_checkpoint, pull_logs
    from cloudgavel.runtime.directory import find_run, read_state

    directory = find_run(state_dir.absolute(), name)
    state = read_state(directory)
    if state.spec is None or job not in state.jobs:
        raise UsageError(
            f"there is no job `{job}` in run `{directory.name}`",
            facts=[("jobs", ", ".join(state.jobs))],
        )
    step = _step(which)
    store = open_store(directory.store_url(state.spec.store))
    record = state.jobs[job]
    target = to if to is not None else Path(job)
    found = None
    notes: list[str] = []
    if which != "none":
        with Transfer(f"{job}: checkpoint") as transfer:
            found = pull_checkpoint(
                store, job, target, step=step, force=force, tell=transfer.begins
            )
        notes += [f"passed over: {each}" for each in found.passed_over]
    logs = pull_logs(store, job, record.attempt, target, force=force)
    document = PullDocument(
        run_id=state.run_id,
        job=job,
        directory=str(target),
        step=found.manifest.step if found is not None else None,
        attempt=found.manifest.attempt if found is not None else None,
        steps_total=record.spec.steps_total,
        checkpoint=_files(found.files if found is not None else ()),
        logs=_files(logs),
        notes=tuple(notes),
    )
    if chosen_output(output, as_json) == "json":
        answer_json(document_json(document))
    else:
        from cloudgavel.views.pull import pull_text

        answer(pull_text(document))


def _step(which: str) -> int | None:
    from cloudgavel.errors import UsageError

    if which in ("latest", "none"):
        return None
    digits = which.replace(",", "").replace("_", "")
    if not digits.isdecimal():
        raise UsageError(
            f"--checkpoint is `latest`, `none` or a step, not {which!r}",
            hints=["for example --checkpoint 640118"],
        )
    return int(digits)


def _files(files: "tuple[PulledFile, ...]") -> "tuple[PullFile, ...]":
    from cloudgavel.documents.pull import PullFile

    return tuple(
        PullFile(path=str(each.path), size_bytes=each.size_bytes, was_there=each.was_there)
        for each in files
    )
