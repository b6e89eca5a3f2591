"""How far a transfer is, on stderr: one moving line on a terminal, else a line now and then."""

import glob
import os
import sys
import threading
import time
from pathlib import Path

from cloudgavel.cli.streams import note, wants_motion
from cloudgavel.views.format import span
from cloudgavel.views.pull import size

_MOVING_EVERY_S = 0.5
_LINES_EVERY_S = 15.0


class Transfer:
    """Looks at the files being written from a thread of its own; a context manager."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._moving = wants_motion(sys.stderr, os.environ)
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._path: Path | None = None
        self._before_bytes = 0
        self._total_bytes = 0
        self._began_at_s = 0.0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Transfer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._moving and self._path is not None:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def begins(self, path: Path, _size_bytes: int, left_bytes: int) -> None:
        """A file is about to be written; ``left_bytes`` are its bytes and those after it."""
        with self._lock:
            if self._path is None or left_bytes > self._total_bytes:
                self._total_bytes, self._began_at_s = left_bytes, time.monotonic()
                note(f"{self._title}: {size(left_bytes)} to fetch")
            self._path = path
            self._before_bytes = self._total_bytes - left_bytes

    def words(self) -> str | None:
        """Say how far it is; ``None`` before the first file."""
        with self._lock:
            if self._path is None:
                return None
            done = min(self._total_bytes, self._before_bytes + _written_bytes(self._path))
            spent_s = time.monotonic() - self._began_at_s
        words = f"{self._title}: {size(done)} of {size(self._total_bytes)}"
        if done and spent_s > 0:
            left_s = (self._total_bytes - done) * spent_s / done
            words += f", {size(int(done / spent_s))}/s, {span(left_s)} left"
        return words

    def _watch(self) -> None:
        every_s = _MOVING_EVERY_S if self._moving else _LINES_EVERY_S
        while not self._over.wait(every_s):
            words = self.words()
            if words is None:
                continue
            if self._moving:
                sys.stderr.write(f"\r\x1b[K{words}")
                sys.stderr.flush()
            else:
                note(words)


def _written_bytes(path: Path) -> int:
    """Bytes of a file that is being written, under its own name or a partial one beside it."""
    try:
        beside = path.parent.glob(f"*{glob.escape(path.name)}*")
        return max((each.stat().st_size for each in beside), default=0)
    except OSError:
        return 0
