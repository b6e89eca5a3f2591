"""The closed set of ways in which a launch can fail; the core reacts to kinds only."""

from enum import StrEnum


class FailureKind(StrEnum):
    """What a failed launch means for what to do next."""

    CAPACITY = "capacity"
    """None to be had there now: next offer, back off here."""
    QUOTA = "quota"
    """The account may not: skip the region and say so."""
    THROTTLED = "throttled"
    """Too many calls: wait and try the same again."""
    CREDENTIALS = "credentials"
    INVALID = "invalid"
    """The request can never work: do not repeat it."""
    UNREACHABLE = "unreachable"
    """No answer: the call may have worked; repeat with the same token."""


class LaunchFailed(Exception):
    """A launch that did not give an instance."""

    def __init__(self, kind: FailureKind, message: str, *, offer_id: str, code: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.offer_id = offer_id
        self.code = code


class CallFailed(Exception):
    """A listing or an end that the cloud did not answer or refused; nothing is known to be done."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
