"""A job's output: its progress by pattern, its last lines, its upload in chunks."""

import os
import re
from pathlib import Path

from cloudgavel.messages import layout
from cloudgavel.objects.store import ObjectStore

_CHUNK_BYTES = 1 << 20


class OutputPattern:
    """Finds the step (first group) in a job's output as it grows.

    The last match of what was read counts. A pattern that is not a regular expression with a
    group raises ``ValueError``.
    """

    def __init__(self, pattern: str, log_path: Path) -> None:
        try:
            self._pattern = re.compile(pattern.encode())
        except re.error as error:
            raise ValueError(f"progress_pattern is not a regular expression: {error}") from error
        if self._pattern.groups < 1:
            raise ValueError("progress_pattern has no group for the step")
        self._log_path = log_path
        self._offset = 0
        self._rest = b""

    def newest_step(self) -> int | None:
        """Return the newest step in the whole lines written since the last call, if any."""
        try:
            if os.stat(self._log_path).st_size <= self._offset:
                return None
            with self._log_path.open("rb") as log:
                log.seek(self._offset)
                data = log.read()
        except OSError:
            return None
        self._offset += len(data)
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()[-10_000:]
        for line in reversed(lines):
            for match in reversed(list(self._pattern.finditer(line))):
                digits = match.group(1)
                if digits is not None and digits.replace(b"_", b"").replace(b",", b"").isdigit():
                    return int(digits.replace(b"_", b"").replace(b",", b""))
        return None


class LogUpload:
    """Copies a growing log into the store, piece by piece, under ``layout.log_key``.

    Chunk keys sort by rank, then by number. ``upload`` may run in a thread, one call at a time.
    """

    def __init__(
        self, store: ObjectStore, log_path: Path, *, job: str, attempt: int, rank: int
    ) -> None:
        self._store = store
        self._log_path = log_path
        self._prefix = f"{layout.log_key(job, attempt)}rank-{rank:04d}-"
        self._offset = 0
        self._number = 0

    @property
    def pending_bytes(self) -> int:
        """How much of the log is not in the store yet."""
        try:
            return max(0, os.stat(self._log_path).st_size - self._offset)
        except OSError:
            return 0

    def upload(self) -> None:
        """Upload all that is pending; raises ``StoreUnreachable`` (nothing is lost by that)."""
        while self.pending_bytes:
            with self._log_path.open("rb") as log:
                log.seek(self._offset)
                data = log.read(_CHUNK_BYTES)
            self._store.put(f"{self._prefix}{self._number + 1:06d}.log", data, durable=False)
            self._number += 1
            self._offset += len(data)


def last_lines(log_path: Path, *, count: int = 20, max_bytes: int = 8192) -> tuple[str, ...]:
    """Return the end of a log as text lines; empty when there is none."""
    try:
        with log_path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - max_bytes))
            text = log.read().decode(errors="replace")
    except OSError:
        return ()
    return tuple(text.splitlines()[-count:])
