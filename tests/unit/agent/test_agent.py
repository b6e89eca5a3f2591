"""The agent as a process: lease, signals, locks, memory, what it imports."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cloudgavel.agent.main import Agent, AgentSettings
from cloudgavel.messages import layout
from cloudgavel.messages.report import ProcessState, Report
from cloudgavel.objects.files import FileStore
from cloudgavel.objects.manifest import newest_valid
from cloudgavel.objects.store import ObjectStore, StoreUnreachable
from tests.unit.agent.harness import PATIENCE_S, Rig, an_order
from tests.unit.agent.test_cooperative import is_running

COUNTING = 'echo $$ > "$CLOUDGAVEL_ATTEMPT_DIR/pid"; exec python counter.py 1000'


def job_pid(rig: Rig) -> int:
    return int((rig.scratch / "jobs/job/attempt-000001/pid").read_text())


def until(wanted: object, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not wanted():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def test_power_off_saves_ends_every_job_and_then_the_agent(rig: Rig) -> None:
    rig.start()
    rig.order(an_order(rig, run_to_step=12))
    rig.wait_paused(12)
    rig.order(an_order(rig, run_to_step=12), power_off=True)
    assert rig.wait_end() == 0
    report = rig.report()
    assert report is not None and report.ending
    assert (report.jobs[0].state, report.jobs[0].saved_step) == (ProcessState.STOPPED, 12)


def test_sigterm_saves_and_ends(rig: Rig) -> None:
    rig.start()
    rig.order(an_order(rig, run_to_step=12))
    rig.wait_paused(12)
    assert rig.agent is not None
    rig.agent.send_signal(signal.SIGTERM)
    assert rig.wait_end() == 0
    found = newest_valid(rig.store, "job")
    assert found is not None and found.step == 12


class AgentHere:
    """An agent in this process, whose clocks the test moves."""

    def __init__(
        self, rig: Rig, *, power_off_at_s: float | None = None, store: ObjectStore | None = None
    ) -> None:
        self.rig = rig
        self.ahead_s = 0.0
        self.agent = Agent(
            AgentSettings(
                store=store or rig.store,
                run_id="run-1",
                instance_id=rig.instance,
                scratch=rig.scratch,
                environment=dict(os.environ),
                power_off_at_s=power_off_at_s,
                monotonic=lambda: time.monotonic() + self.ahead_s,
                wall=lambda: 1_000_000.0 + self.ahead_s,
            )
        )

    def turn_until(self, wanted: Callable[[Report], bool]) -> Report:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self.agent.turn()
            report = self.rig.report()
            if report is not None and wanted(report):
                return report
            time.sleep(0.005)
        raise AssertionError(f"waited in vain: {self.rig.report()}")

    def pause_at(self, step: int) -> None:
        self.turn_until(lambda report: any(job.step == step for job in report.jobs))


def stopped_at(step: int) -> Callable[[Report], bool]:
    def wanted(report: Report) -> bool:
        job = report.jobs[0]
        return report.ending and (job.state, job.saved_step) == (ProcessState.STOPPED, step)

    return wanted


def test_without_a_controller_it_saves_and_ends_by_itself(rig: Rig) -> None:
    """dstack#1047: a controller that is gone must not leave a machine billing all night."""
    rig.order(an_order(rig, run_to_step=12), lease_s=60.0)
    here = AgentHere(rig)
    here.pause_at(12)
    here.ahead_s += 61.0
    here.turn_until(stopped_at(12))
    assert here.agent.turn(), "it is through"


def test_a_renewed_lease_keeps_it_alive(rig: Rig) -> None:
    rig.order(an_order(rig, run_to_step=12), lease_s=60.0)
    here = AgentHere(rig)
    here.pause_at(12)
    for renewal in range(5):
        here.ahead_s += 40.0
        rig.renew_lease(float(renewal))
        assert not here.agent.turn()
        report = rig.report()
        assert report is not None and not report.ending
    here.ahead_s += 61.0
    rig.renew_lease(4.0)
    here.turn_until(stopped_at(12))


class Away(FileStore):
    """A store that does not answer while ``down``."""

    down = False

    def get(self, key: str) -> bytes:
        self._answer(key)
        return super().get(key)

    def put(self, key: str, data: bytes, *, durable: bool = True) -> None:
        self._answer(key)
        super().put(key, data, durable=durable)

    def stamp(self, key: str) -> str | None:
        self._answer(key)
        return super().stamp(key)

    def _answer(self, key: str) -> None:
        if self.down:
            raise StoreUnreachable("reach", key, "no answer", self.url)


def test_a_store_that_is_away_for_ten_minutes_ends_no_machine(rig: Rig) -> None:
    rig.order(an_order(rig, run_to_step=12), lease_s=60.0)
    store = Away(rig.store.root)
    here = AgentHere(rig, store=store)
    here.pause_at(12)
    store.down = True
    for _ in range(12):
        assert not here.agent.turn()
        here.ahead_s += 50.0
    store.down = False
    rig.renew_lease(1.0)
    assert not here.agent.turn()
    report = rig.report()
    assert report is not None and not report.ending
    here.ahead_s += 61.0
    here.turn_until(stopped_at(12))


def test_past_the_machines_lifetime_it_saves_and_ends(rig: Rig) -> None:
    rig.order(an_order(rig, run_to_step=12), lease_s=10_000.0)
    here = AgentHere(rig, power_off_at_s=1_000_100.0)
    here.pause_at(12)
    here.ahead_s = 101.0
    here.turn_until(stopped_at(12))


