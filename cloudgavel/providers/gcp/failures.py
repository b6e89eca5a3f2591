"""What Google's errors mean: the closed set of failures.

Three forms: an HTTP answer (``google.api_core``'s exceptions), an operation that ended in an error
(``OperationFailed``), and no answer at all.
"""

import re
from dataclasses import dataclass
from typing import Any

from cloudgavel.providers.failures import CallFailed, FailureKind

_THROTTLED = frozenset(
    {
        "rateLimitExceeded",
        "userRateLimitExceeded",
        "concurrentLimitExceeded",
        "RATE_LIMIT_EXCEEDED",
        "rate_limit_exceeded",
        "OPERATION_RATE_LIMIT_EXCEEDED",
    }
)
_QUOTA = frozenset({"quotaExceeded", "QUOTA_EXCEEDED", "limitExceeded"})
_CAPACITY_STARTS = (
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "REGION_RESOURCE_POOL_EXHAUSTED",
    "RESOURCE_POOL_EXHAUSTED",
    "STOCKOUT",
    "UNSUPPORTED_OPERATION",
    # The type is not sold in this zone, said with another word.
    "RESOURCE_NOT_AVAILABLE",
)
_NO_CAPACITY_TEXT = re.compile(
    r"no more capacity|insufficient (reserved )?capacity|stockout|"
    r"does not have enough resources|not enough resources available",
    re.IGNORECASE,
)
_QUOTA_TEXT = re.compile(r"quota", re.IGNORECASE)
_RATE_TEXT = re.compile(r"per minute|per second|rate limit|too many requests", re.IGNORECASE)
_CREDENTIALS = frozenset(
    {
        "forbidden",
        "accessNotConfigured",
        "authError",
        "required",
        "insufficientPermissions",
        "SERVICE_DISABLED",
        "IAM_PERMISSION_DENIED",
        "ACCESS_TOKEN_EXPIRED",
        "CREDENTIALS_MISSING",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "BILLING_DISABLED",
        "billingNotEnabled",
    }
)
_RPC_CODES = {
    3: "INVALID_ARGUMENT",
    5: "NOT_FOUND",
    6: "ALREADY_EXISTS",
    7: "PERMISSION_DENIED",
    8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION",
    13: "INTERNAL",
    14: "UNAVAILABLE",
    16: "UNAUTHENTICATED",
}


class OperationFailed(Exception):
    """An operation of Google's that is done, and ended in an error: nothing was created."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    @classmethod
    def of_rpc(cls, code: int, message: str) -> "OperationFailed":
        """Of a long-running operation's ``google.rpc.Status``."""
        return cls(_RPC_CODES.get(code, str(code)), message)


@dataclass(frozen=True, kw_only=True, slots=True)
class Explained:
    """One failed call: its kind, Google's code (or the exception's name) and a sentence."""

    kind: FailureKind
    code: str
    message: str


def explain(error: BaseException) -> Explained:
    """Classify what a call raised.

    Reasons come before HTTP statuses (a quota is a 403 like a missing permission). What has no
    known reason is unreachable when the server failed (the call may have worked), invalid
    otherwise.
    """
    if isinstance(error, OperationFailed):
        return Explained(
            kind=_operation_kind(error.code, error.message),
            code=error.code,
            message=error.message.rstrip("."),
        )
    from google.api_core import exceptions as api_errors
    from google.auth import exceptions as auth_errors

    if isinstance(error, api_errors.RetryError) and error.cause is not None:
        return explain(error.cause)
    if isinstance(error, api_errors.GoogleAPICallError):
        reasons = _reasons(error)
        said = str(error.message or error).rstrip(".")
        status = int(error.code or 0)
        code = reasons[0] if reasons else type(error).__name__
        return Explained(kind=_answer_kind(reasons, status, said), code=code, message=said)
    name = type(error).__name__
    if isinstance(error, auth_errors.TransportError):
        return Explained(
            kind=FailureKind.UNREACHABLE,
            code=name,
            message=f"Google gave no answer ({_first_line(error)})",
        )
    if isinstance(error, auth_errors.GoogleAuthError):
        return Explained(
            kind=FailureKind.CREDENTIALS,
            code=name,
            message=f"no usable Google credentials ({_first_line(error)})",
        )
    if isinstance(error, (api_errors.RetryError, OSError)):
        return Explained(
            kind=FailureKind.UNREACHABLE,
            code=name,
            message=f"Google gave no answer ({_first_line(error)})",
        )
    return Explained(kind=FailureKind.INVALID, code=name, message=_first_line(error))


