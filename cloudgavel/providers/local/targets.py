"""From the story to the work: what each process has to reach before time may move on. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from cloudgavel.messages.orders import JobOrder, Verb
from cloudgavel.providers.simulated.agents import AttemptKey, Event
from cloudgavel.providers.simulated.attempt import Attempt, Happening


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


def without_mercy(order: JobOrder) -> JobOrder:
    """Order the end of a job that does not answer: killed at once."""
    return replace(without_saving(order), grace_s=0.0)


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
