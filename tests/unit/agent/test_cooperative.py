"""Agent and a script that imports cloudgavel.training: real processes, short ones."""

import json
import os
import signal
import time
from dataclasses import replace

import pytest

from cloudgavel.messages import layout
from cloudgavel.messages.orders import Verb
from cloudgavel.messages.report import ProcessState
from cloudgavel.objects.manifest import manifests, newest_valid, raise_fence
from tests.unit.agent.harness import PATIENCE_S, Rig, an_order


def saved_sum(rig: Rig, step: int, attempt: int = 1) -> int:
    key = layout.checkpoint_prefix("job", step, attempt) + "files/state.json"
    return int(json.loads(rig.store.get(key))["sum"])


def test_grants_are_kept_to_the_step_and_the_job_finishes(rig: Rig) -> None:
    rig.start()
    for granted in (0, 1, 7, 200):
        rig.order(an_order(rig, run_to_step=granted))
        rig.wait_paused(granted)
    rig.order(an_order(rig, run_to_step=None))
    job = rig.wait_job(lambda job: job.state is ProcessState.EXITED)
    assert (job.exit_code, job.step, job.saved_step) == (0, 1000, 1000)
    assert job.last_lines[-1] == f"sum {sum(range(1000))}"
    assert saved_sum(rig, 1000) == sum(range(1000))


def test_it_saves_exactly_where_it_is_told_to(rig: Rig) -> None:
    rig.start()
    rig.order(an_order(rig, run_to_step=50, save_at_steps=(20, 50)))
    job = rig.wait_paused(50)
    assert job.saved_step == 50
    assert [manifest.step for manifest in manifests(rig.store, "job")] == [50, 20]
    assert saved_sum(rig, 20) == sum(range(20))
    rig.order(an_order(rig, run_to_step=60, save_sequence=1))
    job = rig.wait_paused(60)
    assert job.save_sequence_done == 1
    assert job.saved_step is not None and job.saved_step >= 50


def test_stop_saves_and_the_next_attempt_goes_on_exactly(rig: Rig) -> None:
    rig.start()
    rig.order(an_order(rig, run_to_step=123))
    rig.wait_paused(123)
    rig.order(an_order(rig, run_to_step=123, verb=Verb.STOP))
    job = rig.wait_job(lambda job: job.state is ProcessState.STOPPED)
    assert (job.saved_step, job.exit_code, job.save_error) == (123, 75, None)
    size = job.saved_bytes
    assert size is not None and size > 0
    assert job.uploaded_bytes % size == 0 < job.uploaded_bytes
    assert job.downloaded_bytes == 0
    rig.order(an_order(rig, attempt=2, run_to_step=1000))
    job = rig.wait_job(lambda job: job.attempt == 2 and job.state is ProcessState.EXITED)
    assert (job.restored_step, job.step) == (123, 1000)
    assert job.downloaded_bytes == size
    assert saved_sum(rig, 1000, attempt=2) == sum(range(1000))


def test_stop_without_saving_ends_at_once(rig: Rig) -> None:
    rig.start()
    rig.order(an_order(rig, run_to_step=30))
    rig.wait_paused(30)
    rig.order(an_order(rig, verb=Verb.STOP, save_before_stop=False))
    job = rig.wait_job(lambda job: job.state is ProcessState.STOPPED)
    assert job.saved_step is None
    assert newest_valid(rig.store, "job") is None


