"""What every object store can do: the only infrastructure between controller and machines."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from cloudgavel.errors import CloudgavelError, UsageError


class ObjectMissing(CloudgavelError):
    """No object has this key."""

    def __init__(self, key: str, store_url: str) -> None:
        super().__init__(f"{key} is not in the store", facts=[("store", store_url)])
        self.key = key


class StoreUnreachable(CloudgavelError):
    """The store did not take or give an object: disk full, no permission, no network."""

    def __init__(self, action: str, key: str, reason: str, store_url: str) -> None:
        super().__init__(
            f"cannot {action} {key}: {reason}",
            facts=[("store", store_url)],
            hints=["check that the store exists, is writable and has space left"],
        )
        self.key = key
        self.reason = reason


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectInfo:
    """One entry of a listing."""

    key: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionedObject:
    """An object's bytes with the version to hand back to ``put_if_version``."""

    data: bytes
    version: str


class ObjectStore(Protocol):
    """Keys to bytes, each write whole or not at all.

    Keys are relative POSIX paths without ``.`` or ``..`` (``check_key``). Every method may raise
    ``StoreUnreachable``. A reader sees an old object or a new one, never a part of one.
    """

    @property
    def url(self) -> str:
        """Where this store is, as ``open_store`` takes it."""

    @property
    def poll_floor_s(self) -> float:
        """Shortest sensible pause between two looks at one key (a local disk: milliseconds)."""

    def put(self, key: str, data: bytes, *, durable: bool = True) -> None:
        """Write or replace. ``durable=False`` may skip the wait for the disk (mailboxes, logs)."""

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write unless the key exists; ``False`` = it does, and nothing changed."""

    def put_if_version(self, key: str, data: bytes, version: str | None) -> bool:
        """Replace only the version that was read (``None`` = only if absent); ``False`` = not."""

    def get(self, key: str) -> bytes:
        """Read all of it; ``ObjectMissing`` if there is none."""

    def get_versioned(self, key: str) -> VersionedObject:
        """Read it with its version; ``ObjectMissing`` if there is none."""

    def stamp(self, key: str) -> str | None:
        """Cheap token that differs after a change (almost always); ``None`` = no such key.

        For polling only: two quick writes may share a stamp, so read in full now and then.
        """

    def list(self, prefix: str) -> list[ObjectInfo]:
        """Everything whose key starts with ``prefix``, by key."""

    def delete(self, key: str) -> None:
        """Remove; a key that does not exist is fine."""

    def put_file(self, key: str, path: Path) -> None:
        """``put`` of a file, without holding it in memory."""

    def get_file(self, key: str, path: Path) -> None:
        """``get`` into a file (its directory is made), without holding it in memory."""


def check_key(key: str) -> str:
    """Return ``key`` if it is safe on every store, else raise ``UsageError``."""
    parts = key.split("/")
    if (
        not key
        or "\\" in key
        or any(ord(char) < 32 for char in key)
        or any(part in ("", ".", "..") for part in parts)
        or PurePosixPath(key).is_absolute()
        or len(key) > 1000
    ):
        raise UsageError(
            f"{key!r} is not a key of the store",
            hints=["keys are relative paths with / and without . or .. in them"],
        )
    return key


def content_version(data: bytes) -> str:
    """Version of an object's content: equal bytes have equal versions."""
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file in hexadecimal, read in pieces."""
    digest = hashlib.sha256()
    for piece in _pieces(path):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(path: Path, size_bytes: int = 1 << 20) -> Iterator[bytes]:
    with path.open("rb") as source:
        while piece := source.read(size_bytes):
            yield piece
