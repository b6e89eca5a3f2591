"""An attempt's own copy of its job's directory, with the job's set-up done in it."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgavel.agent.process import ProcessGroup
from cloudgavel.errors import CloudgavelError
from cloudgavel.messages.orders import JobOrder
from cloudgavel.objects.store import ObjectStore

if TYPE_CHECKING:
    import tarfile

_LEFT_OUT = {".git", ".cloudgavel", "__pycache__", ".venv", "node_modules"}
_OURS = ("agent.lock", ".cloudgavel-store")
"""A directory that holds one of these is an agent's or a store's: never a part of a job's code."""


class SetupFailed(CloudgavelError):
    """The job's ``setup`` command did not end with 0."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"setup ended with exit code {exit_code}")
        self.setup_exit_code = exit_code


def make_workdir(
    order: JobOrder,
    target: Path,
    *,
    store: ObjectStore,
    scratch: Path,
    env: Mapping[str, str],
    log_path: Path,
    wait_for: Callable[[ProcessGroup], int],
) -> None:
    """Fill ``target`` with the job's files.

    Without ``setup`` they are copied straight from the order's ``workdir``. With one, they are
    first prepared once per machine and content in a template, where ``setup`` runs, and the
    template is copied: what ``setup`` writes into the directory is there for every attempt.
    ``wait_for`` waits for the set-up's processes and returns their exit code. Raises
    ``SetupFailed``, or ``CloudgavelError`` when there is no such directory or archive.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    source = _source(order, store, scratch)
    if not order.setup:
        _copy(source, target, left_out=(order.checkpoint_path, str(scratch)))
        return
    digest = hashlib.sha256(f"{order.setup}\0{_digest(source)}".encode()).hexdigest()[:24]
    template = scratch / "prepared" / digest
    if not template.is_dir():
        fresh = template.with_name(f"{digest}.{order.job}-{order.attempt}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        _copy(source, fresh, left_out=(order.checkpoint_path, str(scratch)))
        exit_code = wait_for(ProcessGroup(order.setup, cwd=fresh, env=env, log_path=log_path))
        if exit_code != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            raise SetupFailed(exit_code)
        _take_name(fresh, template)
    shutil.copytree(template, target, symlinks=True)


def directory_signature(directory: Path) -> tuple[tuple[str, int, int], ...]:
    """Path, size and change time (ns) of every file; equal signatures = nothing was written."""
    found = []
    for path in sorted(directory.rglob("*")):
        try:
            if path.is_file():
                stat = path.stat()
                found.append((str(path.relative_to(directory)), stat.st_size, stat.st_mtime_ns))
        except FileNotFoundError:
            found.append((str(path), -1, 0))
    return tuple(found)


def _source(order: JobOrder, store: ObjectStore, scratch: Path) -> Path:
    if order.workdir.endswith((".tar.gz", ".tgz", ".tar")) and not Path(order.workdir).is_dir():
        return _unpacked(order, store, scratch)
    source = Path(order.workdir)
    if not source.is_dir():
        raise CloudgavelError(
            f"the workdir of {order.job} does not exist", facts=[("workdir", order.workdir)]
        )
    return source


def _unpacked(order: JobOrder, store: ObjectStore, scratch: Path) -> Path:
    """Fetch and unpack an archive once; its key names its content.

    Jobs that start together unpack side by side, and one of them takes the name.
    """
    import tarfile

    name = hashlib.sha256(order.workdir.encode()).hexdigest()[:24]
    target = scratch / "code" / name
    if target.is_dir():
        return target
    fresh = target.with_name(f"{name}.{order.job}-{order.attempt}.new")
    archive = fresh.with_suffix(".archive")
    store.get_file(order.workdir, archive)
    shutil.rmtree(fresh, ignore_errors=True)
    with tarfile.open(archive) as packed:
        _extract(packed, fresh)
    archive.unlink()
    _take_name(fresh, target)
    return target


def _take_name(fresh: Path, target: Path) -> None:
    try:
        os.replace(fresh, target)
    except OSError:
        if not target.is_dir():
            raise
        # Another job of this instance made the same content meanwhile.
        shutil.rmtree(fresh, ignore_errors=True)


def _extract(packed: "tarfile.TarFile", target: Path) -> None:
    """Unpack within ``target``; Pythons before 3.11.4 (Ubuntu 22.04 has one) have no filter."""
    import tarfile

    if hasattr(tarfile, "data_filter"):
        packed.extractall(target, filter="data")
        return
    top = target.resolve()
    for member in packed.getmembers():
        places = [top / member.name]
        if member.issym():
            places.append((top / member.name).parent / member.linkname)
        elif not (member.isfile() or member.isdir()):
            raise CloudgavelError(f"the archive holds {member.name}, which is no file")
        if not all(place.resolve().is_relative_to(top) for place in places):
            raise CloudgavelError(f"the archive leaves its directory by {member.name}")
    packed.extractall(target)


def _copy(source: Path, target: Path, *, left_out: Iterable[str]) -> None:
    skipped = {os.path.normpath(source / item) for item in left_out}

    def skip(path: str) -> bool:
        return os.path.normpath(path) in skipped or any(
            os.path.exists(os.path.join(path, mark)) for mark in _OURS
        )

    def ignore(directory: str, names: list[str]) -> set[str]:
        return {name for name in names if name in _LEFT_OUT or skip(os.path.join(directory, name))}

    shutil.copytree(source, target, symlinks=True, ignore=ignore)


def _digest(source: Path) -> str:
    digest = hashlib.sha256()
    for directory, names, files in os.walk(source):
        names[:] = sorted(name for name in names if name not in _LEFT_OUT)
        for name in sorted(files):
            path = os.path.join(directory, name)
            stat = os.lstat(path)
            relative = os.path.relpath(path, source)
            digest.update(f"{relative}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode())
    return digest.hexdigest()