def test_an_unwritable_store_is_told_and_the_job_goes_on(rig: Rig) -> None:
    rig.start()
    rig.order(an_order(rig, run_to_step=10))
    rig.wait_paused(10)
    blocker = rig.store.root / "jobs" / "job" / "checkpoints"
    blocker.write_text("a file where a directory should be: nothing can be written below")
    rig.order(an_order(rig, run_to_step=20, save_sequence=1))
    job = rig.wait_paused(20)
    assert job.save_sequence_done == 1
    assert job.saved_step is None
    assert job.save_error is not None and "Not a directory" in job.save_error
    # Ordered to stop it does not throw its work away: it tries again until the order is withdrawn.
    rig.order(an_order(rig, run_to_step=20, verb=Verb.STOP, save_sequence=1))
    rig.wait_job(lambda job: job.state is ProcessState.SAVING)
    rig.order(an_order(rig, run_to_step=25, save_sequence=1))
    rig.wait_paused(25)
    blocker.unlink()
    rig.order(an_order(rig, run_to_step=25, save_sequence=2))
    job = rig.wait_paused(25)
    assert (job.saved_step, job.save_error, job.save_sequence_done) == (25, None, 2)


def test_a_failing_save_function_is_told_and_the_job_goes_on(rig: Rig) -> None:
    failing = (
        (rig.code / "counter.py")
        .read_text()
        .replace('(directory / "state.json").write_text', "raise OSError(28, 'No space left') #")
    )
    (rig.code / "counter.py").write_text(failing)
    rig.start()
    rig.order(an_order(rig, run_to_step=10, save_at_steps=(5,)))
    job = rig.wait_paused(10)
    assert job.save_error is not None and "No space left" in job.save_error


def test_a_job_that_fails_shows_its_code_and_last_lines(rig: Rig) -> None:
    rig.start()
    rig.order(an_order(rig, command="echo about to fail; exit 3"))
    job = rig.wait_job(lambda job: job.state is ProcessState.EXITED)
    assert (job.exit_code, job.last_lines) == (3, ("about to fail",))
    logs = rig.store.list(layout.log_key("job", 1))
    assert b"".join(rig.store.get(info.key) for info in logs) == b"about to fail\n"


def test_a_fenced_attempt_neither_starts_nor_commits(rig: Rig) -> None:
    rig.start()
    rig.order(an_order(rig, run_to_step=10))
    rig.wait_paused(10)
    raise_fence(rig.store, "job", 2)
    rig.order(an_order(rig, run_to_step=20, save_sequence=1))
    job = rig.wait_job(lambda job: job.state is ProcessState.STOPPED)
    assert job.save_error is not None and "attempt 2 has taken over" in job.save_error
    assert manifests(rig.store, "job") == []
    other = Rig(rig.root, instance="i-2", store=rig.store)
    try:
        other.start()
        other.order(an_order(other, attempt=1))
        job = other.wait_job(lambda job: job.state is ProcessState.EXITED)
        assert job.error is not None and "attempt 2" in job.error
    finally:
        assert other.agent is not None
        other.agent.kill()
        other.agent.wait()


def test_kill_9_of_the_job_loses_only_what_was_not_saved(rig: Rig) -> None:
    command = 'echo $$ > "$CLOUDGAVEL_ATTEMPT_DIR/pid"; exec python counter.py 1000'
    rig.start()
    rig.order(an_order(rig, command=command, run_to_step=40, save_at_steps=(30,)))
    rig.wait_paused(40)
    pid_file = rig.scratch / "jobs" / "job" / "attempt-000001" / "pid"
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    job = rig.wait_job(lambda job: job.state is ProcessState.EXITED)
    assert (job.exit_code, job.saved_step) == (-9, 30)
    rig.order(an_order(rig, attempt=2, run_to_step=35))
    job = rig.wait_paused(35)
    assert job.restored_step == 30


def test_a_job_no_longer_ordered_is_saved_and_ended(rig: Rig) -> None:
    rig.start()
    rig.order(an_order(rig, run_to_step=15))
    rig.wait_paused(15)
    rig.order()
    rig.wait(lambda report: not report.jobs)
    found = newest_valid(rig.store, "job")
    assert found is not None and found.step == 15


