"""Value tables on disk, so that only the first run builds them."""

import hashlib
import zipfile
from pathlib import Path

import numpy as np

from cloudgavel.policies.spot.tables import TableKey, ValueTable

KEPT_BYTES = 280 * 2**20
"""Most the directory may hold; the tables least recently written go first."""
_FORMAT = 2
"""Part of every name: tables of another recursion are other tables."""


class TableFiles:
    """One file for each table in ``directory``, made when first needed.

    A cache: what cannot be read is built again, what cannot be written is not kept.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, key: TableKey) -> ValueTable | None:
        """Read the table of ``key``; ``None`` when there is none that can be read."""
        try:
            with np.load(self._path(key)) as stored:
                return ValueTable(
                    key=key,
                    times=stored["times"],
                    slacks=stored["slacks"],
                    allowances=stored["allowances"],
                    values=stored["values"],
                )
        except (OSError, KeyError, ValueError, zipfile.BadZipFile):
            return None

    def save(self, table: ValueTable) -> None:
        """Write ``table`` under a temporary name and move it into place."""
        path = self._path(table.key)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial.npz")
            np.savez(
                partial,
                times=table.times,
                slacks=table.slacks,
                allowances=table.allowances,
                values=table.values,
            )
            partial.replace(path)
            self._prune()
        except OSError:
            return

    def _prune(self) -> None:
        files = [(path.stat().st_mtime, path) for path in self._directory.glob("*.npz")]
        held = 0
        for _, path in sorted(files, reverse=True):
            held += path.stat().st_size
            if held > KEPT_BYTES:
                path.unlink()

    def _path(self, key: TableKey) -> Path:
        name = hashlib.sha256(f"{_FORMAT} {key!r}".encode()).hexdigest()[:32]
        return self._directory / f"{name}.npz"
