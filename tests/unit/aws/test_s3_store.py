"""The S3 store: the promises of ``objects/store.py``, and what happens when S3 does not answer."""

import functools
import hashlib
from collections import Counter, deque
from collections.abc import Iterator

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import EndpointConnectionError
from moto import mock_aws
from moto.core.botocore_stubber import MockRawResponse
from moto.core.models import botocore_stubber

from cloudgavel.errors import UsageError
from cloudgavel.objects import manifest
from cloudgavel.objects.open import open_store
from cloudgavel.objects.s3 import S3Store
from cloudgavel.objects.store import ObjectMissing, StoreUnreachable

PART = 5 << 20


class Wire:
    """What happens to S3's calls on their way: counted, refused, lost, cut."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.refusals: dict[str, deque[tuple[int, str]]] = {}
        self.lost: Counter[str] = Counter()
        self.cut_bodies: deque[int] = deque()
        self.down = False

    def send(self, request, event_name, **_):
        operation = event_name.rpartition(".")[2]
        self.calls[operation] += 1
        if self.down:
            raise EndpointConnectionError(endpoint_url=request.url)
        if queue := self.refusals.get(operation):
            status, code = queue.popleft()
            body = f"<Error><Code>{code}</Code><Message>as arranged</Message></Error>"
            return AWSResponse(request.url, status, {}, MockRawResponse(body))
        status, headers, body = botocore_stubber.process_request(request)
        raw = body.encode() if isinstance(body, str) else bytes(body or b"")
        if self.lost[operation]:
            self.lost[operation] -= 1
            raise EndpointConnectionError(endpoint_url=request.url)
        if operation == "GetObject" and self.cut_bodies:
            raw = raw[: self.cut_bodies.popleft()]
        return AWSResponse(request.url, status, headers, MockRawResponse(raw))


@functools.cache
def session():
    """Reading the SDK's description of S3 takes longer than all the tests together."""
    return boto3.session.Session(aws_access_key_id="x", aws_secret_access_key="y")


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def store(wire) -> Iterator[S3Store]:
    with mock_aws():
        from botocore.config import Config

        config = Config(retries={"total_max_attempts": 1})
        client = session().client("s3", region_name="us-east-1", config=config)
        client.create_bucket(Bucket="runs")
        client.meta.events.unregister("before-send", botocore_stubber)
        client.meta.events.register_first("before-send", wire.send)
        yield S3Store("runs", "quick/start", client=client, part_bytes=PART, sleep=lambda _: None)


def test_an_object_comes_back_as_it_went_with_a_version(store):
    store.put("jobs/a/fence.json", b"one")
    assert store.get("jobs/a/fence.json") == b"one"
    first = store.get_versioned("jobs/a/fence.json")
    store.put("jobs/a/fence.json", b"two")
    assert store.get_versioned("jobs/a/fence.json").version != first.version
    assert store.get("jobs/a/fence.json") == b"two"


def test_what_is_not_there_is_missing_and_deleting_it_is_fine(store):
    with pytest.raises(ObjectMissing):
        store.get("nothing")
    assert store.stamp("nothing") is None
    store.delete("nothing")


def test_only_the_first_of_two_writers_makes_an_object(store):
    assert store.put_if_absent("MANIFEST.json", b"mine") is True
    assert store.put_if_absent("MANIFEST.json", b"theirs") is False
    assert store.get("MANIFEST.json") == b"mine"


def test_compare_and_set_takes_only_the_version_that_was_read(store):
    assert store.put_if_version("orders.json", b"1", None) is True
    seen = store.get_versioned("orders.json").version
    assert store.put_if_version("orders.json", b"2", seen) is True
    assert store.put_if_version("orders.json", b"3", seen) is False
    assert store.put_if_version("gone.json", b"3", seen) is False
    assert store.get("orders.json") == b"2"


def test_a_conditional_write_whose_answer_got_lost_still_counts_as_ours(store, wire):
    wire.lost["PutObject"] = 1
    assert store.put_if_absent("MANIFEST.json", b"mine") is True
    assert wire.calls["PutObject"] == 2
    assert store.get("MANIFEST.json") == b"mine"


