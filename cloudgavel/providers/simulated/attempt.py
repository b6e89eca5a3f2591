"""One start of one job in virtual time, as a state machine.

    WAITING -> STARTING -> STEPPING <-> SAVING -> STOPPED | EXITED
    any of these -> LOST (a machine of its gang is gone)

Steps accumulate as ``floor(rate x stepping time)``; a save holds stepping and counts at its end.
Only transitions change the state, so how often anybody looks has no influence on what happens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from cloudgavel.messages.orders import RehearsalTerms

_TINY_S = 1e-6
_TINY_STEPS = 1e-6


class Phase(StrEnum):
    """Where an attempt is."""

    WAITING = "waiting"
    """Ordered; its machines are not all there yet."""
    STARTING = "starting"
    STEPPING = "stepping"
    SAVING = "saving"
    HOLDING = "holding"
    """Ordered to save and stop, and the save failed: it waits for other orders."""
    STOPPED = "stopped"
    EXITED = "exited"
    LOST = "lost"


OVER = frozenset((Phase.STOPPED, Phase.EXITED, Phase.LOST))


class Happening(StrEnum):
    """What a transition meant."""

    STARTED = "started"
    STEPPING = "stepping"
    COMMITTED = "committed"
    SAVE_FAILED = "save_failed"
    STOPPED = "stopped"
    EXITED = "exited"
    LOST = "lost"


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """How an attempt will end by itself, learnt from a real process."""

    after_step: int | None
    """Steps it has done when it ends; ``None`` = it never gets to stepping."""
    exit_code: int | None
    error: str | None = None


@dataclass(kw_only=True, slots=True)
class Attempt:
    """One attempt; all instants virtual, all steps counted over the whole job."""

    job: str
    attempt: int
    members: tuple[str, ...]
    """Instances of its gang by rank."""
    steps_total: int
    terms: RehearsalTerms
    phase: Phase = Phase.WAITING
    phase_ends_at_s: float | None = None
    """Of STARTING and SAVING."""
    began_at_s: float | None = None
    stepping_since_s: float = 0.0
    stepped_s: float = 0.0
    """Stepping time before ``stepping_since_s``."""
    period_began_s: float = 0.0
    """Stepping time at the beginning of the last save."""
    periodic_left: int = 0
    """Periodic saves before the finish if nothing else happens."""
    finish_at_s: float | None = None
    restored_step: int = 0
    step: int = 0
    """Steps done at the last transition."""
    safe_step: int = 0
    """Newest step of a checkpoint on its line: restored or committed."""
    saved_step: int | None = None
    commits: int = 0
    """Checkpoints that it committed."""
    sequence_asked: int = 0
    sequence_done: int = 0
    save_asked: bool = False
    """The save in progress was ordered (not periodic)."""
    stopping: bool = False
    stop_saves: bool = True
    fenced_by: int | None = None
    refused_saves: tuple[int, ...] = ()
    """Steps whose save is known to fail."""
    refusal: str | None = None
    weaker_saves: tuple[tuple[int, int], ...] = ()
    """Saves known to keep an older step than the one they were made at."""
    failure: Failure | None = None
    save_error: str | None = None
    exit_code: int | None = None
    error: str | None = None

    @property
    def over(self) -> bool:
        """True when nothing will happen to it any more."""
        return self.phase in OVER

    @property
    def period_s(self) -> float:
        """Stepping time between periodic saves: each has at least one new step."""
        return max(self.terms.save_every_s, 1.0 / self.terms.steps_per_s)

    # -- looking ----------------------------------------------------------------------------

    def step_at(self, at_s: float) -> int:
        """Steps done at ``at_s``, which lies between its last transition and its next."""
        if self.phase is not Phase.STEPPING:
            return self.step
        stepping_s = self.stepped_s + max(0.0, at_s - self.stepping_since_s)
        return self._step_after(stepping_s)

    def next_at_s(self) -> float | None:
        """When its next transition is due; ``None`` = it waits for others or is over."""
        if self.phase in (Phase.STARTING, Phase.SAVING):
            return self.phase_ends_at_s
        if self.phase is Phase.STEPPING:
            return min(self._due_while_stepping())
        return None

    def next_observable_at_s(self) -> float | None:
        """When it finishes, or is done with an ordered save or stop; periodic saves pass by."""
        if self.phase is Phase.SAVING and (self.save_asked or self.stopping):
            return self.phase_ends_at_s
        if self.phase is Phase.STARTING and self.restored_step >= self.steps_total:
            return self.phase_ends_at_s
        if self.phase is Phase.STARTING and self.phase_ends_at_s is not None:
            return self._finish_from(self.phase_ends_at_s)[0]
        if self.phase is Phase.SAVING and self.finish_at_s is None:
            assert self.phase_ends_at_s is not None
            return self._finish_from(self.phase_ends_at_s)[0]
        if self.phase is Phase.STEPPING:
            return min(self._due_while_stepping()[:2])
        return self.finish_at_s if self.phase is Phase.SAVING else None

    # -- orders -----------------------------------------------------------------------------

    def begin(self, at_s: float, restored_step: int) -> list[Happening]:
        """Its machines are there: start and restore."""
        self.phase = Phase.STARTING
        self.began_at_s = at_s
        self.restored_step = self.step = self.safe_step = restored_step
        self.phase_ends_at_s = at_s + self.terms.restore_s
        return [Happening.STARTED]

    def ask_save(self, at_s: float, sequence: int) -> None:
        """Save as soon as possible; done at once where nothing is unsaved."""
        if self.over or sequence <= self.sequence_asked:
            return
        self.sequence_asked = sequence
        if self.phase is Phase.STEPPING and self.step_at(at_s) > self.safe_step:
            self._save(at_s)
            self.save_asked = True
        elif self.phase is Phase.SAVING:
            self.save_asked = True
        else:
            self.sequence_done = sequence

    def ask_stop(self, at_s: float, *, save: bool) -> list[Happening]:
        """Save (unless told not to) and stop; at once where nothing is unsaved."""
        if self.over:
            return []
        self.stopping, self.stop_saves = True, save
        self._freeze(at_s)
        if not save or self.phase in (Phase.WAITING, Phase.STARTING):
            return self._stop()
        if self.phase is Phase.SAVING:
            return []
        if self.step <= self.safe_step:
            return self._stop()
        self._save(at_s)
        return []

    def ask_run(self, at_s: float) -> None:
        """Take back a stop that has not been carried out."""
        if self.over:
            return
        self.stopping = False
        if self.phase is Phase.HOLDING:
            self._go_on(at_s)

    def notice(self, at_s: float, ends_at_s: float) -> None:
        """Its machine will be taken: save if that fits in."""
        if self.phase is not Phase.STEPPING or self.step_at(at_s) <= self.safe_step:
            return
        if at_s + self.terms.save_s <= ends_at_s + _TINY_S:
            self._save(at_s)
            assert self.phase_ends_at_s is not None
            self.phase_ends_at_s = min(self.phase_ends_at_s, ends_at_s)

    def lose(self, at_s: float, why: str) -> list[Happening]:
        """Its machine, or one of its gang's, is gone, or its orders are."""
        if self.over:
            return []
        self._freeze(at_s)
        self.phase = Phase.LOST
        self.error = why
        return [Happening.LOST]

    def refuse(self, why: str) -> list[Happening]:
        """End it before it began."""
        self.phase = Phase.STOPPED
        self.error = why
        return [Happening.STOPPED]

    # -- time -------------------------------------------------------------------------------

    def transit(self) -> list[Happening]:
        """Carry out the transition that is due next (``next_at_s``)."""
        at_s = self.next_at_s()
        assert at_s is not None
        if self.phase is Phase.STARTING:
            if self.failure is not None and self.failure.after_step is None:
                return self._exit(self.failure)
            if self.step >= self.steps_total:
                return self._finish()
            self._go_on(at_s)
            return [Happening.STEPPING]
        if self.phase is Phase.SAVING:
            return self._saved(at_s)
        failure_at_s, finish_at_s, _periodic = self._due_while_stepping()
        if failure_at_s <= min(at_s, finish_at_s):
            assert self.failure is not None
            self.step = max(self.step, self.failure.after_step or 0)
            return self._exit(self.failure)
        if finish_at_s <= at_s:
            return self._finish()
        self.periodic_left -= 1
        self._hold(self.period_began_s + self.period_s, at_s)
        self.save_asked = False
        return []

    # -- inside -----------------------------------------------------------------------------

    def _due_while_stepping(self) -> Sequence[float]:
        """Instants of a failure, of the finish and of the next periodic save (or infinity)."""
        assert self.finish_at_s is not None
        failure_at_s = periodic_at_s = math.inf
        if self.failure is not None:
            ended_in = min((self.failure.after_step or 0) + 1, self.steps_total)
            stepping_s = (ended_in - self.restored_step) / self.terms.steps_per_s
            failure_at_s = self.stepping_since_s + max(0.0, stepping_s - self.stepped_s)
        if self.periodic_left > 0:
            stepping_s = self.period_began_s + self.period_s
            periodic_at_s = self.stepping_since_s + max(0.0, stepping_s - self.stepped_s)
        return failure_at_s, self.finish_at_s, periodic_at_s

    def _step_after(self, stepping_s: float) -> int:
        done = math.floor(self.terms.steps_per_s * stepping_s + _TINY_STEPS)
        # The last step belongs to the finish, whatever rounding says just before it.
        return max(self.step, min(self.restored_step + done, self.steps_total - 1))

    def _freeze(self, at_s: float) -> None:
        """Count the steps up to now into the state."""
        if self.phase is Phase.STEPPING:
            stepping_s = self.stepped_s + max(0.0, at_s - self.stepping_since_s)
            self.step = self._step_after(stepping_s)
            self.stepped_s = stepping_s
            self.stepping_since_s = at_s
            self.finish_at_s = None

    def _save(self, at_s: float) -> None:
        """Hold for a save that the plan ahead did not know of."""
        self._freeze(at_s)
        self._hold(self.stepped_s, at_s)
        self.finish_at_s = None

    def _hold(self, stepping_s: float, at_s: float) -> None:
        self.step = self._step_after(stepping_s)
        self.stepped_s = self.period_began_s = stepping_s
        self.phase = Phase.SAVING
        self.phase_ends_at_s = at_s + self.terms.save_s

    def _saved(self, at_s: float) -> list[Happening]:
        if self.fenced_by is not None:
            self.save_error = f"attempt {self.fenced_by} has taken over"
        elif self.step in self.refused_saves:
            self.save_error = self.refusal or "the save failed"
        else:
            self.save_error = None
            self.saved_step = self.safe_step = dict(self.weaker_saves).get(self.step, self.step)
            self.commits += 1
        self.sequence_done = self.sequence_asked
        self.save_asked = False
        happened = [Happening.COMMITTED if self.save_error is None else Happening.SAVE_FAILED]
        if self.failure is not None and self.failure.after_step == self.step:
            # It ended while saving, or right after.
            return happened + self._exit(self.failure)
        if not self.stopping:
            self._go_on(at_s)
        elif self.save_error is None or not self.stop_saves:
            happened += self._stop()
        else:
            self.phase = Phase.HOLDING
            self.phase_ends_at_s = None
        return happened

    def _go_on(self, at_s: float) -> None:
        if self.finish_at_s is None:
            self.finish_at_s, self.periodic_left = self._finish_from(at_s)
        self.phase = Phase.STEPPING
        self.phase_ends_at_s = None
        self.stepping_since_s = at_s

    def _finish_from(self, at_s: float) -> tuple[float, int]:
        """Instant of the finish when stepping goes on at ``at_s``; periodic saves before it."""
        whole_s = (self.steps_total - self.restored_step) / self.terms.steps_per_s
        ahead_s = whole_s - _TINY_S - self.period_began_s
        saves = max(0, math.ceil(ahead_s / self.period_s) - 1)
        return at_s + max(0.0, whole_s - self.stepped_s) + saves * self.terms.save_s, saves

    def _stop(self) -> list[Happening]:
        self.phase = Phase.STOPPED
        self.phase_ends_at_s = None
        self.sequence_done = self.sequence_asked
        return [Happening.STOPPED]

    def _finish(self) -> list[Happening]:
        if self.failure is not None:
            return self._exit(self.failure)
        self.step = self.steps_total
        return self._exit(Failure(after_step=None, exit_code=0))

    def _exit(self, failure: Failure) -> list[Happening]:
        self.phase = Phase.EXITED
        self.phase_ends_at_s = None
        self.sequence_done = self.sequence_asked
        self.exit_code, self.error = failure.exit_code, failure.error
        if self.step >= self.steps_total and failure.exit_code == 0 and self.fenced_by is None:
            # A job that is through has its final state kept: nothing of it can be lost.
            self.commits += 1 if self.step > self.safe_step else 0
            self.saved_step = self.safe_step = self.step
            return [Happening.COMMITTED, Happening.EXITED]
        return [Happening.EXITED]
