"""An object store in a directory: atomic writes, conditional writes, safe keys."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cloudgavel.objects.store import (
    ObjectInfo,
    ObjectMissing,
    StoreUnreachable,
    VersionedObject,
    check_key,
    content_version,
)

_PRIVATE = ".cloudgavel-store"


class FileStore:
    """Objects as files under ``root``, which is made when missing.

    A write goes to a temporary file, is synced, and takes its name by rename (``put``) or by
    ``link`` (``put_if_absent``, which fails where the name exists). Compare-and-set holds a lock
    file, so it is safe between processes of one machine. Temporary files and the lock lie in one
    private directory that no key can name.
    """

    poll_floor_s: float = 0.005

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._private = self.root / _PRIVATE

    @property
    def url(self) -> str:
        """``file://`` and the absolute path."""
        return self.root.as_uri()

    def put(self, key: str, data: bytes, *, durable: bool = True) -> None:
        """Write or replace, atomically; synced to the disk unless ``durable`` is false."""
        path = self._path(key)
        with self._explained("write", key), self._written(data, durable=durable) as temporary:
            _rename(temporary, path)
            if durable:
                _sync_directory(path.parent)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write unless the key exists; of several writers exactly one gets ``True``."""
        path = self._path(key)
        with self._explained("write", key), self._written(data, durable=True) as temporary:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            except OSError:
                # Some filesystems have no hard links: the lock serves instead.
                with self._locked():
                    if path.exists():
                        return False
                    _rename(temporary, path)
            _sync_directory(path.parent)
        return True

    def put_if_version(self, key: str, data: bytes, version: str | None) -> bool:
        """Replace only the version that was read (``None`` = only if absent)."""
        if version is None:
            return self.put_if_absent(key, data)
        path = self._path(key)
        with (
            self._explained("write", key),
            self._written(data, durable=True) as temporary,
            self._locked(),
        ):
            try:
                current = content_version(path.read_bytes())
            except FileNotFoundError:
                return False
            if current != version:
                return False
            _rename(temporary, path)
            _sync_directory(path.parent)
        return True

    def get(self, key: str) -> bytes:
        """Read all of it; ``ObjectMissing`` if there is none."""
        path = self._path(key)
        with self._explained("read", key):
            return path.read_bytes()

    def get_versioned(self, key: str) -> VersionedObject:
        """Read it with its version (a hash of its content)."""
        data = self.get(key)
        return VersionedObject(data=data, version=content_version(data))

    def stamp(self, key: str) -> str | None:
        """One ``stat``: inode, time and size of the file."""
        try:
            found = self._path(key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._unreachable("look at", key, error) from error
        return f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}"

    def list(self, prefix: str) -> list[ObjectInfo]:
        """Everything whose key starts with ``prefix``, by key; files that vanish are left out."""
        directory, _, _ = prefix.rpartition("/")
        top = self._path(directory) if directory else self.root
        found = []
        with self._explained("list", prefix or "everything"):
            for path in _files_under(top):
                key = path.relative_to(self.root).as_posix()
                if key.startswith(prefix):
                    with contextlib.suppress(FileNotFoundError):
                        found.append(ObjectInfo(key=key, size_bytes=path.stat().st_size))
        return sorted(found, key=lambda info: info.key)

    def delete(self, key: str) -> None:
        """Remove, with the directories it leaves empty; a missing key is fine."""
        path = self._path(key)
        with self._explained("delete", key), contextlib.suppress(FileNotFoundError):
            path.unlink()
            for parent in path.parents:
                if parent == self.root:
                    break
                try:
                    parent.rmdir()
                except OSError:
                    break

    def put_file(self, key: str, path: Path) -> None:
        """Copy a file in, atomically and synced."""
        target = self._path(key)
        with self._explained("write", key), self._temporary() as temporary:
            with path.open("rb") as source, temporary.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
                sink.flush()
                os.fsync(sink.fileno())
            _rename(temporary, target)
            _sync_directory(target.parent)

    def get_file(self, key: str, path: Path) -> None:
        """Copy a file out; ``ObjectMissing`` if there is none."""
        source_path = self._path(key)
        with self._explained("read", key), source_path.open("rb") as source:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)

    def _path(self, key: str) -> Path:
        parts = check_key(key).split("/")
        if parts[0] == _PRIVATE:
            raise ObjectMissing(key, self.url)
        return self.root.joinpath(*parts)

    def _unreachable(self, action: str, key: str, error: OSError) -> StoreUnreachable:
        return StoreUnreachable(action, key, error.strerror or str(error), self.url)

    @contextlib.contextmanager
    def _explained(self, action: str, key: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, IsADirectoryError) as error:
            if action == "read":
                raise ObjectMissing(key, self.url) from error
            raise self._unreachable(action, key, error) from error
        except OSError as error:
            raise self._unreachable(action, key, error) from error

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[Path]:
        self._private.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=self._private)
        os.close(descriptor)
        try:
            yield Path(name)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)

    @contextlib.contextmanager
    def _written(self, data: bytes, *, durable: bool) -> Iterator[Path]:
        with self._temporary() as temporary:
            with temporary.open("wb", buffering=0) as sink:
                if data and not durable and hasattr(os, "posix_fallocate"):
                    # Blocks given beforehand spare ext4 a flush at the rename.
                    with contextlib.suppress(OSError):
                        os.posix_fallocate(sink.fileno(), 0, len(data))
                _write_all(sink.fileno(), data)
                if durable:
                    os.fsync(sink.fileno())
            yield temporary

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._private.mkdir(parents=True, exist_ok=True)
        with (self._private / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _rename(temporary: Path, path: Path) -> None:
    try:
        os.replace(temporary, path)
    except FileNotFoundError:
        # Made only when needed; a delete may have removed the directory a moment ago.
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(temporary, path)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _files_under(top: Path) -> Iterator[Path]:
    for directory, names, files in os.walk(top):
        if _PRIVATE in names:
            names.remove(_PRIVATE)
        for name in files:
            yield Path(directory, name)
