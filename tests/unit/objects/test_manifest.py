"""Checkpoints: whole or not there, fenced, falling back behind damage."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.messages import layout
from cloudgavel.objects.files import FileStore
from cloudgavel.objects.manifest import (
    CheckpointDamaged,
    CheckpointEmpty,
    FencedError,
    Manifest,
    commit_checkpoint,
    manifests,
    newest_valid,
    prune_checkpoints,
    raise_fence,
    read_fence,
    restore_checkpoint,
    restore_newest,
)
from cloudgavel.objects.store import StoreUnreachable


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store")


def a_directory(root: Path, content: str) -> Path:
    directory = root / f"made-{content}"
    (directory / "deep").mkdir(parents=True, exist_ok=True)
    (directory / "weights").write_text(content)
    (directory / "deep" / "MANIFEST.json").write_text("a file of the script's own")
    return directory


def commit(store: FileStore, root: Path, step: int, attempt: int = 1) -> Manifest:
    return commit_checkpoint(store, "job", step, attempt, a_directory(root, f"{attempt}-{step}"))


def test_a_commit_is_restored_byte_for_byte(store: FileStore, tmp_path: Path) -> None:
    manifest = commit(store, tmp_path, 10)
    target = tmp_path / "ckpt"
    target.mkdir()
    (target / "stale").write_text("of before")
    restore_checkpoint(store, manifest, target)
    found = sorted(path.relative_to(target).as_posix() for path in target.rglob("*"))
    assert found == ["deep", "deep/MANIFEST.json", "weights"]
    assert (target / "weights").read_text() == "1-10"


def test_files_without_a_manifest_do_not_exist(store: FileStore, tmp_path: Path) -> None:
    commit(store, tmp_path, 10)
    store.put(layout.checkpoint_prefix("job", 20, 1) + "files/weights", b"half an upload")
    found = newest_valid(store, "job")
    assert found is not None and found.step == 10


@pytest.mark.parametrize("damage", ["cut", "flip", "remove", "manifest"])
def test_behind_a_damaged_newest_the_older_one_is_used(
    store: FileStore, tmp_path: Path, damage: str
) -> None:
    """axolotl#3948, skypilot#5100: a newest checkpoint half written after a kill."""
    commit(store, tmp_path, 10)
    newest = commit(store, tmp_path, 20)
    path = store.root / layout.checkpoint_prefix("job", 20, 1) / "files" / "weights"
    if damage == "cut":
        path.write_text("1-2")
    elif damage == "flip":
        path.write_text("1-21")
    elif damage == "remove":
        path.unlink()
    else:
        (store.root / newest.key).write_text('{"schema_version": 1, "job": "jo')
    found = newest_valid(store, "job")
    assert found is not None and found.step == 10
    restored = restore_newest(store, "job", tmp_path / "ckpt")
    assert restored is not None and restored.step == 10
    assert (tmp_path / "ckpt" / "weights").read_text() == "1-10"


def test_a_damaged_restore_changes_nothing(store: FileStore, tmp_path: Path) -> None:
    manifest = commit(store, tmp_path, 10)
    (store.root / manifest.key).parent.joinpath("files", "weights").write_text("1-11")
    target = tmp_path / "ckpt"
    target.mkdir()
    (target / "mine").write_text("kept")
    with pytest.raises(CheckpointDamaged):
        restore_checkpoint(store, manifest, target)
    assert [path.name for path in target.iterdir()] == ["mine"]


