"""Checkpoints that are whole or do not exist: manifests, fences, restore, pruning.

A checkpoint is its files plus ``MANIFEST.json``, written last and only once. Readers trust
manifests alone: files without one are the rest of an interrupted upload. A job's fence is the
lowest attempt that may still commit; it only rises.
"""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cloudgavel.errors import CloudgavelError
from cloudgavel.messages import layout
from cloudgavel.objects.store import (
    ObjectMissing,
    ObjectStore,
    StoreUnreachable,
    check_key,
    file_sha256,
)

SCHEMA_VERSION = 1
_MANIFEST = "MANIFEST.json"


class FencedError(CloudgavelError):
    """A newer attempt of the job has started: this one may not commit any more."""

    def __init__(self, job: str, attempt: int, fence: int) -> None:
        super().__init__(
            f"attempt {attempt} of {job} may not save: attempt {fence} has taken over",
        )
        self.fence = fence


class CheckpointDamaged(CloudgavelError):
    """A checkpoint's files are not what its manifest says."""


class CheckpointEmpty(CloudgavelError):
    """The directory to save holds no file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEntry:
    """One file of a checkpoint; ``path`` is relative to its directory, with ``/``."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What makes a checkpoint valid."""

    job: str
    step: int
    attempt: int
    files: tuple[FileEntry, ...]

    @property
    def key(self) -> str:
        """Key of the manifest itself."""
        return layout.manifest_key(self.job, self.step, self.attempt)

    @property
    def size_bytes(self) -> int:
        """Size of all files together."""
        return sum(entry.size_bytes for entry in self.files)

    def file_key(self, entry: FileEntry) -> str:
        """Key of one file."""
        return f"{layout.checkpoint_prefix(self.job, self.step, self.attempt)}files/{entry.path}"


def read_fence(store: ObjectStore, job: str) -> int:
    """Return the lowest attempt that may still commit; 0 when no fence was ever raised."""
    try:
        return int(json.loads(store.get(layout.fence_key(job)))["attempt"])
    except ObjectMissing:
        return 0


def raise_fence(store: ObjectStore, job: str, attempt: int) -> int:
    """Raise the fence to ``attempt``, or leave it where it is higher; return where it stands."""
    key = layout.fence_key(job)
    wanted = json.dumps({"schema_version": SCHEMA_VERSION, "attempt": attempt}).encode()
    while True:
        try:
            found = store.get_versioned(key)
        except ObjectMissing:
            if store.put_if_absent(key, wanted):
                return attempt
            continue
        fence = int(json.loads(found.data)["attempt"])
        if fence >= attempt:
            return fence
        if store.put_if_version(key, wanted, found.version):
            return attempt


def commit_checkpoint(
    store: ObjectStore, job: str, step: int, attempt: int, directory: Path
) -> Manifest:
    """Upload a directory and make it the job's checkpoint at ``step``.

    The fence is read before the upload, before the manifest and after it; a commit that lost the
    race to a newer attempt is taken back. A checkpoint of this step and attempt that is already
    there is returned as it is. Raises ``FencedError``, ``CheckpointEmpty``, ``StoreUnreachable``.
    """
    _refuse_if_fenced(store, job, attempt)
    with contextlib.suppress(ObjectMissing, CheckpointDamaged):
        existing = _read_manifest(store, layout.manifest_key(job, step, attempt))
        _verify_sizes(store, existing)
        return existing
    store.delete(layout.manifest_key(job, step, attempt))
    entries = []
    for path in _files_of(directory):
        relative = path.relative_to(directory).as_posix()
        entries.append(
            FileEntry(path=relative, size_bytes=path.stat().st_size, sha256=file_sha256(path))
        )
    if not entries:
        raise CheckpointEmpty(f"the checkpoint of {job} at step {step} holds no file")
    manifest = Manifest(job=job, step=step, attempt=attempt, files=tuple(entries))
    for entry in manifest.files:
        store.put_file(manifest.file_key(entry), directory / entry.path)
    _refuse_if_fenced(store, job, attempt)
    document = {"schema_version": SCHEMA_VERSION, **asdict(manifest)}
    store.put_if_absent(manifest.key, json.dumps(document, indent=1).encode())
    try:
        _refuse_if_fenced(store, job, attempt)
    except FencedError:
        store.delete(manifest.key)
        raise
    return manifest


def manifests(store: ObjectStore, job: str) -> list[Manifest]:
    """Every readable manifest, newest step first (then newest attempt); none is verified."""
    found = []
    depth = layout.manifest_key(job, 0, 0).count("/")
    for info in store.list(layout.checkpoints_prefix(job)):
        if info.key.count("/") == depth and info.key.endswith("/" + _MANIFEST):
            with contextlib.suppress(ObjectMissing, CheckpointDamaged):
                found.append(_read_manifest(store, info.key))
    return sorted(found, key=lambda manifest: (manifest.step, manifest.attempt), reverse=True)


