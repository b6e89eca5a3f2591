"""The agent's loop: read orders, move every job on, report, watch for a controller."""

import contextlib
import fcntl
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from cloudgavel.agent.environment import prepare_scratch
from cloudgavel.agent.job import JobAttempt, Surroundings
from cloudgavel.agent.notices import INTERRUPTION, NoticeSource, NoticeWatch
from cloudgavel.agent.process import become_subreaper, end_descendants, end_leftovers
from cloudgavel.agent.signalled import attempt_for
from cloudgavel.agent.watchdog import Watchdog
from cloudgavel.errors import CloudgavelError
from cloudgavel.messages import layout
from cloudgavel.messages.codec import MalformedMessage, decode_lease, decode_orders, encode_report
from cloudgavel.messages.control import drain, make_pipe
from cloudgavel.messages.orders import JobOrder, Orders, Verb
from cloudgavel.messages.report import JobReport, Notice, ProcessState, Report
from cloudgavel.objects.files import FileStore
from cloudgavel.objects.store import ObjectMissing, ObjectStore, StoreUnreachable

log = logging.getLogger("cloudgavel.agent")

IDLE_SHARE = 0.02
"""Pause between two looks at the orders, as a share of the time since something happened."""
LONGEST_PAUSE_S = 0.2
CHEAP_LOOK_S = 0.01
"""Stores that may be polled this often are looked at on every turn."""
FULL_READ_EVERY_S = 0.5
LEASE_EVERY_S = 1.0
HEARTBEAT_EVERY_S = 2.0
UNSETTLED_EVERY_S = 0.03
"""While a job is between two resting states, the report changes at most this often."""
PROGRESS_EVERY_S = 0.1
"""Steps and losses of running jobs alone change the report at most this often."""
DEFAULT_LEASE_S = 300.0
NOTICE_SHARE = 0.7
"""Of the time left after a notice, what a job may take to reach its save; uploads take the rest."""
THREADS = 8


