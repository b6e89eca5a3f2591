"""The rehearsal: a story in virtual time, and real processes that keep up with it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cloudgavel.clock import Clock
from cloudgavel.messages.orders import Orders
from cloudgavel.messages.report import Report
from cloudgavel.objects.open import open_store
from cloudgavel.pricing.market import Market
from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.base import EndReason, LaunchRequest, ListedInstance, Quota
from cloudgavel.providers.local.park import MachinePark
from cloudgavel.providers.local.rehearsing import LIVE, Rehearsing
from cloudgavel.providers.local.state_file import (
    read_advance,
    read_state,
    write_advance,
    write_state,
)
from cloudgavel.providers.local.surprises import job_of
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.providers.simulated.habits import CloudFaults, CloudHabits
from cloudgavel.providers.simulated.world import SimulatedWorld


class RehearsalWorld:
    """Implements ``Provider``, ``AgentChannel`` and ``Paced`` over agent processes here.

    ``advance_to(t)`` first tells the story up to ``t`` on a copy of the simulated world: which
    machines boot and go, which step every attempt reaches, which saves it commits on the way. Real
    agents then get exactly these steps as grants and these saves as orders, and when all have done
    them the world itself moves to ``t``. Where a process does something else (it fails, a save is
    refused, its agent dies), the story is told again with that known. Reports are the story's;
    losses, output and errors are the processes'.

    Everything is in ``directory``: the state (one file, replaced whole before anything depends on
    it), where time was about to move, and a scratch directory per machine. ``open`` after a crash
    goes on where the state is, with the agents that are still there; one that is gone is a machine
    that vanished. Not for several threads at once.
    """

    name = "local"

    def __init__(
        self,
        model: SimulatedWorld,
        park: MachinePark,
        *,
        run_id: str,
        directory: Path,
        watchdog_s: float,
    ) -> None:
        self._model = model
        self._park = park
        self._run_id = run_id
        self._directory = directory
        self._rehearsing = Rehearsing(model, park, watchdog_s=watchdog_s)
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
        while_waiting: Callable[[], None] | None = None,
    ) -> "RehearsalWorld":
        """Begin a rehearsal at ``start_at_s``, or go on with the one in ``directory``.

        ``agent_command`` starts an agent (``python -m cloudgavel.agent``); its options are added.
        ``environment`` ``None`` = agents inherit this process's. ``watchdog_s``: real seconds
        without any progress of a job after which it is declared failed. Going on first finishes
        what a killed controller had begun, with the same market and offers. ``clock`` is the real
        one, for the lease that keeps agents alive while this waits for them; ``while_waiting`` is
        called about once a second meanwhile (for a lease of the caller's own).
        """
        directory = directory.resolve()
        directory.mkdir(parents=True, exist_ok=True)
        saved = read_state(directory, run_id)
        if saved is None:
            cloud = SimulatedCloud(
                offers=offers,
                market=market,
                now_s=start_at_s,
                name=cls.name,
                quotas=quotas,
                habits=habits,
            )
            model = SimulatedWorld(cloud)
        else:
            model = SimulatedWorld.from_json(
                saved["world"],
                offers=offers,
                market=market,
                name=cls.name,
                quotas=quotas,
                habits=habits,
            )
        park = MachinePark(
            directory / "machines",
            run_id=run_id,
            store=open_store(store_url),
            agent_command=agent_command,
            environment=environment,
            clock=clock,
            while_waiting=while_waiting,
        )
        world = cls(
            model,
            park,
            run_id=run_id,
            directory=directory,
            watchdog_s=watchdog_s,
        )
        if saved is None:
            world._write_state()
        else:
            world._go_on()
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
        self._park.switch_off(self._is_gone)

    def send(self, orders: Orders) -> None:
        """Take an instance's orders into the story; processes get theirs when time moves."""
        self._model.channel.send(orders)
        self._write_state()

    def heard_since_s(self) -> float:
        """Return ``-inf``: the story hears its own."""
        return -math.inf

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
        write_advance(self._directory, from_s=self.now_s(), to_s=at_s)
        self._park.renew_lease()
        self._notice_dead_agents()
        self._rehearsing.keep_up(at_s)
        self._model.advance_to(at_s)
        self._model.channel.take_events()
        self._write_state()
        self._park.switch_off(self._is_gone)

    def processes(self) -> Mapping[str, list[int]]:
        """Return the pids that live for each instance; empty when all are switched off."""
        return self._park.processes()

    # -- inside -----------------------------------------------------------------------------

    def _notice_dead_agents(self) -> None:
        """A ready machine without an agent is gone: it vanished."""
        gone = [
            instance_id
            for instance_id in self._model.channel.ready_instances()
            if (machine := self._park.machine(instance_id)).was_started and not machine.alive()
        ]
        for instance_id in gone:
            self._park.machine(instance_id).end()
            self._model.provider.end(instance_id, EndReason.VANISHED, self.now_s())
        if gone:
            self._write_state()

    def _is_gone(self, instance_id: str) -> bool:
        return self._model.provider.machine_state(instance_id) not in LIVE

    def _go_on(self) -> None:
        """After a restart: end what should be gone, then finish what was begun."""
        self._park.find_earlier()
        self._park.switch_off(self._is_gone)
        at_s = read_advance(self._directory, now_s=self.now_s())
        if at_s is not None:
            self.advance_to(at_s)

    def _with_real_details(self, report: Report) -> Report:
        real = self._park.machine(report.instance_id).report()
        if real is None:
            return report
        reason = self._model.provider.end_reason(report.instance_id)
        jobs = []
        for job in report.jobs:
            found = job_of(real, (job.job, job.attempt))
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

    def _write_state(self) -> None:
        write_state(self._directory, run_id=self._run_id, world=self._model.to_json())
