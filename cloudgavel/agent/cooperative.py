"""A script that imports ``cloudgavel.training``: governed through its control directory."""

import os
import shutil
import signal
from dataclasses import replace

from cloudgavel.agent.job import JobAttempt, Surroundings
from cloudgavel.messages.control import (
    SAVES_DIRECTORY,
    STOPPED_EXIT_CODE,
    WAKE_SCRIPT_PIPE,
    Control,
    Progress,
    make_pipe,
    watch_progress,
    write_control,
)
from cloudgavel.messages.orders import JobOrder
from cloudgavel.messages.report import ProcessState

BARE_STOP_S = 1.0
"""How long a script that could not save gets to end by itself, before SIGTERM."""


class CooperativeAttempt(JobAttempt):
    """Grants, saves and stops are written to ``control.json``; ``progress.json`` answers.

    Ordered to stop, a script has ``grace_s`` to reach a step boundary (time spent saving does not
    count; a failed save is tried again meanwhile); then it may stop without saving, then comes
    SIGTERM, and after another ``grace_s`` SIGKILL. One that never reported is sent SIGTERM at
    once: it has done nothing yet.
    """

    def __init__(self, order: JobOrder, around: Surroundings) -> None:
        self._control = Control(number=0, agent_pid=os.getpid())
        self._progress: Progress | None = None
        self._handled_save = 0
        self._next_background_s: float | None = None
        self._stop_deadline_s: float | None = None
        self._stop_stage = 0
        self._committing_number = 0
        super().__init__(order, around)
        self._progress_file = watch_progress(self.control_dir)
        pipe = make_pipe(self.control_dir / WAKE_SCRIPT_PIPE)
        if pipe is not None:
            os.close(pipe)

    def apply(self, order: JobOrder) -> None:
        """Take a newer order; it is in the control file when this returns."""
        super().apply(order)
        self._write()

    def stop(self, *, save: bool, grace_s: float | None = None) -> None:
        """End, whatever the order says."""
        super().stop(save=save, grace_s=grace_s)
        self._write()

    def save_soon(self, now_s: float) -> None:
        """Let the next periodic save be due."""
        self._next_background_s = now_s

    def extra_environment(self) -> dict[str, str]:
        """Tell the script where its control directory and the agent's pipe are."""
        return {
            "CLOUDGAVEL_CONTROL_DIR": str(self.control_dir),
            "CLOUDGAVEL_WAKE_PIPE": str(self.around.wake_pipe),
        }

    def launch(self) -> None:
        """Start at once: the script itself waits for its grant."""
        self._write()
        self.start_process()

    def follow(self, now_s: float) -> None:
        """Read progress, commit saves that were handed over, see to stop and end."""
        process = self.process
        if process is None:
            return
        exit_code = process.exit_code()
        self._look()
        if self.commit_finished():
            self._acknowledge()
        self._take_over_save()
        if exit_code is not None:
            if not self.committing:
                self._ended(exit_code)
        else:
            self._ask_for_periodic_save(now_s)
            self._see_to_stop(now_s)

    def live_state(self) -> ProcessState:
        """PAUSED only once the script has seen the newest control and has nothing left to do."""
        progress = self._progress
        if progress is None:
            return ProcessState.STARTING
        if self.committing or progress.state == "saving":
            return ProcessState.SAVING
        settled = progress.control_seen == self._control.number
        if progress.state == "paused" and settled and not self.stop_wanted:
            return ProcessState.PAUSED
        return ProcessState.RUNNING

    def sequence_done(self) -> int:
        """Return what the script says it has dealt with."""
        return self._progress.save_sequence_done if self._progress else 0

    def save_error(self) -> str | None:
        """Return the script's own error or that of the last commit."""
        own = self._progress.save_error if self._progress else None
        return self.commit_error or own

    def _write(self, **changes: object) -> None:
        order = self.order
        wanted = replace(
            self._control,
            run_to_step=order.run_to_step,
            save_at_steps=order.save_at_steps,
            save_sequence=order.save_sequence,
            stop=self.stop_wanted,
            save_before_stop=self.save_before_stop and self._stop_stage == 0,
            **changes,  # type: ignore[arg-type]
        )
        if wanted != self._control or wanted.number == 0:
            self._control = replace(wanted, number=self._control.number + 1)
            write_control(self.control_dir, self._control)

    def _look(self) -> None:
        found = self._progress_file.look()
        if found is not None:
            self._progress = found
            self.step = max(self.step, found.step)
            self.loss = found.loss

    def _take_over_save(self) -> None:
        progress = self._progress
        if progress is None or self.committing or progress.save_step is None:
            return
        if progress.save_number > self._handled_save:
            self._committing_number = progress.save_number
            self.begin_commit(
                progress.save_step, self.control_dir / SAVES_DIRECTORY / str(progress.save_number)
            )

    def _acknowledge(self) -> None:
        self._handled_save = number = self._committing_number
        self._write(save_done=number, save_error=self.commit_error)
        shutil.rmtree(self.control_dir / SAVES_DIRECTORY / str(number), ignore_errors=True)

    def _ask_for_periodic_save(self, now_s: float) -> None:
        every_s = self.order.save_every_s
        if every_s is None or not self.saves_here or self._progress is None:
            return
        if self._next_background_s is None:
            self._next_background_s = now_s + every_s
        elif now_s >= self._next_background_s:
            self._next_background_s = now_s + every_s
            self._write(background_save_sequence=self._control.background_save_sequence + 1)

    def _see_to_stop(self, now_s: float) -> None:
        """Escalate: asked -> asked without saving -> SIGTERM -> SIGKILL."""
        process, progress, grace_s = self.process, self._progress, self.grace_s
        if process is None:
            return
        if not self.stop_wanted:
            if self._stop_stage == 1:
                self._stop_stage = 0
            if self._stop_stage == 0:
                self._stop_deadline_s = None
                self._write()
                return
        if self._stop_deadline_s is None:
            self._stop_deadline_s = now_s + grace_s
        saving = progress is not None and progress.state == "saving" and not progress.save_error
        if self._stop_stage == 0:
            if progress is None:
                self._stop_stage, self._stop_deadline_s = 2, now_s + grace_s
                process.signal(signal.SIGTERM)
            elif self.committing or saving:
                self._stop_deadline_s = now_s + grace_s
            elif now_s >= self._stop_deadline_s:
                self._stop_stage = 1
                self._stop_deadline_s = now_s + min(BARE_STOP_S, grace_s)
                self._write()
        elif now_s >= self._stop_deadline_s:
            self._stop_deadline_s = now_s + grace_s
            if self._stop_stage == 1:
                self._stop_stage = 2
                process.signal(signal.SIGTERM)
            else:
                process.kill_all()

    def _ended(self, exit_code: int) -> None:
        progress = self._progress
        finished = exit_code == 0 and self.step >= self.order.steps_total
        stopped_itself = (
            exit_code == STOPPED_EXIT_CODE and progress is not None and progress.state == "stopped"
        )
        self._progress_file.close()
        if (self.stop_wanted and not finished) or stopped_itself:
            self.finish(ProcessState.STOPPED, exit_code)
        else:
            self.finish(ProcessState.EXITED, exit_code)
