"""What jobs say of each other: names used once, ``after`` that exists and never comes round."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cloudgavel.jobs.job_fields import ReadJob
from cloudgavel.jobs.mistakes import Mistakes, Place, did_you_mean
from cloudgavel.jobs.spec import JobSpec


def check_names(jobs: Sequence[ReadJob], mistakes: Mistakes) -> None:
    """Record every name that two jobs share, with both lines."""
    first: dict[str, Place] = {}
    for job in jobs:
        if job.name is None:
            continue
        if job.name in first:
            mistakes.add(
                job.place,
                f"the name `{job.name}` is given twice: lines {first[job.name].line} "
                f"and {job.place.line}",
            )
        else:
            first[job.name] = job.place


def resolve_after(
    jobs: Sequence[ReadJob], groups: Mapping[str, Sequence[str]], mistakes: Mistakes
) -> tuple[JobSpec, ...]:
    """Check every ``after`` and return the jobs with it resolved.

    ``groups`` maps the name of a ``foreach`` job to the names of the jobs it became: waiting for
    the group is waiting for all of them. An unknown name and a cycle are mistakes.
    """
    names = [job.name for job in jobs if job.name is not None]
    waits: dict[str, dict[str, Place]] = {}
    for job in jobs:
        resolved: dict[str, Place] = {}
        for name, place in job.after:
            targets = [name] if name in names else groups.get(name)
            if targets is None:
                mistakes.add(
                    place, f"no job is named `{name}`{did_you_mean(name, [*names, *groups])}"
                )
                continue
            for target in targets:
                resolved.setdefault(target, place)
        if job.name is not None:
            # Two jobs of one name (a mistake already) wait for what either waits for.
            waits.setdefault(job.name, {}).update(resolved)
    _check_cycles(waits, mistakes)
    return tuple(
        replace(job.spec, after=tuple(waits[job.spec.name])) for job in jobs if job.spec is not None
    )


def _check_cycles(waits: Mapping[str, Mapping[str, Place]], mistakes: Mistakes) -> None:
    """Record each cycle once, as ``a -> b -> a``, at the ``after`` that closes it.

    Depth first without recursion: a chain of thousands of jobs must not exhaust the stack.
    """
    done: set[str] = set()
    for start in waits:
        if start in done:
            continue
        trail = [start]
        on_trail = {start}
        pending = [iter(waits[start].items())]
        while pending:
            step = next(pending[-1], None)
            if step is None:
                pending.pop()
                left = trail.pop()
                on_trail.discard(left)
                done.add(left)
                continue
            name, place = step
            if name in on_trail:
                cycle = [*trail[trail.index(name) :], name]
                mistakes.add(place, f"these jobs wait for each other: {' -> '.join(cycle)}")
            elif name not in done:
                trail.append(name)
                on_trail.add(name)
                pending.append(iter(waits[name].items()))
