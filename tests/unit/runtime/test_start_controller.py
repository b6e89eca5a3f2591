"""Starting the controller process: why it did not start, and that one is enough."""

import os
import sys
from pathlib import Path

import pytest

from cloudgavel.errors import CloudgavelError
from cloudgavel.runtime.controller import start_controller
from cloudgavel.runtime.directory import RunDirectory


def instead_of_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    script = tmp_path / "instead"
    script.write_text(text)
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


def test_one_that_is_killed_while_it_starts_is_told_with_the_signal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    instead_of_python(monkeypatch, tmp_path, "#!/bin/sh\necho reading the log\nkill -9 $$\n")
    with pytest.raises(CloudgavelError) as told:
        start_controller(RunDirectory(tmp_path / "state", "crash"))
    assert ("what happened", "it was ended from outside by SIGKILL") in told.value.facts
    assert ("it said", "reading the log") in told.value.facts
    assert any("memory" in hint for hint in told.value.hints)
    assert any("cloudgavel run" in hint for hint in told.value.hints)


def test_one_that_gives_way_to_another_that_was_started_meanwhile_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    instead_of_python(
        monkeypatch,
        tmp_path,
        f"""#!{sys.executable}
import os, socket, sys, pathlib
from cloudgavel.store.database import Database
path = pathlib.Path(sys.argv[sys.argv.index("--state") + 1], "crash", "events.db")
Database.at(path).take_lease(
    holder="another", pid=os.getppid(), host=socket.gethostname(), now_s=0.0
)
sys.exit(1)
""",
    )
    assert start_controller(RunDirectory(tmp_path / "state", "crash")) == os.getpid()
