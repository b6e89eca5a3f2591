"""Directories as archives named by their content."""

import tarfile

from cloudgavel.objects.files import FileStore
from cloudgavel.objects.pack import put_directory


def a_directory(root):
    root.mkdir()
    (root / "train.py").write_text("print('hello')")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "deep").mkdir()
    (root / "deep" / "data.bin").write_bytes(b"\0" * 1000)
    (root / "link").symlink_to("deep/data.bin")
    for ignored in (".git", "__pycache__", "ckpt"):
        (root / ignored).mkdir()
        (root / ignored / "x").write_text("x")
    return root


def names(store, key, tmp_path):
    store.get_file(key, tmp_path / "got.tar.gz")
    with tarfile.open(tmp_path / "got.tar.gz") as packed:
        return sorted(packed.getnames())


def test_what_a_job_needs_goes_along_and_nothing_else(tmp_path):
    store = FileStore(tmp_path / "store")
    key = put_directory(store, a_directory(tmp_path / "code"), left_out=["ckpt"])
    assert names(store, key, tmp_path) == ["deep/data.bin", "link", "run.sh", "train.py"]
    with tarfile.open(tmp_path / "got.tar.gz") as packed:
        packed.extractall(tmp_path / "out", filter="data")
    assert (tmp_path / "out" / "run.sh").stat().st_mode & 0o111
    assert (tmp_path / "out" / "link").read_bytes() == b"\0" * 1000


def test_equal_directories_have_one_key_whatever_their_age(tmp_path):
    store = FileStore(tmp_path / "store")
    first = put_directory(store, a_directory(tmp_path / "one"))
    second = put_directory(store, a_directory(tmp_path / "two"))
    assert first == second
    assert len(store.list("code/")) == 1
    (tmp_path / "two" / "train.py").write_text("print('other')")
    assert put_directory(store, tmp_path / "two") != first
