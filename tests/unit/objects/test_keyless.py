"""From one cloud into the other's store without keys."""

import contextlib
import time
from datetime import UTC, datetime
from email.message import Message
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qsl

import pytest

from cloudgavel.errors import UsageError
from cloudgavel.objects.gcs import GcsStore
from cloudgavel.objects.keyless import (
    AUDIENCE,
    AwsKeys,
    NoAccess,
    bucket_region,
    fetched,
    google_token,
    role_keys,
    signed,
)
from cloudgavel.objects.open import open_store
from cloudgavel.objects.s3 import S3Store
from cloudgavel.objects.s3_role import session_as
from cloudgavel.objects.store import StoreUnreachable
from cloudgavel.providers.gcp.mocked.answers import Answer
from cloudgavel.providers.gcp.mocked.cloud import FakeGcp
from cloudgavel.providers.gcp.mocked.identity import account_id, claims_of
from cloudgavel.providers.gcp.mocked.server import serve, serve_cloud, serve_metadata
from tests.fakes.imds import KEY_ID, SECRET, FakeImds
from tests.unit.gcp.project import ACCOUNT, a_project, a_request, a_slice, an_offer

ROLE = "arn:aws:iam::123456789012:role/cloudgavel-agent"
PROVIDER = "projects/1/locations/global/workloadIdentityPools/aws/providers/account"
KEYS = AwsKeys(key_id=KEY_ID, secret=SECRET, token="a-session", expires_at="2099-01-01T00:00:00Z")
NOW_S = 1_790_000_000.0
ANSWER = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIA{count}</AccessKeyId>
<SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>
<Expiration>{ends}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""


class Sts:
    """Amazon's token service: trusts one service account, by its number."""

    def __init__(self, *, lasts_s=3600.0):
        self.asked = []
        self.failures = []
        self.lasts_s = lasts_s

    def handle(self, request):
        asked = dict(parse_qsl(request.body.decode()))
        self.asked.append(asked)
        if self.failures:
            return Answer(status=self.failures.pop(0), body=b"not now")
        claims = claims_of(asked["WebIdentityToken"])
        number = account_id(ACCOUNT)
        if (claims["aud"], claims["azp"], claims["sub"]) != (AUDIENCE, number, number):
            return Answer(status=403, body=b"Not authorized to perform this")
        ends = datetime.fromtimestamp(time.time() + self.lasts_s, UTC).isoformat()
        return Answer(body=ANSWER.format(count=len(self.asked), ends=ends).encode())


@contextlib.contextmanager
def on_google(sts, offer=None, **settings):
    """A machine of the fake cloud: yields what its processes find in their environment."""
    given = offer or an_offer()
    with a_project(given, **settings) as project, serve(sts.handle) as endpoint:
        name = project.provider.launch(a_request(given)).instance_id
        with serve_metadata(project.cloud, name) as host:
            yield {"GCE_METADATA_HOST": host, "AWS_ENDPOINT_URL": endpoint}


