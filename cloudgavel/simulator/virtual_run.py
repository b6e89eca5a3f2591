"""A whole run in virtual time: the real loop, a simulated cloud, a log in memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cloudgavel.jobs.spec import RunSpec
from cloudgavel.mechanism.plan import RoundPlan
from cloudgavel.pricing.market import Market
from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.base import AgentChannel, Provider, Quota
from cloudgavel.providers.simulated.agents import VirtualAgents
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.providers.simulated.habits import CloudHabits
from cloudgavel.providers.simulated.world import SimulatedWorld
from cloudgavel.runtime.drivers import VirtualDriver
from cloudgavel.runtime.loop import Decide, Loop, Surroundings
from cloudgavel.runtime.settings import LoopSettings
from cloudgavel.store.events import Event, RoundDecided, RunCreated
from cloudgavel.store.fold import apply
from cloudgavel.store.log import MemoryLog
from cloudgavel.store.records import RunState

MOST_IDLE_DECISIONS = 40
"""Decisions in a row without any machine after which nothing more is expected to happen."""
MOST_DECISIONS = 20_000


@dataclass(frozen=True, kw_only=True)
class VirtualRun:
    """What a run did in virtual time."""

    state: RunState
    events: Sequence[Event]
    plans: Sequence[RoundPlan]
    """Every decision, in order."""
    peak_exposure_usd: float
    """Most that was spent and committed at any decision, and in the end."""
    peak_reserve_usd: float
    """The same with the on-demand reserve of the covered promises."""

    @property
    def complete(self) -> bool:
        """True when every job finished."""
        return self.state.ended == "finished"


def virtual_run(
    run: RunSpec,
    *,
    offers: Sequence[Offer],
    market: Market,
    decide: Decide,
    now_s: float,
    budget_usd: float | None,
    best_effort: bool = False,
    quotas: Sequence[Quota] = (),
    habits: CloudHabits | None = None,
    run_id: str = "plan",
    provider_of: Callable[[SimulatedCloud], Provider] | None = None,
    channel_of: Callable[[VirtualAgents, SimulatedCloud], AgentChannel] | None = None,
) -> VirtualRun:
    """Run ``run`` from ``now_s`` to its end, or until nothing happens any more; deterministic.

    ``provider_of`` puts something between the loop and the cloud (``simulator.dry_run``),
    ``channel_of`` between the loop and the agents (``simulator.rented.untrue``): then rates that
    jobs tell of themselves replace the given ones, as on a cloud.
    """
    log = MemoryLog()
    created = RunCreated(
        at_s=now_s, run_id=run_id, spec=run, budget_usd=budget_usd, best_effort=best_effort
    )
    log.append([created])
    cloud = SimulatedCloud(offers=offers, market=market, now_s=now_s, quotas=quotas, habits=habits)
    world = SimulatedWorld(cloud)
    loop = Loop(
        Surroundings(
            log=log,
            provider=cloud if provider_of is None else provider_of(cloud),
            channel=world.channel if channel_of is None else channel_of(world.channel, cloud),
            decide=decide,
            settings=LoopSettings(poll_s=None, agent_silence_s=None),
            paced=True,
            rates_count=None if channel_of is None else True,
        )
    )
    driver = VirtualDriver(loop, world)
    driver.run(_Stalled(loop))
    events = [event for _, event in log.read()]
    return _summary(loop.state, events)


class _Stalled:
    """True once many decisions in a row left the run without any machine."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._decisions_at_last_machine = 0

    def __call__(self) -> bool:
        state = self._loop.state
        waits = state.plan is not None and state.plan.waits_on_purpose
        if state.live_instances or state.intents or waits:
            self._decisions_at_last_machine = state.decisions
        idle = state.decisions - self._decisions_at_last_machine
        waiting = any(
            state.created_at_s + job.spec.arrives_s > state.at_s for job in state.active_jobs
        )
        if state.decisions > MOST_DECISIONS:
            return True
        return idle > MOST_IDLE_DECISIONS and not waiting


def _summary(state: RunState, events: Sequence[Event]) -> VirtualRun:
    plans: list[RoundPlan] = []
    exposure = reserve = 0.0
    folded = RunState()
    for event in events:
        folded = apply(folded, event)
        if isinstance(event, RoundDecided):
            plans.append(event.plan)
            committed = folded.spent_usd + event.plan.committed_usd
            exposure = max(exposure, committed)
            reserve = max(reserve, committed + event.plan.reserve_usd)
    exposure = max(exposure, state.spent_usd)
    return VirtualRun(
        state=state,
        events=events,
        plans=plans,
        peak_exposure_usd=exposure,
        peak_reserve_usd=max(reserve, exposure),
    )
