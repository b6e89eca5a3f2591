"""Where a run is: the same place by whatever path, and words where it cannot be."""

import os
from pathlib import Path

import pytest

from cloudgavel.errors import CloudgavelError, UsageError
from cloudgavel.runtime.directory import RunDirectory, known_runs, read_state


def test_a_link_to_the_state_directory_is_the_state_directory(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to(real)
    before = RunDirectory(link, "crash")
    real.mkdir()
    direct, linked = RunDirectory(real, "crash"), RunDirectory(link, "crash")
    assert before == linked == direct
    assert linked.rehearsal_path == direct.rehearsal_path == real.resolve() / "crash" / "rehearsal"
    direct.open_database().close()
    assert known_runs(link) == [direct]


def test_a_file_as_state_directory_is_usage(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UsageError) as refused:
        RunDirectory(file, "crash").open_database()
    assert "Not a directory" in refused.value.message


def test_a_run_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        directory = RunDirectory(tmp_path / "state", "secret")
        database = directory.open_database()
    finally:
        os.umask(before)
    try:
        files = list(directory.root.iterdir())
        assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
        assert directory.root.stat().st_mode & 0o777 == 0o700
    finally:
        database.close()


def test_a_damaged_log_is_told_with_its_path(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, "crash")
    directory.root.mkdir()
    directory.database_path.write_text("no database\n" * 100)
    with pytest.raises(CloudgavelError) as told:
        read_state(directory)
    assert any(str(directory.database_path) in value for _, value in told.value.facts)
