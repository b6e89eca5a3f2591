"""Where reality differs from the story. Pure."""

from dataclasses import dataclass

from cloudgavel.messages.report import JobReport, ProcessState, Report
from cloudgavel.providers.local.targets import Outcome, Target
from cloudgavel.providers.simulated.agents import AttemptKey
from cloudgavel.providers.simulated.attempt import Failure


class Surprise:
    """Reality differs from the story; which is then told again with what was learnt."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoredElsewhere(Surprise):
    """It started from another step than the newest checkpoint's."""

    key: AttemptKey
    step: int


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedItself(Surprise):
    """Its process ended where the story has it running."""

    key: AttemptKey
    failure: Failure


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveRefused(Surprise):
    """A save was not committed."""

    key: AttemptKey
    step: int
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveWeaker(Surprise):
    """A save kept an older step than the one it was asked at."""

    key: AttemptKey
    step: int
    saved_step: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineDied(Surprise):
    """An agent is gone; what that means is known to the cloud already."""


def is_over(report: JobReport) -> bool:
    """Whether the process has ended."""
    return report.state in (ProcessState.STOPPED, ProcessState.EXITED)


def has_reached(target: Target, report: JobReport) -> bool:
    """Whether the process has done what its running order says, or has ended."""
    if is_over(report):
        return True
    if target.outcome is Outcome.EXITS:
        return False
    return report.state is ProcessState.PAUSED and report.step >= target.step


def surprises_of(
    target: Target, report: JobReport, *, is_first: bool, failure_known: bool
) -> list[Surprise]:
    """Compare a process that ``has_reached`` its target with the story.

    ``is_first``: it is rank 0 of its gang, the one that saves. ``failure_known``: the story knows
    already how its process ends by itself.
    """
    found: list[Surprise] = []
    if report.error is None and report.restored_step != target.restored_step:
        found.append(RestoredElsewhere(key=target.key, step=report.restored_step))
        return found
    if is_over(report) and not failure_known:
        failure = _failure(target, report)
        if failure is not None:
            found.append(EndedItself(key=target.key, failure=failure))
    if is_first:
        found += _save_surprises(target, report)
    return found


def _failure(target: Target, report: JobReport) -> Failure | None:
    ran_through = report.exit_code == 0 and report.step >= target.steps_total
    # A script that reports no steps and ends well has done them all, as far as anybody can tell.
    silent = report.exit_code == 0 and report.step == report.restored_step
    if report.state is ProcessState.EXITED and report.error is None and (ran_through or silent):
        return None
    error = report.error
    if report.state is ProcessState.STOPPED and error is None:
        error = "it stopped without being told to"
    return Failure(
        after_step=None if report.error is not None else report.step,
        exit_code=report.exit_code,
        error=error,
    )


def _save_surprises(target: Target, report: JobReport) -> list[Surprise]:
    saved = -1 if report.saved_step is None else report.saved_step
    found: list[Surprise] = []
    kept_before = target.restored_step
    for step, keeps in target.saves:
        if step >= target.steps_total or keeps <= kept_before:
            continue
        if saved < keeps:
            if saved > kept_before:
                found.append(SaveWeaker(key=target.key, step=step, saved_step=saved))
            else:
                why = report.save_error or "the process ended before it had saved"
                found.append(SaveRefused(key=target.key, step=step, why=why))
        kept_before = max(kept_before, min(keeps, saved))
    return found


def is_reached(target: Target, report: Report) -> bool:
    """Whether an agent reports that a target is reached."""
    job = job_of(report, target.key)
    return job is not None and has_reached(target, job)


def job_of(report: Report | None, key: AttemptKey) -> JobReport | None:
    """Return what a report says of one attempt."""
    if report is None:
        return None
    return next((job for job in report.jobs if (job.job, job.attempt) == key), None)
