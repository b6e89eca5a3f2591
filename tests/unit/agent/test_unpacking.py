"""Code that comes as an archive, on Pythons with and without a filter of their own."""

import io
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloudgavel.agent.workspace import _extract, _source
from cloudgavel.errors import CloudgavelError
from cloudgavel.messages.orders import JobOrder, Verb
from cloudgavel.objects.files import FileStore
from cloudgavel.objects.pack import put_directory


@pytest.fixture(params=[True, False], ids=["with a filter", "before 3.11.4"])
def has_filter(request, monkeypatch) -> bool:
    if not request.param:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
        plain = tarfile.TarFile.extractall

        def extractall(self, path="."):
            plain(self, path, filter="fully_trusted")

        monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)
    return request.param


def an_archive(*members: tuple[str, bytes, str]) -> tarfile.TarFile:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, kind, text in members:
            entry = tarfile.TarInfo(name)
            entry.type = kind
            if kind == tarfile.REGTYPE:
                entry.size = len(text)
            else:
                entry.linkname = text
            archive.addfile(entry, io.BytesIO(text.encode()))
    packed.seek(0)
    return tarfile.open(fileobj=packed)


def test_files_and_links_inside_are_unpacked(has_filter, tmp_path: Path) -> None:
    archive = an_archive(
        ("a/train.py", tarfile.REGTYPE, "print()"), ("link.py", tarfile.SYMTYPE, "a/train.py")
    )
    _extract(archive, tmp_path / "code")
    assert (tmp_path / "code" / "link.py").read_text() == "print()"


@pytest.mark.parametrize(
    "member",
    [
        ("../out", tarfile.REGTYPE, "x"),
        ("out", tarfile.SYMTYPE, "/etc/passwd"),
        ("out", tarfile.SYMTYPE, "../../x"),
        ("device", tarfile.CHRTYPE, ""),
    ],
    ids=["path", "absolute link", "relative link", "device"],
)
def test_nothing_leaves_the_directory(has_filter, tmp_path: Path, member) -> None:
    with pytest.raises((CloudgavelError, tarfile.FilterError)):
        _extract(an_archive(member), tmp_path / "deep" / "code")
    assert not (tmp_path / "deep" / "out").exists()


def test_jobs_that_start_together_share_one_copy_of_their_code(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    for number in range(20):
        (code / f"{number}.py").write_text("x")
    together = threading.Barrier(2, timeout=20.0)

    class Slow(FileStore):
        def get_file(self, key: str, path: Path) -> None:
            super().get_file(key, path)
            together.wait()

    store = Slow(tmp_path / "store")
    key = put_directory(store, code)

    def source_of(job: str) -> Path:
        order = JobOrder(
            job=job, attempt=1, verb=Verb.RUN, command="true", workdir=key, steps_total=1
        )
        return _source(order, store, tmp_path / "scratch")

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(source_of, ["one", "two"])
    assert first == second
    assert len(list(first.iterdir())) == 20
    assert [each.name for each in first.parent.iterdir()] == [first.name]
