"""The agent as one archive that any Python 3.11 can run.

It is made of the installation that makes it, so controller and agents are always of one version,
and machines need no package index: the agent reaches ``gs://`` with the standard library alone.
"""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cloudgavel.objects.store import ObjectStore
from cloudgavel.providers.gcp.settings import AgentSource

PARTS = (
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """An archive (tar, gzip) and its hash; equal installations make equal archives."""

    data: bytes
    sha256: str

    @property
    def key(self) -> str:
        """Where it lies in a store: named by its content."""
        return f"agent/{self.sha256}.tar.gz"


def agent_bundle() -> Bundle:
    """Pack the running installation's agent."""
    packed = io.BytesIO()
    # No time and no owner in it: the same files make the same bytes.
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name, path in sorted(_files()):
            data = path.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(data))
    data = packed.getvalue()
    return Bundle(data=data, sha256=hashlib.sha256(data).hexdigest())


def upload_agent(store: ObjectStore, bundle: Bundle | None = None) -> AgentSource:
    """Put the archive into the run's store, once, and say where machines find it."""
    packed = bundle or agent_bundle()
    store.put_if_absent(packed.key, packed.data)
    return AgentSource(url=f"{store.url.partition('?')[0]}/{packed.key}", sha256=packed.sha256)


def _files() -> Iterator[tuple[str, Path]]:
    root = Path(__file__).parents[2]
    for part in PARTS:
        path = root / part
        for each in path.rglob("*") if path.is_dir() else [path]:
            if each.is_file() and "__pycache__" not in each.parts:
                yield (Path("cloudgavel") / each.relative_to(root)).as_posix(), each
