"""What a jobs.yaml asks for that this version reads and does not act on."""

from cloudgavel.jobs.spec import JobSpec, RunSpec


def notes_of(spec: RunSpec) -> tuple[str, ...]:
    """Plain sentences for a person, one per key without effect, naming the jobs that use it."""
    notes = []
    without_effect = (
        (
            "image",
            [job.name for job in spec.jobs if job.image is not None],
            "commands run directly on the machine",
        ),
        (
            "inputs",
            [job.name for job in spec.jobs if job.inputs],
            "nothing is staged, the command fetches its own data",
        ),
        (
            "profile",
            [job.name for job in spec.jobs if job.profile is not None],
            "speeds come from `throughput`",
        ),
    )
    for key, names, instead in without_effect:
        if names:
            notes.append(f"`{key}` of {_listed(names)} has no effect in this version: {instead}")
    if spec.cluster is not None:
        notes.append(
            "`cluster` has no effect in this version: machines are rented, or rehearsed without "
            "`clouds`"
        )
    notes.extend(_slow_to_start(spec.jobs))
    return tuple(notes)


def _listed(names: list[str]) -> str:
    """Write names for a sentence: at most three of them, then how many more."""
    shown = ", ".join(f"`{name}`" for name in names[:3])
    more = len(names) - 3
    return f"{shown} and {more} more" if more > 0 else shown


def _slow_to_start(jobs: tuple[JobSpec, ...]) -> list[str]:
    """Name the jobs without any known speed: they can be neither planned nor run."""
    names = [job.name for job in jobs if not job.throughput_steps_per_s]
    if not names:
        return []
    verb = "has" if len(names) == 1 else "have"
    return [f"{_listed(names)} {verb} no `throughput`: give one to plan or run"]
