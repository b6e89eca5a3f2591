"""A directory as one archive in a store, named by its content: how code gets to machines."""

import gzip
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from cloudgavel.objects.store import ObjectStore, file_sha256

LEFT_OUT = frozenset(
    {".git", ".hg", ".venv", "__pycache__", ".cloudgavel", ".mypy_cache", ".ruff_cache"}
)
"""Directories that no job needs, wherever they lie."""


def put_directory(store: ObjectStore, directory: Path, *, left_out: Iterable[str] = ()) -> str:
    """Put a directory into the store as ``code/<hash>.tar.gz`` and return the key.

    The same files (names, contents, modes) give the same key and are uploaded once. ``left_out``
    are paths relative to it, such as a job's checkpoints; ``LEFT_OUT`` is left out always. Links
    stay links. ``OSError`` when something in it cannot be read.
    """
    hidden = {Path(each).parts for each in left_out}
    with tempfile.TemporaryDirectory(prefix="cloudgavel-pack-") as scratch:
        archive = Path(scratch, "code.tar.gz")
        _write(archive, directory, hidden)
        key = f"code/{file_sha256(archive)}.tar.gz"
        if store.stamp(key) is None:
            store.put_file(key, archive)
    return key


def _write(archive: Path, directory: Path, hidden: set[tuple[str, ...]]) -> None:
    # No time and no owner in it: the same files make the same bytes.
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.GNU_FORMAT) as packed,
    ):
        for path in _files(directory, hidden):
            entry = packed.gettarinfo(path, arcname=path.relative_to(directory).as_posix())
            entry.mtime = 0
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            if entry.isfile():
                with path.open("rb") as source:
                    packed.addfile(entry, source)
            else:
                packed.addfile(entry)


def _files(directory: Path, hidden: set[tuple[str, ...]]) -> Iterator[Path]:
    """Yield files and links, sorted; special files are passed over."""
    for path in sorted(directory.rglob("*")):
        parts = path.relative_to(directory).parts
        if LEFT_OUT.intersection(parts) or any(parts[: len(each)] == each for each in hidden):
            continue
        if path.is_symlink() or path.is_file():
            yield path
