"""The metadata servers of AWS and Google Cloud, as far as they tell of interruptions.

Both are plain HTTP on a link-local address, spoken to directly: never through a proxy.
AWS: IMDSv2, ``spot/instance-action`` (404 until about two minutes before the end) and
``events/recommendations/rebalance``. Google Cloud, virtual machines and TPU slices alike:
``instance/preempted`` (answered when it changes; about 30 seconds before the end, best effort) and
``instance/maintenance-event``.
"""

import http.client
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from urllib.parse import urlencode, urlsplit

from cloudgavel.agent.notices import (
    INTERRUPTION,
    MAINTENANCE,
    REBALANCE,
    NoticeSource,
    NoticesSilent,
)
from cloudgavel.messages.report import Notice

AWS_ENDPOINT_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
"""As the AWS SDKs call it."""
AWS_ENDPOINT = "http://169.254.169.254"
AWS_LOOK_EVERY_S = 5.0
"""Amazon recommends a look every five seconds."""
TOKEN_TTL_S = 21_600
GCP_HOST_VARIABLE = "GCE_METADATA_HOST"
GCP_HOST = "metadata.google.internal"
GCP_WAIT_S = 30.0
GCP_NOTICE_S = 30.0
ANSWER_S = 2.0
"""The longest that an answer at once may take."""
PATH_GCP = "/computeMetadata/v1/instance/"
CLOUDS = ("aws", "gcp")


def notice_source(
    cloud: str, environment: Mapping[str, str], *, wall: Callable[[], float]
) -> NoticeSource:
    """Return the source of a cloud of ``CLOUDS``; ``ValueError`` for any other."""
    if cloud == "aws":
        return AwsNotices(environment.get(AWS_ENDPOINT_VARIABLE) or AWS_ENDPOINT)
    if cloud == "gcp":
        return GcpNotices(environment.get(GCP_HOST_VARIABLE) or GCP_HOST, wall=wall)
    raise ValueError(f"no notices are known of `{cloud}`")


class AwsNotices:
    """IMDSv2: a token first, a new one when it is refused."""

    def __init__(self, endpoint: str) -> None:
        self.pause_s = AWS_LOOK_EVERY_S
        parts = urlsplit(endpoint)
        self._host, self._port = parts.hostname or endpoint, parts.port
        self._token: str | None = None

    def look(self) -> Notice | None:
        """An interruption; else a recommendation; else ``None``."""
        action = self._read("spot/instance-action")
        if action is not None:
            return Notice(kind=INTERRUPTION, ends_at_s=_instant(action, "time"))
        advice = self._read("events/recommendations/rebalance")
        return None if advice is None else Notice(kind=REBALANCE, ends_at_s=None)

    def _read(self, name: str) -> bytes | None:
        """Return one value; ``None`` = there is none (404)."""
        for _ in range(2):
            if self._token is None:
                self._token = self._new_token()
            status, _, body = self._ask(
                "GET", f"/latest/meta-data/{name}", {"X-aws-ec2-metadata-token": self._token}
            )
            if status == 401:
                self._token = None
                continue
            if status == 404:
                return None
            if status == 200:
                return body
            raise NoticesSilent(f"{name} of the instance metadata: HTTP {status}")
        raise NoticesSilent("the instance metadata refuse their own token")

    def _new_token(self) -> str:
        status, _, body = self._ask(
            "PUT",
            "/latest/api/token",
            {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)},
        )
        if status != 200:
            raise NoticesSilent(f"no token from the instance metadata: HTTP {status}")
        return body.decode("ascii", "replace")

    def _ask(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        return _ask(self._host, self._port, method, path, headers, patience_s=ANSWER_S)


class GcpNotices:
    """The preemption is waited for; the maintenance event is read after each wait."""

    def __init__(self, host: str, *, wall: Callable[[], float], wait_s: float = GCP_WAIT_S) -> None:
        self.pause_s = 1.0
        self._host, _, port = host.partition(":")
        self._port = int(port) if port else None
        self._wall = wall
        self._wait_s = wait_s
        self._tag: str | None = None

    def look(self) -> Notice | None:
        """A preemption, waited for up to ``wait_s``; else a stop for maintenance; else ``None``."""
        if self._read("preempted", wait=True).upper() == "TRUE":
            return Notice(kind=INTERRUPTION, ends_at_s=self._wall() + GCP_NOTICE_S)
        if self._read("maintenance-event", wait=False).startswith("TERMINATE"):
            return Notice(kind=MAINTENANCE, ends_at_s=None)
        return None

    def _read(self, name: str, *, wait: bool) -> str:
        """Return one value; an empty text where there is none."""
        query, patience_s = "", ANSWER_S
        if wait and self._tag is not None:
            # Without the mark of what was seen last, a change before the question is missed.
            asked = {
                "wait_for_change": "true",
                "timeout_sec": f"{self._wait_s:g}",
                "last_etag": self._tag,
            }
            query, patience_s = "?" + urlencode(asked), self._wait_s + ANSWER_S
        status, headers, body = _ask(
            self._host,
            self._port,
            "GET",
            f"{PATH_GCP}{name}{query}",
            {"Metadata-Flavor": "Google"},
            patience_s=patience_s,
        )
        if status == 404:
            return ""
        if status != 200:
            raise NoticesSilent(f"{name} of the metadata server: HTTP {status}")
        if wait:
            self._tag = headers.get("ETag")
        return body.decode("utf-8", "replace").strip()


def _ask(
    host: str,
    port: int | None,
    method: str,
    path: str,
    headers: Mapping[str, str],
    *,
    patience_s: float,
) -> tuple[int, Mapping[str, str], bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=patience_s)
    try:
        connection.request(method, path, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()  # type: ignore[return-value]
    except (OSError, http.client.HTTPException) as error:
        raise NoticesSilent(f"{host}: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()


def _instant(body: bytes, name: str) -> float | None:
    """UNIX seconds of ``{"time": "2026-11-29T18:00:00Z"}``; ``None`` where it cannot be read."""
    try:
        return datetime.fromisoformat(json.loads(body)[name]).timestamp()
    except (ValueError, KeyError, TypeError):
        return None
