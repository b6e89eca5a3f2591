from dataclasses import replace

from cloudgavel.messages.report import JobReport, ProcessState, Report
from cloudgavel.providers.local.waiting import Patience


class FakeTime:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


def a_report(step: int, state: ProcessState = ProcessState.RUNNING) -> Report:
    job = JobReport(job="job", attempt=1, state=state, step=step)
    return Report(
        run_id="run",
        instance_id="one",
        sequence_seen=1,
        heartbeat_at_s=0.0,
        agent_pid=1,
        jobs=(job,),
    )


def test_patience_ends_without_progress_and_heartbeats_are_none():
    time = FakeTime()
    patience = Patience(120.0, monotonic=time.monotonic, sleep=time.sleep)
    assert not patience.ran_out("one", a_report(1))
    time.now_s = 119.0
    assert not patience.ran_out("one", replace(a_report(1), heartbeat_at_s=119.0))
    time.now_s = 121.0
    assert patience.ran_out("one", replace(a_report(1), heartbeat_at_s=121.0))
    assert not patience.ran_out("one", a_report(2))


def test_starting_gets_more_patience():
    time = FakeTime()
    patience = Patience(120.0, monotonic=time.monotonic, sleep=time.sleep)
    starting = a_report(0, ProcessState.STARTING)
    for report in (None, starting):
        assert not patience.ran_out("one", report)
        time.now_s += 500.0
        assert not patience.ran_out("one", report)
    time.now_s += 101.0
    assert patience.ran_out("one", starting)


def test_pauses_grow_while_nothing_changes_and_stay_short():
    time = FakeTime()
    patience = Patience(120.0, monotonic=time.monotonic, sleep=time.sleep)
    for _ in range(30):
        patience.ran_out("one", a_report(1))
        patience.pause()
    assert time.pauses[0] == 0.001
    assert time.pauses == sorted(time.pauses)
    assert time.pauses[-1] == 0.02
    patience.ran_out("one", a_report(2))
    patience.pause()
    assert time.pauses[-1] == 0.001
