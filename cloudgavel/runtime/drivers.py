"""What calls a loop: a heap of virtual instants, or APScheduler in real time."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from cloudgavel.clock import Clock
from cloudgavel.errors import BugError
from cloudgavel.providers.base import Paced
from cloudgavel.runtime.loop import Loop

HEARTBEAT_EVERY_S = 10.0
_MOST_STEPS_AT_ONE_INSTANT = 1000


class VirtualDriver:
    """Moves a paced world from event to event and steps the loop at each."""

    def __init__(self, loop: Loop, pace: Paced) -> None:
        """``pace`` is the world of the loop's provider and channel."""
        self._loop = loop
        self._pace = pace
        self._wake_s: float | None = pace.now_s()
        self._stuck = 0

    def advance(self) -> bool:
        """Go to the next instant and step; ``False`` when the run has ended."""
        if self._wake_s is None:
            return False
        now_s = self._pace.now_s()
        event_s = self._pace.next_event_at_s()
        at_s = max(now_s, self._wake_s if event_s is None else min(self._wake_s, event_s))
        self._stuck = self._stuck + 1 if at_s == now_s else 0
        if self._stuck > _MOST_STEPS_AT_ONE_INSTANT:
            raise BugError("the loop does not get on in virtual time", facts=[("at", f"{at_s}")])
        if at_s > now_s:
            self._pace.advance_to(at_s)
        self._wake_s = self._loop.step(at_s)
        return self._wake_s is not None

    def wake_now(self) -> None:
        """Step at the present instant next: something was asked for."""
        self._wake_s = self._pace.now_s()

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Advance until the run ends or ``until`` says so."""
        while not until() and self.advance():
            pass


class RealTimeDriver:
    """Steps a loop by APScheduler: at its own wake times, in one thread, never twice at once.

    ``before_step`` picks up requests and returns whether there were any; ``heartbeat`` renews the
    controller's lease. In a rehearsal (``virtual`` given) each step is an advance of virtual time
    and the next one follows at once. An error of a step or heartbeat ends ``run``, raised there.
    """

    def __init__(
        self,
        loop: Loop,
        *,
        clock: Clock,
        heartbeat: Callable[[], None],
        before_step: Callable[[float], bool] = lambda now_s: False,
        virtual: VirtualDriver | None = None,
        pace: Paced | None = None,
        after_step: Callable[[], None] = lambda: None,
    ) -> None:
        """``clock`` is real time; ``before_step`` gets the run's own time."""
        self._loop = loop
        self._clock = clock
        self._heartbeat = heartbeat
        self._before_step = before_step
        self._after_step = after_step
        self._virtual = virtual
        self._pace = pace
        self._over = threading.Event()
        self._stepping = threading.Lock()
        self._stop_wanted = False
        self._error: BaseException | None = None
        self._scheduler: Any = None

    def request_stop(self) -> None:
        """Leave after the step in progress; machines and jobs go on. Safe in a signal handler."""
        self._stop_wanted = True
        self._over.set()

    def run(self) -> bool:
        """Step until the run ends (``True``) or a stop is requested (``False``)."""
        from apscheduler.executors.pool import ThreadPoolExecutor
        from apscheduler.schedulers.background import BackgroundScheduler

        self._scheduler = BackgroundScheduler(
            timezone=UTC,
            executors={"default": ThreadPoolExecutor(2)},
            job_defaults={"misfire_grace_time": None, "coalesce": True, "max_instances": 1},
        )
        self._scheduler.start()
        try:
            self._scheduler.add_job(self._beat, "interval", seconds=HEARTBEAT_EVERY_S)
            self._plan_step(self._clock.now_s())
            self._over.wait()
        finally:
            with self._stepping:
                self._scheduler.shutdown(wait=False)
        if self._error is not None:
            raise self._error
        return self._loop.state.ended is not None

    def _plan_step(self, at_s: float) -> None:
        self._scheduler.add_job(
            self._step, "date", run_date=datetime.fromtimestamp(at_s, tz=UTC), id="step",
            replace_existing=True,
        )  # fmt: skip

    def _beat(self) -> None:
        try:
            self._heartbeat()
        except BaseException as error:
            self._fail(error)

    def _step(self) -> None:
        with self._stepping:
            if self._stop_wanted:
                return
            try:
                wake_s = self._one_step()
            except BaseException as error:
                self._fail(error)
                return
        if wake_s is None:
            self._over.set()
        elif not self._stop_wanted:
            self._plan_step(wake_s)

    def _one_step(self) -> float | None:
        """Step once (a rehearsal: as often as there is no reason to wait); real next wake."""
        now_s = self._clock.now_s()
        if self._virtual is None or self._pace is None:
            self._before_step(now_s)
            wake_s = self._loop.step(now_s)
            self._after_step()
            return wake_s
        while not self._stop_wanted:
            if self._before_step(self._pace.now_s()):
                self._virtual.wake_now()
            going_on = self._virtual.advance()
            self._after_step()
            if not going_on:
                return None
        return now_s

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
        self._over.set()