def test_kill_9_of_the_agent_leaves_no_job_and_the_next_one_takes_over(rig: Rig) -> None:
    rig.start()
    rig.order(an_order(rig, command=COUNTING, run_to_step=30, save_at_steps=(20,)))
    rig.wait_paused(30)
    pid = job_pid(rig)
    assert rig.agent is not None
    os.kill(rig.agent.pid, signal.SIGKILL)
    rig.agent.wait()
    rig.start()
    rig.order(an_order(rig, command=COUNTING, attempt=2, run_to_step=25))
    job = rig.wait_job(lambda job: job.attempt == 2 and job.state is ProcessState.PAUSED)
    assert (job.restored_step, job.step) == (20, 25)
    assert not is_running(pid)


def test_an_orphaned_script_ends_by_itself(rig: Rig) -> None:
    rig.start()
    rig.order(an_order(rig, command=COUNTING, run_to_step=30))
    rig.wait_paused(30)
    pid = job_pid(rig)
    assert rig.agent is not None
    os.kill(rig.agent.pid, signal.SIGKILL)
    rig.agent.wait()
    until(lambda: not is_running(pid), "the orphan still runs")


def test_end_leftovers_ends_what_a_dead_agent_left(rig: Rig) -> None:
    stubborn = (
        "trap '' TERM HUP; echo $$ > \"$CLOUDGAVEL_ATTEMPT_DIR/pid\"; while :; do sleep 1; done"
    )
    rig.start()
    rig.order(an_order(rig, command=stubborn))
    pid_file = rig.scratch / "jobs/job/attempt-000001/pid"
    until(lambda: pid_file.exists() and pid_file.read_text(), "the job did not start")
    assert rig.agent is not None
    os.kill(rig.agent.pid, signal.SIGKILL)
    rig.agent.wait()
    subprocess.run(
        [
            *(sys.executable, "-m", "cloudgavel.agent"),
            *("--end-leftovers", "--scratch", str(rig.scratch)),
        ],
        check=True,
    )
    until(lambda: not is_running(int(pid_file.read_text())), "the leftover still runs")


def test_one_instance_has_one_agent(rig: Rig) -> None:
    rig.start()
    rig.order()
    rig.wait(lambda report: True)
    second = subprocess.run(
        [
            *(sys.executable, "-m", "cloudgavel.agent", "--store", rig.store.url),
            *("--run", "run-1", "--instance", "i-1", "--scratch", str(rig.scratch)),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert second.returncode == 1
    assert "another agent serves this instance" in second.stderr


def test_it_is_light(rig: Rig) -> None:
    rig.start()
    rig.order(an_order(rig, run_to_step=5, save_at_steps=(5,)))
    rig.wait_paused(5)
    assert rig.agent is not None
    status = Path(f"/proc/{rig.agent.pid}/status")
    if not status.exists():
        return
    resident = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    assert int(resident.split()[1]) < 60 * 1024
    print(resident)


def test_it_imports_nothing_heavy() -> None:
    heavy = "numpy cvxpy scipy pandas sqlalchemy pydantic rich click yaml boto3 google tenacity"
    program = (
        "import sys, cloudgavel.agent.__main__, cloudgavel.training; "
        f"print([name for name in {heavy.split()!r} if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_malformed_orders_change_nothing(rig: Rig) -> None:
    rig.start()
    rig.order(an_order(rig, run_to_step=5))
    rig.wait_paused(5)
    rig.store.put(layout.orders_key("i-1"), b'{"kind": "orders", "sequence": ')
    rig.wait(lambda report: True)
    rig.order(an_order(rig, run_to_step=8))
    rig.wait_paused(8)


def test_older_orders_and_those_of_another_run_are_not_obeyed(rig: Rig) -> None:
    rig.start()
    rig.sequence = 10
    rig.order(an_order(rig, run_to_step=5))
    rig.wait_paused(5)
    rig.sequence = 3
    rig.order(an_order(rig, run_to_step=500))
    rig.sequence = 11
    rig.order(an_order(rig, run_to_step=6))
    rig.wait_paused(6)


def test_a_job_sees_its_accelerators_its_rank_and_this_python(rig: Rig) -> None:
    names = "CUDA_VISIBLE_DEVICES CLOUDGAVEL_JOB CLOUDGAVEL_ATTEMPT CLOUDGAVEL_TOTAL_STEPS RANK"
    names += " WORLD_SIZE MASTER_ADDR OWN"
    program = (
        f"import os, sys; print([os.environ[name] for name in {names.split()!r}]); "
        "import cloudgavel; print(sys.prefix)"
    )
    rig.start()
    rig.order(
        an_order(
            rig,
            command=f'python -c "{program}"',
            accelerator_indices=(2, 3),
            rank=1,
            world_size=2,
            peers=("i-0", "i-1"),
            env={"OWN": "x"},
        )
    )
    job = rig.wait_job(lambda job: job.state is ProcessState.EXITED)
    expected = ["2,3", "job", "1", "1000", "1", "2", "127.0.0.1", "x"]
    assert job.last_lines == (str(expected), sys.prefix)


def test_an_agent_that_can_speak_to_s3_stays_under_100_mb() -> None:
    script = (
        "import cloudgavel.agent.__main__\n"
        "from cloudgavel.objects.s3 import S3Store\n"
        "S3Store('bucket', 'prefix')._s3()\n"
        "print(next(l for l in open('/proc/self/status') if l.startswith('VmHWM')).split()[1])\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", script],
        env={
            **os.environ,
            "AWS_ACCESS_KEY_ID": "made-up",
            "AWS_SECRET_ACCESS_KEY": "made-up",
            "AWS_DEFAULT_REGION": "us-east-1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(said.stdout) * 1024 < 100e6
