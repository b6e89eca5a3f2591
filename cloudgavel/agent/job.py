"""One attempt of one job on this machine, from its files to its last log line."""

import os
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

from cloudgavel.agent.environment import job_environment
from cloudgavel.agent.output import LogUpload, last_lines
from cloudgavel.agent.process import ProcessGroup
from cloudgavel.agent.workspace import SetupFailed, make_workdir
from cloudgavel.errors import CloudgavelError
from cloudgavel.messages.orders import JobOrder, Verb
from cloudgavel.messages.report import JobReport, ProcessState
from cloudgavel.objects.manifest import (
    FencedError,
    Manifest,
    commit_checkpoint,
    prune_checkpoints,
    raise_fence,
    restore_newest,
)
from cloudgavel.objects.store import ObjectStore, StoreUnreachable

KEPT_CHECKPOINTS = 2
LOG_UPLOAD_EVERY_S = (1.0, 10.0)
"""Pause between two uploads of the log: the first of these at the start, growing to the second."""
LOG_UPLOAD_AGE_SHARE = 0.02
LOG_UPLOAD_BYTES = 64 * 1024
RESTORE_TRIES = 3
RATE_WINDOW_S = 2.0

_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What an attempt needs of its agent."""

    store: ObjectStore
    scratch: Path
    wake_pipe: Path
    environment: Mapping[str, str]
    one_machine: bool
    submit: Callable[[Callable[[], object]], "Future[object]"]
    """Run in a thread, and wake the agent when done."""


class Phase(Enum):
    """How far an attempt is; each follows the one above."""

    PREPARING = "preparing"
    LIVE = "live"
    FINISHING = "finishing"
    ENDED = "ended"


class JobAttempt:
    """What both kinds of scripts have in common; see ``cooperative`` and ``signalled``.

    The agent's loop calls ``apply`` with each new order and ``tick`` often; neither blocks.
    Uploads, restores and set-up run in threads.
    """

    def __init__(self, order: JobOrder, around: Surroundings) -> None:
        self.order = order
        self.around = around
        name = f"attempt-{order.attempt:06d}"
        self.directory = around.scratch / "jobs" / order.job / name
        self.control_dir = self.directory / "control"
        self.workdir = self.directory / "work"
        self.checkpoint_dir = self.workdir / order.checkpoint_path
        self.log_path = self.directory / "output.log"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.control_dir.mkdir(parents=True)
        self.phase = Phase.PREPARING
        self.process: ProcessGroup | None = None
        self.step = 0
        self.restored_step = 0
        self.saved_step: int | None = None
        self.saved_bytes: int | None = None
        self.uploaded_bytes = 0
        self.downloaded_bytes = 0
        self.commit_error: str | None = None
        self.loss: float | None = None
        self._final: tuple[ProcessState, int | None, str | None] | None = None
        self._last_report: JobReport | None = None
        self._forced_stop: bool | None = None
        self._forced_grace_s: float | None = None
        self._setup_process: ProcessGroup | None = None
        self._cancelled = threading.Event()
        self._log = LogUpload(
            around.store,
            self.log_path,
            job=order.job,
            attempt=order.attempt,
            rank=order.rank,
        )
        self._log_upload: Future[object] | None = None
        self._log_at_s = 0.0
        self._log_from_s: float | None = None
        self._commit: Future[object] | None = None
        self._commit_step = 0
        self._rates: list[tuple[float, int]] = []
        self._preparation = around.submit(self._prepare)

    # ---- what the agent calls

    def apply(self, order: JobOrder) -> None:
        """Take a newer order for this same attempt."""
        self.order = order

    def stop(self, *, save: bool, grace_s: float | None = None) -> None:
        """End whatever the order says (notice, power-off, watchdog, the job is not ordered).

        ``grace_s`` is given instead of the order's: there is that long, no less and no more.
        """
        self._forced_stop = save
        if grace_s is not None:
            self._forced_grace_s = grace_s

    def save_soon(self, now_s: float) -> None:
        """Save now what would be saved periodically, and go on."""

    @property
    def ended(self) -> bool:
        """Whether nothing of the attempt is left to do."""
        return self.phase is Phase.ENDED

    @property
    def stop_wanted(self) -> bool:
        """Whether the attempt is to end."""
        return self._forced_stop is not None or self.order.verb is Verb.STOP

    @property
    def save_before_stop(self) -> bool:
        """Whether it is to save before it ends."""
        if self._forced_stop is not None:
            return self._forced_stop
        return self.order.save_before_stop

    @property
    def grace_s(self) -> float:
        """Seconds to end in after being asked to."""
        return self.order.grace_s if self._forced_grace_s is None else self._forced_grace_s

    @property
    def saves_here(self) -> bool:
        """Only the first member of a gang saves."""
        return self.order.rank == 0

    def tick(self, now_s: float) -> None:
        """Move on as far as possible without waiting; ``now_s`` is monotonic."""
        if self.phase is Phase.PREPARING:
            self._tick_preparation()
        if self.phase is Phase.LIVE:
            self.follow(now_s)
            self._measure(now_s)
            self._upload_log(now_s)
        if self.phase is Phase.FINISHING and self._done(self._log_upload):
            if self._log.pending_bytes and self._log_at_s >= 0:
                self._log_at_s = -1.0
                self._log_upload = self.around.submit(self._log.upload)
            else:
                self.phase = Phase.ENDED

    def report(self) -> JobReport:
        """Say how far the attempt is."""
        if self._last_report is not None and self.ended:
            return self._last_report
        state, exit_code, error = self._final or (self.live_state(), None, None)
        if self._final and not self.ended:
            state, exit_code = ProcessState.RUNNING, None
        if self.phase is Phase.PREPARING:
            state = ProcessState.STARTING
        report = JobReport(
            job=self.order.job,
            attempt=self.order.attempt,
            state=state,
            step=self.step,
            restored_step=self.restored_step,
            saved_step=self.saved_step,
            saved_bytes=self.saved_bytes,
            uploaded_bytes=self.uploaded_bytes,
            downloaded_bytes=self.downloaded_bytes,
            save_sequence_done=self.sequence_done(),
            save_error=self.save_error(),
            exit_code=exit_code,
            steps_per_s=self._steps_per_s(),
            loss=self.loss,
            last_lines=last_lines(self.log_path) if self.ended else (),
            error=error,
        )
        self._last_report = report if self.ended else None
        return report

    # ---- what each kind of script does in its own way

    def launch(self) -> None:
        """Begin to run: files, set-up and checkpoint are in place."""
        raise NotImplementedError

    def follow(self, now_s: float) -> None:
        """Follow progress, grants, saves and the end; called by ``tick`` while live."""
        raise NotImplementedError

    def live_state(self) -> ProcessState:
        """State while live."""
        raise NotImplementedError

    def sequence_done(self) -> int:
        """Highest ``save_sequence`` dealt with."""
        raise NotImplementedError

    def save_error(self) -> str | None:
        """Why the last save failed."""
        return self.commit_error

    def extra_environment(self) -> dict[str, str]:
        """Variables of this kind of script."""
        return {}

    @property
    def look_every_s(self) -> float | None:
        """Longest pause between two looks: something may change without waking the agent."""
        if self.phase is not Phase.LIVE or self.live_state() is ProcessState.PAUSED:
            return None
        return self.running_look_s

    running_look_s = 0.05

    # ---- for the kinds

    def start_process(self) -> None:
        """Start the command; a failure ends the attempt with its reason."""
        try:
            self.process = ProcessGroup(
                self.order.command,
                cwd=self.workdir,
                env=self._environment(self.checkpoint_dir),
                log_path=self.log_path,
            )
        except OSError as error:
            self.finish(ProcessState.EXITED, None, error=f"cannot start the command: {error}")

    def begin_commit(self, step: int, directory: Path) -> None:
        """Upload a complete directory as the checkpoint at ``step``, in a thread."""
        order = self.order

        def commit() -> object:
            return commit_checkpoint(self.around.store, order.job, step, order.attempt, directory)

        self._commit_step = step
        self._commit = self.around.submit(commit)

    @property
    def committing(self) -> bool:
        """Whether a commit is on its way (or its outcome was not looked at yet)."""
        return self._commit is not None

    def commit_finished(self) -> bool:
        """Whether a commit ended just now; its outcome is in ``saved_step``, ``commit_error``."""
        if self._commit is None or not self._commit.done():
            return False
        error = self._commit.exception()
        manifest = self._commit.result() if error is None else None
        self._commit = None
        if error is None:
            self.saved_step = self._commit_step
            if isinstance(manifest, Manifest):
                self.saved_bytes = manifest.size_bytes
                self.uploaded_bytes += manifest.size_bytes
            self.commit_error = None
            self.around.submit(self._prune)
        elif isinstance(error, FencedError):
            # Another attempt runs this job: nothing done here can count any more.
            self.commit_error = error.message
            self.stop(save=False)
        else:
            self.commit_error = _explained(error)
        return True

    def finish(
        self, state: ProcessState, exit_code: int | None, *, error: str | None = None
    ) -> None:
        """End the attempt: nothing of the job's processes survives; the log goes up."""
        if self.process is not None:
            self.process.kill_all()
        self._final = (state, exit_code, error)
        self.phase = Phase.FINISHING

    # ---- preparation

    def _prepare(self) -> object:
        order, store = self.order, self.around.store
        fence = self._persistently(lambda: raise_fence(store, order.job, order.attempt))
        if fence > order.attempt:
            raise FencedError(order.job, order.attempt, fence)
        make_workdir(
            order,
            self.workdir,
            store=store,
            scratch=self.around.scratch,
            env=self._environment(self.checkpoint_dir),
            log_path=self.log_path,
            wait_for=self._wait_for_setup,
        )
        found = self._persistently(lambda: restore_newest(store, order.job, self.checkpoint_dir))
        if found is None:
            self.checkpoint_dir.mkdir(parents=True, exist_ok=True)
        return found

    def _persistently(self, action: Callable[[], _Result]) -> _Result:
        for _ in range(RESTORE_TRIES - 1):
            try:
                return action()
            except StoreUnreachable:
                self._cancelled.wait(0.5)
        return action()

    def _wait_for_setup(self, process: ProcessGroup) -> int:
        self._setup_process = process
        while (code := process.exit_code()) is None:
            if self._cancelled.wait(0.02):
                process.kill_all()
        process.kill_all()
        return code

    def _tick_preparation(self) -> None:
        if self.stop_wanted:
            self._cancelled.set()
        if not self._preparation.done():
            return
        error = self._preparation.exception()
        if error is not None:
            code = error.setup_exit_code if isinstance(error, SetupFailed) else None
            state = ProcessState.STOPPED if self.stop_wanted else ProcessState.EXITED
            self.finish(state, code, error=_explained(error))
            return
        restored = self._preparation.result()
        if isinstance(restored, Manifest):
            self.restored_step = restored.step
            self.downloaded_bytes = restored.size_bytes
        self.step = self.restored_step
        self.phase = Phase.LIVE
        if self.stop_wanted:
            self.finish(ProcessState.STOPPED, None)
        else:
            self.launch()

    def _environment(self, checkpoint_dir: Path) -> dict[str, str]:
        env = job_environment(
            self.order,
            inherited=self.around.environment,
            attempt_dir=self.directory,
            checkpoint_dir=checkpoint_dir,
            restored_step=self.restored_step,
            scratch=self.around.scratch,
            one_machine=self.around.one_machine,
        )
        return env | self.extra_environment()

    # ---- logs and rates

    def _upload_log(self, now_s: float) -> None:
        pending = self._log.pending_bytes
        due = pending >= LOG_UPLOAD_BYTES or now_s >= self._log_at_s
        if pending and due and self._done(self._log_upload):
            if self._log_from_s is None:
                self._log_from_s = now_s
            shortest_s, longest_s = LOG_UPLOAD_EVERY_S
            age_s = now_s - self._log_from_s
            pause_s = min(max(age_s * LOG_UPLOAD_AGE_SHARE, shortest_s), longest_s)
            self._log_at_s = now_s + max(pause_s, self.around.store.poll_floor_s)
            self._log_upload = self.around.submit(self._log.upload)

    def _prune(self) -> object:
        return prune_checkpoints(self.around.store, self.order.job, keep=KEPT_CHECKPOINTS)

    def _measure(self, now_s: float) -> None:
        rates = self._rates
        if not rates or now_s - rates[-1][0] >= RATE_WINDOW_S / 4:
            rates.append((now_s, self.step))
            while len(rates) > 2 and now_s - rates[1][0] >= RATE_WINDOW_S:
                rates.pop(0)

    def _steps_per_s(self) -> float | None:
        if len(self._rates) < 2:
            return None
        (from_s, from_step), (to_s, to_step) = self._rates[0], self._rates[-1]
        return round((to_step - from_step) / (to_s - from_s), 3) if to_step > from_step else None

    @staticmethod
    def _done(future: "Future[object] | None") -> bool:
        return future is None or future.done()


def _explained(error: BaseException) -> str:
    if isinstance(error, CloudgavelError):
        return error.message
    if isinstance(error, OSError):
        place = f" ({os.fspath(error.filename)})" if isinstance(error.filename, str) else ""
        return f"{error.strerror or error}{place}"
    return f"{type(error).__name__}: {error}"
