"""A script that knows nothing of cloudgavel: governed by signals, read by its output."""

import os
import shutil
import time
from collections import deque
from pathlib import Path

from cloudgavel.agent.job import JobAttempt, Phase, Surroundings
from cloudgavel.agent.output import OutputPattern
from cloudgavel.agent.workspace import directory_signature
from cloudgavel.messages.control import SAVES_DIRECTORY
from cloudgavel.messages.orders import JobOrder
from cloudgavel.messages.report import ProcessState

Signature = tuple[tuple[str, int, int], ...]
GRANTED_LOOK_S = 0.005
_HISTORY = 4096


class SignalledAttempt(JobAttempt):
    """Progress by ``progress_pattern``; grants by SIGSTOP; saves by SIGTERM and a new start.

    Such a script cannot be held at an exact step: it is held as soon as its output shows the
    granted one, and the step reported and committed never exceeds the grant, so the story told
    does not depend on how far it ran over. For the same reason an end with 0 counts only once the
    grant covers all steps.

    A save that was ordered (or is due at a step) ends the process (SIGTERM, ``grace_s``,
    SIGKILL), takes its checkpoint directory, and starts it again when there is a grant. A script
    that does not write on SIGTERM is not ended again for a save: its directory is collected as it
    is, for the step that its output had reached when the newest file was written. Periodic saves
    always collect, and only a directory that did not change while it was copied.
    """

    def __init__(self, order: JobOrder, around: Surroundings) -> None:
        self._real_step = 0
        self._seen: deque[tuple[int, int]] = deque(maxlen=_HISTORY)
        """(wall time in ns, real step) as the output was read."""
        self._ending: str | None = None
        self._end_deadline_s = 0.0
        self._before_end: Signature = ()
        self._writes_on_sigterm = True
        self._tried_save_step = 0
        self._sequence_done = 0
        self._sequence_running = 0
        self._ended_well = False
        self._unsaved = False
        """Whether the output showed a step since the last start or save."""
        self._kept_real_step = 0
        """Real step of what the directory holds, as far as is known."""
        self._committed: Signature = ()
        self._next_collect_s: float | None = None
        self._after_commit: str | None = None
        self._own_error: str | None = None
        super().__init__(order, around)
        self._pattern = OutputPattern(order.progress_pattern or "", self.log_path)

    @property
    def look_every_s(self) -> float | None:
        """Often while a grant is to be kept: only looking shows that it is used up."""
        granted = self.order.run_to_step is not None
        return super().look_every_s and (GRANTED_LOOK_S if granted else self.running_look_s)

    def launch(self) -> None:
        """Start, unless the grant is used up by what is restored."""
        self._real_step = self._tried_save_step = self.restored_step
        self._committed = directory_signature(self.checkpoint_dir)
        self._start_if_granted()

    def follow(self, now_s: float) -> None:
        """Hold, resume, save, collect, end: whatever is next."""
        self._read_output()
        if self.committing:
            if not self.commit_finished():
                self._hold_at_grant()
                return
            self._committed_or_not()
        if self.phase is not Phase.LIVE:
            return
        if self.process is None:
            self._between_processes()
            return
        exit_code = self.process.exit_code()
        gone = exit_code is not None and not (self._ending and self.process.group_lives())
        if exit_code is not None and gone:
            self._process_ended(exit_code)
        elif self._ending is not None:
            if now_s >= self._end_deadline_s:
                self.process.kill_all()
        elif self.stop_wanted:
            self._begin_end("stop", now_s)
        elif self._save_due():
            self._begin_save(now_s)
        else:
            self._hold_at_grant()
            self._collect_periodically(now_s)

    def live_state(self) -> ProcessState:
        """PAUSED once the capped step is the grant and nothing is left to do."""
        if self._ending is not None or self._after_commit is not None:
            return ProcessState.SAVING if self.save_before_stop else ProcessState.RUNNING
        granted = self.order.run_to_step
        if self._save_due() or self.stop_wanted:
            return ProcessState.RUNNING
        if granted is not None and self.step >= granted and not self._grants_all:
            return ProcessState.PAUSED
        if self.process is None or self._real_step == self.restored_step:
            return ProcessState.STARTING
        return ProcessState.RUNNING

    def sequence_done(self) -> int:
        """Highest ``save_sequence`` whose save was tried."""
        return self._sequence_done

    def save_error(self) -> str | None:
        """Return why the last save failed: the store's reason, or that nothing was written."""
        return self.commit_error or self._own_error

    def apply(self, order: JobOrder) -> None:
        """Take a newer order; grants and saves take effect at the next tick."""
        super().apply(order)
        if not self.saves_here:
            self._sequence_done = order.save_sequence
        if self.phase is Phase.LIVE:
            self._cap()

    def save_soon(self, now_s: float) -> None:
        """Let the next periodic collection be due."""
        self._next_collect_s = now_s

    # ---- steps and grants

    @property
    def _grants_all(self) -> bool:
        granted = self.order.run_to_step
        return granted is None or granted >= self.order.steps_total

    @property
    def _next_save_step(self) -> int | None:
        later = [step for step in self.order.save_at_steps if step > self._tried_save_step]
        return min(later) if later and self.saves_here else None

    def _cap(self) -> None:
        """Set the step to tell: what the output shows, but not past the grant or a due save."""
        limits = [self.order.steps_total, self._real_step]
        if self.order.run_to_step is not None:
            limits.append(self.order.run_to_step)
        due = self._next_save_step
        if due is not None:
            limits.append(due)
        self.step = max(self.step, min(limits))

    def _read_output(self) -> None:
        found = self._pattern.newest_step()
        if found is not None and found != self._real_step:
            self._real_step = found
            self._unsaved = True
            self._seen.append((time.time_ns(), found))
            self._cap()

    def _hold_at_grant(self) -> None:
        if self.process is None or self._ending is not None:
            return
        granted, due = self.order.run_to_step, self._next_save_step
        used_up = granted is not None and self._real_step >= granted and not self._grants_all
        if used_up or (due is not None and self._real_step >= due):
            self.process.suspend()
        else:
            self.process.resume()

    def _start_if_granted(self) -> None:
        granted = self.order.run_to_step
        if granted is None or granted > self.step or granted >= self.order.steps_total:
            self.start_process()

    def _between_processes(self) -> None:
        if self.stop_wanted:
            if self.save_before_stop and self._claims_too_little:
                self._begin_commit_of(self.step, "stop")
            else:
                self.finish(ProcessState.STOPPED, None)
        elif self._ended_well:
            if self._grants_all:
                self._complete_job()
            elif self._save_due():
                self._sequence_running = self.order.save_sequence
                self._begin_commit_of(self.step, "save")
        elif self._save_due():
            # No process ran since the last save: what the directory holds is what there is.
            self._sequence_running = self.order.save_sequence
            self._save_what_is_there()
        else:
            self._start_if_granted()

    # ---- saves and ends

    def _save_due(self) -> bool:
        if not self.saves_here:
            return False
        due = self._next_save_step
        ordered = self.order.save_sequence > self._sequence_done
        return ordered or (due is not None and self._real_step >= due)

    def _mark_save_tried(self) -> None:
        due = self._next_save_step
        if due is not None and self._real_step >= due:
            self._tried_save_step = due
        self._sequence_done = max(self._sequence_done, self._sequence_running)
        self._cap()

    @property
    def _claims_too_little(self) -> bool:
        """Whether the directory holds more steps than the newest commit of it was allowed to claim.

        The script ran over a grant before it was held; the grant has grown since.
        """
        safe = max(self.saved_step or 0, self.restored_step)
        return self.saves_here and safe < self.step <= self._kept_real_step

    def _save_what_is_there(self) -> None:
        if self._claims_too_little:
            self._begin_commit_of(self.step, "save")
        else:
            self._mark_save_tried()

    def _begin_save(self, now_s: float) -> None:
        self._sequence_running = self.order.save_sequence
        if not self._unsaved:
            self._save_what_is_there()
        elif self._writes_on_sigterm:
            self._begin_end("save", now_s)
        else:
            self._collect()

    def _begin_end(self, why: str, now_s: float) -> None:
        if self.process is None:
            return
        self._ending = why
        self._end_deadline_s = now_s + self.grace_s
        self._before_end = directory_signature(self.checkpoint_dir)
        self.process.ask_to_end()

    def _process_ended(self, exit_code: int) -> None:
        if self.process is not None:
            self.process.kill_all()
        self.process = None
        self._read_output()
        ending, self._ending = self._ending, None
        if ending is None:
            if exit_code != 0:
                state = ProcessState.STOPPED if self.stop_wanted else ProcessState.EXITED
                self.finish(state, exit_code)
                return
            self._ended_well = True
            self._kept_real_step = self._real_step
            self._cap()
            if self.stop_wanted and not self._grants_all:
                self._save_then("stop")
            return
        if not self._unsaved:
            if self._claims_too_little and (ending == "save" or self.save_before_stop):
                self._begin_commit_of(self.step, ending)
            else:
                self._after_commit = ending
                self._committed_or_not()
            return
        changed = directory_signature(self.checkpoint_dir) != self._before_end
        if changed:
            self._kept_real_step = self._real_step
        else:
            self._writes_on_sigterm = False
        self._save_then(ending, step=None if changed else self._step_of_newest_file())

    def _save_then(self, after: str, *, step: int | None = None) -> None:
        """Commit the directory of an ended process (if it is to be), then stop or go on."""
        wanted = self.saves_here and self._unsaved and (after == "save" or self.save_before_stop)
        if not wanted:
            self._after_commit = after
            self._committed_or_not()
            return
        self._begin_commit_of(self.step if step is None else step, after)

    def _begin_commit_of(self, step: int, after: str) -> None:
        signature = directory_signature(self.checkpoint_dir)
        self._after_commit = after
        if not signature:
            self._own_error = (
                f"the script wrote nothing into {self.order.checkpoint_path} when told to end"
            )
            self._committed_or_not()
        elif signature == self._committed and self.saved_step == step:
            self._own_error = None
            self._committed_or_not()
        else:
            self._committed = signature
            self._own_error = None
            self._unsaved = False
            self.begin_commit(min(step, self.step), self.checkpoint_dir)

    def _committed_or_not(self) -> None:
        """Take up what waited for a commit: it worked, failed, or was not wanted."""
        shutil.rmtree(self._staging, ignore_errors=True)
        if self.commit_error is not None:
            self._committed = ()
        after, self._after_commit = self._after_commit, None
        if after == "stop":
            self.finish(ProcessState.STOPPED, None)
        elif after == "complete":
            self.finish(ProcessState.EXITED, 0)
        elif after == "save":
            self._mark_save_tried()
            if self.process is None and not self._ended_well and not self.stop_wanted:
                self._start_if_granted()

    def _complete_job(self) -> None:
        self._cap()
        signature = directory_signature(self.checkpoint_dir)
        safe = signature == self._committed and self.saved_step == self.step
        if self.saves_here and signature and not safe:
            self._begin_commit_of(self.step, "complete")
        else:
            self.finish(ProcessState.EXITED, 0)

    # ---- collecting without ending

    @property
    def _staging(self) -> Path:
        return self.control_dir / SAVES_DIRECTORY / "collected"

    def _collect_periodically(self, now_s: float) -> None:
        every_s = self.order.save_every_s
        if every_s is None or not self.saves_here:
            return
        if self._next_collect_s is None:
            self._next_collect_s = now_s + every_s
        elif now_s >= self._next_collect_s:
            self._next_collect_s = now_s + every_s
            self._collect()

    def _collect(self) -> None:
        """Commit a copy of the directory as it is, if it is complete and new."""
        before = directory_signature(self.checkpoint_dir)
        ordered = self._sequence_running > self._sequence_done
        if not before or before == self._committed:
            if ordered or self._save_due():
                self._mark_save_tried()
            return
        shutil.rmtree(self._staging, ignore_errors=True)
        try:
            shutil.copytree(self.checkpoint_dir, self._staging)
        except (OSError, shutil.Error):
            return  # it is being written right now: the next look comes soon
        if directory_signature(self.checkpoint_dir) != before:
            return
        self._committed = before
        self._after_commit = "save" if ordered or self._save_due() else None
        self.begin_commit(self._step_of_newest_file(), self._staging)

    def _step_of_newest_file(self) -> int:
        """Step shown by the output when the newest file was written; at least the restored one."""
        written_ns = max((item[2] for item in directory_signature(self.checkpoint_dir)), default=0)
        known = [step for at_ns, step in self._seen if at_ns <= written_ns]
        return max(self.restored_step, min(known[-1], self.step) if known else 0)


def is_signalled(order: JobOrder) -> bool:
    """Whether the order is for a script that is followed by its output."""
    return order.progress_pattern is not None


def attempt_for(order: JobOrder, around: Surroundings) -> JobAttempt:
    """Begin an attempt of the right kind; raises ``ValueError`` for a pattern that is none."""
    from cloudgavel.agent.cooperative import CooperativeAttempt

    if is_signalled(order):
        OutputPattern(order.progress_pattern or "", Path(os.devnull))
        return SignalledAttempt(order, around)
    return CooperativeAttempt(order, around)