def test_a_conditional_write_that_lost_a_race_after_a_lost_call_is_not_ours(store, wire):
    store.put("MANIFEST.json", b"mine")  # the same bytes, but another's
    wire.refusals["PutObject"] = deque([(503, "SlowDown")])
    assert store.put_if_absent("MANIFEST.json", b"mine") is False


def test_a_conflict_of_two_conditional_writes_is_tried_again(store, wire):
    wire.refusals["PutObject"] = deque([(409, "ConditionalRequestConflict")])
    assert store.put_if_absent("MANIFEST.json", b"mine") is True


def test_the_stamp_changes_with_the_object(store):
    store.put("orders.json", b"1")
    before = store.stamp("orders.json")
    assert store.stamp("orders.json") == before
    store.put("orders.json", b"2")
    assert store.stamp("orders.json") != before


def test_a_listing_pages_and_knows_nothing_of_its_neighbours(store):
    for number in range(7):
        store.put(f"jobs/a/{number}", b"x" * number)
    store.put("jobs/ab", b"")
    store._s3().put_object(Bucket="runs", Key="quick/starters", Body=b"")
    paginator = store._s3().get_paginator
    store._s3().get_paginator = lambda name: _SmallPages(paginator(name))
    assert [(each.key, each.size_bytes) for each in store.list("jobs/a/")] == [
        (f"jobs/a/{number}", number) for number in range(7)
    ]
    assert [each.key for each in store.list("")][-1] == "jobs/ab"


class _SmallPages:
    def __init__(self, paginator) -> None:
        self._paginator = paginator

    def paginate(self, **parameters):
        return self._paginator.paginate(**parameters, PaginationConfig={"PageSize": 3})


def test_a_large_file_goes_up_in_parts_and_comes_back_whole(store, wire, tmp_path):
    source = tmp_path / "weights.bin"
    source.write_bytes(bytes(range(256)) * (48 << 10))  # 12 MiB: three parts
    store.put_file("weights.bin", source)
    assert wire.calls["UploadPart"] == 3
    store.get_file("weights.bin", tmp_path / "deep" / "back.bin")
    assert _digest(tmp_path / "deep" / "back.bin") == _digest(source)
    assert [each.name for each in (tmp_path / "deep").iterdir()] == ["back.bin"]


def test_one_bad_part_is_sent_again_alone(store, wire, tmp_path):
    source = tmp_path / "weights.bin"
    source.write_bytes(b"w" * (2 * PART + 1))
    wire.refusals["UploadPart"] = deque([(500, "InternalError"), (400, "BadDigest")])
    store.put_file("weights.bin", source)
    assert wire.calls["UploadPart"] == 5
    assert store.list("")[0].size_bytes == 2 * PART + 1


def test_an_upload_that_cannot_end_leaves_no_parts_behind(store, wire, tmp_path):
    source = tmp_path / "weights.bin"
    source.write_bytes(b"w" * (PART + 1))
    wire.refusals["UploadPart"] = deque([(403, "AccessDenied")])
    with pytest.raises(StoreUnreachable, match="access is denied"):
        store.put_file("weights.bin", source)
    assert store._s3().list_multipart_uploads(Bucket="runs").get("Uploads", []) == []
    assert store.list("") == []


def test_an_upload_completed_without_an_answer_is_complete(store, wire, tmp_path):
    source = tmp_path / "weights.bin"
    source.write_bytes(b"w" * (PART + 1))
    wire.lost["CompleteMultipartUpload"] = 1
    store.put_file("weights.bin", source)
    assert store.list("")[0].size_bytes == PART + 1


def test_a_broken_download_goes_on_where_it_was(store, wire, tmp_path):
    data = bytes(range(256)) * 4096
    store.put("weights.bin", data)
    wire.cut_bodies = deque([300_000, 400_000])
    asked: list[str] = []
    store._s3().meta.events.register(
        "before-call.s3.GetObject",
        lambda params, **_: asked.append(params["headers"].get("Range", "")),
    )
    store.get_file("weights.bin", tmp_path / "back.bin")
    assert (tmp_path / "back.bin").read_bytes() == data
    assert asked == ["bytes=0-", "bytes=300000-", "bytes=700000-"]