def test_a_store_that_fails_is_not_taken_for_a_damaged_checkpoint(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a network fault would silently throw the newest steps away."""
    commit(store, tmp_path, 10)

    def fail(self: FileStore, key: str) -> bytes:
        raise StoreUnreachable("read", key, "timed out", self.url)

    monkeypatch.setattr(FileStore, "get", fail)
    with pytest.raises(StoreUnreachable):
        restore_newest(store, "job", tmp_path / "ckpt")


def test_a_stale_attempt_cannot_commit(store: FileStore, tmp_path: Path) -> None:
    commit(store, tmp_path, 10, attempt=1)
    assert raise_fence(store, "job", 2) == 2
    with pytest.raises(FencedError, match="attempt 2 has taken over"):
        commit(store, tmp_path, 20, attempt=1)
    assert [manifest.step for manifest in manifests(store, "job")] == [10]
    commit(store, tmp_path, 15, attempt=2)


def test_a_fence_raised_during_the_commit_takes_it_back(
    store: FileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FileStore.put_if_absent

    def overtaken(self: FileStore, key: str, data: bytes) -> bool:
        if key.endswith("MANIFEST.json"):
            raise_fence(self, "job", 2)
        return real(self, key, data)

    monkeypatch.setattr(FileStore, "put_if_absent", overtaken)
    with pytest.raises(FencedError):
        commit(store, tmp_path, 10, attempt=1)
    assert manifests(store, "job") == []


@settings(max_examples=30, deadline=None)
@given(attempts=st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_a_fence_only_rises(tmp_path_factory: pytest.TempPathFactory, attempts: list[int]) -> None:
    store = FileStore(tmp_path_factory.mktemp("fence"))
    for position, attempt in enumerate(attempts):
        assert raise_fence(store, "job", attempt) == max(attempts[: position + 1])
    assert read_fence(store, "job") == max(attempts)


def test_committing_the_same_again_changes_nothing(store: FileStore, tmp_path: Path) -> None:
    first = commit(store, tmp_path, 10)
    again = commit_checkpoint(store, "job", 10, 1, a_directory(tmp_path, "other"))
    assert again == first
    (store.root / first.key).parent.joinpath("files", "weights").unlink()
    mended = commit_checkpoint(store, "job", 10, 1, a_directory(tmp_path, "other"))
    assert newest_valid(store, "job") == mended != first


def test_an_empty_directory_is_no_checkpoint(store: FileStore, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointEmpty):
        commit_checkpoint(store, "job", 10, 1, tmp_path / "empty")


def test_the_newest_step_wins_then_the_newest_attempt(store: FileStore, tmp_path: Path) -> None:
    for step, attempt in ((10, 1), (30, 1), (20, 2), (30, 2)):
        commit(store, tmp_path, step, attempt)
    found = newest_valid(store, "job")
    assert found is not None and (found.step, found.attempt) == (30, 2)


def test_pruning_keeps_the_last_two_and_ends_what_dead_attempts_left(
    store: FileStore, tmp_path: Path
) -> None:
    for step in (10, 20, 30):
        commit(store, tmp_path, step)
    unfinished = layout.checkpoint_prefix("job", 40, 1) + "files/weights"
    store.put(unfinished, b"half")
    assert prune_checkpoints(store, "job") == 1
    assert [manifest.step for manifest in manifests(store, "job")] == [30, 20]
    assert store.get(unfinished) == b"half", "it may still be on its way"
    raise_fence(store, "job", 2)
    prune_checkpoints(store, "job")
    assert unfinished not in [info.key for info in store.list("")]
    assert newest_valid(store, "job") is not None


def test_an_attempt_that_fell_back_keeps_its_own_saves(store: FileStore, tmp_path: Path) -> None:
    for step in (70, 80, 90):
        commit(store, tmp_path, step, attempt=1)
    commit(store, tmp_path, 75, attempt=2)
    commit(store, tmp_path, 78, attempt=2)
    prune_checkpoints(store, "job")
    assert [(m.step, m.attempt) for m in manifests(store, "job")] == [(78, 2), (75, 2)]


def test_a_manifest_cannot_write_outside_its_directory(store: FileStore, tmp_path: Path) -> None:
    manifest = commit(store, tmp_path, 10)
    document = json.loads(store.get(manifest.key))
    document["files"][0]["path"] = "../../escaped"
    store.put(manifest.key, json.dumps(document).encode())
    assert newest_valid(store, "job") is None
