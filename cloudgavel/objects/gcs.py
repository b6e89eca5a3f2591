"""An object store in a bucket of Cloud Storage, under a prefix: generations, checksums, resume."""

import base64
import contextlib
import hashlib
import http.client
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from cloudgavel.errors import UsageError
from cloudgavel.objects.gcs_calls import (
    Calls,
    GoogleToken,
    NoToken,
    Refused,
    federated_token,
    message_of,
)
from cloudgavel.objects.store import (
    ObjectInfo,
    ObjectMissing,
    StoreUnreachable,
    VersionedObject,
    check_key,
)

PIECE_BYTES = 16 << 20
"""Files above this size go up in pieces of it (a multiple of 256 KiB, as Google wants)."""
READ_BYTES = 1 << 20
BREAKS = 8
"""A download that breaks so often without bringing a byte is given up."""
WRITER = "cloudgavel-writer"
"""Metadata that tells our own earlier, unanswered write from another's."""

PROVIDER = re.compile(
    r"projects/\d+/locations/global/workloadIdentityPools/[a-z0-9-]+/providers/[a-z0-9-]+"
)

_WHY = {
    401: "the credentials are not accepted",
    403: "access is denied",
    429: "too many requests",
}
_LOST_RACE = frozenset({412})
_GONE = frozenset({404, 410})