def test_a_download_of_what_changed_on_the_way_begins_again(store, wire, tmp_path):
    store.put("weights.bin", b"old" * 1000)
    wire.cut_bodies = deque([500])
    send, replaced = wire.send, []

    def replace_after_the_cut(request, event_name, **rest):
        if wire.calls["GetObject"] == 1 and event_name.endswith("GetObject") and not replaced:
            replaced.append(True)
            store.put("weights.bin", b"new" * 1000)
        return send(request, event_name, **rest)

    store._s3().meta.events.unregister("before-send", wire.send)
    store._s3().meta.events.register_first("before-send", replace_after_the_cut)
    store.get_file("weights.bin", tmp_path / "back.bin")
    assert replaced
    assert (tmp_path / "back.bin").read_bytes() == b"new" * 1000


def test_an_empty_object_is_an_empty_file(store, tmp_path):
    store.put("empty", b"")
    store.get_file("empty", tmp_path / "empty")
    assert (tmp_path / "empty").read_bytes() == b""


def test_a_missing_object_makes_no_file(store, tmp_path):
    with pytest.raises(ObjectMissing):
        store.get_file("nothing", tmp_path / "nothing")
    assert not list(tmp_path.iterdir())


def test_a_store_that_does_not_answer_is_unreachable_after_some_tries(store, wire):
    wire.down = True
    with pytest.raises(StoreUnreachable) as caught:
        store.put("report.json", b"{}")
    assert wire.calls["PutObject"] == 5
    assert caught.value.key == "report.json"
    assert ("store", "s3://runs/quick/start") in caught.value.facts
    wire.down = False
    store.put("report.json", b"{}")
    assert store.get("report.json") == b"{}"


def test_what_will_never_work_is_not_repeated(store, wire):
    wire.refusals["GetObject"] = deque([(403, "AccessDenied")] * 5)
    with pytest.raises(StoreUnreachable, match="access is denied"):
        store.get("report.json")
    assert wire.calls["GetObject"] == 1


def test_a_bucket_that_does_not_exist_is_said_so(store):
    missing = S3Store("no-such-bucket", client=store._s3(), sleep=lambda _: None)
    with pytest.raises(StoreUnreachable, match="the bucket does not exist"):
        missing.put("key", b"")


def test_a_checkpoint_is_committed_once_and_restored(store, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "weights").write_bytes(b"w" * 1000)
    (checkpoint / "deep").mkdir()
    (checkpoint / "deep" / "optimizer").write_bytes(b"o" * 10)
    manifest.commit_checkpoint(store, job="a", step=100, attempt=1, directory=checkpoint)
    found = manifest.restore_newest(store, "a", tmp_path / "restored")
    assert found is not None and found.step == 100
    assert (tmp_path / "restored" / "deep" / "optimizer").read_bytes() == b"o" * 10
    manifest.raise_fence(store, "a", 2)
    with pytest.raises(manifest.FencedError):
        manifest.commit_checkpoint(store, job="a", step=200, attempt=1, directory=checkpoint)


def test_urls_open_stores_and_ask_nobody():
    opened = open_store("s3://my-bucket/some/where")
    assert isinstance(opened, S3Store)
    assert (opened.bucket, opened.prefix) == ("my-bucket", "some/where")
    assert opened.url == "s3://my-bucket/some/where"
    assert open_store("s3://my-bucket").url == "s3://my-bucket"


@pytest.mark.parametrize("url", ["s3://", "s3:///key", "s3://bucket/../other", "s3://bucket?x=1"])
def test_what_names_no_bucket_is_refused(url):
    with pytest.raises(UsageError):
        open_store(url)


@pytest.mark.parametrize("key", ["", "/etc", "a/../b", "a//b", "a\\b"])
def test_keys_that_are_not_safe_are_refused_before_any_call(store, wire, key):
    with pytest.raises(UsageError):
        store.put(key, b"")
    assert not wire.calls


def _digest(path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
