"""Outside cloudgavel the loop counts and does no harm."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from cloudgavel import training
from cloudgavel.messages.control import Control, write_control
from cloudgavel.training.loop import checkpoint_step


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CLOUDGAVEL_CONTROL_DIR", "CLOUDGAVEL_TOTAL_STEPS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_it_counts_and_touches_nothing(tmp_path: Path) -> None:
    saved: list[Path] = []
    assert list(training.steps(5, save=saved.append, load=saved.append)) == [0, 1, 2, 3, 4]
    training.report(loss=1.0)
    assert (saved, list(tmp_path.iterdir())) == ([], [])


def test_asked_to_it_keeps_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    state = {"at": ""}

    def save(directory: Path) -> None:
        (directory / "state").write_text(state["at"])

    def load(directory: Path) -> None:
        state["at"] = (directory / "state").read_text()

    state["at"] = "three"
    assert len(list(training.steps(3, save=save, load=load, standalone_dir="ckpt"))) == 3
    assert checkpoint_step(tmp_path / "ckpt") == 3
    state["at"] = "lost"
    more = list(training.steps(5, save=save, load=load, standalone_dir="ckpt"))
    assert (more, state["at"]) == ([3, 4], "three")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpt"]


@pytest.mark.parametrize("total", [0, -1, 2.5, True, "7"])
def test_a_total_that_is_none_is_refused_at_once(total: object) -> None:
    with pytest.raises(ValueError, match="whole number of at least 1"):
        training.steps(total)  # type: ignore[arg-type]


def test_a_total_is_needed_outside() -> None:
    with pytest.raises(ValueError, match="needs a total"):
        training.steps()


def test_the_total_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDGAVEL_TOTAL_STEPS", "4")
    assert len(list(training.steps())) == 4


def test_a_control_directory_that_is_gone_is_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDGAVEL_CONTROL_DIR", "/nowhere/at/all")
    assert len(list(training.steps(4))) == 4


def test_it_needs_nothing_but_the_standard_library() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from cloudgavel import training; "
        "print(len(list(training.steps(3))))"
    )
    root = Path(training.__file__).parents[2]
    found = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(root)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "3"


def test_a_step_costs_microseconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    write_control(tmp_path, Control(number=1, agent_pid=os.getpid()))
    monkeypatch.setenv("CLOUDGAVEL_CONTROL_DIR", str(tmp_path))
    begin = time.process_time()
    count = 0
    for _ in training.steps(100_000):
        count += 1
    assert count == 100_000
    assert time.process_time() - begin < 2.0, "20 microseconds a step is far too much"
