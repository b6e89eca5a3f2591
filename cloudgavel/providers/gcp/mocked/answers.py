"""What passes between the fake cloud's server and its services, and Google's forms of an error."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One HTTP request, read whole."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes

    def json(self) -> dict[str, Any]:
        """Return the body as JSON; an empty one is ``{}``."""
        return dict(json.loads(self.body or b"{}"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One HTTP answer; ``lost`` = the work is done but the answer never arrives."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    lost: bool = False


class Refusal(Exception):
    """An answer that is an error in Google's form."""

    def __init__(self, status: int, reason: str, message: str, *, rpc: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.rpc = rpc

    def answer(self) -> Answer:
        """Return it as Google would write it."""
        error: dict[str, Any] = {
            "code": self.status,
            "message": self.message,
            "errors": [{"message": self.message, "domain": "global", "reason": self.reason}],
        }
        if self.rpc:
            error["status"] = self.rpc
        return said({"error": error}, status=self.status)


def said(document: Mapping[str, Any], *, status: int = 200, **headers: str) -> Answer:
    """Return a JSON answer."""
    return Answer(
        status=status,
        body=json.dumps(document).encode(),
        headers={"Content-Type": "application/json; charset=UTF-8", **headers},
    )


def stamp(at_s: float) -> str:
    """UNIX seconds -> RFC 3339."""
    return datetime.fromtimestamp(at_s, tz=UTC).isoformat(timespec="milliseconds")
