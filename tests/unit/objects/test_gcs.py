"""The store in a bucket of (a fake) Cloud Storage."""

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pytest

from cloudgavel.errors import UsageError
from cloudgavel.objects.gcs import GcsStore
from cloudgavel.objects.gcs_calls import Calls, NoToken, metadata_token
from cloudgavel.objects.manifest import commit_checkpoint, newest_valid, restore_newest
from cloudgavel.objects.open import open_store
from cloudgavel.objects.store import ObjectMissing, StoreUnreachable
from cloudgavel.providers.gcp.mocked.answers import Answer, Request
from cloudgavel.providers.gcp.mocked.cloud import FakeGcp
from cloudgavel.providers.gcp.mocked.identity import MACHINE_TOKEN
from cloudgavel.providers.gcp.mocked.server import Services, serve

PIECE = 256 << 10


@dataclass
class Bucket:
    """A bucket on a fake cloud, and what is done to the calls on their way."""

    cloud: FakeGcp
    services: Services
    endpoint: str = ""
    cut_after_bytes: list[int] = field(default_factory=list)
    """Answers with objects to come end after so many bytes."""
    lost: set[str] = field(default_factory=set)
    """Methods whose next call works, but is not answered."""
    seen: list[Request] = field(default_factory=list)
    slept_s: list[float] = field(default_factory=list)

    def handle(self, request: Request) -> Answer:
        self.seen.append(request)
        answer = self.services.handle(request)
        if request.method in self.lost:
            self.lost.discard(request.method)
            return Answer(lost=True)
        if request.query.get("alt") == "media" and self.cut_after_bytes:
            keep = self.cut_after_bytes.pop(0)
            headers = {**answer.headers, "X-Full-Length": str(len(answer.body))}
            return Answer(status=answer.status, headers=headers, body=answer.body[:keep])
        return answer

    def store(self, **options) -> GcsStore:
        calls = Calls(endpoint=self.endpoint, sleep=self.slept_s.append)
        return GcsStore("runs", "a/run", calls=calls, piece_bytes=PIECE, **options)

    def methods(self) -> list[str]:
        return [request.method for request in self.seen]


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    cloud = FakeGcp(now_s=lambda: 1_790_000_000.0, offers=[])
    cloud.buckets.add("runs")
    made = Bucket(cloud, Services(cloud))
    with serve(made.handle) as endpoint:
        made.endpoint = endpoint
        yield made


@pytest.fixture
def store(bucket: Bucket) -> GcsStore:
    return bucket.store()


def test_what_is_put_is_got(store: GcsStore, bucket: Bucket) -> None:
    for data in (b"one", b"two", b"", b"--boundary\r\n\r\n--", bytes(range(256)) * 50):
        store.put("a/b c+%é", data)
        assert store.get("a/b c+%é") == data
    assert ("runs", "a/run/a/b c+%é") in bucket.services.storage.objects


