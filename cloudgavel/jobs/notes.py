"""What a person should know of a jobs.yaml: keys without effect, speeds that are guesses."""

from cloudgavel.jobs.spec import JobSpec, RunSpec


def notes_of(spec: RunSpec) -> tuple[str, ...]:
    """Plain sentences for a person, each naming the jobs that it is about."""
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
    )
    for key, names, instead in without_effect:
        if names:
            notes.append(f"`{key}` of {_listed(names)} has no effect in this version: {instead}")
    if spec.cluster is not None:
        notes.append(
            "`cluster` has no effect in this version: machines are rented, or rehearsed without "
            "`clouds`"
        )
    notes.extend(_about_speeds(spec.jobs))
    return tuple(notes)


def _listed(names: list[str]) -> str:
    """Write names for a sentence: at most three of them, then how many more."""
    shown = ", ".join(f"`{name}`" for name in names[:3])
    more = len(names) - 3
    return f"{shown} and {more} more" if more > 0 else shown


def _about_speeds(jobs: tuple[JobSpec, ...]) -> list[str]:
    """Name the jobs without any known speed: planned from a profile, or neither planned nor run."""
    notes = []
    strange = [job for job in jobs if not job.throughput_steps_per_s]
    by_profile = [job.name for job in strange if job.profile is not None]
    if by_profile:
        notes.append(
            f"every speed of {_listed(by_profile)} is estimated from `profile` and counts low: "
            "no deadline is promised until one is measured, or given as `throughput`"
        )
    unknown = [job.name for job in strange if job.profile is None]
    if unknown:
        verb = "has" if len(unknown) == 1 else "have"
        notes.append(
            f"{_listed(unknown)} {verb} neither `throughput` nor `profile`: give one to plan or run"
        )
    return notes
