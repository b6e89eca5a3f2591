"""Cloud Storage of the fake cloud: the JSON interface, generations, uploads in pieces."""

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from cloudgavel.providers.gcp.mocked.answers import Answer, Refusal, Request, said
from cloudgavel.providers.gcp.mocked.cloud import FakeGcp

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_SENT = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


@dataclass(kw_only=True)
class Stored:
    """One object."""

    data: bytes
    generation: int
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class Session:
    """One upload in pieces."""

    bucket: str
    name: str
    query: dict[str, str]
    metadata: dict[str, str]
    md5: str | None
    data: bytearray = field(default_factory=bytearray)


@dataclass
class FakeStorage:
    """The routes under ``/storage/v1`` and ``/upload/storage/v1``, for ``cloud.buckets``."""

    cloud: FakeGcp
    objects: dict[tuple[str, str], Stored] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    last_generation: int = 0

    def route(self, request: Request) -> tuple[str, Callable[[], Answer]] | None:
        """Return the operation's name and what does it; ``None`` for a path of no use here."""
        upload = re.fullmatch(r"/upload/storage/v1/b/([^/]+)/o", request.path)
        if upload is not None:
            bucket = upload[1]
            if request.method == "PUT":
                return "objects.insert", lambda: self._piece(request)
            if request.query.get("uploadType") == "resumable":
                return "objects.begin", lambda: self._begin(bucket, request)
            return "objects.insert", lambda: self._insert(bucket, request)
        listed = re.fullmatch(r"/storage/v1/b/([^/]+)/o", request.path)
        if listed is not None and request.method == "GET":
            bucket = listed[1]
            return "objects.list", lambda: self._list(bucket, request)
        named = re.fullmatch(r"/storage/v1/b/([^/]+)/o/(.+)", request.path)
        if named is not None:
            bucket, name = named[1], unquote(named[2])
            if request.method == "GET":
                return "objects.get", lambda: self._get(bucket, name, request)
            if request.method == "DELETE":
                return "objects.delete", lambda: self._delete(bucket, name)
        return None

    def _insert(self, bucket: str, request: Request) -> Answer:
        if request.query.get("uploadType") == "multipart":
            document, data = _two_parts(request)
            name = str(document["name"])
            metadata = {str(key): str(value) for key, value in document.get("metadata", {}).items()}
            wanted = document.get("md5Hash")
            if wanted is not None and wanted != _md5(data):
                raise Refusal(400, "invalid", "Provided MD5 hash does not match the data")
        else:
            name, data, metadata = request.query["name"], request.body, {}
        return said(self._put(bucket, name, data, metadata, request.query.get("ifGenerationMatch")))

    def _put(
        self, bucket: str, name: str, data: bytes, metadata: dict[str, str], matching: str | None
    ) -> dict[str, Any]:
        self._bucket(bucket)
        before = self.objects.get((bucket, name))
        if matching is not None and int(matching) != (before.generation if before else 0):
            raise Refusal(
                412,
                "conditionNotMet",
                "At least one of the pre-conditions you specified did not hold.",
            )
        self.last_generation += 1
        self.objects[bucket, name] = Stored(
            data=data,
            generation=max(self.last_generation, int(self.cloud.now_s() * 1e6)),
            metadata=metadata,
        )
        self.last_generation = self.objects[bucket, name].generation
        return self._shown(bucket, name)

    def _begin(self, bucket: str, request: Request) -> Answer:
        self._bucket(bucket)
        document = request.json()
        identity = uuid.uuid4().hex
        self.sessions[identity] = Session(
            bucket=bucket,
            name=str(document.get("name") or request.query["name"]),
            query=dict(request.query),
            metadata=dict(document.get("metadata", {})),
            md5=document.get("md5Hash"),
        )
        host = request.headers.get("host", "")
        place = f"http://{host}/upload/storage/v1/b/{bucket}/o?upload_id={identity}"
        return said({}, Location=place)

    def _piece(self, request: Request) -> Answer:
        session = self.sessions.get(request.query.get("upload_id", ""))
        if session is None:
            raise Refusal(404, "notFound", "No such upload session")
        sent = _SENT.fullmatch(request.headers.get("content-range", ""))
        if sent is None:
            raise Refusal(400, "invalid", "A piece needs a Content-Range")
        first, total = sent[1], sent[3]
        if first is not None:
            if int(first) > len(session.data):
                raise Refusal(400, "invalid", "A piece is missing before this one")
            del session.data[int(first) :]
            session.data += request.body
        if total != "*" and len(session.data) == int(total):
            document = self._put(
                session.bucket,
                session.name,
                bytes(session.data),
                session.metadata,
                session.query.get("ifGenerationMatch"),
            )
            if session.md5 not in (None, document["md5Hash"]):
                del self.objects[session.bucket, session.name]
                raise Refusal(400, "invalid", "Provided MD5 hash does not match the data")
            return said(document)
        headers = {"Range": f"bytes=0-{len(session.data) - 1}"} if session.data else {}
        return Answer(status=308, headers=headers)

    def _get(self, bucket: str, name: str, request: Request) -> Answer:
        stored = self._stored(bucket, name)
        if request.query.get("ifGenerationMatch", str(stored.generation)) != str(stored.generation):
            raise Refusal(412, "conditionNotMet", "The object has another generation.")
        if request.query.get("alt") != "media":
            return said(self._shown(bucket, name))
        headers = {
            "Content-Type": "application/octet-stream",
            "x-goog-generation": str(stored.generation),
            "x-goog-hash": f"md5={_md5(stored.data)}",
        }
        asked = _RANGE.fullmatch(request.headers.get("range", ""))
        if asked is None:
            return Answer(body=stored.data, headers=headers)
        first = int(asked[1])
        last = min(int(asked[2]) if asked[2] else len(stored.data) - 1, len(stored.data) - 1)
        if first >= len(stored.data):
            raise Refusal(416, "requestedRangeNotSatisfiable", "The range is beyond the end")
        headers["Content-Range"] = f"bytes {first}-{last}/{len(stored.data)}"
        return Answer(status=206, body=stored.data[first : last + 1], headers=headers)

    def _list(self, bucket: str, request: Request) -> Answer:
        self._bucket(bucket)
        prefix = request.query.get("prefix", "")
        names = sorted(
            name for held_in, name in self.objects if held_in == bucket and name.startswith(prefix)
        )
        most = int(request.query.get("maxResults") or 1000)
        after = request.query.get("pageToken", "")
        names = [name for name in names if name > after]
        document: dict[str, Any] = {"items": [self._shown(bucket, name) for name in names[:most]]}
        if len(names) > most:
            document["nextPageToken"] = names[most - 1]
        return said(document)

    def _delete(self, bucket: str, name: str) -> Answer:
        self._stored(bucket, name)
        del self.objects[bucket, name]
        return Answer(status=204)

    def _stored(self, bucket: str, name: str) -> Stored:
        self._bucket(bucket)
        if (bucket, name) not in self.objects:
            raise Refusal(404, "notFound", f"No such object: {bucket}/{name}")
        return self.objects[bucket, name]

    def _bucket(self, bucket: str) -> None:
        if bucket not in self.cloud.buckets:
            raise Refusal(404, "notFound", "The specified bucket does not exist.")

    def _shown(self, bucket: str, name: str) -> dict[str, Any]:
        stored = self.objects[bucket, name]
        return {
            "bucket": bucket,
            "name": name,
            "size": str(len(stored.data)),
            "generation": str(stored.generation),
            "md5Hash": _md5(stored.data),
            "metadata": stored.metadata,
        }


def _two_parts(request: Request) -> tuple[dict[str, Any], bytes]:
    """Split ``multipart/related``: a JSON document, then the bytes."""
    boundary = request.headers["content-type"].rpartition("boundary=")[2].strip('"').encode()
    first, second = request.body.split(b"--" + boundary)[1:3]
    document = json.loads(first.partition(b"\r\n\r\n")[2])
    data = second.partition(b"\r\n\r\n")[2]
    return document, data.removesuffix(b"\r\n")


def _md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
