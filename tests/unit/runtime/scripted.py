"""A small run on the simulated cloud with a scripted decision: no solver, no policy."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.jobs.spec import AcceleratorRequest, CheckpointPlan, JobSpec, RunSpec
from cloudgavel.mechanism import actions as act
from cloudgavel.mechanism.fleet import InstanceState
from cloudgavel.mechanism.plan import RoundPlan
from cloudgavel.mechanism.state import ClusterState
from cloudgavel.pricing.market import ExpectedMarket, Market
from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.providers.simulated.habits import CloudHabits
from cloudgavel.providers.simulated.world import SimulatedWorld
from cloudgavel.runtime.drivers import VirtualDriver
from cloudgavel.runtime.loop import Loop, Surroundings
from cloudgavel.runtime.settings import LoopSettings
from cloudgavel.store.events import RunCreated
from cloudgavel.store.log import EventLog, MemoryLog

START_S = 1_800_000_000.0
VIRTUAL = LoopSettings(poll_s=None, agent_silence_s=None)


def an_offer(
    zone: str = "z1",
    *,
    spot: bool = False,
    price: float = 3.6,
    rate_per_hour: float = 0.0,
    accelerators: int = 1,
) -> Offer:
    return Offer(
        provider="aws",
        region="r1",
        zone=zone,
        instance_type="p3.2xlarge",
        accelerator="V100",
        accelerators_per_instance=accelerators,
        shareable=True,
        vcpus=8.0,
        memory_gib=61.0,
        capacity_type=CapacityType.SPOT if spot else CapacityType.ON_DEMAND,
        price_usd_per_hour=price,
        interruption_rate_per_hour=rate_per_hour if spot else None,
        observed_at_s=START_S,
        source="test",
    )


def a_job(name: str = "a", *, steps: int = 1000, **changes: object) -> JobSpec:
    spec = JobSpec(
        name=name,
        commands={"any": "python train.py"},
        steps_total=steps,
        accelerators=(AcceleratorRequest(accelerator="V100"),),
        throughput_steps_per_s={"V100": 1.0},
        checkpoint=CheckpointPlan(save_s=10.0, restore_s=20.0),
    )
    return replace(spec, **changes)  # type: ignore[arg-type]


def a_run(*jobs: JobSpec, **changes: object) -> RunSpec:
    return replace(RunSpec(name="test", jobs=jobs or (a_job(),)), **changes)  # type: ignore[arg-type]


@dataclass
class Script:
    """Every waiting job gets a machine of its own; ``moves`` are carried out when possible."""

    offer_ids: Sequence[str]
    save_every_s: float = 100.0
    gang: int = 1
    """Machines per job."""
    moves: set[str] = field(default_factory=set)
    keep: set[str] = field(default_factory=set)
    out_of_money: bool = False
    states: list[ClusterState] = field(default_factory=list)

    def __call__(self, state: ClusterState) -> RoundPlan:
        self.states.append(state)
        stopping = state.stopping or self.out_of_money
        actions: list[act.Action] = []
        blocked = {b.offer_id for b in state.blocked}
        usable = [i for i in self.offer_ids if i not in blocked]
        held = {i for job in state.jobs for i in job.instance_ids}
        ordinal = 0
        for job in state.jobs:
            name = job.spec.name
            if not job.active or job.waits_for or job.stopping:
                continue
            mine = [i for i in state.instances if name in i.intended_jobs and i.usable]
            if job.instance_ids:
                if stopping or name in self.moves:
                    self.moves.discard(name)
                    actions.append(act.Move(job=name, to_instance_ids=(), reason="script"))
            elif stopping or job.phase not in (JobPhase.WAITING, JobPhase.MOVING):
                continue
            elif len(mine) >= self.gang:
                members = [i.instance_id for i in mine if i.state is InstanceState.READY]
                if len(members) >= self.gang:
                    held.update(members)
                    actions.append(self._start(name, job.attempt + 1, *members[: self.gang]))
            elif usable:
                for _ in range(self.gang - len(mine)):
                    ordinal += 1
                    token = f"{state.run_id}-{state.round_number}-{ordinal}"
                    actions.append(self._launch(token, name, usable))
        for instance in state.instances:
            if instance.state is InstanceState.TERMINATING:
                continue
            wanted = instance.instance_id in held or (
                not stopping and any(
                    j.active and j.spec.name in instance.intended_jobs for j in state.jobs
                )
            )  # fmt: skip
            if not wanted:
                actions.append(act.Terminate(instance_id=instance.instance_id, reason="idle"))
        return RoundPlan(
            plan_id=f"plan-{state.round_number}",
            round_number=state.round_number,
            state_digest=state.digest(),
            actions=tuple(actions),
            leases=(),
            forecasts=(),
            next_wake_at_s=state.now_s + state.round_s,
            out_of_money=self.out_of_money,
        )

    def _start(self, name: str, attempt: int, *instance_ids: str) -> act.Start:
        return act.Start(
            job=name,
            attempt=attempt,
            instance_ids=instance_ids,
            request_label="V100",
            accelerator_indices=(0,),
            save_every_s=self.save_every_s,
            reason="script",
        )

    def _launch(self, token: str, name: str, usable: Sequence[str]) -> act.Launch:
        return act.Launch(
            token=token,
            offer_ids=tuple(usable),
            for_jobs=(name,),
            price_limit_usd_per_hour=10.0,
            reason="script",
        )


@dataclass
class Stage:
    """A run with everything around it; ``restart`` throws the controller away."""

    run: RunSpec
    offers: Sequence[Offer]
    market: Market = field(default_factory=ExpectedMarket)
    habits: CloudHabits = field(default_factory=CloudHabits)
    log: EventLog = field(default_factory=MemoryLog)
    settings: LoopSettings = field(
        default_factory=lambda: LoopSettings(poll_s=None, agent_silence_s=None)
    )

    def __post_init__(self) -> None:
        self.cloud = SimulatedCloud(
            offers=self.offers, market=self.market, now_s=START_S, habits=self.habits
        )
        self.world = SimulatedWorld(self.cloud)
        self.script = Script([offer.offer_id for offer in self.offers])
        self.log.append(
            [
                RunCreated(
                    at_s=START_S, run_id="run-1", spec=self.run, budget_usd=self.run.budget_usd
                )
            ]
        )
        self.restart()

    def restart(self) -> None:
        self.loop = Loop(
            Surroundings(
                log=self.log,
                provider=self.cloud,
                channel=self.world.channel,
                decide=self.script,
                settings=self.settings,
                paced=True,
            )
        )
        self.driver = VirtualDriver(self.loop, self.world)

    @property
    def now_s(self) -> float:
        return self.world.now_s()

    def run_to_end(self, at_most_s: float = 1e6) -> None:
        self.driver.run(lambda: self.now_s > START_S + at_most_s)

    def run_until(self, at_s: float) -> None:
        while self.now_s < START_S + at_s and self.driver.advance():
            pass
