"""One loop for plan, simulation, rehearsal and cloud: observe, account, decide, record, act.

``step(now) -> next wake``. All memory is the journal; a loop made anew from the same log goes on
where the last one was, whatever it was doing (``docs/design/runtime.md``).
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.mechanism import actions as act
from cloudgavel.mechanism.fleet import InstanceState
from cloudgavel.mechanism.plan import RoundPlan
from cloudgavel.mechanism.reasons import MAX_COST
from cloudgavel.mechanism.state import ClusterState
from cloudgavel.pricing.traffic import cloud_of_store, traffic_rates
from cloudgavel.providers.base import AgentChannel, Provider
from cloudgavel.providers.failures import CallFailed
from cloudgavel.runtime.cluster_state import Supply, cluster_state, job_rates
from cloudgavel.runtime.executor import Actuator, DirectExecutor
from cloudgavel.runtime.journal import Journal
from cloudgavel.runtime.looks import Sightings, World
from cloudgavel.runtime.observe import new_events, next_look_at_s, without_ended
from cloudgavel.runtime.settings import LoopSettings
from cloudgavel.runtime.standing import decision_holds
from cloudgavel.store import events as ev
from cloudgavel.store.log import EventLog
from cloudgavel.store.records import RunState

Decide = Callable[[ClusterState], RoundPlan]
"""``mechanism.decide`` with its policy bound."""

_TURNING_POINTS = (
    ev.LaunchFailed,
    ev.InstanceReady,
    ev.InterruptionNoticed,
    ev.InstanceEnded,
    ev.TerminateAsked,
    ev.PriceChanged,
    ev.SaveFailed,
    ev.AttemptStopped,
    ev.AttemptLost,
    ev.AttemptFailed,
    ev.JobFinished,
    ev.JobFailed,
    ev.JobCancelled,
    ev.RunResumed,
    ev.StopRequested,
    ev.BudgetSet,
    ev.SpecChanged,
)
"""After one of these the last decision no longer fits: decide at once."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """All that a loop touches outside itself."""

    log: EventLog
    provider: Provider
    channel: AgentChannel
    decide: Decide
    settings: LoopSettings = field(default_factory=LoopSettings)
    pool: Executor = field(default_factory=DirectExecutor)
    paced: bool = False
    """Time is virtual: the world says what comes next; this machine's rates mean nothing."""
    rates_count: bool | None = None
    """Whether measured rates replace given ones; ``None`` = unless ``paced``."""


def _tells_a_size(before: RunState, event: ev.Event) -> bool:
    """Whether a save on its way to another cloud is the first whose size is known."""
    if not isinstance(event, ev.CheckpointSaved) or event.size_bytes is None:
        return False
    job = before.jobs[event.job]
    store = None if before.spec is None else cloud_of_store(before.spec.store)
    if job.current is None or job.kept_bytes or job.spec.checkpoint.size_gib is not None:
        return False
    offer = before.instances[job.current.instance_ids[0]].offer
    return not traffic_rates(offer.provider, offer.region, store).free


def gang_of(launch: act.Launch, plan: RoundPlan) -> str | None:
    """The job for whose gang several machines are rented in this round, this one among them."""
    launches = [each for each in plan.actions if isinstance(each, act.Launch)]
    for job in launch.for_jobs:
        if sum(job in each.for_jobs for each in launches) > 1:
            return job
    return None