@contextlib.contextmanager
def on_aws(imds=None):
    """A machine of AWS beside a fake Google Cloud: yields environment, cloud and endpoint."""
    cloud = FakeGcp(now_s=lambda: NOW_S, offers=[])
    cloud.buckets.add("runs")
    cloud.aws_accounts[PROVIDER] = "123456789012"
    cloud.aws_account_of = lambda headers: (
        "123456789012" if f"Credential={KEY_ID}/" in headers["authorization"] else None
    )
    cloud.impersonated.add(ACCOUNT)
    with serve((imds or FakeImds()).handle) as metadata, serve_cloud(cloud) as url:
        yield {"AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata}, cloud, url


@pytest.mark.parametrize(
    ("method", "url", "service"),
    [
        ("POST", "https://sts.eu-west-1.amazonaws.com/?Action=GetCallerIdentity&V=2", "sts"),
        ("GET", "https://s3.eu-west-1.amazonaws.com/bucket/runs/a%20b/agent.tar.gz", "s3"),
        ("GET", "http://127.0.0.1:5000/bucket/x?b=2&a=%2F", "s3"),
    ],
)
def test_a_signature_is_the_one_that_amazons_sdk_makes(method, url, service, monkeypatch):
    from botocore.auth import S3SigV4Auth, SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    ours = signed(
        method,
        url,
        keys=KEYS,
        region="eu-west-1",
        service=service,
        now_s=NOW_S,
        headers={"x-goog-cloud-target-resource": "//iam.googleapis.com/x"},
    )
    monkeypatch.setattr(
        "botocore.auth.get_current_datetime", lambda: datetime.fromtimestamp(NOW_S, UTC)
    )
    request = AWSRequest(
        method=method, url=url, headers={"x-goog-cloud-target-resource": "//iam.googleapis.com/x"}
    )
    kind = S3SigV4Auth if service == "s3" else SigV4Auth
    kind(Credentials(KEY_ID, SECRET, "a-session"), service, "eu-west-1").add_auth(request)
    assert ours["Authorization"] == request.headers["Authorization"]
    assert ours["x-amz-date"] == request.headers["X-Amz-Date"]


@pytest.mark.parametrize("offer", [an_offer(), a_slice()], ids=["machine", "slice"])
def test_a_google_machine_gets_a_roles_keys_for_its_identity(offer):
    sts = Sts()
    with on_google(sts, offer) as environment:
        keys = role_keys(ROLE, environment)
    assert keys.key_id == "ASIA1"
    (asked,) = sts.asked
    assert asked["RoleArn"] == ROLE
    assert asked["RoleSessionName"].startswith("cloudgavel-")


def test_a_refusal_says_what_amazon_said_and_a_bad_moment_may_be_repeated():
    sts = Sts()
    with on_google(sts) as environment:
        sts.failures = [503, 403]
        with pytest.raises(ConnectionError, match="503"):
            role_keys(ROLE, environment)
        with pytest.raises(NoAccess, match="403: not now"):
            role_keys(ROLE, environment)


def test_keys_are_fetched_when_needed_and_anew_before_they_end(monkeypatch):
    sts = Sts(lasts_s=60.0)
    with on_google(sts) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        credentials = session_as(ROLE, "bucket").get_credentials()
        assert sts.asked == []
        first = credentials.get_frozen_credentials()
        second = credentials.get_frozen_credentials()
    assert (first.access_key, second.access_key) == ("ASIA1", "ASIA2")


def test_a_store_whose_role_trusts_nobody_here_is_unreachable_in_words(monkeypatch):
    sts = Sts()
    sts.failures = [403] * 9
    with on_google(sts) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        store = open_store(f"s3://bucket/runs/x?role={ROLE}")
        with pytest.raises(StoreUnreachable, match="answered 403: not now"):
            store.get("a")
    assert len(sts.asked) == 1


def test_an_aws_machine_uses_cloud_storage_as_a_service_account(monkeypatch):
    with on_aws() as (environment, cloud, endpoint):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        url = f"gs://runs/quick?endpoint={endpoint}&provider={PROVIDER}&account={ACCOUNT}"
        store = open_store(url)
        assert isinstance(store, GcsStore)
        assert store.url == url
        store.put("a", b"1")
        assert store.get("a") == b"1"
        assert fetched(url, "gs://runs/quick/a", environment, now_s=NOW_S) == b"1"
    assert cloud.calls["sts.token"] == 2
    assert cloud.calls["token impersonated"] == 3


@pytest.mark.parametrize(
    ("imds", "provider", "account", "said"),
    [
        (None, PROVIDER.replace("/1/", "/2/"), ACCOUNT, "there is no provider"),
        (None, PROVIDER, "other@x", "Permission.*denied on other@x"),
        (FakeImds(role=None), PROVIDER, ACCOUNT, "answered 404"),
    ],
)
def test_what_google_does_not_trust_is_told(imds, provider, account, said, monkeypatch):
    with on_aws(imds) as (environment, _, endpoint):
        with pytest.raises(NoAccess, match=said):
            google_token(provider, account, environment, now_s=NOW_S, endpoint=endpoint)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        store = open_store(f"gs://runs?endpoint={endpoint}&provider={provider}&account={account}")
        with pytest.raises(StoreUnreachable, match=said):
            store.get("a")


def test_keys_of_another_account_are_not_trusted():
    with on_aws() as (environment, cloud, endpoint):
        cloud.aws_account_of = lambda headers: "999999999999"
        with pytest.raises(NoAccess, match="does not trust this caller"):
            google_token(PROVIDER, ACCOUNT, environment, now_s=NOW_S, endpoint=endpoint)


def test_a_bucket_of_which_nobody_can_be_asked_is_unreachable_and_no_crash(monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    tries = []

    def unplugged(request, timeout):
        tries.append(request.full_url)
        raise URLError("no route")

    monkeypatch.setattr("urllib.request.urlopen", unplugged)
    store = S3Store("bucket", role=ROLE, attempts=3, sleep=lambda seconds: None)
    with pytest.raises(StoreUnreachable, match="no route"):
        store.get("a")
    assert tries == ["https://s3.amazonaws.com/bucket"] * 3


def test_where_a_bucket_is_anybody_may_know(monkeypatch):
    def refusing(request, timeout):
        headers = Message()
        headers["x-amz-bucket-region"] = "eu-north-1"
        raise HTTPError(request.full_url, 403, "Forbidden", headers, None)

    monkeypatch.setattr("urllib.request.urlopen", refusing)
    assert bucket_region("bucket", {}) == "eu-north-1"


def test_a_metadata_server_that_talks_nonsense_is_unreachable_and_no_crash(monkeypatch):
    with serve(lambda request: Answer(body=b"nonsense")) as metadata:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata)
        url = f"gs://runs?endpoint={metadata}&provider={PROVIDER}&account={ACCOUNT}"
        with pytest.raises(StoreUnreachable, match="not understood"):
            open_store(url).get("a")


@pytest.mark.parametrize(
    "url",
    [
        "s3://b/p?role=me",
        "s3://b/p?other=1",
        f"gs://b/p?provider={PROVIDER}",
        "gs://b/p?account=a@b",
        "gs://b/p?provider=pool&account=a@b",
    ],
)
def test_a_store_that_is_named_by_halves_is_refused(url):
    with pytest.raises(UsageError):
        open_store(url)


def test_the_role_stays_in_the_stores_address():
    url = f"s3://b/p?role={ROLE}"
    assert open_store(url).url == url
