"""An object store in an S3 bucket, under a prefix: conditional writes, parts, checksums, resume.

boto3 is imported when the first call is made. One layer repeats: ours, with the same bytes.
"""

import base64
import contextlib
import hashlib
import os
import re
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, quote, urlsplit

from cloudgavel.errors import UsageError
from cloudgavel.objects.keyless import NoAccess
from cloudgavel.objects.s3_role import session_as
from cloudgavel.objects.store import (
    ObjectInfo,
    ObjectMissing,
    StoreUnreachable,
    VersionedObject,
    check_key,
)

PART_BYTES = 16 << 20
"""Files above this size go up in parts of it; S3 takes at most 10,000 parts."""
MOST_PARTS = 10_000
READ_BYTES = 1 << 20
ATTEMPTS = 5
LONGEST_PAUSE_S = 8.0
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30
WRITER = "cloudgavel-writer"
"""Metadata that tells our own earlier, unanswered write from another's."""

_MISSING = frozenset({"NoSuchKey", "404", "NotFound"})
_LOST_RACE = frozenset({"PreconditionFailed", "412"})
_TRANSIENT = frozenset(
    {
        "SlowDown",
        "InternalError",
        "InternalFailure",
        "ServiceUnavailable",
        "503",
        "500",
        "502",
        "504",
        "RequestTimeout",
        "RequestTimeoutException",
        "ThrottlingException",
        "Throttling",
        "RequestLimitExceeded",
        # Two conditional writes at one moment: neither is refused, one has to come again.
        "ConditionalRequestConflict",
        "OperationAborted",
        "409",
        # The bytes were spoilt on their way.
        "BadDigest",
        "XAmzContentSHA256Mismatch",
    }
)
_WHY = {
    "NoSuchBucket": "the bucket does not exist",
    "AccessDenied": "access is denied",
    "403": "access is denied",
    "InvalidAccessKeyId": "the access key is not known",
    "SignatureDoesNotMatch": "the secret key is wrong",
    "ExpiredToken": "the credentials have expired",
    "RequestTimeTooSkewed": "this machine's clock is wrong by more than 15 minutes",
    "PermanentRedirect": "the bucket is in another region",
}

_ROLE = re.compile(r"arn:aws:iam::\d{12}:role/[\w+=,.@/-]+")

Result = TypeVar("Result")


