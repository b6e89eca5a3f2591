"""The agent as one archive that any Python 3.11 can run, in the run's store.

It is made of the installation that makes it, so controller and agents are always of one version,
and machines need no package index. The agent reaches ``gs://`` with the standard library alone; for
``s3://`` Amazon's SDK goes along: pure Python only, without its descriptions of other services
(they are nine tenths of it).
"""

import gzip
import hashlib
import importlib.util
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cloudgavel.objects.store import ObjectStore

OURS = (
    "__init__.py",
    "py.typed",
    "errors.py",
    "units.py",
    "clock.py",
    "process_tree.py",
    "agent",
    "messages",
    "objects",
    "training",
)
"""What of cloudgavel an agent, and a training script on its machine, import."""
THEIRS = (
    "boto3",
    "botocore",
    "dateutil",
    "jmespath",
    "s3transfer",
    "six",
    "tenacity",
    "urllib3",
)
SERVICES = ("s3", "sts", "sso", "sso-oidc", "signin")
"""The services whose descriptions go along: S3, and the ways to its credentials."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSource:
    """Where a machine finds the agent: a ``.tar.gz`` with the ``cloudgavel`` package at its top.

    ``url`` is in the run's store (``s3://``, ``gs://``), read with the machine's own identity, or
    ``https://`` (presigned). It must not change during a run: a launch is repeated with the very
    same request.
    """

    url: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """An archive (tar, gzip) and its hash; equal installations make equal archives."""

    data: bytes
    sha256: str

    @property
    def key(self) -> str:
        """Where it lies in a store: named by its content."""
        return f"agent/{self.sha256}.tar.gz"


def agent_bundle(*, with_s3: bool) -> Bundle:
    """Pack the running installation's agent. ``FileNotFoundError`` when a package is missing."""
    packed = io.BytesIO()
    # No time and no owner in it: the same files make the same bytes.
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, compresslevel=6) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name, path in sorted(_files(with_s3=with_s3)):
            entry = tarfile.TarInfo(name)
            entry.size = path.stat().st_size
            entry.mode = 0o644
            with path.open("rb") as source:
                archive.addfile(entry, source)
    data = packed.getvalue()
    return Bundle(data=data, sha256=hashlib.sha256(data).hexdigest())


def upload_agent(store: ObjectStore, bundle: Bundle | None = None) -> AgentSource:
    """Put the archive into the run's store, once, and say where machines find it."""
    packed = bundle or agent_bundle(with_s3=store.url.startswith("s3://"))
    store.put_if_absent(packed.key, packed.data)
    return AgentSource(url=f"{store.url.partition('?')[0]}/{packed.key}", sha256=packed.sha256)


def _files(*, with_s3: bool) -> Iterator[tuple[str, Path]]:
    ours = _root_of("cloudgavel")
    for name in OURS:
        yield from _under(ours / name, PurePosixPath("cloudgavel") / name)
    for package in THEIRS if with_s3 else ():
        yield from _under(_root_of(package), PurePosixPath(_top_name(package)))


def _under(path: Path, name: PurePosixPath) -> Iterator[tuple[str, Path]]:
    if path.is_file():
        yield name.as_posix(), path
        return
    if not path.is_dir():
        raise FileNotFoundError(f"{name} is not part of this installation")
    for each in path.rglob("*"):
        inside = each.relative_to(path)
        if each.is_file() and _goes_along(name.name, inside):
            yield (name / inside).as_posix(), each


def _goes_along(package: str, inside: Path) -> bool:
    if "__pycache__" in inside.parts or inside.suffix in (".pyc", ".pyi", ".so"):
        return False
    if package == "botocore" and inside.parts[0] == "data" and len(inside.parts) > 2:
        return inside.parts[1] in SERVICES
    if package == "boto3" and inside.parts[0] in ("examples", "data") and len(inside.parts) > 2:
        return inside.parts[1] in SERVICES
    return True


def _root_of(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise FileNotFoundError(f"{package} is not installed")
    origin = Path(found.origin)
    return origin.parent if origin.name == "__init__.py" else origin


def _top_name(package: str) -> str:
    return f"{package}.py" if _root_of(package).suffix == ".py" else package
