"""What agents and their jobs would do with the orders they get, in virtual time."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cloudgavel.messages.codec import from_plain, to_plain
from cloudgavel.messages.orders import JobOrder, Orders, Verb
from cloudgavel.messages.report import Notice, Report
from cloudgavel.providers.base import EndReason, MachineState
from cloudgavel.providers.simulated.attempt import Attempt, Failure, Happening, Phase
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.providers.simulated.plain import PlainForms
from cloudgavel.providers.simulated.rented import ChangeKind, MachineChange
from cloudgavel.providers.simulated.wire import checked_order, job_report

AttemptKey = tuple[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One thing that happened to an attempt; ``step`` is its step then."""

    at_s: float
    job: str
    attempt: int
    happening: Happening
    step: int


class VirtualAgents:
    """Implements ``AgentChannel`` over the machines of a ``SimulatedCloud``.

    Orders are taken by a machine that is ready (earlier ones wait for it). A job starts from the
    newest committed checkpoint of any attempt when all machines of its gang are ready and have its
    order, and then runs as its ``RehearsalTerms`` say. What was not saved is lost with any machine
    of the gang. Starting an attempt fences all earlier ones of that job. A job that is left out of
    newer orders is saved and stopped, and no longer reported. An ended machine's last report stays.
    """

    def __init__(self, cloud: SimulatedCloud) -> None:
        self._cloud = cloud
        self._orders: dict[str, Orders] = {}
        self._attempts: dict[AttemptKey, Attempt] = {}
        self._moving: dict[AttemptKey, Attempt] = {}
        """Attempts that are not over."""
        self._checkpoints: dict[str, int] = {}
        self._fences: dict[str, int] = {}
        self._last_reports: dict[str, Report] = {}
        self._ready: dict[str, Notice | None] = {}
        """Machines whose agent is there, with the notice they got."""
        self._restores: dict[AttemptKey, int] = {}
        self._events: list[Event] | None = None
        self._plain = PlainForms()
        cloud.subscribe(self._machine_changed)

    # -- AgentChannel -----------------------------------------------------------------------

    def send(self, orders: Orders) -> None:
        """Replace an instance's orders; lower or equal sequences are ignored.

        ``ValueError`` for a job without rehearsal terms, or with a rate that is not positive.
        """
        known = self._orders.get(orders.instance_id)
        if known is not None and orders.sequence <= known.sequence:
            return
        orders = replace(orders, jobs=tuple(checked_order(order) for order in orders.jobs))
        now_s = self._cloud.now_s()
        self._settle(now_s)
        if self._cloud.machine_state(orders.instance_id) in (
            MachineState.TERMINATING,
            MachineState.TERMINATED,
        ):
            return
        self._orders[orders.instance_id] = orders
        self._drop_unordered(orders, known, now_s)
        for order in orders.jobs:
            self._attempt_of(order, orders.instance_id)
        if orders.instance_id in self._ready:
            self._obey(orders, now_s)
        self._settle(now_s)
        self._forget()

    def heard_since_s(self) -> float:
        """Return ``-inf``: nothing lies between."""
        return -math.inf

    def reports(self) -> Mapping[str, Report]:
        """Return the newest report of every instance that ever was ready."""
        found = dict(self._last_reports)
        now_s = self._cloud.now_s()
        for instance_id in self._ready:
            found[instance_id] = self._report(instance_id, now_s)
        return found

    # -- time -------------------------------------------------------------------------------

    def next_event_at_s(self) -> float | None:
        """When a job next finishes or is done with an ordered save or stop, after now."""
        now_s = self._cloud.now_s()
        return min(
            (
                at_s
                for attempt in self._moving.values()
                if (at_s := attempt.next_observable_at_s()) is not None and at_s > now_s
            ),
            default=None,
        )

    def catch_up(self) -> None:
        """Let everything happen that is due by the cloud's present instant."""
        self._settle(self._cloud.now_s())

    # -- what a rehearsal needs to know -----------------------------------------------------

    def record_events(self) -> None:
        """Keep what happens from now on for ``take_events``."""
        self._events = []

    def take_events(self) -> list[Event]:
        """Return, and forget, what happened since the last call; in order of time."""
        taken = sorted(self._events or [], key=lambda event: event.at_s)
        self._events = []
        self._forget()
        return taken

    def attempts(self) -> Mapping[AttemptKey, Attempt]:
        """Return the attempts that orders name, or of which events were not taken. Read only."""
        return self._attempts

    def orders_of(self, instance_id: str) -> Orders | None:
        """Return the newest orders of an instance."""
        return self._orders.get(instance_id)

    def ready_instances(self) -> Iterable[str]:
        """Return the instances whose agent is there, in order of readiness."""
        return list(self._ready)

    def checkpoint_step(self, job: str) -> int:
        """Return the step of the job's newest committed checkpoint; 0 = none."""
        return self._checkpoints.get(job, 0)

    # -- corrections by a real process ------------------------------------------------------

    def learn_restore(self, key: AttemptKey, step: int) -> None:
        """Let an attempt start from ``step``, not from the newest checkpoint known here."""
        self._restores[key] = step
        attempt = self._attempts.get(key)
        if attempt is not None and attempt.phase is Phase.STARTING:
            attempt.restored_step = attempt.step = attempt.safe_step = step

    def restore_is_open(self, key: AttemptKey) -> bool:
        """Whether ``learn_restore`` can still change where an attempt starts from."""
        return self._attempts[key].phase in (Phase.WAITING, Phase.STARTING)

    def failure_of(self, key: AttemptKey) -> Failure | None:
        """Return how an attempt is known to end by itself."""
        attempt = self._attempts.get(key)
        return None if attempt is None else attempt.failure

    def learn_failure(self, key: AttemptKey, failure: Failure) -> None:
        """Let an attempt end by itself where its process did."""
        self._attempts[key].failure = failure

    def learn_weaker_save(self, key: AttemptKey, step: int, saved_step: int) -> None:
        """Let the attempt's save at ``step`` keep an older ``saved_step``."""
        attempt = self._attempts[key]
        attempt.weaker_saves = (*attempt.weaker_saves, (step, saved_step))

    def learn_refused_save(self, key: AttemptKey, step: int, why: str) -> None:
        """Let the attempt's save at ``step`` fail."""
        attempt = self._attempts[key]
        attempt.refused_saves = (*attempt.refused_saves, step)
        attempt.refusal = why

    # -- persistence ------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Everything but the cloud, as JSON values."""
        return {
            "orders": [self._plain.of("o " + key, it) for key, it in self._orders.items()],
            "attempts": [to_plain(attempt) for attempt in self._attempts.values()],
            "checkpoints": dict(self._checkpoints),
            "fences": dict(self._fences),
            "last_reports": [
                self._plain.of("r " + key, report) for key, report in self._last_reports.items()
            ],
            "ready": {
                instance_id: None if notice is None else to_plain(notice)
                for instance_id, notice in self._ready.items()
            },
            "events": None if self._events is None else [to_plain(e) for e in self._events],
            "restores": [[job, attempt, step] for (job, attempt), step in self._restores.items()],
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any], cloud: SimulatedCloud) -> "VirtualAgents":
        """Resume saved agents on their (resumed) cloud."""
        agents = cls(cloud)
        for item in saved["orders"]:
            orders = from_plain("orders", Orders, item)
            agents._orders[orders.instance_id] = orders
        for item in saved["attempts"]:
            attempt = from_plain("attempt", Attempt, item)
            agents._attempts[(attempt.job, attempt.attempt)] = attempt
            if not attempt.over:
                agents._moving[(attempt.job, attempt.attempt)] = attempt
        agents._checkpoints = dict(saved["checkpoints"])
        agents._fences = dict(saved["fences"])
        for item in saved["last_reports"]:
            report = from_plain("report", Report, item)
            agents._last_reports[report.instance_id] = report
        agents._ready = {
            instance_id: None if notice is None else from_plain("notice", Notice, notice)
            for instance_id, notice in saved["ready"].items()
        }
        if saved["events"] is not None:
            agents._events = [from_plain("event", Event, item) for item in saved["events"]]
        agents._restores = {(job, attempt): step for job, attempt, step in saved["restores"]}
        return agents

    def copy(self, cloud: SimulatedCloud) -> "VirtualAgents":
        """Return agents in the same state on a copy of their cloud."""
        twin = VirtualAgents(cloud)
        twin._orders = dict(self._orders)
        twin._attempts = {key: replace(attempt) for key, attempt in self._attempts.items()}
        twin._moving = {key: twin._attempts[key] for key in self._moving}
        twin._checkpoints = dict(self._checkpoints)
        twin._fences = dict(self._fences)
        twin._last_reports = dict(self._last_reports)
        twin._ready = dict(self._ready)
        twin._restores = dict(self._restores)
        twin._events = None if self._events is None else list(self._events)
        return twin

    # -- machines ---------------------------------------------------------------------------

    def _machine_changed(self, change: MachineChange) -> None:
        self._settle(change.at_s)
        instance_id = change.instance_id
        if change.kind is ChangeKind.READY:
            self._ready[instance_id] = None
            orders = self._orders.get(instance_id)
            if orders is not None:
                self._obey(orders, change.at_s)
        elif change.kind is ChangeKind.NOTICE:
            self._noticed(change)
        else:
            self._lost(change)

    def _noticed(self, change: MachineChange) -> None:
        if change.instance_id not in self._ready:
            return
        assert change.ends_at_s is not None
        self._ready[change.instance_id] = Notice(kind="interruption", ends_at_s=change.ends_at_s)
        for attempt in self._moving_on(change.instance_id):
            attempt.notice(change.at_s, change.ends_at_s)

    def _lost(self, change: MachineChange) -> None:
        instance_id = change.instance_id
        if instance_id in self._ready:
            report = self._report(instance_id, change.at_s)
            switched_off = change.reason is EndReason.REQUESTED or change.kind is ChangeKind.ENDING
            self._last_reports[instance_id] = replace(report, ending=switched_off)
            del self._ready[instance_id]
        for attempt in self._moving_on(instance_id):
            happened = attempt.lose(change.at_s, f"instance {instance_id} of its gang is gone")
            self._note(attempt, change.at_s, happened)
        self._orders.pop(instance_id, None)
        self._forget()

    # -- orders -----------------------------------------------------------------------------

    def _drop_unordered(self, orders: Orders, before: Orders | None, at_s: float) -> None:
        wanted = {(order.job, order.attempt) for order in orders.jobs}
        for order in before.jobs if before is not None else ():
            attempt = self._moving.get((order.job, order.attempt))
            if attempt is not None and (order.job, order.attempt) not in wanted:
                self._note(attempt, at_s, attempt.ask_stop(at_s, save=True))

    def _obey(self, orders: Orders, at_s: float) -> None:
        for order in orders.jobs:
            self._obey_one(order, orders, at_s)
        self._switch_off_if_done(orders.instance_id, at_s)

    def _obey_one(self, order: JobOrder, orders: Orders, at_s: float) -> None:
        key = (order.job, order.attempt)
        attempt = self._attempts[key]
        fence = self._fences.get(order.job, 0)
        if attempt.phase is Phase.WAITING and order.attempt < fence:
            self._note(attempt, at_s, attempt.refuse(f"attempt {fence} has taken over"))
            return
        if order.verb is Verb.STOP or orders.power_off:
            self._note(attempt, at_s, attempt.ask_stop(at_s, save=order.save_before_stop))
            return
        self._raise_fence(order)
        attempt.ask_run(at_s)
        attempt.ask_save(at_s, order.save_sequence)
        if attempt.phase is Phase.WAITING and self._gang_is_ready(attempt):
            step = self._restores.get(key, self._checkpoints.get(order.job, 0))
            self._note(attempt, at_s, attempt.begin(at_s, step))

    def _attempt_of(self, order: JobOrder, instance_id: str) -> Attempt:
        """Return the attempt of an order, made if new; it waits until its gang is ready."""
        key = (order.job, order.attempt)
        known = self._attempts.get(key)
        if known is not None:
            return known
        assert order.rehearsal is not None
        step = self._checkpoints.get(order.job, 0)
        attempt = Attempt(
            job=order.job,
            attempt=order.attempt,
            members=order.peers if order.world_size > 1 else (instance_id,),
            steps_total=order.steps_total,
            terms=order.rehearsal,
            restored_step=step,
            step=step,
            safe_step=step,
        )
        self._attempts[key] = self._moving[key] = attempt
        return attempt

    def _raise_fence(self, order: JobOrder) -> None:
        if order.attempt <= self._fences.get(order.job, 0):
            return
        self._fences[order.job] = order.attempt
        for attempt in self._moving.values():
            if attempt.job == order.job and attempt.attempt < order.attempt:
                attempt.fenced_by = order.attempt

    def _gang_is_ready(self, attempt: Attempt) -> bool:
        key = (attempt.job, attempt.attempt)
        return all(
            member in self._ready
            and member in self._orders
            and any(
                (order.job, order.attempt) == key and order.verb is Verb.RUN
                for order in self._orders[member].jobs
            )
            for member in attempt.members
        )

    def _switch_off_if_done(self, instance_id: str, at_s: float) -> None:
        orders = self._orders.get(instance_id)
        if orders is None or not orders.power_off or instance_id not in self._ready:
            return
        if not self._moving_on(instance_id):
            self._cloud.end(instance_id, EndReason.REQUESTED, at_s)

    # -- inside -----------------------------------------------------------------------------

    def _settle(self, at_s: float) -> None:
        """Carry out every transition due by ``at_s``."""
        ended: list[tuple[float, Attempt]] = []
        for attempt in list(self._moving.values()):
            while (due_s := attempt.next_at_s()) is not None and due_s <= at_s:
                self._note(attempt, due_s, attempt.transit())
                if attempt.over:
                    ended.append((due_s, attempt))
        for ended_at_s, attempt in sorted(ended, key=lambda item: item[0]):
            for member in attempt.members:
                self._switch_off_if_done(member, ended_at_s)

    def _note(self, attempt: Attempt, at_s: float, happened: list[Happening]) -> None:
        for happening in happened:
            if happening is Happening.COMMITTED:
                newest = max(self._checkpoints.get(attempt.job, 0), attempt.safe_step)
                self._checkpoints[attempt.job] = newest
            if self._events is not None:
                self._events.append(
                    Event(
                        at_s=at_s,
                        job=attempt.job,
                        attempt=attempt.attempt,
                        happening=happening,
                        step=attempt.step,
                    )
                )
        if attempt.over:
            self._moving.pop((attempt.job, attempt.attempt), None)

    def _attempts_on(self, instance_id: str) -> list[Attempt]:
        orders = self._orders.get(instance_id)
        if orders is None:
            return []
        keys = [(order.job, order.attempt) for order in orders.jobs]
        return [self._attempts[key] for key in keys if key in self._attempts]

    def _moving_on(self, instance_id: str) -> list[Attempt]:
        return [attempt for attempt in self._moving.values() if instance_id in attempt.members]

    def _forget(self) -> None:
        """Drop attempts that are over and that no orders name any more."""
        named = {
            (order.job, order.attempt) for orders in self._orders.values() for order in orders.jobs
        }
        named |= {(event.job, event.attempt) for event in self._events or ()}
        for key in [key for key in self._attempts if key not in named]:
            if key not in self._moving:
                del self._attempts[key]
                self._restores.pop(key, None)

    def _report(self, instance_id: str, at_s: float) -> Report:
        orders = self._orders.get(instance_id)
        return Report(
            run_id="" if orders is None else orders.run_id,
            instance_id=instance_id,
            sequence_seen=0 if orders is None else orders.sequence,
            heartbeat_at_s=at_s,
            agent_pid=0,
            jobs=tuple(job_report(item, at_s) for item in self._attempts_on(instance_id)),
            notice=self._ready.get(instance_id),
        )
