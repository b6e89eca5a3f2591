"""From the story to the work: what each process has to reach before time may move on. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from cloudgavel.messages.orders import JobOrder, Verb
from cloudgavel.messages.report import JobReport, ProcessState
from cloudgavel.providers.simulated.agents import AttemptKey, Event
from cloudgavel.providers.simulated.attempt import Attempt, Failure, Happening


class Outcome(StrEnum):
    """How the story leaves an attempt at the end of a stretch of time."""

    GOES_ON = "goes_on"
    STOPS = "stops"
    EXITS = "exits"
    DIES = "dies"
    """With its machine, or with another machine of its gang."""


_OUTCOMES = {
    Happening.STOPPED: Outcome.STOPS,
    Happening.EXITED: Outcome.EXITS,
    Happening.LOST: Outcome.DIES,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What one attempt's processes have to reach."""

    key: AttemptKey
    members: tuple[str, ...]
    restored_step: int
    step: int
    saves: tuple[tuple[int, int], ...]
    """Saves on the way, ascending: at which step, and which step that keeps."""
    outcome: Outcome
    steps_total: int

    def running_order(self, template: JobOrder) -> JobOrder:
        """Order the steps and saves of the story, nothing beyond."""
        return replace(
            template,
            verb=Verb.RUN,
            run_to_step=self.step,
            save_at_steps=tuple(step for step, _ in self.saves if step < self.steps_total),
            save_sequence=0,
            save_every_s=None,
        )

    def ending_order(self, running: JobOrder) -> JobOrder:
        """Order the end that the story has for it, once it has reached its step."""
        if self.outcome in (Outcome.STOPS, Outcome.DIES):
            # What the story saved is saved by now; what it did not save must not be.
            return without_saving(running)
        return running


def without_saving(order: JobOrder) -> JobOrder:
    """Order the end of a job as it is."""
    return replace(order, verb=Verb.STOP, save_before_stop=False)


def targets_of(
    attempts: Mapping[AttemptKey, Attempt], events: Sequence[Event], at_s: float
) -> list[Target]:
    """Return what every attempt that has begun has to reach by ``at_s``.

    ``attempts`` are those of the story told on to ``at_s``, and ``events`` what happens on the
    way. Attempts that were over before are left out.
    """
    by_key: dict[AttemptKey, list[Event]] = {}
    for event in events:
        by_key.setdefault((event.job, event.attempt), []).append(event)
    found = []
    for key, known in sorted(attempts.items()):
        happened = by_key.get(key, [])
        if known.began_at_s is None or (known.over and not happened):
            continue
        found.append(_target(key, known, happened, at_s))
    return found


def _target(key: AttemptKey, known: Attempt, happened: Sequence[Event], at_s: float) -> Target:
    ends = [event for event in happened if event.happening in _OUTCOMES]
    keeps = dict(known.weaker_saves)
    saves = sorted(
        {
            (event.step, keeps.get(event.step, event.step))
            for event in happened
            if event.happening is Happening.COMMITTED
        }
    )
    outcome = _OUTCOMES[ends[-1].happening] if ends else Outcome.GOES_ON
    step = ends[-1].step if ends else known.step_at(at_s)
    if outcome is Outcome.EXITS and known.failure is None:
        step = known.steps_total
    return Target(
        key=key,
        members=known.members,
        restored_step=known.restored_step,
        step=step,
        saves=tuple(saves),
        outcome=outcome,
        steps_total=known.steps_total,
    )


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
