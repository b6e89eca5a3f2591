"""Having real processes do what the story says, and learning where they did not."""

from collections.abc import Mapping, Sequence

from cloudgavel.errors import BugError, CloudgavelError
from cloudgavel.messages.orders import JobOrder
from cloudgavel.messages.report import ProcessState, Report
from cloudgavel.providers.base import MachineState
from cloudgavel.providers.local.machines import Machine
from cloudgavel.providers.local.park import MachinePark
from cloudgavel.providers.local.surprises import (
    EndedItself,
    MachineDied,
    RestoredElsewhere,
    SaveRefused,
    SaveWeaker,
    Surprise,
    has_reached,
    is_over,
    is_reached,
    job_of,
    surprises_of,
)
from cloudgavel.providers.local.targets import Outcome, Target, targets_of, without_mercy
from cloudgavel.providers.local.waiting import Patience
from cloudgavel.providers.simulated.agents import AttemptKey
from cloudgavel.providers.simulated.attempt import Failure
from cloudgavel.providers.simulated.world import SimulatedWorld

LIVE = (MachineState.PENDING, MachineState.RUNNING)
_MOST_TELLINGS = 1000
"""Of one stretch of time: each but the last learns something of a process."""


class AgentDidNotStart(CloudgavelError):
    """The agent of a rehearsed machine ended before it said anything."""


class Rehearsing:
    """Keeps the machines of ``park`` up with ``model``.

    ``watchdog_s``: real seconds without any progress of a job after which it is declared failed.
    """

    def __init__(
        self,
        model: SimulatedWorld,
        park: MachinePark,
        *,
        watchdog_s: float,
    ) -> None:
        self._model = model
        self._park = park
        self._watchdog_s = watchdog_s
        self._dead: set[str] = set()
        """Machines whose agent died in the stretch of time that is being rehearsed."""
        self._stuck: set[AttemptKey] = set()

    def keep_up(self, at_s: float) -> None:
        """Have the processes do everything up to ``at_s``; the model learns from what they do.

        Afterwards the model, moved to ``at_s``, tells what was done.
        """
        self._dead.clear()
        for _ in range(_MOST_TELLINGS):
            story = self._model.copy()
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
            if self._model.provider.machine_state(instance_id) in LIVE
        )
        for instance_id in instance_ids:
            self._park.start(instance_id)
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
        sent = self._park.machine(instance_id).sent()
        before = {(o.job, o.attempt): o for o in (sent.jobs if sent is not None else ())}
        wanted = self._model.channel.orders_of(instance_id)
        named = {(o.job, o.attempt): o for o in (wanted.jobs if wanted is not None else ())}
        orders = {key: order for key, order in before.items() if key in named}
        for target in targets:
            template = named.get(target.key) or before.get(target.key)
            if instance_id in target.members and template is not None:
                order = target.running_order(template)
                given_up = target.key in self._stuck or self._is_doomed(target)
                orders[target.key] = without_mercy(order) if given_up else order
        return orders

    def _order(self, orders: Mapping[str, Mapping[AttemptKey, JobOrder]]) -> None:
        for instance_id, jobs in orders.items():
            machine = self._park.machine(instance_id)
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
                machine = self._park.machine(instance_id)
                here = [
                    target
                    for target in targets
                    if instance_id in target.members and not self._is_doomed(target)
                ]
                report = machine.heard()
                if report is not None and all(is_reached(target, report) for target in here):
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
                self._park.renew_lease()
                patience.pause()
        return surprises

    def _await_ends(self, ending: Sequence[tuple[str, AttemptKey]]) -> None:
        """Wait until what was told to end has ended; a machine that does not obey is killed."""
        waiting = list(ending)
        patience = Patience(self._watchdog_s)
        while waiting:
            still = []
            for instance_id, key in waiting:
                machine = self._park.machine(instance_id)
                report = machine.heard()
                job = job_of(report, key)
                if report is not None and (job is None or is_over(job)):
                    continue
                if not machine.alive() or patience.ran_out(instance_id, machine.report()):
                    machine.end()
                else:
                    still.append((instance_id, key))
            waiting = still
            if waiting:
                self._park.renew_lease()
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
            job = job_of(report, target.key)
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
            job = job_of(report, target.key)
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
            job = job_of(report, target.key)
            if job is None or has_reached(target, job) or target.key in self._stuck:
                continue
            self._stuck.add(target.key)
            waited = f"no progress for {self._watchdog_s:g} s of real time at step {job.step}"
            if job.state is ProcessState.STARTING:
                waited = (
                    "no step was ever seen: does the script use cloudgavel.training, "
                    "or does its progress_pattern fit its output?"
                )
            failure = Failure(after_step=job.step, exit_code=None, error=waited)
            found.append(EndedItself(key=target.key, failure=failure))
        return found
