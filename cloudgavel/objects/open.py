"""From a store's URL to the store."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from cloudgavel.errors import UsageError
from cloudgavel.objects.files import FileStore
from cloudgavel.objects.gcs import GcsStore
from cloudgavel.objects.s3 import S3Store
from cloudgavel.objects.store import ObjectStore


def open_store(url: str) -> ObjectStore:
    """Open the store at ``url``: ``file:///dir``, a plain path, ``s3://`` or ``gs://bucket/prefix``.

    Nothing is read or written by opening.
    """
    if not url.strip():
        raise UsageError("the store's URL is empty", hints=["give a directory, or file:///DIR"])
    parts = urlsplit(url)
    if "://" not in url:
        return FileStore(Path(url))
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise UsageError(
                f"{url} does not name a directory of this machine",
                hints=["file:// is followed by an absolute path: file:///home/me/runs"],
            )
        return FileStore(Path(unquote(parts.path)))
    if parts.scheme == "s3":
        return S3Store.from_url(url)
    if parts.scheme == "gs":
        return GcsStore.from_url(url)
    raise UsageError(
        f"{parts.scheme}:// is not a kind of store",
        facts=[("asked for", url), ("there is", "file://, s3:// and gs://")],
    )
