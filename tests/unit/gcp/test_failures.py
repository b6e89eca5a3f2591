"""What Google's errors mean."""

import pytest

from cloudgavel.providers.failures import FailureKind
from cloudgavel.providers.gcp.failures import OperationFailed, call_failed, explain


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", "", FailureKind.CAPACITY),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "", FailureKind.CAPACITY),
        ("QUOTA_EXCEEDED", "Quota 'GPUS_ALL_REGIONS' exceeded", FailureKind.QUOTA),
        ("RATE_LIMIT_EXCEEDED", "", FailureKind.THROTTLED),
        ("INTERNAL_ERROR", "", FailureKind.CAPACITY),
        ("PERMISSION_DENIED", "", FailureKind.CREDENTIALS),
        ("INVALID_FIELD_VALUE", "", FailureKind.INVALID),
    ],
)
def test_operations_that_ended_in_an_error(code, message, kind):
    assert explain(OperationFailed(code, message)).kind is kind


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (8, 'There is no more capacity in the zone "z"', FailureKind.CAPACITY),
        (8, "", FailureKind.CAPACITY),
        (8, "Quota limit 'TPUsPerProject' has been exceeded", FailureKind.QUOTA),
        (9, "Insufficient reserved capacity", FailureKind.CAPACITY),
        (7, "no", FailureKind.CREDENTIALS),
        (3, "bad request", FailureKind.INVALID),
    ],
)
def test_long_running_operations_of_the_tpus(code, message, kind):
    assert explain(OperationFailed.of_rpc(code, message)).kind is kind


def test_answers_by_reason_before_status():
    from google.api_core import exceptions

    def answer(kind, reason):
        return kind("said so.", errors=[{"reason": reason}])

    for kind, reason, meant in [
        (exceptions.Forbidden, "quotaExceeded", FailureKind.QUOTA),
        (exceptions.Forbidden, "rateLimitExceeded", FailureKind.THROTTLED),
        (exceptions.Forbidden, "forbidden", FailureKind.CREDENTIALS),
        (exceptions.Forbidden, "something new", FailureKind.CREDENTIALS),
        (exceptions.Unauthorized, "authError", FailureKind.CREDENTIALS),
        (exceptions.TooManyRequests, "", FailureKind.THROTTLED),
        (exceptions.NotFound, "notFound", FailureKind.INVALID),
        (exceptions.BadRequest, "invalid", FailureKind.INVALID),
        (exceptions.ServiceUnavailable, "backendError", FailureKind.UNREACHABLE),
        (exceptions.InternalServerError, "", FailureKind.UNREACHABLE),
    ]:
        explained = explain(answer(kind, reason))
        assert (explained.kind, explained.message) == (meant, "said so"), (kind, reason)


def test_no_answer_and_no_credentials():
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth

    assert explain(ConnectionResetError("reset")).kind is FailureKind.UNREACHABLE
    assert explain(TimeoutError()).kind is FailureKind.UNREACHABLE
    assert explain(auth.TransportError("down")).kind is FailureKind.UNREACHABLE
    assert explain(auth.DefaultCredentialsError("none")).kind is FailureKind.CREDENTIALS
    assert explain(auth.RefreshError("expired")).kind is FailureKind.CREDENTIALS
    cause = api.Forbidden("no", errors=[{"reason": "quotaExceeded"}])
    assert explain(api.RetryError("gave up", cause)).kind is FailureKind.QUOTA


def test_a_failed_call_says_what_was_being_done():
    failure = call_failed(OperationFailed("QUOTA_EXCEEDED", "too many."), "do it")
    assert failure.message == "cannot do it: QUOTA_EXCEEDED: too many"
