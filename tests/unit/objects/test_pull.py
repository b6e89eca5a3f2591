"""Pulling: whole files, resumed, never over what is another's; on every kind of store."""

from pathlib import Path

import pytest

from cloudgavel.errors import UsageError
from cloudgavel.messages import layout
from cloudgavel.objects.files import FileStore
from cloudgavel.objects.manifest import CheckpointDamaged, Manifest, commit_checkpoint
from cloudgavel.objects.pull import WouldOverwrite, pull_checkpoint, pull_logs
from cloudgavel.objects.store import StoreUnreachable


class Counting(FileStore):
    """Counts what is read, and may fail at one key."""

    fails_at = ""
    read: list[str]

    def get_file(self, key: str, path: Path) -> None:
        self.read = [*getattr(self, "read", []), key]
        if self.fails_at and key.endswith(self.fails_at):
            raise StoreUnreachable("read", key, "cut off", self.url)
        super().get_file(key, path)


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    return Counting(tmp_path / "store")


def saved(store: FileStore, tmp_path: Path, step: int, **files: str) -> Manifest:
    source = tmp_path / f"source-{step}"
    for name, text in (files or {"a.txt": f"a at {step}", "deep/b.txt": f"b at {step}"}).items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return commit_checkpoint(store, "job", step, 1, source)


def test_the_newest_checkpoint_comes_whole_and_is_not_read_twice(
    store: Counting, tmp_path: Path
) -> None:
    saved(store, tmp_path, 10)
    saved(store, tmp_path, 20)
    to = tmp_path / "to"
    pulled = pull_checkpoint(store, "job", to)
    assert pulled.directory == to / "checkpoint-20"
    assert (pulled.directory / "a.txt").read_text() == "a at 20"
    assert (pulled.directory / "deep" / "b.txt").read_text() == "b at 20"
    store.read = []
    again = pull_checkpoint(store, "job", to)
    assert store.read == []
    assert all(each.was_there for each in again.files)
    old = pull_checkpoint(store, "job", to, step=10)
    assert (old.directory / "a.txt").read_text() == "a at 10"


def test_a_transfer_that_broke_goes_on_with_what_is_missing(
    store: Counting, tmp_path: Path
) -> None:
    saved(store, tmp_path, 10)
    to = tmp_path / "to"
    store.fails_at = "deep/b.txt"
    with pytest.raises(StoreUnreachable):
        pull_checkpoint(store, "job", to)
    assert not (to / "checkpoint-10" / "deep" / "b.txt").exists()
    store.fails_at, store.read = "", []
    pulled = pull_checkpoint(store, "job", to)
    assert [key.rpartition("/")[2] for key in store.read] == ["b.txt"]
    assert [each.was_there for each in pulled.files] == [True, False]


def test_files_of_other_content_are_in_the_way_unless_forced(
    store: Counting, tmp_path: Path
) -> None:
    saved(store, tmp_path, 10)
    mine = tmp_path / "to" / "checkpoint-10" / "deep" / "b.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(WouldOverwrite) as refused:
        pull_checkpoint(store, "job", tmp_path / "to")
    assert refused.value.facts == (("differs", str(mine)),)
    assert mine.read_text() == "mine"
    assert not (tmp_path / "to" / "checkpoint-10" / "a.txt").exists()
    pull_checkpoint(store, "job", tmp_path / "to", force=True)
    assert mine.read_text() == "b at 10"


def test_a_directory_in_the_way_is_never_replaced(store: Counting, tmp_path: Path) -> None:
    saved(store, tmp_path, 10)
    (tmp_path / "to" / "checkpoint-10" / "a.txt").mkdir(parents=True)
    with pytest.raises(WouldOverwrite):
        pull_checkpoint(store, "job", tmp_path / "to", force=True)


def test_a_damaged_checkpoint_is_passed_over_and_told(store: Counting, tmp_path: Path) -> None:
    saved(store, tmp_path, 10)
    newest = saved(store, tmp_path, 20)
    store.put(newest.file_key(newest.files[0]), b"rot")
    pulled = pull_checkpoint(store, "job", tmp_path / "to")
    assert pulled.manifest.step == 10
    assert "does not have its hash" in pulled.passed_over[0]
    assert not (tmp_path / "to" / "checkpoint-20" / "a.txt").exists()
    with pytest.raises(CheckpointDamaged, match="no checkpoint of job is whole"):
        pull_checkpoint(store, "job", tmp_path / "to", step=20)


def test_a_checkpoint_that_is_pruned_while_it_is_read_gives_way_to_a_newer_one(
    store: Counting, tmp_path: Path
) -> None:
    old = saved(store, tmp_path, 10)

    def prune(*_: object) -> None:
        if not (tmp_path / "source-20").exists():
            saved(store, tmp_path, 20)
            store.delete(old.key)
            for entry in old.files:
                store.delete(old.file_key(entry))

    assert pull_checkpoint(store, "job", tmp_path / "to", tell=prune).manifest.step == 20


def test_what_is_not_there_is_said_with_what_is(store: Counting, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no checkpoint yet"):
        pull_checkpoint(store, "job", tmp_path / "to")
    saved(store, tmp_path, 10)
    with pytest.raises(UsageError, match="no checkpoint at step 11") as refused:
        pull_checkpoint(store, "job", tmp_path / "to", step=11)
    assert ("steps", "10") in refused.value.facts


def test_logs_grow_and_are_not_written_over_a_persons_notes(
    store: Counting, tmp_path: Path
) -> None:
    to = tmp_path / "to"

    def prints(attempt: int, number: int, text: str) -> None:
        store.put(f"{layout.log_key('job', attempt)}rank-0000-{number:06d}.log", text.encode())

    prints(1, 1, "one\n")
    assert [each.was_there for each in pull_logs(store, "job", 2, to)] == [False]
    prints(1, 2, "two\n")
    prints(2, 1, "three\n")
    pull_logs(store, "job", 2, to)
    assert (to / "logs" / "attempt-1.log").read_text() == "one\ntwo\n"
    assert (to / "logs" / "attempt-2.log").read_text() == "three\n"
    (to / "logs" / "attempt-1.log").write_text("my notes")
    with pytest.raises(WouldOverwrite):
        pull_logs(store, "job", 2, to)
    pull_logs(store, "job", 2, to, force=True)
    assert (to / "logs" / "attempt-1.log").read_text() == "one\ntwo\n"
