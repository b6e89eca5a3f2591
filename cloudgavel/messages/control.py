"""The wire between an agent and a training script: two small files in a control directory.

    control.json    agent -> script   what may be done, numbered
    progress.json   script -> agent   what was done, and the number of the control it knows

Each is replaced whole by its writer. Beside them lie named pipes that only wake the other side
(``wake-script`` here, the agent's own by path): a lost wake-up costs a poll, never an answer.
Standard library only and light to import: every training script loads it.
"""

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cloudgavel.messages.codec import MalformedMessage, from_plain, to_plain

CONTROL_FILE = "control.json"
PROGRESS_FILE = "progress.json"
WAKE_SCRIPT_PIPE = "wake-script"
SAVES_DIRECTORY = "saves"
STEP_FILE = ".cloudgavel-step.json"
"""Written into every checkpoint by ``cloudgavel.training``: at which step it was made."""

STOPPED_EXIT_CODE = 75
"""How a script ends that stopped on order (BSD's EX_TEMPFAIL: to be tried again later)."""

_Wire = TypeVar("_Wire")


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """What an agent lets its training script do."""

    number: int
    """Rises with every change."""
    agent_pid: int
    run_to_step: int | None = None
    """The grant; ``None`` = unbounded."""
    save_at_steps: tuple[int, ...] = ()
    save_sequence: int = 0
    """Each increase asks for one save at the next step boundary, acknowledged before going on."""
    background_save_sequence: int = 0
    """Likewise, but the script goes on while the agent commits."""
    stop: bool = False
    save_before_stop: bool = True
    save_done: int = 0
    """Highest save number of the script that the agent has dealt with."""
    save_error: str | None = None
    """Why that save could not be committed; ``None`` = it was."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """What a training script has done."""

    pid: int
    control_seen: int
    """Number of the control that this progress takes into account."""
    step: int
    """Steps done in all."""
    state: str
    """``running``, ``paused``, ``saving``, ``stopped`` or ``finished``."""
    loss: float | None = None
    save_number: int = 0
    """Number of the newest finished save; its files are in ``saves/<number>``."""
    save_step: int | None = None
    save_sequence_done: int = 0
    save_error: str | None = None
    """Why the script's own save function failed last; ``None`` after one that worked."""


def write_control(directory: Path, control: Control) -> None:
    """Replace the control file, then wake the script."""
    _replace(directory / CONTROL_FILE, to_plain(control))
    wake(directory / WAKE_SCRIPT_PIPE)


def read_control(directory: Path) -> Control | None:
    """Return the control; ``None`` where there is none or it cannot be read."""
    return _read(directory / CONTROL_FILE, Control)


def write_progress(directory: Path, progress: Progress) -> None:
    """Replace the progress file."""
    _replace(directory / PROGRESS_FILE, to_plain(progress))


def read_progress(directory: Path) -> Progress | None:
    """Return the progress; ``None`` where there is none or it cannot be read."""
    return _read(directory / PROGRESS_FILE, Progress)


def file_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return a token that differs after a replacement (almost always); ``None`` = no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def make_pipe(path: Path) -> int | None:
    """Make a named pipe and open it for reading; ``None`` where there are none (then: polling)."""
    try:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path)
        return open_pipe(path)
    except (OSError, AttributeError):
        return None


def open_pipe(path: Path) -> int | None:
    """Open a named pipe to be woken by it, without waiting; ``None`` where there is none.

    Opened for writing too, so that it never reports its end when a writer closes.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None


def drain(descriptor: int) -> None:
    """Empty a pipe after it woke us."""
    with contextlib.suppress(BlockingIOError, InterruptedError):
        while os.read(descriptor, 4096):
            pass


def wake(path: Path) -> None:
    """Wake whoever waits on a named pipe; nobody there is fine."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(descriptor, b"!")
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _replace(path: Path, document: dict[str, object]) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    temporary.write_text(json.dumps(document))
    os.replace(temporary, path)


def _read(path: Path, target: type[_Wire]) -> _Wire | None:
    try:
        return from_plain(path.stem, target, json.loads(path.read_bytes()))
    except (OSError, ValueError, MalformedMessage):
        return None
