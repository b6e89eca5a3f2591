"""The real-time driver: APScheduler, a real clock, and almost no work while nothing happens."""

import threading
import time

import pytest

from cloudgavel.runtime.drivers import RealTimeDriver
from cloudgavel.runtime.loop import Loop, Surroundings
from cloudgavel.runtime.real_clock import RealClock
from cloudgavel.runtime.settings import LoopSettings
from tests.unit.runtime.scripted import Stage, a_job, a_run, an_offer

pytestmark = pytest.mark.e2e

WATCHED_S = 8.0


def a_cloud_run(jobs: int) -> tuple[Stage, Loop]:
    """A run on the simulated cloud as a cloud run is: the loop polls, time is not its own."""
    stage = Stage(a_run(*(a_job(f"j{i}", steps=10_000_000) for i in range(jobs))), [an_offer()])
    stage.run_until(400)
    loop = Loop(
        Surroundings(
            log=stage.log,
            provider=stage.cloud,
            channel=stage.world.channel,
            decide=stage.script,
            settings=LoopSettings(poll_s=2.0),
            paced=True,
        )
    )
    return stage, loop


class ShiftedClock:
    """Real time, as if the simulated cloud's present were now."""

    def __init__(self, at_s: float) -> None:
        self._ahead_s = at_s - time.time()

    def now_s(self) -> float:
        return time.time() + self._ahead_s


class ShiftedDriver(RealTimeDriver):
    """Plans its steps in shifted time, as a simulated cloud in the future needs it."""

    def _plan_step(self, at_s: float) -> None:
        super()._plan_step(at_s - self._clock._ahead_s)  # type: ignore[attr-defined]


def test_waiting_with_twenty_machines_takes_under_two_percent_of_a_core() -> None:
    stage, loop = a_cloud_run(20)
    assert len(loop.state.live_instances) == 20
    clock = ShiftedClock(stage.now_s)
    steps: list[float] = []

    def before(now_s: float) -> bool:
        stage.world.advance_to(max(now_s, stage.now_s))
        steps.append(now_s)
        return False

    driver = ShiftedDriver(loop, clock=clock, heartbeat=lambda: None, before_step=before)
    timer = threading.Timer(WATCHED_S + 1.0, driver.request_stop)
    used: list[float] = []
    threading.Timer(1.0, lambda: used.append(time.process_time())).start()
    threading.Timer(WATCHED_S, lambda: used.append(time.process_time())).start()
    timer.start()
    assert driver.run() is False
    assert 3 <= len(steps) <= 2 + (WATCHED_S + 1.0) / 2.0
    share = (used[1] - used[0]) / (WATCHED_S - 1.0)
    print(f"waiting: {share:.2%} of a core")
    assert share < 0.02


def test_an_error_in_a_step_ends_the_driver_and_is_raised_there() -> None:
    _stage, loop = a_cloud_run(1)

    def broken(now_s: float) -> bool:
        raise RuntimeError("no disk")

    driver = RealTimeDriver(loop, clock=RealClock(), heartbeat=lambda: None, before_step=broken)
    with pytest.raises(RuntimeError, match="no disk"):
        driver.run()


def test_a_lost_lease_ends_the_driver() -> None:
    stage, loop = a_cloud_run(1)
    clock = ShiftedClock(stage.now_s)

    def before(now_s: float) -> bool:
        driver._beat()
        return False

    def lost() -> None:
        raise RuntimeError("taken over")

    driver = ShiftedDriver(loop, clock=clock, heartbeat=lost, before_step=before)
    with pytest.raises(RuntimeError, match="taken over"):
        driver.run()