def test_put_if_absent_lets_exactly_one_writer_win(store: GcsStore) -> None:
    won: list[bytes] = []
    barrier = threading.Barrier(8)

    def write(data: bytes) -> None:
        barrier.wait()
        if store.put_if_absent("key", data):
            won.append(data)

    writers = [threading.Thread(target=write, args=(bytes([n]),)) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert won == [store.get("key")]


def test_put_if_version_replaces_only_what_was_read(store: GcsStore) -> None:
    assert store.put_if_version("key", b"one", None)
    assert not store.put_if_version("key", b"other", None)
    version = store.get_versioned("key").version
    assert store.put_if_version("key", b"two", version)
    assert not store.put_if_version("key", b"three", version)
    assert store.get("key") == b"two"
    store.delete("key")
    assert not store.put_if_version("key", b"four", version)


def test_a_conditional_write_whose_answer_got_lost_counts_as_ours(
    store: GcsStore, bucket: Bucket
) -> None:
    bucket.lost.add("POST")
    assert store.put_if_absent("key", b"mine")
    assert bucket.methods().count("POST") == 2
    assert not store.put_if_absent("key", b"mine")


def test_a_write_whose_answer_got_lost_is_repeated(store: GcsStore, bucket: Bucket) -> None:
    bucket.lost.add("POST")
    store.put("key", b"x")
    assert store.get("key") == b"x"
    assert len(bucket.slept_s) == 1


def test_what_is_not_there(store: GcsStore, tmp_path: Path) -> None:
    for read in (store.get, store.get_versioned):
        with pytest.raises(ObjectMissing):
            read("nothing/here")
    with pytest.raises(ObjectMissing):
        store.get_file("nothing/here", tmp_path / "x")
    assert store.stamp("nothing/here") is None
    assert store.list("nothing/") == []
    store.delete("nothing/here")
    assert list(tmp_path.iterdir()) == []


def test_listing_is_by_prefix_of_the_text_and_in_pages(store: GcsStore, bucket: Bucket) -> None:
    bucket.store().put("elsewhere", b"")
    GcsStore("runs", "another", calls=store._calls).put("jobs/a/1", b"")
    for n in range(1_005):
        bucket.services.storage._put("runs", f"a/run/jobs/a/{n:04d}", b"xy", {}, None)
    found = store.list("jobs/a")
    assert len(found) == 1_005
    assert (found[0].key, found[0].size_bytes) == ("jobs/a/0000", 2)
    assert bucket.cloud.calls["objects.list"] == 2


def test_a_stamp_changes_with_the_object(store: GcsStore) -> None:
    store.put("key", b"one")
    before = store.stamp("key")
    store.put("key", b"one")
    assert store.stamp("key") != before


@pytest.mark.parametrize("size", [0, 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 17])
def test_files_go_in_and_out(store: GcsStore, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "big").write_bytes(data)
    store.put_file("deep/big", tmp_path / "big")
    store.get_file("deep/big", tmp_path / "new" / "copy")
    assert (tmp_path / "new" / "copy").read_bytes() == data
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["copy"]


def test_an_upload_that_breaks_goes_on_where_it_was(
    store: GcsStore, bucket: Bucket, tmp_path: Path
) -> None:
    data = os.urandom(4 * PIECE)
    (tmp_path / "big").write_bytes(data)
    bucket.cloud.faults.refuse_next("objects.insert", 503, "backendError", times=1)
    bucket.lost.add("PUT")
    store.put_file("big", tmp_path / "big")
    assert store.get("big") == data
    sent = [int(r.headers["content-length"]) for r in bucket.seen if r.method == "PUT"]
    # One piece was refused, one was taken without an answer: only the first came twice.
    assert sum(sent) == 5 * PIECE


def test_a_download_that_breaks_goes_on_where_it_was(
    store: GcsStore, bucket: Bucket, tmp_path: Path
) -> None:
    data = os.urandom(5_000)
    store.put("key", data)
    bucket.cut_after_bytes += [2_000, 0, 1_500]
    store.get_file("key", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == data
    ranges = [r.headers["range"] for r in bucket.seen if r.query.get("alt") == "media"]
    assert ranges == ["bytes=0-", "bytes=2000-", "bytes=2000-", "bytes=3500-"]


def test_an_object_replaced_during_its_download_comes_whole(
    store: GcsStore, bucket: Bucket, tmp_path: Path
) -> None:
    store.put("key", b"a" * 5_000)
    bucket.cut_after_bytes.append(2_000)
    handle, replaced = bucket.services.handle, []

    def replacing(request: Request) -> Answer:
        answer = handle(request)
        if request.query.get("alt") == "media" and not replaced:
            replaced.append(
                bucket.services.storage._put("runs", "a/run/key", b"b" * 4_000, {}, None)
            )
        return answer

    bucket.services.handle = replacing  # type: ignore[method-assign]
    store.get_file("key", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"b" * 4_000
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_passes_is_repeated_and_what_stays_is_told(
    store: GcsStore, bucket: Bucket, status: int
) -> None:
    store.put("key", b"x")
    bucket.cloud.faults.refuse_next("objects.get", status, "backendError", times=2)
    assert store.get("key") == b"x"
    bucket.cloud.faults.refuse_next("objects.get", status, "backendError", times=100)
    with pytest.raises(StoreUnreachable):
        store.get("key")
    assert max(bucket.slept_s) <= 12.0


def test_no_permission_is_told_at_once(store: GcsStore, bucket: Bucket) -> None:
    bucket.cloud.faults.refuse_next("objects.insert", 403, "forbidden")
    with pytest.raises(StoreUnreachable, match="access is denied"):
        store.put("key", b"x")
    assert bucket.slept_s == []


def test_a_bucket_that_does_not_exist_is_no_missing_object(bucket: Bucket) -> None:
    elsewhere = GcsStore("nowhere", calls=bucket.store()._calls)
    for call in (
        lambda: elsewhere.get("key"),
        lambda: elsewhere.list(""),
        lambda: elsewhere.stamp("k"),
    ):
        with pytest.raises(StoreUnreachable, match="the bucket does not exist"):
            call()


def test_a_store_that_does_not_answer_is_unreachable() -> None:
    calls = Calls(endpoint="http://127.0.0.1:9", sleep=lambda _: None)
    with pytest.raises(StoreUnreachable):
        GcsStore("runs", calls=calls).get("key")


def test_a_store_without_credentials_says_so() -> None:
    def none() -> str:
        raise NoToken("there are no credentials for Google Cloud")

    calls = Calls(endpoint="http://127.0.0.1:9", token=none, sleep=lambda _: None)
    with pytest.raises(StoreUnreachable, match="there are no credentials"):
        GcsStore("runs", calls=calls).put("key", b"x")


def test_the_metadata_server_gives_a_token() -> None:
    def handle(request: Request) -> Answer:
        assert request.headers["metadata-flavor"] == "Google"
        return Answer(body=b'{"access_token": "abc", "expires_in": 3599, "token_type": "Bearer"}')

    with serve(handle) as endpoint:
        assert metadata_token(endpoint.removeprefix("http://")) == ("abc", 3599.0)
    with pytest.raises(NoToken):
        metadata_token("127.0.0.1:9")


def test_tokens_are_sent_and_connections_kept(bucket: Bucket) -> None:
    calls = Calls(endpoint=bucket.endpoint, token=lambda: MACHINE_TOKEN, sleep=lambda _: None)
    mine = GcsStore("runs", calls=calls)
    mine.put("key", b"x")
    first = calls._local.connection.sock
    mine.get("key")
    assert calls._local.connection.sock is first
    assert {request.headers["authorization"] for request in bucket.seen} == {
        f"Bearer {MACHINE_TOKEN}"
    }


@pytest.mark.parametrize("key", ["", "/etc/passwd", "../out", "a//b", "a\\b", "a\n"])
def test_keys_that_leave_the_store_are_refused(store: GcsStore, key: str) -> None:
    with pytest.raises(UsageError):
        store.put(key, b"x")


def test_stores_open_by_url(bucket: Bucket) -> None:
    url = f"gs://runs/a/run?endpoint={quote(bucket.endpoint, safe='')}"
    store = open_store(url)
    store.put("key", b"x")
    assert open_store(store.url).get("key") == b"x"
    assert open_store("gs://runs/a/run/").url == "gs://runs/a/run"


@pytest.mark.parametrize(
    "url", ["gs://", "gs:///run", "gs://b/a?region=x", "gs://b/a#x", "gs://b/../x"]
)
def test_urls_that_name_no_bucket_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        open_store(url)


def test_checkpoints_commit_and_come_back(store: GcsStore, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "weights").write_bytes(os.urandom(2 * PIECE))
    (saved / "state.json").write_text("{}")
    manifest = commit_checkpoint(store, "job", 100, 1, saved)
    found = newest_valid(store, "job")
    assert found == manifest
    assert restore_newest(store, "job", tmp_path / "back") == manifest
    digest = hashlib.sha256((tmp_path / "back" / "weights").read_bytes()).hexdigest()
    assert digest == hashlib.sha256((saved / "weights").read_bytes()).hexdigest()


def test_the_store_needs_no_package_but_python_itself() -> None:
    """A rented machine has Python and our archive, nothing else."""
    code = (
        "import sys; from cloudgavel.objects.gcs import GcsStore;"
        "print([m for m in sys.modules if m.split('.')[0] in"
        " ('google', 'requests', 'urllib3', 'tenacity', 'boto3')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