class GcsStore:
    """Objects under ``gs://bucket/prefix``.

    The version of an object is its generation, and conditional writes are Google's own
    (``ifGenerationMatch``). Writes carry an MD5 that Google checks; files above ``piece_bytes`` go
    up in pieces and appear only when they are whole; a broken transfer goes on where it was. Every
    method raises ``StoreUnreachable`` after a few tries; safe between threads.

    ``gs://bucket/prefix?endpoint=http://127.0.0.1:PORT`` is a store behind another address, used
    without credentials. ``gs://bucket/prefix?provider=projects/...&account=EMAIL`` is for a machine
    on AWS: it acts as that account by its own role (``objects.keyless``), and holds no key.
    """

    poll_floor_s: float = 1.0

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        identity: tuple[str, str] | None = None,
        calls: Calls | None = None,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        """``identity``: provider and account; ``calls`` replaces the way of sending (tests)."""
        self.bucket = bucket
        self.prefix = prefix.strip("/")
        self._endpoint = endpoint
        self._identity = identity
        token = None
        if identity is not None:
            ask = federated_token(*identity, endpoint)
            token = GoogleToken(monotonic=time.monotonic, ask=ask)
        self._calls = calls or Calls(endpoint=endpoint, token=token)
        self._piece_bytes = piece_bytes

    @classmethod
    def from_url(cls, url: str, **options: Any) -> "GcsStore":
        """Open ``gs://bucket/prefix``; nothing is read or written by it."""
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        known = {"endpoint", "provider", "account"}
        if parts.scheme != "gs" or not parts.netloc or parts.fragment or set(query) - known:
            raise UsageError(
                f"{url} does not name a bucket", hints=["for example gs://my-bucket/runs"]
            )
        prefix = parts.path.strip("/")
        if prefix:
            check_key(prefix)
        endpoint, provider, account = (
            query.get(name, [None])[0] for name in ("endpoint", "provider", "account")
        )
        identity = None
        if provider is not None or account is not None:
            if provider is None or account is None or not PROVIDER.fullmatch(provider):
                raise UsageError(
                    f"{url} does not say who is to use it",
                    hints=[
                        "provider=projects/NUMBER/locations/global/workloadIdentityPools/POOL/"
                        "providers/ID and account=EMAIL"
                    ],
                )
            identity = (provider, account)
        return cls(parts.netloc, prefix, endpoint=endpoint, identity=identity, **options)

    @property
    def url(self) -> str:
        """``gs://bucket/prefix``, with an endpoint that is not Google's, and with who uses it."""
        plain = f"gs://{self.bucket}/{self.prefix}".rstrip("/")
        said = [] if self._endpoint is None else [f"endpoint={self._endpoint}"]
        if self._identity is not None:
            said += [f"provider={self._identity[0]}", f"account={self._identity[1]}"]
        return f"{plain}?{'&'.join(said)}" if said else plain

    def put(self, key: str, data: bytes, *, durable: bool = True) -> None:
        """Write or replace; what Google has taken is durable."""
        name = self._name(key)
        with self._explained("write", key):
            self._upload(name, data)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write unless the key exists; of several writers exactly one gets ``True``."""
        return self._put_if(key, data, "0")

    def put_if_version(self, key: str, data: bytes, version: str | None) -> bool:
        """Replace only the version that was read (``None`` = only if absent)."""
        return self._put_if(key, data, "0" if version is None else version)

    def get(self, key: str) -> bytes:
        """Read all of it; ``ObjectMissing`` if there is none."""
        return self.get_versioned(key).data

    def get_versioned(self, key: str) -> VersionedObject:
        """Read it with its version (the generation)."""
        name = self._name(key)
        with self._explained("read", key):
            reply = self._calls.send("GET", self._path(name), query={"alt": "media"})
            return VersionedObject(data=reply.body, version=reply.headers["x-goog-generation"])

    def stamp(self, key: str) -> str | None:
        """One look at the metadata: the generation."""
        name = self._name(key)
        try:
            with self._explained("look at", key):
                return str(self._described(name)["generation"])
        except ObjectMissing:
            return None

    def list(self, prefix: str) -> list[ObjectInfo]:
        """Everything whose key starts with ``prefix``, by key; a thousand to a call."""
        start = f"{self.prefix}/" if self.prefix else ""
        found: list[ObjectInfo] = []
        with self._explained("list", prefix or "everything"):
            for row in self._rows(start + prefix):
                key = str(row["name"]).removeprefix(start)
                found.append(ObjectInfo(key=key, size_bytes=int(row["size"])))
        return sorted(found, key=lambda info: info.key)

    def delete(self, key: str) -> None:
        """Remove; a key that does not exist is fine."""
        name = self._name(key)
        with contextlib.suppress(ObjectMissing), self._explained("delete", key):
            self._calls.send("DELETE", self._path(name))

    def put_file(self, key: str, path: Path) -> None:
        """``put`` of a file; a large one in pieces, each repeated by itself."""
        name = self._name(key)
        with self._explained("write", key):
            size_bytes = path.stat().st_size
            if size_bytes <= self._piece_bytes:
                self._upload(name, path.read_bytes())
            else:
                self._upload_in_pieces(name, path, size_bytes)

    def get_file(self, key: str, path: Path) -> None:
        """``get`` into a file, which takes its name when it is whole.

        A transfer that breaks goes on where it was, in this call or a later one, as long as the
        object is still the same.
        """
        name = self._name(key)
        with self._explained("read", key):
            path.parent.mkdir(parents=True, exist_ok=True)
            while not self._fetched(name, path):
                # Replaced meanwhile: a part of the old one and a part of the new one are neither.
                pass

    # -- writing ----------------------------------------------------------------------------

    def _put_if(self, key: str, data: bytes, generation: str) -> bool:
        name, writer = self._name(key), uuid.uuid4().hex
        repeated: list[bool] = []
        with self._explained("write", key):
            reply = self._upload(
                name,
                data,
                generation=generation,
                writer=writer,
                before_repeat=lambda: repeated.append(True),
            )
            if reply not in _LOST_RACE:
                return True
            # An earlier try may have worked and only its answer been lost.
            return bool(repeated) and self._wrote(name, writer)

    def _wrote(self, name: str, writer: str) -> bool:
        try:
            described = self._described(name)
        except Refused as error:
            if error.status in _GONE:
                return False
            raise
        return bool(described.get("metadata", {}).get(WRITER) == writer)

    def _upload(
        self,
        name: str,
        data: bytes,
        *,
        generation: str | None = None,
        writer: str | None = None,
        before_repeat: Callable[[], None] | None = None,
    ) -> int:
        """Send one object whole, and return the status: a success, or 412 for a lost race."""
        described: dict[str, Any] = {"name": name, "md5Hash": _md5(data)}
        if writer is not None:
            described["metadata"] = {WRITER: writer}
        boundary = uuid.uuid4().hex
        body = b"".join(
            [
                f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n".encode(),
                json.dumps(described).encode(),
                f"\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n".encode(),
                data,
                f"\r\n--{boundary}--\r\n".encode(),
            ]
        )
        query = {"uploadType": "multipart"}
        if generation is not None:
            query["ifGenerationMatch"] = generation
        reply = self._calls.send(
            "POST",
            f"/upload{self._bucket_path}/o",
            query=query,
            headers={"Content-Type": f"multipart/related; boundary={boundary}"},
            body=body,
            accept=_LOST_RACE if generation is not None else frozenset(),
            before_repeat=before_repeat,
        )
        return reply.status

    def _upload_in_pieces(self, name: str, path: Path, size_bytes: int) -> None:
        begun = self._calls.send(
            "POST",
            f"/upload{self._bucket_path}/o",
            query={"uploadType": "resumable"},
            headers={
                "Content-Type": "application/json; charset=UTF-8",
                "X-Upload-Content-Length": str(size_bytes),
            },
            body=json.dumps({"name": name, "md5Hash": _file_md5(path)}).encode(),
        )
        session = urlsplit(begun.headers["location"])
        at, breaks = 0, 0
        with path.open("rb") as source:
            while True:
                source.seek(at)
                piece = source.read(self._piece_bytes)
                sent = f"bytes {at}-{at + len(piece) - 1}/{size_bytes}"
                try:
                    arrived = self._piece(session.path, session.query, sent, piece)
                except (OSError, http.client.HTTPException):
                    breaks += 1
                    if breaks >= BREAKS:
                        raise
                    self._calls.pause(breaks)
                    arrived = self._arrived(session.path, session.query, size_bytes)
                if arrived is None:
                    return
                breaks = 0 if arrived > at else breaks
                at = arrived

    def _piece(self, path: str, query: str, sent: str, piece: bytes) -> int | None:
        """Send one piece; return how many bytes have arrived in all, ``None`` = the object is."""
        with self._calls.opened(
            "PUT", f"{path}?{query}", headers={"Content-Range": sent}, body=piece
        ) as answer:
            status, body = answer.status, answer.read()
            if status in (200, 201):
                return None
            if status == 308:
                return _arrived_bytes(answer.getheader("Range"))
        if status in (408, 429) or status >= 500:
            raise OSError(f"{status} {message_of(body)}")
        raise Refused(status, message_of(body))

    def _arrived(self, path: str, query: str, size_bytes: int) -> int | None:
        """Ask an upload how far it has come."""
        reply = self._calls.send(
            "PUT",
            f"{path}?{query}",
            headers={"Content-Range": f"bytes */{size_bytes}"},
            accept=frozenset({308}),
        )
        return _arrived_bytes(reply.headers.get("range")) if reply.status == 308 else None

    # -- reading ----------------------------------------------------------------------------

    def _fetched(self, name: str, path: Path) -> bool:
        """Bring the object to ``path``; ``False`` = it changed on the way, begin again."""
        described = self._described(name)
        generation, size_bytes = str(described["generation"]), int(described["size"])
        mark = hashlib.sha256(f"{name}\n{generation}".encode()).hexdigest()[:16]
        partial = path.with_name(f".{path.name}.{mark}.part")
        partial.touch()
        breaks = 0
        while (have := partial.stat().st_size) < size_bytes:
            try:
                same = self._more(name, generation, partial, have)
            except (OSError, http.client.HTTPException) as error:
                breaks = 0 if partial.stat().st_size > have else breaks + 1
                if breaks >= BREAKS:
                    raise OSError(str(error) or type(error).__name__) from error
                self._calls.pause(breaks + 1)
                continue
            if not same:
                partial.unlink(missing_ok=True)
                return False
        wanted = described.get("md5Hash")
        if partial.stat().st_size > size_bytes or (wanted and wanted != _file_md5(partial)):
            partial.unlink()
            raise OSError("the bytes do not have the checksum of the object")
        os.replace(partial, path)
        return True

    def _more(self, name: str, generation: str, partial: Path, have: int) -> bool:
        """Append what is missing; ``False`` = the object is another by now."""
        with self._calls.opened(
            "GET",
            self._path(name),
            query={"alt": "media", "ifGenerationMatch": generation},
            headers={"Range": f"bytes={have}-"},
        ) as answer:
            if answer.status in _LOST_RACE | _GONE:
                answer.read()
                return False
            if answer.status not in (200, 206):
                body = answer.read()
                if answer.status in (408, 429) or answer.status >= 500:
                    raise OSError(f"{answer.status} {message_of(body)}")
                raise Refused(answer.status, message_of(body))
            with partial.open("ab" if answer.status == 206 else "wb") as sink:
                while piece := answer.read(READ_BYTES):
                    sink.write(piece)
        return True

    def _described(self, name: str) -> dict[str, Any]:
        fields = "name,size,generation,md5Hash,metadata"
        return self._calls.send("GET", self._path(name), query={"fields": fields}).json()

    def _rows(self, prefix: str) -> Iterator[dict[str, Any]]:
        token = ""
        while True:
            query = {"prefix": prefix, "fields": "items(name,size),nextPageToken"}
            if token:
                query["pageToken"] = token
            page = self._calls.send("GET", f"{self._bucket_path}/o", query=query).json()
            yield from page.get("items", ())
            token = str(page.get("nextPageToken", ""))
            if not token:
                return

    # -- names and errors -------------------------------------------------------------------

    @property
    def _bucket_path(self) -> str:
        return f"/storage/v1/b/{quote(self.bucket, safe='')}"

    def _name(self, key: str) -> str:
        check_key(key)
        return f"{self.prefix}/{key}" if self.prefix else key

    def _path(self, name: str) -> str:
        return f"{self._bucket_path}/o/{quote(name, safe='')}"

    @contextlib.contextmanager
    def _explained(self, action: str, key: str) -> Iterator[None]:
        try:
            yield
        except Refused as error:
            if error.status in _GONE and "bucket does not exist" not in error.message:
                raise ObjectMissing(key, self.url) from error
            if error.status == 404:
                reason = "the bucket does not exist"
            else:
                reason = _WHY.get(error.status, f"{error.status} {error.message}".strip())
            raise StoreUnreachable(action, key, reason, self.url) from error
        except NoToken as error:
            raise StoreUnreachable(action, key, str(error), self.url) from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreUnreachable(action, key, reason, self.url) from error


def _arrived_bytes(header: str | None) -> int:
    """``bytes=0-99`` -> 100; no header -> 0."""
    return int(header.rpartition("-")[2]) + 1 if header else 0


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _file_md5(path: Path) -> str:
    with path.open("rb") as source:
        digest = hashlib.file_digest(source, lambda: hashlib.md5(usedforsecurity=False))
    return base64.b64encode(digest.digest()).decode()