class Loop:
    """A run being controlled. Not thread-safe: one caller at a time."""

    def __init__(self, surroundings: Surroundings) -> None:
        """Fold the log; nothing outside is touched before the first ``step``."""
        self._outside = surroundings
        counts = surroundings.rates_count
        self._rates_count = not surroundings.paced if counts is None else counts
        self._settings = surroundings.settings
        self._journal = Journal(surroundings.log)
        self._sightings = Sightings()
        self._notes: list[str] = []
        self._actuator = Actuator(
            journal=self._journal,
            provider=surroundings.provider,
            channel=surroundings.channel,
            settings=surroundings.settings,
            pool=surroundings.pool,
            paced=surroundings.paced,
            note=self._notes.append,
        )
        self._actuator.forget_orders()
        self._dirty = not decision_holds(self._journal.since_decision, _TURNING_POINTS)
        self._wake_s = self._wake_of_last_decision()
        plan = self.state.plan
        self._out_of_money = plan is not None and plan.out_of_money
        self._look_again_s: float | None = None
        self._idle_decisions = 0
        self._held_back = False
        """Machines were not rented because none could reach the store."""
        self._last_supply: Supply | None = None

    @property
    def state(self) -> RunState:
        """What is known now."""
        return self._journal.state

    def _wake_of_last_decision(self) -> float | None:
        """When the newest decision wanted the next one: its own word, else a round later."""
        plan, decided_s, spec = self.state.plan, self.state.decided_at_s, self.state.spec
        if plan is None or decided_s is None or spec is None:
            return None
        return plan.next_wake_at_s if plan.next_wake_at_s is not None else decided_s + spec.round_s

    def drain_notes(self) -> list[str]:
        """Return, and forget, plain sentences about what went wrong outside since the last call."""
        notes, self._notes[:] = list(self._notes), []
        return notes

    def record(self, *events: ev.Event) -> None:
        """Write what a person asked for; the next step acts on it."""
        self._journal.record(*events)
        self._turned(events)

    def step(self, now_s: float) -> float | None:
        """Look, account, decide when it is time, act; return when to be called next.

        ``None`` when the run has ended. Being called earlier does no harm.
        """
        if self.state.ended is not None:
            return None
        self._observe(now_s)
        self._finish_intents(now_s)
        self._actuator.terminate(now_s)
        decided = 0
        while self._decision_is_due(now_s) and decided < 2:
            # A refused launch is a turning point: one second decision at the same instant.
            self._decide(now_s)
            self._act(now_s)
            decided += 1
        self._actuator.send_orders()
        self._give_back(now_s)
        if self._ended(now_s):
            return None
        return self._next_wake_s(now_s)

    # -- observe ------------------------------------------------------------------------------

    def _observe(self, now_s: float) -> None:
        state = self.state
        world = self._look(now_s)
        found = new_events(state, world, self._sightings, self._settings)
        if not world.with_progress and any(isinstance(each, _TURNING_POINTS) for each in found):
            world = replace(world, with_progress=True)
            found = new_events(state, world, self._sightings, self._settings)
        if found:
            self._journal.record(*found)
            self._turned(found)
            self._dirty = self._dirty or any(_tells_a_size(state, each) for each in found)
        if self._held_back and world.heard_since_s < math.inf:
            self._held_back, self._dirty = False, True
        oldest_s = min((r.accrued_until_s for r in self.state.live_instances), default=now_s)
        if now_s - oldest_s >= self._settings.accrue_every_s or self._decision_is_due(now_s):
            self._journal.accrue_all(now_s)

    def _look(self, now_s: float) -> World:
        state, provider = self.state, self._outside.provider
        listing = None
        changes: dict[str, Sequence[tuple[float, float]]] = {}
        try:
            listing = without_ended(provider.list_instances(state.run_id))
            for record in state.live_instances:
                if record.instance_id in listing:
                    since_s = record.prices[-1][0]
                    changes[record.instance_id] = provider.price_changes(
                        record.instance_id, since_s
                    )
            self._look_again_s = None
        except CallFailed as error:
            self._notes.append(f"{error.message}; asking again")
            self._look_again_s = now_s + self._settings.throttled_retry_s
        return World(
            now_s=now_s,
            listing=listing,
            price_changes=changes,
            reports=self._outside.channel.reports(),
            heard_since_s=self._outside.channel.heard_since_s(),
            with_progress=self._decision_is_due(now_s),
        )

    def _turned(self, events: Sequence[ev.Event]) -> None:
        if any(isinstance(event, _TURNING_POINTS) for event in events):
            self._dirty = True

    # -- decide -------------------------------------------------------------------------------

    def _decision_is_due(self, now_s: float) -> bool:
        if not self.state.active_jobs:
            # Nothing left to decide: what still lives is given back (``_give_back``).
            return False
        return self._dirty or (self._wake_s is not None and now_s >= self._wake_s)

    def _decide(self, now_s: float) -> None:
        supply = self._supply()
        if supply is None:
            # Without a single offer every job would look hopeless: ask again before deciding.
            self._dirty = False
            self._wake_s = now_s + self._settings.unreachable_retry_s
            return
        snapshot = cluster_state(self.state, supply, now_s=now_s, measured_counts=self._rates_count)
        plan = self._outside.decide(snapshot)
        self._dirty = False
        self._wake_s = plan.next_wake_at_s
        if self._wake_s is None and self.state.active_jobs:
            self._wake_s = now_s + snapshot.round_s
        self._out_of_money = plan.out_of_money
        self._journal.record(
            *self._journal.accrual(now_s),
            ev.RoundDecided(at_s=now_s, plan=plan),
            *self._released(plan, now_s),
            *self._consequences(plan, snapshot, now_s),
        )
        state = self.state
        arriving = any(state.created_at_s + job.spec.arrives_s > now_s for job in state.active_jobs)
        idle = not (state.live_instances or state.intents or arriving or plan.waits_on_purpose)
        self._idle_decisions = self._idle_decisions + 1 if idle else 0

    def _supply(self) -> Supply | None:
        """What can be rented, as last known where the cloud gives no answer; ``None`` = never."""
        provider = self._outside.provider
        try:
            offers = provider.offers()
            supply = Supply(
                offers=offers,
                boot_s_by_offer={offer.offer_id: provider.boot_s(offer) for offer in offers},
                quotas=provider.quotas(),
            )
        except CallFailed as error:
            self._notes.append(f"{error.message}; deciding with the last known offers")
            if self._last_supply is None and self.state.stopping is not None:
                # Saving and giving back need no offers.
                return Supply(offers=())
            return self._last_supply
        self._last_supply = supply
        return supply

    def _released(self, plan: RoundPlan, now_s: float) -> list[ev.Event]:
        known = {(promise.job, promise.promise) for promise in self.state.released}
        return [
            ev.PromiseReleased(
                at_s=now_s,
                job=promise.job,
                promise=promise.promise,
                by_s=promise.by_s,
                by_usd=promise.by_usd,
                reason=promise.reason,
            )
            for promise in plan.relaxed
            if (promise.job, promise.promise) not in known and promise.job in self.state.jobs
        ]

    def _consequences(
        self, plan: RoundPlan, snapshot: ClusterState, now_s: float
    ) -> list[ev.Event]:
        """Return what the plan's actions mean for the log, each checked once more."""
        offers = {offer.offer_id: offer for offer in snapshot.offers}
        events: list[ev.Event] = []
        ending: set[str] = set()
        for action in plan.actions:
            if isinstance(action, act.Launch):
                if self._outside.channel.heard_since_s() == math.inf:
                    self._hold_back()
                    continue
                acceptable = tuple(offers[i] for i in action.offer_ids if i in offers)
                taken = action.token in self.state.intents or (
                    action.token in self.state.instance_of_token
                )
                if acceptable and not taken:
                    events.append(
                        ev.LaunchIntended(
                            at_s=now_s,
                            token=action.token,
                            offers=acceptable,
                            for_jobs=action.for_jobs,
                            reason=action.reason,
                            round_number=plan.round_number,
                            gang=gang_of(action, plan),
                        )
                    )
            elif isinstance(action, act.Start):
                if self._may_start(action, ending):
                    events.append(self._start(action, now_s))
            elif isinstance(action, act.Save):
                if self.state.jobs[action.job].current is not None:
                    events.append(ev.SaveAsked(at_s=now_s, job=action.job, reason=action.reason))
            elif isinstance(action, act.Move):
                job = self.state.jobs[action.job]
                if job.current is not None and not job.stop_asked:
                    events.append(
                        ev.StopAsked(
                            at_s=now_s,
                            job=action.job,
                            to_instance_ids=action.to_instance_ids,
                            reason=action.reason,
                        )
                    )
            elif isinstance(action, act.Wait):
                job = self.state.jobs[action.job]
                if action.reason == MAX_COST and job.active and job.current is None:
                    events.append(ev.JobFailed(at_s=now_s, job=action.job, reason=action.reason))
            elif isinstance(action, act.Terminate):
                ending.add(action.instance_id)
                events.extend(self._terminate(action.instance_id, action.reason, now_s))
        return events

    def _hold_back(self) -> None:
        if not self._held_back:
            self._notes.append("no machine is rented before the store answers: it could not start")
        self._held_back = True

    def _may_start(self, action: act.Start, ending: set[str]) -> bool:
        job = self.state.jobs[action.job]
        if job.current is not None or not job.active or action.attempt != job.attempt + 1:
            self._notes.append(f"{action.job} is not started: it is {job.phase.lower()} already")
            return False
        for instance_id in action.instance_ids:
            record = self.state.instances.get(instance_id)
            if record is None or record.state is not InstanceState.READY or instance_id in ending:
                self._notes.append(f"{action.job} is not started: {instance_id} is not ready")
                return False
        return True

    def _start(self, action: act.Start, now_s: float) -> ev.AttemptStarted:
        job = self.state.jobs[action.job]
        expected = job_rates(job, measured_counts=False).steps_per_s
        records = [self.state.instances[i] for i in action.instance_ids]
        return ev.AttemptStarted(
            at_s=now_s,
            job=action.job,
            attempt=action.attempt,
            instance_ids=action.instance_ids,
            request_label=action.request_label,
            accelerator_indices=action.accelerator_indices,
            save_every_s=action.save_every_s,
            reason=action.reason,
            steps_per_s_expected=expected.get(action.request_label),
            price_usd_per_hour=sum(record.price_usd_per_hour for record in records),
        )

    def _terminate(self, instance_id: str, reason: str, now_s: float) -> list[ev.Event]:
        """Look a second time before the destructive call: it must be ours and not ended."""
        asked = ev.TerminateAsked(at_s=now_s, instance_id=instance_id, reason=reason)
        intent = self.state.intents.get(instance_id)
        if intent is not None:
            return [] if intent.terminate_asked else [asked]
        instance_id = self.state.instance_of_token.get(instance_id, instance_id)
        record = self.state.instances.get(instance_id)
        if record is None or not record.alive or record.terminate_asked_at_s is not None:
            return []
        return [ev.TerminateAsked(at_s=now_s, instance_id=instance_id, reason=reason)]

    # -- act ----------------------------------------------------------------------------------

    def _act(self, now_s: float) -> None:
        self._actuator.send_orders()
        self._finish_intents(now_s)
        self._actuator.terminate(now_s)

    def _finish_intents(self, now_s: float) -> None:
        if self._actuator.finish_intents(now_s):
            # A launch that nobody grants: what was decided does not happen, so decide anew.
            self._dirty = True

    def _give_back(self, now_s: float) -> None:
        """With nothing left to do, or nothing allowed, machines end whatever was decided.

        Only those that are empty, or whose jobs were told to save and end and could not be saved.
        """
        state = self.state
        over = not state.active_jobs
        if not over and state.stopping is None and not self._out_of_money:
            return
        reason = "all work is done" if over else (state.stopping or "the budget is used up")
        events: list[ev.Event] = []
        for record in state.live_instances:
            jobs = [state.jobs[name] for name in state.jobs_on(record.instance_id)]
            if all(job.failed_stops > 0 for job in jobs):
                events.extend(self._terminate(record.instance_id, reason, now_s))
        for token in sorted(state.intents):
            events.extend(self._terminate(token, reason, now_s))
        if events:
            self._journal.record(*events)
            self._finish_intents(now_s)
            self._actuator.terminate(now_s)

    def _ended(self, now_s: float) -> bool:
        state = self.state
        if state.live_instances or state.intents:
            return False
        if not state.active_jobs:
            if state.orphans:
                return False
            failed = [n for n, job in state.jobs.items() if job.phase is JobPhase.FAILED]
            reason = ", ".join(failed) if failed else "every job is finished"
            end = ev.RunEnded(at_s=now_s, state="failed" if failed else "finished", reason=reason)
        elif state.stopping is not None:
            if state.orphans:
                return False
            end = ev.RunEnded(at_s=now_s, state="stopped", reason=state.stopping)
        elif self._out_of_money and not self._dirty:
            end = ev.RunEnded(
                at_s=now_s, state="budget_exhausted", reason="no affordable way on is left"
            )
        elif self._idle_decisions >= self._settings.most_idle_decisions:
            end = ev.RunEnded(at_s=now_s, state="stopped", reason=self._why_idle())
        else:
            return False
        self._journal.record(end)
        return True

    def _why_idle(self) -> str:
        """Say why nothing was rented for so long, job by job, as the last decision had it."""
        plan = self.state.plan
        waits = plan.actions if plan is not None else ()
        told = [f"{each.job}: {each.reason}" for each in waits if isinstance(each, act.Wait)]
        return f"nothing could be rented in {self._idle_decisions} rounds; {'; '.join(told)}"

    # -- wake ---------------------------------------------------------------------------------

    def _next_wake_s(self, now_s: float) -> float:
        times = [
            self._wake_s if self.state.active_jobs else None,
            self._look_again_s,
            self._actuator.next_at_s(),
            next_look_at_s(self.state, now_s, self._sightings, self._settings),
        ]
        if self._dirty and self.state.active_jobs:
            times.append(now_s)
        if self._settings.poll_s is not None:
            times.append(now_s + self._settings.poll_s)
        known = [at_s for at_s in times if at_s is not None]
        # Without any reason of its own the world's next event wakes it; a round at the latest.
        spec = self.state.spec
        default_s = now_s + (spec.round_s if spec is not None else 360.0)
        return max(min(known, default=default_s), now_s)
