"""A receiver of webhooks on this machine, which may refuse."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cloudgavel.providers.gcp.mocked.answers import Answer, Request
from cloudgavel.providers.gcp.mocked.server import serve


@dataclass
class FakeWebhook:
    """Keeps what was posted; ``answers`` are given first, then 200."""

    answers: list[int] = field(default_factory=list)
    got: list[dict[str, Any]] = field(default_factory=list)
    tries: list[str] = field(default_factory=list)
    """Method and path of every request."""
    hold: threading.Event | None = None
    """Answers wait for it."""

    def handle(self, request: Request) -> Answer:
        self.tries.append(f"{request.method} {request.path}")
        if self.hold is not None:
            self.hold.wait(30.0)
        status = self.answers.pop(0) if self.answers else 200
        if status < 300:
            self.got.append(json.loads(request.body))
        headers = {"Location": "/elsewhere"} if 300 <= status < 400 else {}
        return Answer(status=status, headers=headers)


@contextlib.contextmanager
def serve_webhook(webhook: FakeWebhook) -> Iterator[str]:
    """Serve it; yields the address of its root."""
    with serve(webhook.handle) as endpoint:
        yield endpoint