class S3Store:
    """Objects under ``s3://bucket/prefix``.

    The version of an object is its ETag, and conditional writes are S3's own (``If-None-Match``,
    ``If-Match``). Small writes carry a SHA-256 that S3 checks; files above ``part_bytes`` go up in
    parts, each with its own, and appear only when they are whole. A broken download goes on where
    it was. Every method raises ``StoreUnreachable`` after ``attempts`` tries; safe between threads.

    ``s3://bucket/prefix?role=arn:aws:iam::ACCOUNT:role/NAME`` is for a machine on Google Cloud: it
    acts as that role by its own identity (``objects.keyless``), and holds no key.
    """

    poll_floor_s: float = 1.0

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        role: str | None = None,
        client: Any = None,
        part_bytes: int = PART_BYTES,
        attempts: int = ATTEMPTS,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        """``client`` replaces boto3's (tests, the dry run); ``sleep`` the pauses between tries."""
        self.bucket = bucket
        self.prefix = prefix.strip("/")
        self._role = role
        self._client = client
        self._part_bytes = part_bytes
        self._attempts = attempts
        self._sleep = sleep
        self._lock = threading.Lock()

    @classmethod
    def from_url(cls, url: str, **options: Any) -> "S3Store":
        """Open ``s3://bucket/prefix``; nothing is read or written by it."""
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        if parts.scheme != "s3" or not parts.netloc or parts.fragment or set(query) - {"role"}:
            raise UsageError(
                f"{url} does not name a bucket", hints=["for example s3://my-bucket/runs"]
            )
        prefix = parts.path.strip("/")
        if prefix:
            check_key(prefix)
        role = query.get("role", [None])[0]
        if role is not None and not _ROLE.fullmatch(role):
            raise UsageError(
                f"{role} is not the ARN of a role",
                hints=["for example arn:aws:iam::123456789012:role/cloudgavel-agent"],
            )
        return cls(parts.netloc, prefix, role=role, **options)

    @property
    def url(self) -> str:
        """``s3://bucket/prefix``, with the role if it is reached as one."""
        plain = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        return plain if self._role is None else f"{plain}?role={quote(self._role, safe=':/')}"

    def put(self, key: str, data: bytes, *, durable: bool = True) -> None:
        """Write or replace; what S3 has taken is durable."""
        name = self._name(key)
        self._tried("write", key, lambda: self._put(name, data))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write unless the key exists; of several writers exactly one gets ``True``."""
        return self._put_if(key, data, IfNoneMatch="*")

    def put_if_version(self, key: str, data: bytes, version: str | None) -> bool:
        """Replace only the version that was read (``None`` = only if absent)."""
        if version is None:
            return self.put_if_absent(key, data)
        return self._put_if(key, data, IfMatch=version)

    def get(self, key: str) -> bytes:
        """Read all of it; ``ObjectMissing`` if there is none."""
        return self.get_versioned(key).data

    def get_versioned(self, key: str) -> VersionedObject:
        """Read it with its version (the ETag)."""
        name = self._name(key)

        def read() -> VersionedObject:
            answer = self._s3().get_object(Bucket=self.bucket, Key=name, ChecksumMode="ENABLED")
            with contextlib.closing(answer["Body"]) as body:
                return VersionedObject(data=body.read(), version=str(answer["ETag"]))

        return self._tried("read", key, read)

    def stamp(self, key: str) -> str | None:
        """One HEAD: the ETag."""
        name = self._name(key)
        try:
            answer = self._tried(
                "look at", key, lambda: self._s3().head_object(Bucket=self.bucket, Key=name)
            )
        except ObjectMissing:
            return None
        return str(answer["ETag"])

    def list(self, prefix: str) -> list[ObjectInfo]:
        """Everything whose key starts with ``prefix``, by key; a thousand to a call."""
        start = f"{self.prefix}/" if self.prefix else ""

        def read() -> list[ObjectInfo]:
            pages = (
                self._s3()
                .get_paginator("list_objects_v2")
                .paginate(Bucket=self.bucket, Prefix=start + prefix)
            )
            return [
                ObjectInfo(key=str(row["Key"]).removeprefix(start), size_bytes=int(row["Size"]))
                for page in pages
                for row in page.get("Contents", ())
            ]

        found = self._tried("list", prefix or "everything", read)
        return sorted(found, key=lambda info: info.key)

    def delete(self, key: str) -> None:
        """Remove; a key that does not exist is fine."""
        name = self._name(key)
        with contextlib.suppress(ObjectMissing):
            self._tried(
                "delete", key, lambda: self._s3().delete_object(Bucket=self.bucket, Key=name)
            )

    def put_file(self, key: str, path: Path) -> None:
        """``put`` of a file; a large one in parts, each repeated by itself."""
        name = self._name(key)
        try:
            size_bytes = path.stat().st_size
            if size_bytes <= self._part_bytes:
                data = path.read_bytes()
                self._tried("write", key, lambda: self._put(name, data))
                return
            self._put_in_parts(key, name, path, size_bytes)
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreUnreachable("write", key, reason, self.url) from error

    def get_file(self, key: str, path: Path) -> None:
        """``get`` into a file, which takes its name when it is whole.

        A transfer that breaks goes on where it was, in this call or a later one, as long as the
        object is still the same.
        """
        name = self._name(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            while not self._fetched(key, name, path):
                # Replaced meanwhile: a part of the old one and a part of the new one are neither.
                pass
        except OSError as error:
            reason = error.strerror or str(error)
            raise StoreUnreachable("read", key, reason, self.url) from error

    # -- writing ----------------------------------------------------------------------------

    def _put(self, name: str, data: bytes, **conditions: Any) -> Any:
        return self._s3().put_object(
            Bucket=self.bucket,
            Key=name,
            Body=data,
            ChecksumAlgorithm="SHA256",
            ChecksumSHA256=_sha256_base64(data),
            **conditions,
        )

    def _put_if(self, key: str, data: bytes, **conditions: Any) -> bool:
        name, writer = self._name(key), uuid.uuid4().hex
        tries = 0

        def write() -> bool:
            nonlocal tries
            tries += 1
            try:
                self._put(name, data, Metadata={WRITER: writer}, **conditions)
            except Exception as error:
                code = _code(error)
                if code in _LOST_RACE or (code in _MISSING and "IfMatch" in conditions):
                    # An earlier try may have worked and only its answer been lost.
                    return tries > 1 and self._wrote(name, writer)
                raise
            return True

        return self._tried("write", key, write)

    def _wrote(self, name: str, writer: str) -> bool:
        try:
            answer = self._s3().head_object(Bucket=self.bucket, Key=name)
        except Exception as error:
            if _code(error) in _MISSING:
                return False
            raise
        return bool(answer.get("Metadata", {}).get(WRITER) == writer)

    def _put_in_parts(self, key: str, name: str, path: Path, size_bytes: int) -> None:
        part_bytes = max(self._part_bytes, -(-size_bytes // MOST_PARTS))
        upload = self._tried(
            "write",
            key,
            lambda: self._s3().create_multipart_upload(
                Bucket=self.bucket, Key=name, ChecksumAlgorithm="SHA256"
            ),
        )
        where = {"Bucket": self.bucket, "Key": name, "UploadId": upload["UploadId"]}
        try:
            parts = []
            with path.open("rb") as source:
                number = 0
                while piece := source.read(part_bytes):
                    number += 1
                    parts.append(self._put_part(key, where, number, piece))
            self._tried("write", key, lambda: self._completed(where, {"Parts": parts}, size_bytes))
        except BaseException:
            # Parts of an upload that never ends are kept, and billed, until somebody says so.
            with contextlib.suppress(Exception):
                self._s3().abort_multipart_upload(**where)
            raise

    def _put_part(
        self, key: str, where: dict[str, Any], number: int, piece: bytes
    ) -> dict[str, Any]:
        checksum = _sha256_base64(piece)
        answer = self._tried(
            "write",
            key,
            lambda: self._s3().upload_part(
                **where,
                PartNumber=number,
                Body=piece,
                ChecksumAlgorithm="SHA256",
                ChecksumSHA256=checksum,
            ),
        )
        return {"PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": checksum}

    def _completed(self, where: dict[str, Any], parts: dict[str, Any], size_bytes: int) -> None:
        try:
            self._s3().complete_multipart_upload(**where, MultipartUpload=parts)
        except Exception as error:
            if _code(error) != "NoSuchUpload":
                raise
            # Completed by an earlier try whose answer got lost, if the object is there, whole.
            answer = self._s3().head_object(Bucket=where["Bucket"], Key=where["Key"])
            if int(answer["ContentLength"]) != size_bytes:
                raise

    # -- reading ----------------------------------------------------------------------------

    def _fetched(self, key: str, name: str, path: Path) -> bool:
        """Bring the object to ``path``; ``False`` = it changed on the way, begin again."""
        head = self._tried(
            "read", key, lambda: self._s3().head_object(Bucket=self.bucket, Key=name)
        )
        etag, size_bytes = str(head["ETag"]), int(head["ContentLength"])
        mark = hashlib.sha256(f"{name}\n{etag}".encode()).hexdigest()[:16]
        partial = path.with_name(f".{path.name}.{mark}.part")
        partial.touch()

        def go_on() -> bool:
            have = partial.stat().st_size
            if have > size_bytes:
                partial.unlink()
                partial.touch()
                have = 0
            if have < size_bytes:
                try:
                    answer = self._s3().get_object(
                        Bucket=self.bucket, Key=name, IfMatch=etag, Range=f"bytes={have}-"
                    )
                except Exception as error:
                    if _code(error) in _LOST_RACE:
                        return False
                    raise
                with contextlib.closing(answer["Body"]) as body, partial.open("ab") as sink:
                    while piece := body.read(READ_BYTES):
                        sink.write(piece)
            if partial.stat().st_size != size_bytes:
                raise _Incomplete(f"{partial.stat().st_size} of {size_bytes} bytes")
            return True

        same = self._tried("read", key, go_on)
        if not same:
            partial.unlink(missing_ok=True)
            return False
        os.replace(partial, path)
        return True

    # -- calls ------------------------------------------------------------------------------

    def _name(self, key: str) -> str:
        check_key(key)
        return f"{self.prefix}/{key}" if self.prefix else key

    def _s3(self) -> Any:
        with self._lock:
            if self._client is None:
                import boto3
                from botocore.config import Config

                session = (
                    boto3.session.Session()
                    if self._role is None
                    else session_as(self._role, self.bucket)
                )
                self._client = session.client(
                    "s3",
                    config=Config(
                        retries={"total_max_attempts": 1},
                        connect_timeout=CONNECT_TIMEOUT_S,
                        read_timeout=READ_TIMEOUT_S,
                        max_pool_connections=32,
                        user_agent_extra="cloudgavel",
                    ),
                )
            return self._client

    def _tried(self, action: str, key: str, call: Callable[[], Result]) -> Result:
        """Call until it works; explain what does not."""
        import tenacity

        options: dict[str, Any] = {} if self._sleep is None else {"sleep": self._sleep}
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self._attempts),
            wait=tenacity.wait_exponential_jitter(multiplier=0.2, max=LONGEST_PAUSE_S, jitter=0.2),
            retry=tenacity.retry_if_exception(_is_transient),
            reraise=True,
            **options,
        )
        try:
            return retrying(call)
        except (ObjectMissing, StoreUnreachable):
            raise
        except Exception as error:
            if _code(error) in _MISSING:
                raise ObjectMissing(key, self.url) from error
            if isinstance(error, OSError) and not _is_transient(error):
                raise
            raise StoreUnreachable(action, key, _why(error), self.url) from error


class _Incomplete(Exception):
    """A transfer that ended before all of it had come."""


def _is_transient(error: BaseException) -> bool:
    from botocore import exceptions as boto_errors

    if isinstance(error, boto_errors.ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) or 0)
        return _code(error) in _TRANSIENT or status >= 500
    return isinstance(
        error,
        (
            _Incomplete,
            boto_errors.HTTPClientError,
            boto_errors.ConnectionError,
            boto_errors.IncompleteReadError,
            boto_errors.ResponseStreamingError,
            boto_errors.FlexibleChecksumError,
            ConnectionError,
            TimeoutError,
        ),
    )


def _code(error: BaseException) -> str:
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return ""
    return str(response.get("Error", {}).get("Code", ""))


def _why(error: BaseException) -> str:
    code = _code(error)
    if code in _WHY:
        return _WHY[code]
    if isinstance(error, NoAccess):
        return str(error)
    name = type(error).__name__
    if name in ("NoCredentialsError", "PartialCredentialsError"):
        return "there are no AWS credentials"
    response = getattr(error, "response", None)
    if code and isinstance(response, dict):
        return f"{code}: {response.get('Error', {}).get('Message', '')}".rstrip(": .")
    return f"no answer ({str(error).rstrip('.')})"


def _sha256_base64(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()
