"""The store in a directory."""

import os
import threading
from pathlib import Path

import pytest

from cloudgavel.errors import UsageError
from cloudgavel.objects.files import FileStore
from cloudgavel.objects.open import open_store
from cloudgavel.objects.store import ObjectMissing, StoreUnreachable


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


@pytest.mark.parametrize("durable", [True, False])
def test_what_is_put_is_got(store: FileStore, durable: bool) -> None:
    store.put("a/b", b"one", durable=durable)
    store.put("a/b", b"two", durable=durable)
    assert store.get("a/b") == b"two"
    store.put("a/empty", b"", durable=durable)
    assert store.get("a/empty") == b""
    assert [(info.key, info.size_bytes) for info in store.list("a/")] == [
        ("a/b", 3),
        ("a/empty", 0),
    ]


def test_put_if_absent_lets_exactly_one_writer_win(store: FileStore) -> None:
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


def test_put_if_absent_works_without_hard_links(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    assert store.put_if_absent("key", b"first")
    assert not store.put_if_absent("key", b"second")
    assert store.get("key") == b"first"


def test_put_if_version_replaces_only_what_was_read(store: FileStore) -> None:
    assert store.put_if_version("key", b"one", None)
    assert not store.put_if_version("key", b"other", None)
    version = store.get_versioned("key").version
    assert store.put_if_version("key", b"two", version)
    assert not store.put_if_version("key", b"three", version)
    assert store.get("key") == b"two"
    store.delete("key")
    assert not store.put_if_version("key", b"four", version)


def test_counting_up_by_compare_and_set_loses_nothing(store: FileStore) -> None:
    store.put("count", b"0")

    def count() -> None:
        for _ in range(10):
            while True:
                found = store.get_versioned("count")
                more = str(int(found.data) + 1).encode()
                if store.put_if_version("count", more, found.version):
                    break

    counters = [threading.Thread(target=count) for _ in range(4)]
    for counter in counters:
        counter.start()
    for counter in counters:
        counter.join()
    assert store.get("count") == b"40"


def test_a_failed_write_leaves_the_old_object_and_no_rubbish(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("key", b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StoreUnreachable, match="No space left on device"):
            store.put("key", b"new")
    assert store.get("key") == b"old"
    assert [info.key for info in store.list("")] == ["key"]
    leftovers = [path.name for path in (store.root / ".cloudgavel-store").iterdir()]
    assert leftovers == []


def test_missing_keys(store: FileStore) -> None:
    for read in (store.get, store.get_versioned):
        with pytest.raises(ObjectMissing):
            read("nothing/here")
    assert store.stamp("nothing/here") is None
    assert store.list("nothing/") == []
    store.delete("nothing/here")


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../out", "a/../../out", "a//b", "a/.", "a\\b", "a\0b", "a/\n"]
)
def test_keys_that_leave_the_store_are_refused(store: FileStore, key: str) -> None:
    with pytest.raises(UsageError):
        store.put(key, b"x")
    with pytest.raises(UsageError):
        store.get(key)


def test_the_stores_own_files_cannot_be_named(store: FileStore) -> None:
    store.put("a", b"x")
    with pytest.raises(ObjectMissing):
        store.get(".cloudgavel-store/lock")


def test_listing_is_by_prefix_of_the_text_not_of_the_directory(store: FileStore) -> None:
    for key in ("jobs/a/1", "jobs/ab/1", "jobs/b/1"):
        store.put(key, b"")
    assert [info.key for info in store.list("jobs/a")] == ["jobs/a/1", "jobs/ab/1"]
    assert [info.key for info in store.list("jobs/a/")] == ["jobs/a/1"]


def test_files_go_in_and_out(store: FileStore, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(os.urandom(3 << 20))
    store.put_file("deep/down/big", big)
    store.get_file("deep/down/big", tmp_path / "new" / "copy")
    assert (tmp_path / "new" / "copy").read_bytes() == big.read_bytes()
    with pytest.raises(ObjectMissing):
        store.get_file("deep/down/none", tmp_path / "copy")


def test_a_stamp_changes_with_the_object(store: FileStore) -> None:
    store.put("key", b"one")
    before = store.stamp("key")
    store.put("key", b"longer")
    assert store.stamp("key") != before


def test_an_unwritable_root_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnreachable):
        FileStore(tmp_path / "file").put("key", b"x")


def test_stores_open_by_url(tmp_path: Path) -> None:
    for url in (str(tmp_path / "a b"), (tmp_path / "a b").as_uri()):
        store = open_store(url)
        store.put("key", b"x")
        assert open_store(store.url).get("key") == b"x"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host/runs", "not a kind of store"),
        ("file://host/runs", "does not name a directory"),
        (" ", "empty"),
    ],
)
def test_urls_that_cannot_be_opened_say_why(url: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        open_store(url)
