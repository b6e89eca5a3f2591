"""A controller's side of the mailbox, and real agents to talk to."""

import contextlib
import dataclasses
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cloudgavel.agent.process import end_leftovers
from cloudgavel.messages import layout
from cloudgavel.messages.codec import decode_report, encode_lease, encode_orders
from cloudgavel.messages.orders import JobOrder, Orders, Verb
from cloudgavel.messages.report import JobReport, ProcessState, Report
from cloudgavel.objects.files import FileStore
from cloudgavel.objects.store import ObjectMissing

PATIENCE_S = 30.0

COUNTER = """
import json, sys, time
from pathlib import Path
from cloudgavel import training
state = {"sum": 0}
def save(directory):
    (directory / "state.json").write_text(json.dumps(state))
def load(directory):
    state.update(json.loads((directory / "state.json").read_text()))
for step in training.steps(int(sys.argv[1]), save=save, load=load):
    state["sum"] += step
    training.report(loss=1.0 / (step + 1))
    print("did", step + 1)
    time.sleep(0.001)
print("sum", state["sum"])
"""

SIGNALLED = """
import os, signal, sys, time
from pathlib import Path
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
saved = Path("ckpt/step.txt")
step = int(saved.read_text()) if saved.exists() else 0
while step < int(sys.argv[1]):
    time.sleep(0.003)
    step += 1
    print(f"step {step}", flush=True)
    if told:
        saved.parent.mkdir(exist_ok=True)
        saved.write_text(str(step))
        sys.exit(143)
saved.parent.mkdir(exist_ok=True)
saved.write_text(str(step))
"""


class Rig:
    """One instance: its store, its agent process, and what a controller would do with them."""

    def __init__(
        self, root: Path, *, instance: str = "i-1", store: FileStore | None = None
    ) -> None:
        self.root = root
        self.instance = instance
        self.store = store or FileStore(root / "store")
        self.scratch = root / "scratch" / instance
        self.sequence = 0
        self.code = root / "code"
        self.code.mkdir(exist_ok=True)
        (self.code / "counter.py").write_text(textwrap.dedent(COUNTER))
        (self.code / "signalled.py").write_text(textwrap.dedent(SIGNALLED))
        self.agent: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> "Rig":
        self.agent = subprocess.Popen(
            [
                *(sys.executable, "-m", "cloudgavel.agent", "--store", self.store.url),
                *("--run", "run-1", "--instance", self.instance),
                *("--scratch", str(self.scratch), *more),
            ],
            start_new_session=True,
            stderr=(self.root / f"{self.instance}.stderr").open("ab"),
        )
        return self

    def order(self, *jobs: JobOrder, lease_s: float = 60.0, power_off: bool = False) -> int:
        self.sequence += 1
        orders = Orders(
            run_id="run-1",
            instance_id=self.instance,
            sequence=self.sequence,
            lease_s=lease_s,
            jobs=jobs,
            power_off=power_off,
        )
        self.store.put(layout.orders_key(self.instance), encode_orders(orders), durable=False)
        return self.sequence

    def renew_lease(self, at_s: float) -> None:
        self.store.put(layout.lease_key(), encode_lease(at_s))

    def report(self) -> Report | None:
        try:
            return decode_report(self.store.get(layout.report_key(self.instance)))
        except ObjectMissing:
            return None

    def wait(self, wanted: Callable[[Report], bool], what: str = "") -> Report:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            report = self.report()
            if report is not None and report.sequence_seen >= self.sequence and wanted(report):
                return report
            time.sleep(0.002)
        stderr = (self.root / f"{self.instance}.stderr").read_text()
        raise AssertionError(f"waited in vain {what}: {self.report()}\n{stderr}")

    def wait_job(self, wanted: Callable[[JobReport], bool], what: str = "") -> JobReport:
        report = self.wait(lambda report: bool(report.jobs) and wanted(report.jobs[0]), what)
        return report.jobs[0]

    def wait_paused(self, step: int) -> JobReport:
        job = self.wait_job(
            lambda job: job.state is ProcessState.PAUSED, f"for a pause at step {step}"
        )
        assert job.step == step
        return job

    def wait_end(self) -> int:
        assert self.agent is not None
        return self.agent.wait(timeout=PATIENCE_S)


def an_order(rig: Rig, **changes: object) -> JobOrder:
    order = JobOrder(
        job="job",
        attempt=1,
        verb=Verb.RUN,
        command="exec python counter.py 1000",
        workdir=str(rig.code),
        steps_total=1000,
        run_to_step=0,
        grace_s=10.0,
    )
    return dataclasses.replace(order, **changes)  # type: ignore[arg-type]


@contextlib.contextmanager
def rigs(root: Path) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(**options: object) -> Rig:
        made.append(Rig(root, **options))  # type: ignore[arg-type]
        return made[-1]

    try:
        yield make
    finally:
        for rig in made:
            if rig.agent is not None:
                if rig.agent.poll() is None:
                    os.kill(rig.agent.pid, 9)
                rig.agent.wait()
            end_leftovers(rig.scratch)
