"""Reading a jobs.yaml from disk, with this machine's environment and clock."""

import difflib
import math
import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloudgavel.errors import SpecError, UsageError

if TYPE_CHECKING:
    from cloudgavel.jobs.spec import RunSpec


def load_run(path: str, *, past_deadlines: bool = False) -> "RunSpec":
    """Read and parse a jobs.yaml.

    ``past_deadlines`` accepts instants that have gone by: an unfinished run is resumed with the
    file that it was created with.

    A file that is missing, a directory or not readable raises ``UsageError`` with hints; a file
    that is empty, not text or has mistakes raises ``SpecError`` with all of them.
    """
    from cloudgavel.jobs.parse import parse_run
    from cloudgavel.runtime.real_clock import now_s

    return parse_run(
        _read_text(path),
        source=path,
        base_dir=os.path.dirname(os.path.abspath(path)),
        environment=dict(os.environ),
        now_s=-math.inf if past_deadlines else now_s(),
    )


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        raise UsageError(f"there is no file `{path}`", hints=_hints_for_missing(path)) from None
    except IsADirectoryError:
        inside = os.path.join(path, "jobs.yaml")
        hints = (f"give the file: `{inside}`",) if os.path.isfile(inside) else ()
        raise UsageError(f"`{path}` is a directory, not a file", hints=hints) from None
    except PermissionError:
        raise UsageError(
            f"`{path}` may not be read by this user", hints=(f"chmod u+r {path}",)
        ) from None
    except UnicodeDecodeError as wrong:
        raise SpecError(
            f"`{path}` is not a text file in UTF-8",
            mistakes=(f"{path}: byte {wrong.start + 1} is not UTF-8",),
            hints=("save it as UTF-8",),
        ) from None
    except (OSError, ValueError) as wrong:
        raise UsageError(f"`{path}` cannot be read: {wrong}") from None


def _hints_for_missing(path: str) -> tuple[str, ...]:
    """Name a file that may have been meant, or say how to write a first one."""
    folder = os.path.dirname(path) or "."
    try:
        names = [name for name in os.listdir(folder) if name.endswith((".yaml", ".yml"))]
    except OSError:
        names = []
    near = difflib.get_close_matches(os.path.basename(path), sorted(names), n=1, cutoff=0.5)
    meant = near or (names if len(names) == 1 else [])
    if meant:
        return (f"did you mean `{os.path.join(os.path.dirname(path), meant[0])}`?",)
    return ("write a commented example with `cloudgavel init`",)


def command_exists(word: str, workdir: str) -> bool:
    """Whether a command's first word is there: a file if it has a slash, else on the PATH."""
    if "/" in word:
        return os.path.isfile(os.path.join(workdir, word))
    return shutil.which(word) is not None


def start_mistakes(run: "RunSpec") -> tuple[str, ...]:
    """Say what keeps a run from starting on this machine, all at once, before anything is rented.

    Working directories and commands that do not exist, and secrets that are not set here.
    """
    from cloudgavel.jobs.parse import command_mistakes

    source = run.source or "jobs.yaml"
    found = []
    for job in run.jobs:
        place = f"{source}:{job.line} {job.name}"
        if not os.path.isdir(job.workdir):
            found.append(f"{place}.workdir: there is no directory {job.workdir}")
        for name in job.secrets:
            if name not in os.environ:
                found.append(f"{place}.secrets: `{name}` is not set in this environment")
    missing = {job.workdir for job in run.jobs if not os.path.isdir(job.workdir)}

    def exists(word: str, workdir: str) -> bool:
        # A missing directory was told already: do not blame the files in it as well.
        return workdir in missing or command_exists(word, workdir)

    found.extend(command_mistakes(run, exists=exists))
    return tuple(found)


def speed_mistakes(run: "RunSpec") -> tuple[str, ...]:
    """Jobs of which no speed is known: nothing can be planned for them.

    One known speed, or a profile, is enough: the other speeds are estimated from it.
    """
    source = run.source or "jobs.yaml"
    return tuple(
        f"{source}:{job.line} {job.name}.throughput: no steps/s are known on "
        + ", ".join(request.label for request in job.accelerators)
        + "; give at least one, or a `profile`: the others are estimated from it"
        for job in run.jobs
        if not job.throughput_steps_per_s and job.profile is None
    )


def choice_mistakes(run: "RunSpec") -> tuple[str, ...]:
    """Names of policies and regions that there are not, told before a plan stumbles over them."""
    from cloudgavel.policies.registry import policy_names
    from cloudgavel.pricing.bundled import bundled_catalog

    source = run.source or "jobs.yaml"
    found = []
    if ":" not in run.policy and run.policy not in policy_names():
        near = _did_you_mean(run.policy, policy_names())
        found.append(f"{source} policy: there is no policy `{run.policy}`{near}")
    for cloud in run.clouds or run.rehearsal.clouds:
        offers = bundled_catalog().search(providers={cloud.provider})
        known = sorted({offer.region for offer in offers})
        for region in cloud.regions:
            if region not in known:
                near = _did_you_mean(region, known)
                found.append(
                    f"{source} clouds.{cloud.provider}.regions: "
                    f"no price is known in `{region}`{near}"
                )
    return tuple(found)


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def require_plannable(run: "RunSpec") -> None:
    """Refuse with ``SpecError`` a run that cannot be planned."""
    mistakes = speed_mistakes(run)
    if mistakes:
        raise SpecError(f"`{run.source or 'jobs.yaml'}` cannot be planned", mistakes=mistakes)


def require_startable(run: "RunSpec") -> None:
    """Refuse with ``SpecError`` a run that could not start, telling every reason."""
    mistakes = (*start_mistakes(run), *speed_mistakes(run))
    if mistakes:
        raise SpecError(
            f"`{run.source or 'jobs.yaml'}` cannot start on this machine; nothing was rented",
            mistakes=mistakes,
        )
