"""What Amazon's error codes mean: the closed set of failures."""

from dataclasses import dataclass
from typing import Any

from cloudgavel.providers.failures import CallFailed, FailureKind

_CAPACITY = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientFreeAddressesInSubnet",
        "SpotMaxPriceTooLow",
        "UnfulfillableCapacity",
        "Unsupported",
        # Not offered in this zone, said with another word.
        "InstanceTypeNotSupported",
    }
)
_QUOTA = frozenset(
    {
        "VcpuLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "InstanceLimitExceeded",
        "SpotInstanceCountExceeded",
        "VolumeLimitExceeded",
        "MaxIOPSLimitExceeded",
        "NetworkInterfaceLimitExceeded",
    }
)
_THROTTLED = frozenset(
    {
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "EC2ThrottledException",
        "InstanceRequestLimitExceeded",
        "ResourceCountLimitExceeded",
        "SlowDown",
    }
)
_CREDENTIALS = frozenset(
    {
        "AuthFailure",
        "UnauthorizedOperation",
        "AccessDenied",
        "AccessDeniedException",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "OptInRequired",
        "Blocked",
        "PendingVerification",
    }
)
_NO_ANSWER = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "ServiceUnavailable",
        "Unavailable",
        "RequestTimeout",
        "RequestTimeoutException",
    }
)

NOT_FOUND = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})
TOKEN_USED_OTHERWISE = "IdempotentParameterMismatch"


@dataclass(frozen=True, kw_only=True, slots=True)
class Explained:
    """One failed call: its kind, Amazon's code (or the exception's name) and a sentence."""

    kind: FailureKind
    code: str
    message: str


def explain(error: BaseException) -> Explained:
    """Classify what a boto3 call raised.

    Codes come before HTTP statuses (a stock-out is a 500). What has no known code is unreachable
    when the server failed (5xx: the call may have worked) and invalid otherwise.
    """
    from botocore import exceptions as boto_errors

    if isinstance(error, boto_errors.ClientError):
        response: dict[str, Any] = dict(error.response)
        code = str(response.get("Error", {}).get("Code", ""))
        said = str(response.get("Error", {}).get("Message", "")) or str(error)
        status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) or 0)
        return Explained(kind=_kind(code, status), code=code, message=said.rstrip("."))
    name = type(error).__name__
    if isinstance(
        error,
        (
            boto_errors.NoCredentialsError,
            boto_errors.PartialCredentialsError,
            boto_errors.CredentialRetrievalError,
            boto_errors.TokenRetrievalError,
            boto_errors.ProfileNotFound,
            boto_errors.NoAuthTokenError,
        ),
    ):
        return Explained(
            kind=FailureKind.CREDENTIALS,
            code=name,
            message=f"no usable AWS credentials ({str(error).rstrip('.')})",
        )
    if isinstance(
        error,
        (
            boto_errors.HTTPClientError,
            boto_errors.ConnectionError,
            boto_errors.IncompleteReadError,
            OSError,
        ),
    ):
        return Explained(
            kind=FailureKind.UNREACHABLE,
            code=name,
            message=f"AWS gave no answer ({str(error).rstrip('.')})",
        )
    return Explained(kind=FailureKind.INVALID, code=name, message=str(error).rstrip("."))


def call_failed(error: BaseException, doing: str) -> CallFailed:
    """Return the failure of a call that is no launch, in words: what was being done, and why."""
    explained = explain(error)
    code = f"{explained.code}: " if explained.code else ""
    return CallFailed(explained.kind, f"cannot {doing}: {code}{explained.message}")


def code_of(error: BaseException) -> str:
    """Return Amazon's code of an error; empty for one that is not an answer of Amazon's."""
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return ""
    return str(response.get("Error", {}).get("Code", ""))


def _kind(code: str, status: int) -> FailureKind:
    for codes, kind in (
        (_CAPACITY, FailureKind.CAPACITY),
        (_QUOTA, FailureKind.QUOTA),
        (_THROTTLED, FailureKind.THROTTLED),
        (_CREDENTIALS, FailureKind.CREDENTIALS),
        (_NO_ANSWER, FailureKind.UNREACHABLE),
    ):
        if code in codes:
            return kind
    return FailureKind.UNREACHABLE if status >= 500 else FailureKind.INVALID