def test_setup_runs_once_per_content_and_its_files_are_there_for_every_attempt(rig: Rig) -> None:
    count = rig.root / "count"
    order = an_order(
        rig,
        setup=f"echo ran >> {count}; echo prepared > from-setup",
        command="cat from-setup && exec python counter.py 1000",
        run_to_step=1,
    )
    rig.start()
    rig.order(order)
    rig.wait_paused(1)
    rig.order(replace(order, attempt=2))
    rig.wait(lambda report: report.jobs[0].attempt == 2 and report.jobs[0].step == 1)
    assert count.read_text() == "ran\n"


def test_a_failing_setup_ends_the_attempt_with_its_code(rig: Rig) -> None:
    rig.start()
    rig.order(an_order(rig, setup="echo no such package; exit 4"))
    job = rig.wait_job(lambda job: job.state is ProcessState.EXITED)
    assert (job.exit_code, job.error) == (4, "setup ended with exit code 4")
    assert job.last_lines == ("no such package",)


def test_a_workdir_that_holds_the_store_and_the_scratch_is_copied_without_them(rig: Rig) -> None:
    rig.code = rig.root
    (rig.root / "counter.py").write_text((rig.root / "code" / "counter.py").read_text())
    rig.start()
    rig.order(an_order(rig, run_to_step=3))
    rig.wait_paused(3)
    copy = rig.scratch / "jobs/job/attempt-000001/work"
    assert (copy / "code").is_dir()
    assert not (copy / "store").exists()
    assert not (copy / "scratch" / "i-1").exists()


def test_only_rank_0_of_a_gang_saves(make_rig: object) -> None:
    first, second = make_rig(), make_rig(instance="i-2")  # type: ignore[operator]
    for rank, rig in enumerate((first, second)):
        rig.start()
        peers = ("i-1", "i-2")
        rig.order(
            an_order(rig, rank=rank, world_size=2, peers=peers, run_to_step=9, save_at_steps=(5,))
        )
    assert first.wait_paused(9).saved_step == 5
    assert second.wait_paused(9).saved_step is None
    second.order(
        an_order(second, rank=1, world_size=2, peers=("i-1", "i-2"), verb=Verb.STOP, run_to_step=9)
    )
    job = second.wait_job(lambda job: job.state is ProcessState.STOPPED)
    assert job.saved_step is None
    assert [manifest.step for manifest in manifests(first.store, "job")] == [5]


def test_nothing_of_a_job_survives_its_end(rig: Rig) -> None:
    """Also a grandchild that left the process group and ignores SIGTERM."""
    stray = "setsid sh -c 'trap \"\" TERM; echo $$ > stray; sleep 300'"
    command = f"{stray} & while [ ! -s stray ]; do sleep 0.01; done; exec python counter.py 1000"
    rig.start()
    rig.order(an_order(rig, command=command, run_to_step=5))
    rig.wait_paused(5)
    pid = int((rig.scratch / "jobs/job/attempt-000001/work/stray").read_text())
    rig.order(an_order(rig, command=command, run_to_step=5, verb=Verb.STOP))
    rig.wait_job(lambda job: job.state is ProcessState.STOPPED)
    deadline = time.monotonic() + PATIENCE_S
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("last", ["python counter.py 1000; wait", "exec python counter.py 1000"])
def test_nor_does_one_that_left_its_session_and_its_environment(rig: Rig, last: str) -> None:
    stray = "env -i setsid sh -c 'trap \"\" TERM; echo $$ > stray; sleep 300' > /dev/null 2>&1"
    command = f"{stray} & while [ ! -s stray ]; do sleep 0.01; done; {last}"
    rig.start()
    rig.order(an_order(rig, command=command, run_to_step=5))
    rig.wait_paused(5)
    pid = int((rig.scratch / "jobs/job/attempt-000001/work/stray").read_text())
    rig.order(an_order(rig, command=command, run_to_step=5, verb=Verb.STOP, save_before_stop=False))
    rig.wait_job(lambda job: job.state is ProcessState.STOPPED)
    deadline = time.monotonic() + PATIENCE_S
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False
