"""The script's side of the control directory: what happens at each step boundary."""

import contextlib
import json
import math
import os
import select
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from cloudgavel.messages.control import (
    CONTROL_FILE,
    SAVES_DIRECTORY,
    STEP_FILE,
    STOPPED_EXIT_CODE,
    WAKE_SCRIPT_PIPE,
    Control,
    Progress,
    drain,
    open_pipe,
    wake,
    watch_control,
    write_progress,
)

LOOK_EVERY_S = 0.005
"""While steps run: real seconds between two looks at the control file."""
PUBLISH_EVERY_S = 0.05
"""While steps run: real seconds between two progress files."""
FIRST_WAIT_S, LAST_WAIT_S = 0.002, 0.1
RETRY_SAVE_EVERY_S = 1.0
ALIVE_EVERY_S = 1.0

NO_SAVE_FUNCTION = "the script gave training.steps no save function"


class GovernedLoop:
    """Keeps a loop within what its agent's ``control.json`` allows.

    Laws: a step is begun only if it is below the newest *known* grant; at a step listed in
    ``save_at_steps`` and on a raised ``save_sequence`` the loop goes on only after the agent has
    dealt with the save; a save directory takes its name only when it is complete.
    ``monotonic`` and ``wait`` (seconds) are arguments for tests.
    """

    def __init__(
        self,
        directory: Path,
        *,
        total: int,
        first: int = 0,
        save: Callable[[Path], object] | None = None,
        saves_here: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] | None = None,
    ) -> None:
        self.loss: float | None = None
        self._directory = directory
        self._total = total
        self._save_function = save
        self._saves_here = saves_here
        self._monotonic = monotonic
        self._pipe = open_pipe(directory / WAKE_SCRIPT_PIPE)
        self._agent_pipe = os.environ.get("CLOUDGAVEL_WAKE_PIPE")
        self._wait_s = wait or self._wait_on_pipe
        self._control_file = watch_control(directory)
        found = self._control_file.look()
        if found is None:
            raise RuntimeError(f"{directory / CONTROL_FILE} cannot be read")
        self._control: Control = found
        self._step = first
        self._committed_step = first
        """The state at this step is safe: it was restored, committed, or is the beginning."""
        self._exact_tried_step = first
        self._final_tried = False
        self._sequence_done = 0
        self._background_done = 0
        self._save_number = 0
        self._save_step: int | None = None
        self._save_error: str | None = None
        self._unacknowledged: int | None = None
        self._published: Progress | None = None
        now = monotonic()
        self._barrier = first
        self._look_at = self._publish_at = now
        self._alive_at = now
        self._retry_at = -math.inf

    def settle(self, step: int) -> bool:
        """Call with the steps done so far; return whether the next one may begin.

        Returns at once in the common case; waits while the grant is used up. ``False`` = all
        steps are done (and saved). Raises ``SystemExit(75)`` when stopped on order or orphaned.
        """
        if step < self._barrier and self._monotonic() < self._look_at:
            self._step = step
            return True
        self._step = step
        pause_s = FIRST_WAIT_S
        while True:
            number = self._control.number
            self._look()
            if self._control.number != number:
                pause_s = FIRST_WAIT_S
            if self._save_if_due():
                continue
            control = self._control
            if step >= self._total:
                self._publish("finished")
                return False
            if control.stop and self._may_stop():
                self._end()
            if not control.stop and (control.run_to_step is None or step < control.run_to_step):
                self._go_on()
                return True
            # A stop that waits for a save that fails: still saving, with the reason told.
            unsaved = control.stop and self._save_error is not None
            self._publish("saving" if unsaved else "paused")
            self._wait_s(pause_s)
            pause_s = min(pause_s * 1.5, LAST_WAIT_S)

    def _go_on(self) -> None:
        now = self._monotonic()
        control = self._control
        later = [save for save in control.save_at_steps if save > self._step]
        limits = [self._total, *later]
        if control.run_to_step is not None:
            limits.append(control.run_to_step)
        self._barrier = min(limits)
        self._look_at = now + LOOK_EVERY_S
        self._retry_at = -math.inf
        if now >= self._publish_at:
            self._publish("running")
            self._publish_at = now + PUBLISH_EVERY_S

    def _look(self) -> None:
        now = self._monotonic()
        found = self._control_file.look()
        if found is not None and found.number >= self._control.number:
            self._control = found
        unacknowledged = self._unacknowledged
        if unacknowledged is not None and self._control.save_done >= unacknowledged:
            self._unacknowledged = None
            self._save_error = self._control.save_error
            if self._save_error is None and self._save_step is not None:
                self._committed_step = self._save_step
        if now >= self._alive_at:
            self._alive_at = now + ALIVE_EVERY_S
            if not _is_alive(self._control.agent_pid):
                # Nobody is left who could commit a save: every further step would be lost.
                self._end()

    def _save_if_due(self) -> bool:
        """Save if something asks for it now; return whether anything was done about it."""
        control = self._control
        step = self._step
        if not self._saves_here:
            self._sequence_done = control.save_sequence
            return False
        exact = step in control.save_at_steps and self._exact_tried_step != step
        ordered = control.save_sequence > self._sequence_done
        unwanted = control.stop and not control.save_before_stop
        final = step >= self._total and not self._final_tried and not unwanted
        if exact or ordered or final:
            self._exact_tried_step = step
            self._final_tried = step >= self._total
            self._background_done = control.background_save_sequence
            self._save(step, wait_for_commit=True)
            self._sequence_done = max(self._sequence_done, control.save_sequence)
            self._publish_at = self._monotonic()
            return True
        background = control.background_save_sequence > self._background_done
        if background and self._unacknowledged is None and not control.stop:
            self._background_done = control.background_save_sequence
            self._save(step, wait_for_commit=False)
        return False

    def _may_stop(self) -> bool:
        """Whether the loop may end now: saved, or told not to; tries to save first."""
        if not self._control.save_before_stop or not self._saves_here:
            return True
        if self._save_function is None:
            self._save_error = NO_SAVE_FUNCTION
            return True
        if self._committed_step != self._step and self._monotonic() >= self._retry_at:
            self._save(self._step, wait_for_commit=True)
            self._retry_at = self._monotonic() + RETRY_SAVE_EVERY_S
        return self._committed_step == self._step and self._control.stop

    def _save(self, step: int, *, wait_for_commit: bool) -> None:
        self._await_commit()
        if self._committed_step == step:
            self._save_error = None
            return
        if self._save_function is None:
            self._save_error = NO_SAVE_FUNCTION
            self._publish("saving")
            return
        number = self._save_number + 1
        final = self._directory / SAVES_DIRECTORY / str(number)
        partial = final.with_name(f"{number}.partial")
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            self._save_function(partial)
            (partial / STEP_FILE).write_text(json.dumps({"step": step}))
            os.replace(partial, final)
        except Exception as error:
            shutil.rmtree(partial, ignore_errors=True)
            self._save_error = f"{type(error).__name__}: {error}"
            self._publish("saving")
            return
        self._save_number = self._unacknowledged = number
        self._save_step = step
        if wait_for_commit:
            self._await_commit()
        else:
            self._publish("running")

    def _await_commit(self) -> None:
        if self._unacknowledged is None:
            return
        self._publish("saving")
        pause_s = FIRST_WAIT_S
        while self._unacknowledged is not None:
            self._wait_s(pause_s)
            pause_s = min(pause_s * 1.5, LAST_WAIT_S)
            self._look()
            if self._control.stop and not self._control.save_before_stop:
                return

    def _end(self) -> None:
        self._publish("stopped")
        raise SystemExit(STOPPED_EXIT_CODE)

    def _publish(self, state: str) -> None:
        progress = Progress(
            pid=os.getpid(),
            control_seen=self._control.number,
            step=self._step,
            state=state,
            loss=self.loss,
            save_number=self._save_number,
            save_step=self._save_step,
            save_sequence_done=self._sequence_done,
            save_error=self._save_error,
        )
        if progress == self._published:
            return
        # A full disk must not end the training: the agent sees an older progress meanwhile.
        with contextlib.suppress(OSError):
            write_progress(self._directory, progress)
            self._published = progress
            if state != "running" and self._agent_pipe:
                wake(Path(self._agent_pipe))

    def _wait_on_pipe(self, timeout_s: float) -> None:
        if self._pipe is None:
            time.sleep(timeout_s)
        elif select.select([self._pipe], [], [], timeout_s)[0]:
            drain(self._pipe)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
