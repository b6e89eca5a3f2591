"""What cannot be run is refused before anything is written down or started."""

from pathlib import Path

import pytest

from cloudgavel.cli.app import run_command_line

JOBS = """
name: refused
{more}
jobs:
  - name: a
    command: "true"
    steps: 100
    accelerators: [V100]
    throughput: {{V100: 1.0}}
"""


def run(tmp_path: Path, more: str) -> int:
    file = tmp_path / "jobs.yaml"
    file.write_text(JOBS.format(more=more))
    state = tmp_path / "state"
    code = run_command_line(
        ["run", str(file), "--budget", "5", "--yes", "--state", str(state), "--foreground"]
    )
    assert not state.exists(), "something was begun"
    return code


def test_a_store_that_cannot_be_written_is_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert run(tmp_path, f"store: file://{tmp_path}/file/store") == 2
    err = capsys.readouterr().err
    assert "the store of this run cannot be used; nothing was started" in err
    assert "cloudgavel check --store" in err


def test_clouds_that_the_controller_cannot_rent_from_are_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cloudgavel.errors import UsageError
    from cloudgavel.runtime import controller

    def refuse(spec: object, environment: object) -> None:
        raise UsageError("this version cannot rent from aws yet; nothing was started")

    monkeypatch.setattr(controller, "require_rentable", refuse)
    assert run(tmp_path, "clouds: [aws]") == 2
    assert "cannot rent from aws yet" in capsys.readouterr().err


def test_an_interrupt_while_planning_says_that_nothing_was_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cloudgavel.cli.planning.make_plan", interrupted)
    assert run(tmp_path, "") == 130
    assert "nothing was started, nothing was rented" in capsys.readouterr().err
