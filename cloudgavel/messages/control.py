"""The wire between an agent and a training script: two small files in a control directory.

    control.json    agent -> script   what may be done, numbered
    progress.json   script -> agent   what was done, and the number of the control it knows

Each has one writer, which overwrites it in place, padded to its size and led by a checksum; a
reader that meets a half-written one sees no news. (Renaming a new file over the old one was
tried: it costs milliseconds on a journalling filesystem, at every grant.) Beside them lie named
pipes that only wake the other side (``wake-script`` here, the agent's own by path): a lost
wake-up costs a poll, never an answer. Standard library only and light to import: every training
script loads it.
"""

import contextlib
import json
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from cloudgavel.messages.codec import MalformedMessage, from_plain, to_plain

CONTROL_FILE = "control.json"
PROGRESS_FILE = "progress.json"
WAKE_SCRIPT_PIPE = "wake-script"
SAVES_DIRECTORY = "saves"
STEP_FILE = ".cloudgavel-step.json"
"""Written into every checkpoint by ``cloudgavel.training``: at which step it was made."""

STOPPED_EXIT_CODE = 75
"""How a script ends that stopped on order (BSD's EX_TEMPFAIL: to be tried again later)."""

_BLOCK_BYTES = 512
_MOST_BYTES = 1 << 20
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
    """Overwrite the control file, then wake the script."""
    _overwrite(directory / CONTROL_FILE, to_plain(control))
    wake(directory / WAKE_SCRIPT_PIPE)


def read_control(directory: Path) -> Control | None:
    """Return the control; ``None`` where there is none or it cannot be read."""
    return _read(directory / CONTROL_FILE, Control)


def write_progress(directory: Path, progress: Progress) -> None:
    """Overwrite the progress file."""
    _overwrite(directory / PROGRESS_FILE, to_plain(progress))


def read_progress(directory: Path) -> Progress | None:
    """Return the progress; ``None`` where there is none or it cannot be read."""
    return _read(directory / PROGRESS_FILE, Progress)


class Watched(Generic[_Wire]):
    """One of the two files, read again and again at the cost of one system call."""

    def __init__(self, path: Path, target: type[_Wire]) -> None:
        self._path = path
        self._target = target
        self._descriptor: int | None = None
        self._raw = b""

    def look(self) -> _Wire | None:
        """Return what the file says if it is whole and changed since the last look."""
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            raw = os.pread(self._descriptor, _MOST_BYTES, 0)
        except OSError:
            return None
        if raw == self._raw:
            return None
        found = _parse(self._path, self._target, raw)
        if found is not None:
            self._raw = raw
        return found

    def close(self) -> None:
        """Close the file; looking again opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def watch_control(directory: Path) -> Watched[Control]:
    """Watch the control file (it need not exist yet)."""
    return Watched(directory / CONTROL_FILE, Control)


def watch_progress(directory: Path) -> Watched[Progress]:
    """Watch the progress file (it need not exist yet)."""
    return Watched(directory / PROGRESS_FILE, Progress)


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


def _overwrite(path: Path, document: dict[str, object]) -> None:
    text = json.dumps(document, separators=(",", ":")).encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        size = max(len(text) + 10, os.fstat(descriptor).st_size)
        size = -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
        os.pwrite(descriptor, (b"%08x " % zlib.crc32(text) + text).ljust(size), 0)
    finally:
        os.close(descriptor)


def _read(path: Path, target: type[_Wire]) -> _Wire | None:
    try:
        return _parse(path, target, path.read_bytes())
    except OSError:
        return None


def _parse(path: Path, target: type[_Wire], raw: bytes) -> _Wire | None:
    checksum, _, text = raw.rstrip().partition(b" ")
    try:
        if int(checksum, 16) != zlib.crc32(text):
            return None
        return from_plain(path.stem, target, json.loads(text))
    except (ValueError, MalformedMessage):
        return None
