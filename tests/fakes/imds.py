"""A fake of the AWS instance metadata service, version 2, as one machine sees it."""

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cloudgavel.providers.gcp.mocked.answers import Answer, Request
from cloudgavel.providers.gcp.mocked.server import serve

_DATA = "/latest/meta-data/"
KEY_ID = "ASIAMACHINE"
SECRET = "a-machines-secret"
"""Of every machine's role."""


@dataclass
class FakeImds:
    """Answers like Amazon's: nothing without a token, 404 for what is not there.

    ``taken_at_s`` is asked at each look: when the machine will be taken, or ``None``.
    """

    taken_at_s: Callable[[], float | None] = lambda: None
    recommended: bool = False
    role: str | None = "cloudgavel-agent"
    """Of its instance profile; ``None`` = it has none."""
    region: str = "eu-west-1"
    instance_id: str = "i-0123456789abcdef0"
    broken: bool = False
    """Every answer is HTTP 503."""
    tokens: list[str] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, at_s: float) -> None:
        """Say from now on that the machine is taken at ``at_s``."""
        self.taken_at_s = lambda: at_s

    def forget_tokens(self) -> None:
        """Let every token have expired."""
        self.tokens.clear()

    def handle(self, request: Request) -> Answer:
        with self.lock:
            self.calls[request.path] += 1
            if self.broken:
                return Answer(status=503)
            if request.path == "/latest/api/token":
                return self._token(request)
            if request.headers.get("x-aws-ec2-metadata-token") not in self.tokens:
                return Answer(status=401)
            return self._value(request.path.removeprefix(_DATA))

    def _token(self, request: Request) -> Answer:
        if request.method != "PUT":
            return Answer(status=405)
        if "x-aws-ec2-metadata-token-ttl-seconds" not in request.headers:
            return Answer(status=400)
        self.tokens.append(f"token-{len(self.tokens)}-{self.calls[request.path]}")
        return Answer(body=self.tokens[-1].encode())

    def _value(self, name: str) -> Answer:
        taken_at_s = self.taken_at_s()
        if name == "spot/instance-action" and taken_at_s is not None:
            at = datetime.fromtimestamp(taken_at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            return Answer(body=json.dumps({"action": "terminate", "time": at}).encode())
        if name == "events/recommendations/rebalance" and self.recommended:
            return Answer(body=b'{"noticeTime": "2026-11-29T18:00:00Z"}')
        told = self._identity(name)
        return Answer(status=404) if told is None else Answer(body=told.encode())

    def _identity(self, name: str) -> str | None:
        match name:
            case "instance-id":
                return self.instance_id
            case "placement/region":
                return self.region
            case "iam/security-credentials/":
                return self.role
        if self.role is None or name != f"iam/security-credentials/{self.role}":
            return None
        keys = {
            "Code": "Success",
            "AccessKeyId": KEY_ID,
            "SecretAccessKey": SECRET,
            "Token": "a-session",
            "Expiration": "2099-01-01T00:00:00Z",
        }
        return json.dumps(keys)


@contextlib.contextmanager
def serve_imds(imds: FakeImds) -> Iterator[str]:
    """Serve it; yields the endpoint, for ``AWS_EC2_METADATA_SERVICE_ENDPOINT``."""
    with serve(imds.handle) as endpoint:
        yield endpoint
