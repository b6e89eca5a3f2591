"""Random histories of faults, crashes and moves against the real loop, log, fold and executor."""

import math
from collections.abc import Sequence

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.providers.base import EndReason, MachineState
from cloudgavel.providers.simulated.habits import CloudHabits
from cloudgavel.store.events import Event
from cloudgavel.store.fold import fold
from cloudgavel.store.ledger import imbalance_micro_usd
from cloudgavel.store.log import MemoryLog
from tests.unit.runtime.scripted import Stage, a_job, a_run, an_offer


class Crash(BaseException):
    """The controller's process is gone."""


class CrashingLog(MemoryLog):
    """Dies at the n-th write from now, before it is written or right after."""

    def __init__(self) -> None:
        super().__init__()
        self.writes_left: int | None = None
        self.before = False

    def append(self, events: Sequence[Event]) -> None:
        dies = False
        if self.writes_left is not None:
            self.writes_left -= 1
            dies = self.writes_left <= 0
        if dies and self.before:
            self.writes_left = None
            raise Crash
        super().append(events)
        if dies:
            self.writes_left = None
            raise Crash


class ControllerMachine(RuleBasedStateMachine):
    @initialize(
        lag_s=st.sampled_from([0.0, 45.0]),
        rate=st.sampled_from([0.0, 4.0]),
        places=st.sampled_from([1, 2]),
    )
    def begin(self, lag_s: float, rate: float, places: int) -> None:
        self.log = CrashingLog()
        self.stage = Stage(
            a_run(a_job("a", steps=900), a_job("b", steps=400), a_job("c", after=("b",))),
            [
                an_offer("z1", spot=True, rate_per_hour=rate, price=1.1),
                an_offer("z2", price=3.07),
            ][:places],
            habits=CloudHabits(list_lag_s=lag_s),
            log=self.log,
        )

    # -- what happens -------------------------------------------------------------------------

    @rule(events=st.integers(1, 4))
    def time_passes(self, events: int) -> None:
        for _ in range(events):
            self._advance()

    @rule(writes=st.integers(1, 4), before=st.booleans())
    def crash_soon(self, writes: int, before: bool) -> None:
        self.log.writes_left, self.log.before = writes, before

    @rule()
    def crash_now(self) -> None:
        self.stage.restart()

    @rule(kind=st.sampled_from(["unanswered", "lost", "throttled", "terminate", "list"]))
    def calls_fail(self, kind: str) -> None:
        faults = self.stage.cloud.faults
        if kind == "unanswered":
            faults.unanswered_launches += 1
        elif kind == "lost":
            faults.lost_launches += 1
        elif kind == "throttled":
            faults.throttled_launches += 1
        elif kind == "terminate":
            faults.failing_terminates += 1
        else:
            faults.failing_lists += 1

    @rule(zone=st.sampled_from(["z1", "z2"]))
    def capacity_goes(self, zone: str) -> None:
        self.stage.cloud.faults.refused_zones.add(zone)

    @rule()
    def capacity_comes_back(self) -> None:
        self.stage.cloud.faults.refused_zones.clear()

    @rule(job=st.sampled_from(["a", "b", "c"]))
    def a_job_is_to_move(self, job: str) -> None:
        self.stage.script.moves.add(job)

    @precondition(lambda self: self._living())
    @rule(data=st.data())
    def a_machine_vanishes(self, data: st.DataObject) -> None:
        instance_id = data.draw(st.sampled_from(self._living()))
        self.stage.cloud.vanish_at(instance_id, self.stage.now_s + 1.0)

    # -- what always holds --------------------------------------------------------------------

    @invariant()
    def the_state_is_the_fold_of_the_log(self) -> None:
        assert self.stage.loop.state == fold(event for _, event in self.log.read())

    @invariant()
    def the_ledger_adds_up(self) -> None:
        assert imbalance_micro_usd(self.stage.loop.state) == 0

    @invariant()
    def no_machine_without_an_intent(self) -> None:
        state = self.stage.loop.state
        assert not state.orphans
        listed = self.stage.cloud.list_instances(state.run_id) if self._lists_work() else ()
        for line in listed:
            assert line.token in state.intents or line.token in state.instance_of_token

    @invariant()
    def one_machine_per_token(self) -> None:
        if self._lists_work():
            tokens = [line.token for line in self.stage.cloud.list_instances("run-1")]
            assert len(tokens) == len(set(tokens))

    @invariant()
    def no_job_runs_twice_at_once(self) -> None:
        alive = [key for key, a in self.stage.world.channel.attempts().items() if not a.over]
        jobs = [job for job, _ in alive]
        assert len(jobs) == len(set(jobs)), alive

    @invariant()
    def every_job_waits_for_one_machine_at_most(self) -> None:
        state = self.stage.loop.state
        for name, job in state.jobs.items():
            waiting = [r for r in state.live_instances if name in r.for_jobs and _usable(r)]
            asked = [i for i in state.intents.values() if name in i.for_jobs]
            assert len(waiting) + len(asked) <= 1, name
            if job.current is not None:
                assert not waiting and not asked

    # -- the end ------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "stage"):
            return
        self.log.writes_left = None
        faults = self.stage.cloud.faults
        faults.refused_zones.clear()
        faults.unanswered_launches = faults.lost_launches = faults.throttled_launches = 0
        faults.failing_terminates = faults.failing_lists = 0
        self.stage.script.moves.clear()
        self.stage.run_to_end()
        state = self.stage.loop.state
        assert state.ended == "finished"
        assert all(job.phase is JobPhase.FINISHED for job in state.jobs.values())
        assert imbalance_micro_usd(state) == 0
        listed = self.stage.cloud.list_instances("run-1")
        assert {line.instance_id for line in listed} == set(state.instances)
        for line in listed:
            assert line.state is MachineState.TERMINATED
            assert line.ended_at_s is not None
            bill = _bill(line.price_usd_per_hour, line.launched_at_s, line.ended_at_s)
            record = state.instances[line.instance_id]
            assert record.accrued_micro_usd + record.waived_micro_usd == bill
            taken_early = (
                line.end_reason is EndReason.INTERRUPTED
                and line.ended_at_s - line.launched_at_s < 3600.0
            )
            assert record.waived_micro_usd == (bill if taken_early else 0)

    def _advance(self) -> None:
        try:
            self.stage.driver.advance()
        except Crash:
            self.stage.restart()

    def _living(self) -> list[str]:
        cloud = self.stage.cloud
        return [
            instance_id
            for instance_id in cloud.instance_ids()
            if cloud.machine_state(instance_id) in (MachineState.PENDING, MachineState.RUNNING)
        ]

    def _lists_work(self) -> bool:
        return self.stage.cloud.faults.failing_lists == 0


def _usable(record: object) -> bool:
    return record.terminate_asked_at_s is None and not record.noticed  # type: ignore[attr-defined]


def _bill(usd_per_hour: float, launched_at_s: float, ended_at_s: float) -> int:
    """Per second begun, a minute at least; written a second time, on its own."""
    seconds = max(60, math.ceil(round(ended_at_s - launched_at_s, 3)))
    return math.floor(seconds * round(usd_per_hour * 1_000_000) / 3600 + 0.5)


def test_random_histories() -> None:
    run_state_machine_as_test(
        ControllerMachine,
        settings=settings(
            max_examples=60,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
