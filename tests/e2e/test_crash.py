"""``kill -9`` of the controller, as often as one likes; then the same command again."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from cloudgavel.documents.run import RunDocument
from cloudgavel.errors import UsageError
from cloudgavel.jobs.spec import AcceleratorRequest, CheckpointPlan, JobSpec, RehearsalSpec, RunSpec
from cloudgavel.runtime.begin import BeginKind, begin_run
from cloudgavel.runtime.controller import start_controller
from cloudgavel.runtime.directory import RunDirectory
from cloudgavel.runtime.reader import RunReader
from cloudgavel.runtime.real_clock import RealClock
from cloudgavel.runtime.requests import ask_down
from cloudgavel.store import events as ev
from cloudgavel.store.database import ControllerActiveError, process_is_alive
from cloudgavel.store.ledger import imbalance_micro_usd

pytestmark = pytest.mark.e2e

TRAIN = """
import json, pathlib, sys
from cloudgavel import training

state = {"total": 0}

def save(directory):
    pathlib.Path(directory, "state.json").write_text(json.dumps(state))

def load(directory):
    state.update(json.loads(pathlib.Path(directory, "state.json").read_text()))

for step in training.steps(int(sys.argv[1]), save=save, load=load):
    state["total"] += step
"""


def a_run(directory: Path, *, steps: int = 600) -> RunSpec:
    code = directory / "code"
    code.mkdir(exist_ok=True)
    (code / "train.py").write_text(TRAIN)
    jobs = [
        JobSpec(
            name=name,
            commands={"any": f"{sys.executable} train.py {steps}"},
            steps_total=steps,
            accelerators=(AcceleratorRequest(accelerator="V100"),),
            throughput_steps_per_s={"V100": 0.1},
            workdir=str(code),
            checkpoint=CheckpointPlan(save_s=20.0, restore_s=40.0, every_s=600.0),
            deadline_s=6 * 3600.0,
        )
        for name in ("one", "two")
    ]
    return RunSpec(
        name="crash",
        jobs=tuple(jobs),
        rehearsal=RehearsalSpec(seed=3, interruptions_per_hour=0.7),
    )


def wait_for(reader: RunReader, condition: object, within_s: float = 120.0) -> None:
    ends = time.monotonic() + within_s
    while time.monotonic() < ends:
        reader.poll()
        if condition():  # type: ignore[operator]
            return
        if not reader.controller_alive():
            reader.poll()
            assert reader.state.ended is not None, "the controller is gone"
            return
        time.sleep(0.02)
    raise AssertionError(f"not within {within_s} s: at {reader.state.at_s}")


def test_killed_again_and_again_it_finishes_and_nothing_is_doubled(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    state_directory = tmp_path / "state"
    begun = begin_run(state_directory, run, budget_usd=100.0, now_s=time.time())
    assert begun.kind is BeginKind.NEW
    reader = RunReader(begun.directory, RealClock())
    for milestone in (4, 16, 40, 60):
        pid = start_controller(begun.directory)
        wait_for(reader, lambda m=milestone: len(reader._events) >= m or reader.state.ended)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert not process_is_alive(pid)
        again = begin_run(state_directory, run, budget_usd=100.0, now_s=time.time())
        if reader.state.ended is None:
            assert again.kind is BeginKind.RESUMED
            assert again.run_id == begun.run_id
    pid = start_controller(begun.directory)
    wait_for(reader, lambda: reader.state.ended is not None)
    os.waitpid(pid, 0)
    state = reader.state
    assert state.ended == "finished"
    assert all(job.steps_done == 600 for job in state.jobs.values())
    assert imbalance_micro_usd(state) == 0
    document = reader.account()
    assert round(sum(i.cost_usd for i in document.instances), 6) == document.spent_usd
    assert all(i.ended_at is not None for i in document.instances)
    events = [event for _, event in reader._database.read()]
    starts = [(e.job, e.attempt) for e in events if isinstance(e, ev.AttemptStarted)]
    assert len(starts) == len(set(starts))
    for job in state.jobs.values():
        for before, after in zip(job.attempts, job.attempts[1:], strict=False):
            assert before.ended_at_s is not None
            assert before.ended_at_s <= after.started_at_s
    assert not state.orphans
    assert not _processes_under(begun.directory.root)
    reader.close()


def test_a_second_controller_is_refused_and_down_saves_and_ends_everything(tmp_path: Path) -> None:
    run = a_run(tmp_path, steps=5000)
    state_directory = tmp_path / "state"
    begun = begin_run(state_directory, run, budget_usd=100.0, now_s=time.time())
    pid = start_controller(begun.directory)
    reader = RunReader(begun.directory, RealClock())
    wait_for(reader, lambda: any(job.steps_done > 50 for job in reader.state.jobs.values()))
    database = begun.directory.open_database()
    with pytest.raises(ControllerActiveError):
        database.take_lease(holder="me", pid=1, host=os.uname().nodename, now_s=time.time())
    attached = begin_run(state_directory, run, budget_usd=100.0, now_s=time.time())
    assert attached.kind is BeginKind.ATTACHED
    ask_down(database, reason="the test has seen enough", asked_at_s=time.time())
    wait_for(reader, lambda: reader.state.ended is not None)
    os.waitpid(pid, 0)
    assert reader.state.ended == "stopped"
    for job in reader.state.jobs.values():
        if job.attempts:
            assert job.saved_steps == job.attempts[-1].end_step
    assert not _processes_under(begun.directory.root)
    database.close()
    reader.close()


def test_a_budget_that_runs_out_is_never_exceeded_and_more_of_it_finishes_the_rest(
    tmp_path: Path,
) -> None:
    run = a_run(tmp_path)
    state_directory = tmp_path / "state"
    begun = begin_run(state_directory, run, budget_usd=0.7, now_s=time.time(), best_effort=True)
    poor = run_to_end(begun.directory)
    assert poor.state == "budget_exhausted"
    assert 0 < poor.spent_usd <= 0.7
    assert any(job.steps_done < 600 for job in poor.jobs)
    again = begin_run(state_directory, run, budget_usd=50.0, now_s=time.time())
    assert (again.kind, again.run_id) == (BeginKind.RESUMED, begun.run_id)
    rich = run_to_end(again.directory)
    assert rich.state == "finished"
    assert [job.steps_done for job in rich.jobs] == [600, 600]
    # The end of the money lost nothing: every job went on at the very step it had reached.
    resumed: dict[str, int] = {}
    going_on = False
    for _, event in again.directory.open_database().read():
        going_on = going_on or isinstance(event, ev.RunResumed)
        if going_on and isinstance(event, ev.Progressed):
            resumed.setdefault(event.job, event.restored_step)
    assert resumed == {job.name: job.steps_done for job in poor.jobs if job.steps_done < 600}
    assert rich.spent_usd >= poor.spent_usd
    assert not _processes_under(begun.directory.root)


def run_to_end(directory: RunDirectory) -> RunDocument:
    pid = start_controller(directory)
    reader = RunReader(directory, RealClock())
    wait_for(reader, lambda: reader.state.ended is not None and not reader.controller_alive())
    os.waitpid(pid, 0)
    account = reader.account()
    reader.close()
    return account


def test_told_to_leave_it_leaves_everything_running_and_the_next_one_takes_over(
    tmp_path: Path,
) -> None:
    run = a_run(tmp_path, steps=300)
    begun = begin_run(tmp_path / "state", run, budget_usd=100.0, now_s=time.time())
    pid = start_controller(begun.directory)
    assert start_controller(begun.directory) == pid
    reader = RunReader(begun.directory, RealClock())
    wait_for(reader, lambda: any(job.steps_done > 30 for job in reader.state.jobs.values()))
    os.kill(pid, signal.SIGTERM)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    reader.poll()
    assert isinstance(reader._events[-1], ev.ControllerEnded)
    assert reader.state.live_instances
    assert _processes_under(begun.directory.root)
    attempts = [job.attempt for job in reader.state.jobs.values()]
    database = begun.directory.open_database()
    assert database.lease() is None
    database.close()
    reader.close()
    account = run_to_end(begun.directory)
    assert account.state == "finished"
    assert [job.steps_repeated for job in account.jobs] == [0, 0]
    assert all(
        job.attempts == before + job.moves + job.interruptions
        for job, before in zip(account.jobs, attempts, strict=True)
    )
    assert not _processes_under(begun.directory.root)


def test_a_changed_specification_is_refused_and_a_finished_run_put_aside(tmp_path: Path) -> None:
    run = a_run(tmp_path, steps=30)
    state_directory = tmp_path / "state"
    begun = begin_run(state_directory, run, budget_usd=100.0, now_s=time.time())
    other = a_run(tmp_path, steps=40)
    with pytest.raises(UsageError) as refused:
        begin_run(state_directory, other, budget_usd=100.0, now_s=time.time())
    assert any("steps_total: 30 -> 40" in value for _, value in refused.value.facts)
    updated = begin_run(state_directory, other, budget_usd=100.0, now_s=time.time(), update=True)
    assert updated.kind is BeginKind.RESUMED
    pid = start_controller(begun.directory)
    reader = RunReader(begun.directory, RealClock())
    wait_for(reader, lambda: reader.state.ended is not None)
    os.waitpid(pid, 0)
    assert [job.steps_done for job in reader.state.jobs.values()] == [40, 40]
    reader.close()
    fresh = begin_run(state_directory, other, budget_usd=100.0, now_s=time.time())
    assert fresh.kind is BeginKind.NEW
    assert fresh.put_aside is not None
    assert RunDirectory(state_directory, fresh.put_aside.name).exists


def _processes_under(directory: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(directory).encode() in command and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found
