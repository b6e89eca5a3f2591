"""The laws of the governed loop, against a fake agent in this process and virtual time."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.messages.control import (
    SAVES_DIRECTORY,
    STEP_FILE,
    Control,
    Progress,
    read_progress,
    write_control,
)
from cloudgavel.training.governed import NO_SAVE_FUNCTION, GovernedLoop


class FakeAgent:
    """Writes controls, acknowledges saves, and plays a list of changes while the script waits."""

    def __init__(self, directory: Path, changes: list[dict[str, object]]) -> None:
        self.directory = directory
        self.control = Control(number=1, agent_pid=os.getpid(), run_to_step=0)
        self.changes = list(changes)
        self.now_s = 0.0
        self.committed: list[int] = []
        self.refuse: str | None = None
        self.granted_most = 0
        write_control(directory, self.control)

    def change(self, **what: object) -> None:
        self.control = replace(self.control, number=self.control.number + 1, **what)  # type: ignore[arg-type]
        granted = self.control.run_to_step
        self.granted_most = max(self.granted_most, 10**9 if granted is None else granted)
        write_control(self.directory, self.control)

    def progress(self) -> Progress:
        found = read_progress(self.directory)
        assert found is not None
        return found

    def wait(self, seconds: float) -> None:
        """Called where the real loop would sleep."""
        self.now_s += seconds
        progress = self.progress()
        if progress.save_number > self.control.save_done:
            saved = self.directory / SAVES_DIRECTORY / str(progress.save_number)
            step = json.loads((saved / STEP_FILE).read_text())["step"]
            assert step == progress.save_step
            if self.refuse is None:
                self.committed.append(step)
            self.change(save_done=progress.save_number, save_error=self.refuse)
        elif progress.state in ("paused", "saving") and self.changes:
            self.change(**self.changes.pop(0))
        elif not self.changes:
            raise AssertionError(f"nothing more will happen: {progress}")

    def monotonic(self) -> float:
        self.now_s += 0.0004
        return self.now_s


def run(
    directory: Path,
    changes: list[dict[str, object]],
    *,
    total: int = 100,
    first: int = 0,
    saves: bool = True,
    rank_0: bool = True,
) -> tuple[FakeAgent, list[int], int | None]:
    agent = FakeAgent(directory, changes)
    loop = GovernedLoop(
        directory,
        total=total,
        first=first,
        save=(lambda path: (path / "state").write_text("x")) if saves else None,
        saves_here=rank_0,
        monotonic=agent.monotonic,
        wait=agent.wait,
    )
    done: list[int] = []
    step = first
    try:
        while loop.settle(step):
            assert step < agent.granted_most, "a step was begun that was not granted"
            done.append(step)
            step += 1
    except SystemExit as stopped:
        assert isinstance(stopped.code, int)
        return agent, done, stopped.code
    return agent, done, None


grants = st.lists(st.integers(0, 60), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(granted=grants, first=st.integers(0, 20), saves_at=st.sets(st.integers(1, 60), max_size=4))
def test_no_grant_is_overrun_and_every_ordered_save_is_exact(
    tmp_path_factory: pytest.TempPathFactory, granted: list[int], first: int, saves_at: set[int]
) -> None:
    directory = tmp_path_factory.mktemp("control")
    steps = tuple(sorted(saves_at))
    changes: list[dict[str, object]] = [
        {"run_to_step": to, "save_at_steps": steps} for to in granted
    ]
    agent, done, code = run(directory, [*changes, {"stop": True}], first=first)
    reached = max([first, *granted])
    assert code == 75
    assert done == list(range(first, reached)), "every granted step once, in order, none else"
    expected = [step for step in steps if first < step <= reached]
    if reached > first and reached not in expected:
        expected.append(reached)  # ordered to stop, it saves where it is
    assert agent.committed == expected
    assert agent.progress().state == "stopped"


@settings(max_examples=30, deadline=None)
@given(
    granted=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    asks=st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_each_ask_for_a_save_is_answered_before_the_loop_rests(
    tmp_path_factory: pytest.TempPathFactory, granted: list[int], asks: list[bool]
) -> None:
    directory = tmp_path_factory.mktemp("control")
    sequence = 0
    changes: list[dict[str, object]] = []
    for to, ask in zip(granted, asks, strict=False):
        sequence += ask
        changes.append({"run_to_step": to, "save_sequence": sequence})
    agent, _, _ = run(directory, [*changes, {"stop": True, "save_before_stop": False}])
    assert agent.progress().save_sequence_done == sequence
    assert agent.progress().save_error is None


def test_it_finishes_with_a_last_save(tmp_path: Path) -> None:
    agent, done, code = run(tmp_path, [{"run_to_step": None}], total=30)
    assert (done, code, agent.committed) == (list(range(30)), None, [30])
    assert agent.progress().state == "finished"


def test_restored_at_its_end_it_has_nothing_to_do(tmp_path: Path) -> None:
    agent, done, code = run(tmp_path, [], total=30, first=30)
    assert (done, code, agent.committed) == ([], None, [])


def test_stop_without_saving_saves_nothing(tmp_path: Path) -> None:
    changes: list[dict[str, object]] = [
        {"run_to_step": 9},
        {"stop": True, "save_before_stop": False},
    ]
    agent, done, code = run(tmp_path, changes)
    assert (len(done), code, agent.committed) == (9, 75, [])


def test_what_is_saved_already_is_not_saved_again(tmp_path: Path) -> None:
    changes: list[dict[str, object]] = [
        {"run_to_step": 9, "save_at_steps": (9,)},
        {"save_sequence": 1},
        {"stop": True},
    ]
    agent, _, _ = run(tmp_path, changes)
    assert agent.committed == [9]
    assert agent.progress().save_sequence_done == 1


def test_other_ranks_save_nothing_and_stop_at_once(tmp_path: Path) -> None:
    changes: list[dict[str, object]] = [
        {"run_to_step": 9, "save_at_steps": (5,), "save_sequence": 1},
        {"stop": True},
    ]
    agent, done, code = run(tmp_path, changes, rank_0=False)
    assert (len(done), code, agent.committed) == (9, 75, [])
    assert agent.progress().save_sequence_done == 1


def test_without_a_save_function_it_says_so_and_stops(tmp_path: Path) -> None:
    changes: list[dict[str, object]] = [{"run_to_step": 9, "save_sequence": 1}, {"stop": True}]
    agent, done, code = run(tmp_path, changes, saves=False)
    assert (len(done), code) == (9, 75)
    assert agent.progress().save_error == NO_SAVE_FUNCTION


def test_a_stop_whose_save_fails_waits_and_can_be_withdrawn(tmp_path: Path) -> None:
    agent = FakeAgent(tmp_path, [{"run_to_step": 5}, {"stop": True}])
    agent.refuse = "disk full"
    loop = GovernedLoop(
        tmp_path,
        total=10,
        save=lambda path: (path / "state").write_text("x"),
        monotonic=agent.monotonic,
        wait=agent.wait,
    )
    for step in range(5):
        assert loop.settle(step)
    agent.changes += [{"stop": False, "run_to_step": 7}]
    assert loop.settle(5)
    assert agent.progress().save_error == "disk full"
    agent.refuse = None
    agent.changes += [{"stop": True}]
    assert loop.settle(6)
    with pytest.raises(SystemExit):
        loop.settle(7)
    assert agent.committed == [7]
    assert agent.progress().save_error is None


def test_a_background_save_does_not_hold_the_loop_up(tmp_path: Path) -> None:
    agent = FakeAgent(tmp_path, [])
    agent.change(run_to_step=None, background_save_sequence=1)

    def no_wait(_seconds: float) -> None:
        raise AssertionError("it waited")

    loop = GovernedLoop(
        tmp_path,
        total=1000,
        save=lambda path: (path / "state").write_text("x"),
        monotonic=agent.monotonic,
        wait=no_wait,
    )
    for step in range(50):
        assert loop.settle(step)
    assert (agent.progress().save_number, agent.progress().save_step) == (1, 0) or (
        agent.progress().save_number == 0
    )


def test_a_loop_whose_agent_is_gone_ends(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    write_control(tmp_path, Control(number=1, agent_pid=child, run_to_step=5))
    clock = iter(float(second) for second in range(100))
    loop = GovernedLoop(
        tmp_path, total=10, monotonic=lambda: next(clock), wait=lambda _seconds: None
    )
    with pytest.raises(SystemExit) as ended:
        for step in range(10):
            loop.settle(step)
    assert ended.value.code == 75
