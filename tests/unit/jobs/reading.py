"""Ways to read a jobs.yaml in a test: only what the test is about is given."""

import textwrap
from collections.abc import Mapping

from cloudgavel.errors import SpecError
from cloudgavel.jobs.parse import parse_run
from cloudgavel.jobs.spec import JobSpec, RunSpec

NOW_S = 1_795_953_600.0  # 2026-11-29T12:00:00Z
ONE_JOB = {"name": "a", "command": "./train", "steps": "10", "accelerators": "V100"}


def read(
    text: str, *, environment: Mapping[str, str] | None = None, now_s: float = NOW_S
) -> RunSpec:
    return parse_run(
        textwrap.dedent(text),
        source="jobs.yaml",
        base_dir="/project",
        environment=environment or {},
        now_s=now_s,
    )


def mistakes_in(text: str, *, environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """All mistakes of a text; none if it is right."""
    try:
        read(text, environment=environment)
    except SpecError as error:
        return error.mistakes or (error.message,)
    return ()


def a_run(*jobs: str, head: str = "") -> str:
    """Text of a run whose jobs are flow maps without braces (`name: a, steps: 3`)."""
    lines = ["name: run", head, "jobs:", *(f"  - {{{job}}}" for job in jobs)]
    return "\n".join(line for line in lines if line)


def a_job_text(**fields: str) -> str:
    """One complete job with some fields changed or added; YAML flow text."""
    return ", ".join(f"{key}: {value}" for key, value in {**ONE_JOB, **fields}.items())


def job_with(*, environment: Mapping[str, str] | None = None, **fields: str) -> JobSpec:
    """The single job of a run, read with these fields."""
    (job,) = read(a_run(a_job_text(**fields)), environment=environment).jobs
    return job


def mistake_with(*, environment: Mapping[str, str] | None = None, **fields: str) -> str:
    """The single mistake that these fields make, without its place."""
    (mistake,) = mistakes_in(a_run(a_job_text(**fields)), environment=environment)
    return mistake.split(": ", 1)[1]
