"""The rehearsal: a story in virtual time, and real processes that keep up with it."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloudgavel.clock import Clock
from cloudgavel.errors import BugError, CloudgavelError
from cloudgavel.messages import layout
from cloudgavel.messages.codec import encode_lease
from cloudgavel.messages.orders import JobOrder, Orders
from cloudgavel.messages.report import JobReport, Report
from cloudgavel.objects.open import open_store
from cloudgavel.pricing.market import Market
from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.base import (
    EndReason,
    LaunchRequest,
    ListedInstance,
    MachineState,
    Quota,
)
from cloudgavel.providers.local.machines import Machine
from cloudgavel.providers.local.processes import agents_of, job_processes_of
from cloudgavel.providers.local.targets import (
    EndedItself,
    MachineDied,
    Outcome,
    RestoredElsewhere,
    SaveRefused,
    SaveWeaker,
    Surprise,
    Target,
    has_reached,
    is_over,
    surprises_of,
    targets_of,
    without_saving,
)
from cloudgavel.providers.local.waiting import Patience
from cloudgavel.providers.simulated.agents import AttemptKey
from cloudgavel.providers.simulated.attempt import Failure
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.providers.simulated.habits import CloudFaults, CloudHabits
from cloudgavel.providers.simulated.world import SimulatedWorld

SCHEMA_VERSION = 1
STATE_FILE = "rehearsal.json"
_LIVE = (MachineState.PENDING, MachineState.RUNNING)
_MOST_TELLINGS = 1000
"""Of one stretch of time: each but the last learns something of a process."""


class AgentDidNotStart(CloudgavelError):
    """The agent of a rehearsed machine ended before it said anything."""


class RehearsalWorld:
    """Implements ``Provider``, ``AgentChannel`` and ``Paced`` over agent processes here.

    ``advance_to(t)`` first tells the story up to ``t`` on a copy of the simulated world: which
    machines boot and go, which step every attempt reaches, which saves it commits on the way. Real
    agents then get exactly these steps as grants and these saves as orders, and when all have done
    them the world itself moves to ``t``. Where a process does something else (it fails, a save is
    refused, its agent dies), the story is told again with that known. Reports are the story's;
    losses, output and errors are the processes'.

    Everything is in ``directory``: the state (one file, replaced whole before anything depends on
    it) and a scratch directory per machine. ``open`` after a crash goes on where the state is, with
    the agents that are still there; one that is gone is a machine that vanished.

    ``clock`` is the real one, for the lease that keeps agents alive while this waits for them.
    """

    name = "local"

    def __init__(
        self,
        *,
        model: SimulatedWorld,
        directory: Path,
        run_id: str,
        store_url: str,
        agent_command: Sequence[str],
        clock: Clock,
        environment: Mapping[str, str] | None,
        watchdog_s: float,
        resume: Callable[[Mapping[str, Any]], SimulatedWorld],
    ) -> None:
        self._model = model
        self._directory = directory
        self._run_id = run_id
        self._store = open_store(store_url)
        self._agent_command = tuple(agent_command)
        self._clock = clock
        self._environment = environment
        self._watchdog_s = watchdog_s
        self._resume = resume
        self._machines: dict[str, Machine] = {}
        self._switched_off: set[str] = set()
        self._dead: set[str] = set()
        """Machines whose agent died in the stretch of time that is being rehearsed."""
        self._stuck: set[AttemptKey] = set()
        self._advancing_to_s: float | None = None
        self._lease_at_s: float | None = None
        model.channel.record_events()

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        run_id: str,
        store_url: str,
        offers: Sequence[Offer],
        market: Market,
        start_at_s: float,
        agent_command: Sequence[str],
        clock: Clock,
        quotas: Sequence[Quota] = (),
        habits: CloudHabits | None = None,
        environment: Mapping[str, str] | None = None,
        watchdog_s: float = 120.0,
    ) -> "RehearsalWorld":
        """Begin a rehearsal at ``start_at_s``, or go on with the one in ``directory``.

        ``agent_command`` starts an agent (``python -m cloudgavel.agent``); its options are added.
        ``environment`` ``None`` = agents inherit this process's. ``watchdog_s``: real seconds
        without any progress of a job after which it is declared failed. Going on first finishes
        what a killed controller had begun, with the same market and offers.
        """
        directory = directory.absolute()
        directory.mkdir(parents=True, exist_ok=True)

        def resume(state: Mapping[str, Any]) -> SimulatedWorld:
            return SimulatedWorld.from_json(
                state, offers=offers, market=market, name=cls.name, quotas=quotas, habits=habits
            )

        saved = _read_state(directory / STATE_FILE, run_id)
        if saved is None:
            cloud = SimulatedCloud(
                offers=offers,
                market=market,
                now_s=start_at_s,
                name=cls.name,
                quotas=quotas,
                habits=habits,
            )
        world = cls(
            model=SimulatedWorld(cloud) if saved is None else resume(saved["world"]),
            directory=directory,
            run_id=run_id,
            store_url=store_url,
            agent_command=agent_command,
            clock=clock,
            environment=environment,
            watchdog_s=watchdog_s,
            resume=resume,
        )
        if saved is None:
            world._write_state()
        else:
            world._go_on(saved["advancing_to_s"])
        return world

    # -- the three faces --------------------------------------------------------------------

    @property
    def provider(self) -> "RehearsalWorld":
        """The machines."""
        return self

    @property
    def channel(self) -> "RehearsalWorld":
        """The agents."""
        return self

    @property
    def faults(self) -> CloudFaults:
        """What goes wrong next with the cloud."""
        return self._model.provider.faults

    @property
    def launch_calls(self) -> int:
        """Launches that passed our own checks."""
        return self._model.provider.launch_calls

    def offers(self) -> Sequence[Offer]:
        """Every offer at the market's price now."""
        return self._model.provider.offers()

    def boot_s(self, offer: Offer) -> float:
        """Seconds that a machine of this kind is expected to take."""
        return self._model.provider.boot_s(offer)

    def quotas(self) -> Sequence[Quota]:
        """Return the limits, as given."""
        return self._model.provider.quotas()

    def launch(self, request: LaunchRequest) -> ListedInstance:
        """Rent one instance; its agent starts when it has booted, in virtual time."""
        try:
            return self._model.provider.launch(request)
        finally:
            self._write_state()

    def list_instances(self, run_id: str) -> Sequence[ListedInstance]:
        """Return the run's instances; an agent found dead is a machine that vanished now."""
        self._notice_dead_agents()
        return self._model.provider.list_instances(run_id)

    def price_changes(self, instance_id: str, since_s: float) -> Sequence[tuple[float, float]]:
        """Return the changes of price since then."""
        return self._model.provider.price_changes(instance_id, since_s)

    def terminate(self, instance_id: str) -> None:
        """Switch a machine off: its processes are gone when this returns."""
        try:
            self._model.provider.terminate(instance_id)
        finally:
            self._write_state()
        self._end_machines_that_are_gone()

    def send(self, orders: Orders) -> None:
        """Take an instance's orders into the story; processes get theirs when time moves."""
        self._model.channel.send(orders)
        self._write_state()

    def reports(self) -> Mapping[str, Report]:
        """Return the story's reports with what only the processes can tell."""
        return {
            instance_id: self._with_real_details(report)
            for instance_id, report in self._model.channel.reports().items()
        }

    def now_s(self) -> float:
        """Return the present virtual instant."""
        return self._model.now_s()

    def next_event_at_s(self) -> float | None:
        """Return when the story has the next observable event, strictly after now."""
        return self._model.next_event_at_s()

    def advance_to(self, at_s: float) -> None:
        """Move to ``at_s`` when the processes have done all that the story has until then.

        Raises ``ValueError`` for going back and ``AgentDidNotStart``.
        """
        if at_s < self.now_s():
            raise ValueError(f"time went back from {self.now_s()} to {at_s}")
        self._advancing_to_s = at_s
        self._write_state()
        self._renew_lease()
        self._notice_dead_agents()
        self._keep_up(at_s)
        self._model.advance_to(at_s)
        self._model.channel.take_events()
        self._dead.clear()
        self._advancing_to_s = None
        self._write_state()
        self._end_machines_that_are_gone()

    def processes(self) -> Mapping[str, list[int]]:
        """Return the pids that live for each instance; empty when all are switched off."""
        found = {}
        for scratch in self._scratch_directories():
            pids = sorted({*agents_of(scratch), *job_processes_of(scratch)})
            if pids:
                found[scratch.name] = pids
        return found

    # -- keeping up with the story ----------------------------------------------------------

    def _keep_up(self, at_s: float) -> None:
        """Have the processes do everything up to ``at_s``, learning from what they do."""
        for _ in range(_MOST_TELLINGS):
            story = self._resume(self._model.to_json())
            story.advance_to(at_s)
            attempts = dict(story.channel.attempts())
            targets = targets_of(attempts, story.channel.take_events(), at_s)
            surprises = self._rehearse(story, targets, at_s)
            if not surprises:
                return
            for surprise in surprises:
                self._learn(surprise)
        raise BugError(
            "the rehearsal's processes and its story do not come together",
            facts=[("virtual instant", f"{at_s:.3f}")],
        )

    def _rehearse(
        self, story: SimulatedWorld, targets: Sequence[Target], at_s: float
    ) -> Sequence[Surprise]:
        """Have one telling done; return where it was not, with nothing ended yet then."""
        remaining = set(story.channel.ready_instances())
        needed = dict.fromkeys([*self._model.channel.ready_instances(), *remaining])
        needed |= dict.fromkeys(member for target in targets for member in target.members)
        instance_ids = sorted(
            instance_id
            for instance_id in set(needed) - self._dead
            if self._model.provider.machine_state(instance_id) in _LIVE
        )
        for instance_id in instance_ids:
            self._machine(instance_id).start(self._agent_command, self._environment)
        orders = {
            instance_id: self._running_orders(instance_id, targets) for instance_id in instance_ids
        }
        self._order(orders)
        surprises = self._await_steps(instance_ids, targets, at_s)
        if surprises:
            return surprises
        ending = [target for target in targets if target.outcome in (Outcome.STOPS, Outcome.DIES)]
        for target in ending:
            for member in target.members:
                if member in remaining and target.key in orders[member]:
                    orders[member][target.key] = target.ending_order(orders[member][target.key])
        self._order({member: orders[member] for member in instance_ids if member in remaining})
        self._await_ends(
            [(member, t.key) for t in ending for member in t.members if member in remaining]
        )
        return []

    def _running_orders(
        self, instance_id: str, targets: Sequence[Target]
    ) -> dict[AttemptKey, JobOrder]:
        """Orders of one machine: the targets' steps, and as it was what is over."""
        sent = self._machine(instance_id).sent()
        before = {(o.job, o.attempt): o for o in (sent.jobs if sent is not None else ())}
        wanted = self._model.channel.orders_of(instance_id)
        named = {(o.job, o.attempt): o for o in (wanted.jobs if wanted is not None else ())}
        orders = {key: order for key, order in before.items() if key in named}
        for target in targets:
            template = named.get(target.key) or before.get(target.key)
            if instance_id in target.members and template is not None:
                order = target.running_order(template)
                given_up = target.key in self._stuck or self._is_doomed(target)
                orders[target.key] = without_saving(order) if given_up else order
        return orders

    def _order(self, orders: Mapping[str, Mapping[AttemptKey, JobOrder]]) -> None:
        for instance_id, jobs in orders.items():
            machine = self._machine(instance_id)
            wanted = self._model.channel.orders_of(instance_id) or machine.sent()
            if wanted is not None:
                machine.send([jobs[key] for key in sorted(jobs)], lease_s=wanted.lease_s)

    def _await_steps(
        self, instance_ids: Sequence[str], targets: Sequence[Target], at_s: float
    ) -> Sequence[Surprise]:
        """Wait until every agent has answered and every target is reached, or something is odd."""
        waiting = set(instance_ids)
        surprises: list[Surprise] = []
        patience = Patience(self._watchdog_s)
        while waiting:
            for instance_id in sorted(waiting):
                machine = self._machine(instance_id)
                here = [
                    target
                    for target in targets
                    if instance_id in target.members and not self._is_doomed(target)
                ]
                report = machine.heard()
                if report is not None and all(_is_reached(target, report) for target in here):
                    waiting.discard(instance_id)
                    surprises += self._surprises(instance_id, here, report)
                elif not machine.alive():
                    waiting.discard(instance_id)
                    surprises.append(self._agent_died(machine, targets, at_s))
                elif patience.ran_out(instance_id, machine.report()):
                    waiting.discard(instance_id)
                    surprises += self._stuck_jobs(here, machine.report()) or [
                        self._agent_died(machine, targets, at_s)
                    ]
            if waiting:
                self._renew_lease()
                patience.pause()
        return surprises

    def _await_ends(self, ending: Sequence[tuple[str, AttemptKey]]) -> None:
        """Wait until what was told to end has ended; a machine that does not obey is killed."""
        waiting = list(ending)
        patience = Patience(self._watchdog_s)
        while waiting:
            still = []
            for instance_id, key in waiting:
                machine = self._machine(instance_id)
                report = machine.heard()
                job = _job_of(report, key)
                if report is not None and (job is None or is_over(job)):
                    continue
                if not machine.alive() or patience.ran_out(instance_id, machine.report()):
                    machine.end()
                else:
                    still.append((instance_id, key))
            waiting = still
            if waiting:
                self._renew_lease()
                patience.pause()

    def _is_doomed(self, target: Target) -> bool:
        """One of its gang is dead: its other processes will not get anywhere."""
        return any(member in self._dead for member in target.members)

    # -- learning ---------------------------------------------------------------------------

    def _learn(self, surprise: Surprise) -> None:
        channel = self._model.channel
        match surprise:
            case RestoredElsewhere(key=key, step=step):
                channel.learn_restore(key, step)
            case EndedItself(key=key, failure=failure):
                channel.learn_failure(key, failure)
            case SaveRefused(key=key, step=step, why=why):
                channel.learn_refused_save(key, step, why)
            case SaveWeaker(key=key, step=step, saved_step=saved_step):
                channel.learn_weaker_save(key, step, saved_step)

    def _surprises(
        self, instance_id: str, targets: Sequence[Target], report: Report
    ) -> list[Surprise]:
        found: list[Surprise] = []
        for target in targets:
            job = _job_of(report, target.key)
            if job is None:
                continue
            for surprise in surprises_of(
                target,
                job,
                is_first=instance_id == target.members[0],
                failure_known=self._model.channel.failure_of(target.key) is not None,
            ):
                if isinstance(surprise, RestoredElsewhere) and not (
                    self._model.channel.restore_is_open(surprise.key)
                ):
                    continue
                found.append(surprise)
        return found

    def _agent_died(self, machine: Machine, targets: Sequence[Target], at_s: float) -> Surprise:
        """Its machine vanishes at the end of this stretch, with only what it had saved."""
        report = machine.report()
        if report is None:
            raise AgentDidNotStart(
                f"the agent of {machine.instance_id} ended before it said anything",
                facts=[("it said", line) for line in machine.last_words()[-5:]],
                hints=[f"its log is {machine.scratch / 'agent.log'}"],
            )
        machine.end()
        self._dead.add(machine.instance_id)
        for target in targets:
            job = _job_of(report, target.key)
            saved = -1 if job is None or job.saved_step is None else job.saved_step
            for step, keeps in target.saves if target.members[0] == machine.instance_id else ():
                if saved < keeps:
                    why = "its agent was gone before it had saved"
                    self._model.channel.learn_refused_save(target.key, step, why)
        self._model.provider.vanish_at(machine.instance_id, at_s)
        return MachineDied()

    def _stuck_jobs(self, targets: Sequence[Target], report: Report | None) -> list[Surprise]:
        """Return the jobs that did not move for too long, as failed; they are ended unsaved."""
        found: list[Surprise] = []
        for target in targets:
            job = _job_of(report, target.key)
            if job is None or has_reached(target, job) or target.key in self._stuck:
                continue
            self._stuck.add(target.key)
            waited = f"no progress for {self._watchdog_s:g} s of real time at step {job.step}"
            failure = Failure(after_step=job.step, exit_code=None, error=waited)
            found.append(EndedItself(key=target.key, failure=failure))
        return found

    def _notice_dead_agents(self) -> None:
        """A ready machine without an agent is gone: it vanished."""
        gone = [
            instance_id
            for instance_id in self._model.channel.ready_instances()
            if not self._machine(instance_id).alive()
        ]
        for instance_id in gone:
            self._machine(instance_id).end()
            self._model.provider.end(instance_id, EndReason.VANISHED, self.now_s())
        if gone:
            self._write_state()

    # -- machines ---------------------------------------------------------------------------

    def _machine(self, instance_id: str) -> Machine:
        if instance_id not in self._machines:
            machine = Machine(
                instance_id,
                run_id=self._run_id,
                store=self._store,
                scratch=self._machines_directory / instance_id,
            )
            machine.adopt()
            self._machines[instance_id] = machine
        return self._machines[instance_id]

    def _end_machines_that_are_gone(self) -> None:
        for instance_id, machine in self._machines.items():
            state = self._model.provider.machine_state(instance_id)
            if instance_id not in self._switched_off and state not in _LIVE:
                machine.end()
                self._switched_off.add(instance_id)

    def _go_on(self, advancing_to_s: float | None) -> None:
        """After a restart: end what should be gone, then finish what was begun."""
        for scratch in self._scratch_directories():
            self._machine(scratch.name)
        self._end_machines_that_are_gone()
        if advancing_to_s is not None:
            self.advance_to(advancing_to_s)

    @property
    def _machines_directory(self) -> Path:
        return self._directory / "machines"

    def _scratch_directories(self) -> list[Path]:
        if not self._machines_directory.is_dir():
            return []
        return sorted(path for path in self._machines_directory.iterdir() if path.is_dir())

    # -- details, lease, state --------------------------------------------------------------

    def _with_real_details(self, report: Report) -> Report:
        real = self._machine(report.instance_id).report()
        if real is None:
            return report
        reason = self._model.provider.end_reason(report.instance_id)
        jobs = []
        for job in report.jobs:
            found = _job_of(real, (job.job, job.attempt))
            if found is not None:
                over = job.exit_code is not None or job.error is not None
                job = replace(
                    job,
                    loss=found.loss,
                    last_lines=found.last_lines if over else (),
                    # A machine that vanished did no more than what it told.
                    step=min(job.step, found.step) if reason is EndReason.VANISHED else job.step,
                )
            jobs.append(job)
        return replace(report, agent_pid=real.agent_pid, jobs=tuple(jobs))

    def _renew_lease(self) -> None:
        now_s = self._clock.now_s()
        if self._lease_at_s is None or abs(now_s - self._lease_at_s) >= 1.0:
            self._lease_at_s = now_s
            self._store.put(layout.lease_key(), encode_lease(now_s), durable=False)

    def _write_state(self) -> None:
        state = {
            "schema_version": SCHEMA_VERSION,
            "run_id": self._run_id,
            "advancing_to_s": self._advancing_to_s,
            "world": self._model.to_json(),
        }
        # Rename alone: it has to survive this process, whose processes do not survive the machine.
        descriptor, name = tempfile.mkstemp(dir=self._directory, prefix=".rehearsal-")
        with os.fdopen(descriptor, "w") as sink:
            json.dump(state, sink, separators=(",", ":"))
        os.replace(name, self._directory / STATE_FILE)


def _is_reached(target: Target, report: Report) -> bool:
    job = _job_of(report, target.key)
    return job is not None and has_reached(target, job)


def _job_of(report: Report | None, key: AttemptKey) -> JobReport | None:
    if report is None:
        return None
    return next((job for job in report.jobs if (job.job, job.attempt) == key), None)


def _read_state(path: Path, run_id: str) -> dict[str, Any] | None:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        state = json.loads(text)
        known_run_id, version = state["run_id"], state["schema_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise CloudgavelError(
            "the rehearsal's state cannot be read", facts=[("file", str(path))]
        ) from error
    if version != SCHEMA_VERSION or known_run_id != run_id:
        raise CloudgavelError(
            "the rehearsal's state is of another run or version",
            facts=[("file", str(path)), ("run", str(known_run_id)), ("version", str(version))],
        )
    return dict(state)