def call_failed(error: BaseException, doing: str) -> CallFailed:
    """Return the failure of a call that is no launch, in words: what was being done, and why."""
    if isinstance(error, CallFailed):
        return error
    explained = explain(error)
    code = f"{explained.code}: " if explained.code else ""
    return CallFailed(explained.kind, f"cannot {doing}: {code}{explained.message}")


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an answer of Google's; 0 for what is none."""
    from google.api_core import exceptions as api_errors

    if isinstance(error, api_errors.GoogleAPICallError):
        return int(error.code or 0)
    return 0


def is_gone(error: BaseException) -> bool:
    """True for a 404: what was asked for is not there any more."""
    return status_of(error) == 404


def is_switched_off(error: BaseException) -> bool:
    """True when the project does not have the interface enabled: nothing of it can be there."""
    return explain(error).code in ("SERVICE_DISABLED", "accessNotConfigured")


def already_exists(error: BaseException) -> bool:
    """True for a 409 that says that the name is taken."""
    return status_of(error) == 409


def _reasons(error: Any) -> list[str]:
    """Every reason in an answer, the most telling first."""
    found: list[str] = []
    for each in error.errors or ():
        if isinstance(each, dict) and each.get("reason"):
            found.append(str(each["reason"]))
    if getattr(error, "reason", None):
        found.append(str(error.reason))
    response = getattr(error, "response", None)
    try:
        status = response.json()["error"]["status"] if response is not None else None
    except (ValueError, KeyError, TypeError, AttributeError):
        status = None
    if status:
        found.append(str(status))
    return found


def _answer_kind(reasons: list[str], status: int, said: str) -> FailureKind:
    if any(reason in _THROTTLED for reason in reasons):
        return FailureKind.THROTTLED
    if any(reason in _QUOTA for reason in reasons):
        return FailureKind.QUOTA
    if any(reason.startswith(_CAPACITY_STARTS) for reason in reasons):
        return FailureKind.CAPACITY
    if "RESOURCE_EXHAUSTED" in reasons or status == 429:
        return _exhausted(said, otherwise=FailureKind.THROTTLED)
    if any(reason in _CREDENTIALS for reason in reasons) or status in (401, 403):
        return FailureKind.CREDENTIALS
    if _NO_CAPACITY_TEXT.search(said):
        return FailureKind.CAPACITY
    return FailureKind.UNREACHABLE if status >= 500 else FailureKind.INVALID


def _operation_kind(code: str, said: str) -> FailureKind:
    if code.startswith(_CAPACITY_STARTS) or _NO_CAPACITY_TEXT.search(said):
        return FailureKind.CAPACITY
    if code in _QUOTA:
        return FailureKind.QUOTA
    if code in _THROTTLED:
        return FailureKind.THROTTLED
    if code == "RESOURCE_EXHAUSTED":
        return _exhausted(said, otherwise=FailureKind.CAPACITY)
    if code in _CREDENTIALS:
        return FailureKind.CREDENTIALS
    if code in ("INTERNAL_ERROR", "INTERNAL", "UNAVAILABLE", "SERVICE_UNAVAILABLE"):
        # Done, and failed for good: repeating the token would only repeat this answer.
        return FailureKind.CAPACITY
    return FailureKind.INVALID


def _exhausted(said: str, *, otherwise: FailureKind) -> FailureKind:
    """One code for three things: only the sentence tells them apart."""
    if _NO_CAPACITY_TEXT.search(said):
        return FailureKind.CAPACITY
    if _RATE_TEXT.search(said):
        return FailureKind.THROTTLED
    if _QUOTA_TEXT.search(said):
        return FailureKind.QUOTA
    return otherwise


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")