def newest_valid(store: ObjectStore, job: str, *, verify_hashes: bool = True) -> Manifest | None:
    """Find the newest checkpoint whose files are all there, whole; ``None`` when there is none.

    Sizes are always compared; hashes (which read every byte) unless ``verify_hashes`` is false.
    A damaged checkpoint is passed over for the next older one.
    """
    for manifest in manifests(store, job):
        with contextlib.suppress(CheckpointDamaged):
            _verify_sizes(store, manifest)
            if verify_hashes:
                with tempfile.TemporaryDirectory(prefix="cloudgavel-verify-") as scratch:
                    _download(store, manifest, Path(scratch))
            return manifest
    return None


def restore_checkpoint(store: ObjectStore, manifest: Manifest, directory: Path) -> None:
    """Replace ``directory`` by the checkpoint, verified on the way.

    The old content stays until the new one is whole. Raises ``CheckpointDamaged`` (and changes
    nothing) when a file is missing or its hash differs.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".restore-", dir=directory.parent))
    try:
        _download(store, manifest, fresh)
        fresh.chmod(0o755)
        if directory.exists():
            shutil.rmtree(directory)
        os.replace(fresh, directory)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def restore_newest(store: ObjectStore, job: str, directory: Path) -> Manifest | None:
    """Restore the newest whole checkpoint, each byte read once; ``None`` when there is none."""
    for manifest in manifests(store, job):
        with contextlib.suppress(CheckpointDamaged):
            restore_checkpoint(store, manifest, directory)
            return manifest
    return None


def prune_checkpoints(store: ObjectStore, job: str, *, keep: int = 2) -> int:
    """Delete all but the ``keep`` latest checkpoints and what dead attempts left unfinished.

    Latest by attempt, then step: a new attempt that fell back behind a damaged checkpoint must
    not have its own saves pruned in favour of it. Manifests go first, so that no reader sees one
    without its files. Returns how many checkpoints were deleted.
    """
    known = sorted(
        manifests(store, job), key=lambda manifest: (manifest.attempt, manifest.step), reverse=True
    )
    old = known[keep:]
    for manifest in old:
        store.delete(manifest.key)
        for entry in manifest.files:
            store.delete(manifest.file_key(entry))
    fence = read_fence(store, job)
    kept_prefixes = {
        layout.checkpoint_prefix(job, manifest.step, manifest.attempt) for manifest in known[:keep]
    }
    for info in store.list(layout.checkpoints_prefix(job)):
        prefix, attempt = _prefix_and_attempt(job, info.key)
        if prefix not in kept_prefixes and attempt is not None and attempt < fence:
            store.delete(info.key)
    return len(old)


def _prefix_and_attempt(job: str, key: str) -> tuple[str, int | None]:
    parts = key.removeprefix(layout.checkpoints_prefix(job)).split("/")
    if len(parts) < 3 or not parts[1].removeprefix("attempt-").isdigit():
        return key, None
    prefix = layout.checkpoints_prefix(job) + f"{parts[0]}/{parts[1]}/"
    return prefix, int(parts[1].removeprefix("attempt-"))


def _refuse_if_fenced(store: ObjectStore, job: str, attempt: int) -> None:
    fence = read_fence(store, job)
    if attempt < fence:
        raise FencedError(job, attempt, fence)


def _read_manifest(store: ObjectStore, key: str) -> Manifest:
    try:
        document = json.loads(store.get(key))
        if document["schema_version"] != SCHEMA_VERSION:
            raise CheckpointDamaged(f"{key} is of another version of cloudgavel")
        return Manifest(
            job=str(document["job"]),
            step=int(document["step"]),
            attempt=int(document["attempt"]),
            files=tuple(
                FileEntry(
                    path=check_key(str(entry["path"])),
                    size_bytes=int(entry["size_bytes"]),
                    sha256=str(entry["sha256"]),
                )
                for entry in document["files"]
            ),
        )
    except (ObjectMissing, StoreUnreachable):
        raise
    except CloudgavelError as error:
        raise CheckpointDamaged(error.message) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointDamaged(f"{key} is not a manifest") from error


def _verify_sizes(store: ObjectStore, manifest: Manifest) -> None:
    prefix = layout.checkpoint_prefix(manifest.job, manifest.step, manifest.attempt)
    sizes = {info.key: info.size_bytes for info in store.list(prefix)}
    for entry in manifest.files:
        if sizes.get(manifest.file_key(entry)) != entry.size_bytes:
            raise CheckpointDamaged(f"{manifest.file_key(entry)} is missing or cut short")


def _download(store: ObjectStore, manifest: Manifest, directory: Path) -> None:
    for entry in manifest.files:
        target = directory / entry.path
        try:
            store.get_file(manifest.file_key(entry), target)
        except ObjectMissing as error:
            raise CheckpointDamaged(f"{manifest.file_key(entry)} is missing") from error
        if target.stat().st_size != entry.size_bytes or file_sha256(target) != entry.sha256:
            raise CheckpointDamaged(f"{manifest.file_key(entry)} does not have its hash")


def _files_of(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            yield path
