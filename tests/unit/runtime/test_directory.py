"""Where a run is: the same place by whatever path, and words where it cannot be."""

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


def test_a_damaged_log_is_told_with_its_path(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path, "crash")
    directory.root.mkdir()
    directory.database_path.write_text("no database\n" * 100)
    with pytest.raises(CloudgavelError) as told:
        read_state(directory)
    assert any(str(directory.database_path) in value for _, value in told.value.facts)
