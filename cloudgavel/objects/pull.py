"""From the store to a person's directory: whole files, and never by accident over others."""

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudgavel.errors import CloudgavelError, UsageError
from cloudgavel.messages import layout
from cloudgavel.objects.manifest import CheckpointDamaged, FileEntry, Manifest, manifests
from cloudgavel.objects.store import ObjectMissing, ObjectStore, file_sha256

_UNFINISHED = ".pulling"


class WouldOverwrite(CloudgavelError):
    """Files of other content are in the way; nothing was changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PulledFile:
    """One file in the directory, as it is in the store."""

    path: Path
    size_bytes: int
    was_there: bool
    """It was there already, whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PulledCheckpoint:
    """One checkpoint in a directory of its own."""

    manifest: Manifest
    directory: Path
    files: tuple[PulledFile, ...]
    passed_over: tuple[str, ...]
    """Why newer checkpoints were not taken."""


Tell = Callable[[Path, int, int], None]
"""Called before each file: where it is being written, its size, bytes of all that is to come."""


def pull_checkpoint(
    store: ObjectStore,
    job: str,
    directory: Path,
    *,
    step: int | None = None,
    force: bool = False,
    tell: Tell = lambda path, size_bytes, total_bytes: None,
) -> PulledCheckpoint:
    """Bring the newest whole checkpoint (or that of ``step``) to ``directory/checkpoint-STEP``.

    Each file gets its name when its hash is right; what is there and right is not read again, and
    a file that broke off goes on where it was. ``WouldOverwrite`` before anything is written when
    another file is in the way and not ``force``. ``UsageError`` without such a checkpoint,
    ``CheckpointDamaged`` when none of them is whole.
    """
    damage: list[str] = []
    tried: set[str] = set()
    while True:
        found = [each for each in manifests(store, job) if step is None or each.step == step]
        if not found and not tried:
            raise _no_checkpoint(store, job, step)
        # A live run deletes old checkpoints, perhaps while one is read: look for newer ones then.
        found = [each for each in found if each.key not in tried]
        if not found:
            break
        for manifest in found:
            tried.add(manifest.key)
            target = directory / f"checkpoint-{manifest.step}"
            try:
                files = _pull(store, manifest, target, force=force, tell=tell)
            except CheckpointDamaged as error:
                damage.append(error.message)
                continue
            return PulledCheckpoint(
                manifest=manifest, directory=target, files=files, passed_over=tuple(damage)
            )
    raise CheckpointDamaged(
        f"no checkpoint of {job} is whole", facts=[("damaged", each) for each in damage]
    )


def pull_logs(
    store: ObjectStore, job: str, attempts: int, directory: Path, *, force: bool = False
) -> tuple[PulledFile, ...]:
    """Write the output of every attempt so far to ``directory/logs/attempt-N.log``.

    A log that grew is written anew; one that was changed here is in the way (``WouldOverwrite``).
    """
    texts: dict[Path, bytes] = {}
    for attempt in range(1, attempts + 1):
        chunks = sorted(store.list(layout.log_key(job, attempt)), key=lambda each: each.key)
        if chunks:
            target = directory / "logs" / f"attempt-{attempt}.log"
            texts[target] = b"".join(store.get(each.key) for each in chunks)
    known = {path: path.read_bytes() for path in texts if path.is_file()}
    if not force:
        changed = [path for path, data in known.items() if not texts[path].startswith(data)]
        _refuse([*changed, *(path for path in texts if path.is_dir())])
    for path, data in texts.items():
        if known.get(path) != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(f".{path.name}{_UNFINISHED}")
            unfinished.write_bytes(data)
            os.replace(unfinished, path)
    return tuple(
        PulledFile(path=path, size_bytes=len(data), was_there=known.get(path) == data)
        for path, data in texts.items()
    )


def _pull(
    store: ObjectStore, manifest: Manifest, directory: Path, *, force: bool, tell: Tell
) -> tuple[PulledFile, ...]:
    there = {entry: _is_there(entry, directory / entry.path) for entry in manifest.files}
    in_the_way = [
        directory / entry.path
        for entry, right in there.items()
        if not right and (directory / entry.path).exists()
    ]
    _refuse([path for path in in_the_way if not force or path.is_dir()])
    wanted = [entry for entry, right in there.items() if not right]
    left_bytes = sum(entry.size_bytes for entry in wanted)
    for entry in wanted:
        target = directory / entry.path
        unfinished = target.with_name(f".{target.name}{_UNFINISHED}")
        tell(unfinished, entry.size_bytes, left_bytes)
        left_bytes -= entry.size_bytes
        try:
            store.get_file(manifest.file_key(entry), unfinished)
        except ObjectMissing as error:
            raise CheckpointDamaged(f"{manifest.file_key(entry)} is missing") from error
        if not _is_there(entry, unfinished):
            unfinished.unlink()
            raise CheckpointDamaged(f"{manifest.file_key(entry)} does not have its hash")
        os.replace(unfinished, target)
    return tuple(
        PulledFile(path=directory / entry.path, size_bytes=entry.size_bytes, was_there=there[entry])
        for entry in manifest.files
    )


def _is_there(entry: FileEntry, path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_size == entry.size_bytes and file_sha256(path) == entry.sha256
    return False


def _refuse(paths: Sequence[Path]) -> None:
    if paths:
        more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
        raise WouldOverwrite(
            "files of other content are in the way; nothing was changed",
            facts=[("differs", str(path)) for path in paths[:5]],
            hints=[f"write over them{more}: --force", "or pull to another place: --to DIR"],
        )


def _no_checkpoint(store: ObjectStore, job: str, step: int | None) -> UsageError:
    steps = sorted({each.step for each in manifests(store, job)}, reverse=True)
    if step is None or not steps:
        return UsageError(
            f"{job} has no checkpoint yet",
            facts=[("store", store.url)],
            hints=["it saves while it runs: see `cloudgavel status`"],
        )
    return UsageError(
        f"{job} has no checkpoint at step {step:,}",
        facts=[("steps", ", ".join(f"{each:,}" for each in steps))],
        hints=[
            "older ones are deleted as new ones are saved; `--checkpoint latest` takes the newest"
        ],
    )