class AlreadyServed(CloudgavelError):
    """Another agent holds this instance's scratch directory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSettings:
    """What an agent is started with."""

    store: ObjectStore
    run_id: str
    instance_id: str
    scratch: Path
    environment: Mapping[str, str]
    address: str | None = None
    """At which the other machines of a gang reach this one."""
    power_off_at_s: float | None = None
    """UNIX seconds at which to save and end, whatever the orders say."""
    notices: NoticeSource | None = None
    """Where the cloud says that it takes the machine; ``None`` = it never does."""
    monotonic: Callable[[], float]
    wall: Callable[[], float]


class Agent:
    """One instance's agent; ``run`` returns when it ends.

    ``sequence_seen`` of its report is the newest orders whose effects are in place: every job's
    control file is written, every new attempt begun, every stop asked for. A job's ``state`` and
    ``step`` are always judged against those orders, never against older ones.
    """

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        scratch = settings.scratch
        scratch.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(scratch / "agent.lock")
        leftovers = end_leftovers(scratch)
        if leftovers:
            log.warning("ended %d processes that an earlier agent left", leftovers)
        prepare_scratch(scratch)
        self._wake_pipe = scratch / "wake-agent"
        self._pipe = make_pipe(self._wake_pipe)
        self._signal_read, self._signal_write = os.pipe()
        os.set_blocking(self._signal_read, False)
        os.set_blocking(self._signal_write, False)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="agent")
        self._around = Surroundings(
            store=settings.store,
            scratch=scratch,
            wake_pipe=self._wake_pipe,
            environment=settings.environment,
            one_machine=isinstance(settings.store, FileStore),
            submit=self._submit,
        )
        now_s = settings.monotonic()
        self._watchdog = Watchdog(now_s, lease_s=DEFAULT_LEASE_S)
        self._attempts: dict[str, JobAttempt] = {}
        self._refused: dict[str, JobReport] = {}
        self._orders: Orders | None = None
        self._orders_stamp: str | None = None
        self._read_at_s = self._lease_at_s = self._poll_at_s = now_s
        self._active_at_s = now_s
        self._reported: Report | None = None
        self._reported_at_s = now_s - HEARTBEAT_EVERY_S
        self._ending: str | None = None
        self._notice: Notice | None = None
        self._watch = None if settings.notices is None else NoticeWatch(settings.notices, self.wake)
        self.asked_to_end = False
        """Set by SIGTERM: save, end every job, then end."""

    def run(self) -> None:
        """Serve until power-off, watchdog, or ``asked_to_end``, and until every job has ended."""
        while not self.turn():
            self._wait()
        if self._watch is not None:
            self._watch.stop()
        self._threads.shutdown(wait=True)

    def turn(self) -> bool:
        """Do everything that can be done now; return whether the agent is through."""
        now_s = self._settings.monotonic()
        self._read_orders(now_s)
        self._hear_notice(now_s)
        self._look_for_the_end(now_s)
        self._match_attempts()
        for attempt in self._attempts.values():
            attempt.tick(now_s)
        through = self._ending is not None and all(
            attempt.ended for attempt in self._attempts.values()
        )
        self._report(now_s, last=through)
        return through

    def wake(self) -> None:
        """Cut the wait short; safe in threads and signal handlers."""
        with contextlib.suppress(OSError):
            os.write(self._signal_write, b"!")

    @property
    def wakeup_descriptor(self) -> int:
        """For ``signal.set_wakeup_fd``."""
        return self._signal_write

    # ---- orders

    def _read_orders(self, now_s: float) -> None:
        store, key = self._settings.store, layout.orders_key(self._settings.instance_id)
        if now_s < self._poll_at_s:
            return
        if store.poll_floor_s > CHEAP_LOOK_S:
            self._poll_at_s = now_s + store.poll_floor_s
        try:
            stamp = store.stamp(key)
            if stamp is None or (stamp == self._orders_stamp and now_s < self._read_at_s):
                return
            data = store.get(key)
            orders = decode_orders(data)
        except (ObjectMissing, StoreUnreachable):
            return
        except MalformedMessage as error:
            self._orders_stamp = stamp
            log.warning("%s", error.message)
            return
        self._orders_stamp = stamp
        self._read_at_s = now_s + FULL_READ_EVERY_S
        known = self._orders.sequence if self._orders else -1
        ours = (orders.run_id, orders.instance_id) == (
            self._settings.run_id,
            self._settings.instance_id,
        )
        if not ours:
            log.warning("the orders are for %s of %s", orders.instance_id, orders.run_id)
        elif orders.sequence > known:
            self._orders = orders
            self._active_at_s = now_s
            self._watchdog.saw_orders(now_s, lease_s=orders.lease_s)
            self._refused.clear()
            for order in orders.jobs:
                attempt = self._attempts.get(order.job)
                if attempt is not None and attempt.order.attempt == order.attempt:
                    attempt.apply(order)
            if orders.power_off:
                self._begin_ending("power-off was ordered")

    def _match_attempts(self) -> None:
        """Begin what is ordered and not there; end what is there and not ordered."""
        if self._orders is None:
            return
        ordered = {order.job: order for order in self._orders.jobs}
        for job, attempt in list(self._attempts.items()):
            order = ordered.get(job)
            if order is None or order.attempt != attempt.order.attempt:
                if attempt.ended:
                    if order is None or order.attempt > attempt.order.attempt:
                        del self._attempts[job]
                elif self._ending is None:
                    attempt.stop(save=True)
        if self._ending is not None:
            return
        for job, order in ordered.items():
            if job not in self._attempts and job not in self._refused:
                self._begin(order)

    def _begin(self, order: JobOrder) -> None:
        if order.verb is Verb.STOP or self._is_being_taken:
            state, error = ProcessState.STOPPED, None
        else:
            try:
                self._attempts[order.job] = attempt_for(order, self._around)
                return
            except (ValueError, OSError) as problem:
                state, error = ProcessState.EXITED, str(problem)
        self._refused[order.job] = JobReport(
            job=order.job, attempt=order.attempt, state=state, step=0, error=error
        )

    # ---- notices

    @property
    def _is_being_taken(self) -> bool:
        return self._notice is not None and self._notice.kind == INTERRUPTION

    def _hear_notice(self, now_s: float) -> None:
        """On an interruption jobs save and end; on a lesser word they save and go on.

        The agent itself stays: a machine that ends by itself in its first hour is paid for, one
        that the cloud takes may not be. A gang goes on, too, until the controller stops all of it:
        its other members cannot do without this one.
        """
        notice = None if self._watch is None else self._watch.notice
        if notice is None or notice is self._notice:
            return
        self._notice = notice
        self._active_at_s = now_s
        grace_s = None
        if notice.ends_at_s is not None:
            grace_s = NOTICE_SHARE * max(0.0, notice.ends_at_s - self._settings.wall())
        log.warning("the cloud gave notice: %s, ends at %s", notice.kind, notice.ends_at_s)
        for attempt in self._attempts.values():
            if self._is_being_taken and attempt.order.world_size == 1:
                attempt.stop(save=attempt.order.save_before_stop, grace_s=grace_s)
            else:
                attempt.save_soon(now_s)

    # ---- the end

    def _look_for_the_end(self, now_s: float) -> None:
        settings = self._settings
        if self._ending is not None:
            return
        if self.asked_to_end:
            self._begin_ending("it was told to end")
        elif settings.power_off_at_s is not None and settings.wall() >= settings.power_off_at_s:
            self._begin_ending("the machine's lifetime is over")
        elif now_s >= self._lease_at_s:
            pause_s = min(LEASE_EVERY_S, self._watchdog.lease_s / 4)
            self._lease_at_s = now_s + max(pause_s, settings.store.poll_floor_s)
            try:
                renewed_at_s = decode_lease(settings.store.get(layout.lease_key()))
                self._watchdog.saw_lease(now_s, renewed_at_s)
            except StoreUnreachable:
                self._watchdog.could_not_look(now_s)
            except (ObjectMissing, MalformedMessage):
                self._watchdog.looked(now_s)
            if self._watchdog.expired(now_s):
                self._begin_ending("no controller has given a sign of life")

    def _begin_ending(self, why: str) -> None:
        if self._ending is None:
            self._ending = why
            log.warning("saving and ending: %s", why)
            for attempt in self._attempts.values():
                attempt.stop(save=attempt.order.save_before_stop)

    # ---- reports

    def _report(self, now_s: float, *, last: bool) -> None:
        settings = self._settings
        report = Report(
            run_id=settings.run_id,
            instance_id=settings.instance_id,
            sequence_seen=self._orders.sequence if self._orders else 0,
            heartbeat_at_s=settings.wall(),
            agent_pid=os.getpid(),
            # In a rehearsal all machines are this one.
            address=None if self._around.one_machine else settings.address,
            jobs=tuple(
                [attempt.report() for attempt in self._attempts.values()]
                + list(self._refused.values())
            ),
            notice=self._notice,
            ending=self._ending is not None,
        )
        since_s = now_s - self._reported_at_s
        if self._reported is None or _essence(report) != _essence(self._reported):
            self._active_at_s = now_s
            if since_s < UNSETTLED_EVERY_S and not last and not _settled(report):
                return
        elif report.jobs != self._reported.jobs:
            if since_s < max(PROGRESS_EVERY_S, settings.store.poll_floor_s) and not last:
                return
        elif since_s < HEARTBEAT_EVERY_S and not last:
            return
        try:
            settings.store.put(
                layout.report_key(settings.instance_id), encode_report(report), durable=False
            )
        except StoreUnreachable as error:
            log.warning("%s", error.message)
            self._reported_at_s = now_s
            return
        self._reported, self._reported_at_s = report, now_s

    # ---- waiting

    def _submit(self, action: Callable[[], object]) -> "Future[object]":
        future = self._threads.submit(action)
        future.add_done_callback(lambda _: self.wake())
        return future

    def _wait(self) -> None:
        floor_s = self._settings.store.poll_floor_s
        idle_s = self._settings.monotonic() - self._active_at_s
        longest_s = max(LONGEST_PAUSE_S, floor_s)
        looks_s = [attempt.look_every_s for attempt in self._attempts.values()]
        longest_s = min([longest_s, *(look_s for look_s in looks_s if look_s is not None)])
        pause_s = min(max(idle_s * IDLE_SHARE, floor_s), longest_s)
        waited_on = [self._signal_read] + ([] if self._pipe is None else [self._pipe])
        for descriptor in select.select(waited_on, [], [], pause_s)[0]:
            drain(descriptor)


def serve(settings: AgentSettings) -> None:
    """Run an agent in this process until it ends; SIGTERM and SIGINT end it, SIGUSR1 wakes it."""
    become_subreaper()
    agent = Agent(settings)

    def end(_number: int, _frame: object) -> None:
        agent.asked_to_end = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    for woken_by in (signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(woken_by, lambda _number, _frame: None)
    signal.set_wakeup_fd(agent.wakeup_descriptor, warn_on_full_buffer=False)
    try:
        agent.run()
    finally:
        end_descendants()


def _essence(report: Report) -> tuple[object, ...]:
    """What a controller waits for: not the heartbeat, nor what a running job does all the time."""
    return (
        report.sequence_seen,
        report.ending,
        report.notice,
        tuple(
            replace(
                job,
                step=0 if job.state is ProcessState.RUNNING else job.step,
                steps_per_s=None,
                loss=None,
            )
            for job in report.jobs
        ),
    )


def _settled(report: Report) -> bool:
    """Whether every job rests: nothing will change before other orders come."""
    resting = (ProcessState.PAUSED, ProcessState.STOPPED, ProcessState.EXITED)
    return all(job.state in resting for job in report.jobs)


def _locked(path: Path) -> int:
    """Hold a lock file for this process's life; raises ``AlreadyServed``."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(descriptor, 32).decode(errors="replace").strip()
        os.close(descriptor)
        raise AlreadyServed(
            "another agent serves this instance", facts=[("its pid", holder or "unknown")]
        ) from error
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
    return descriptor


def configure_logging() -> None:
    """Log warnings to stderr, one line each."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
