"""A controller that is killed and begun anew tells the same story, also when money is tight."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from cloudgavel.jobs.spec import AcceleratorRequest, CheckpointPlan, JobSpec, RehearsalSpec, RunSpec
from cloudgavel.policies.registry import policy_named
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.providers.simulated.world import SimulatedWorld
from cloudgavel.runtime.assemble import bind_policy, rehearsal_market
from cloudgavel.runtime.drivers import VirtualDriver
from cloudgavel.runtime.loop import Loop, Surroundings
from cloudgavel.store import events as ev
from cloudgavel.store.log import MemoryLog
from cloudgavel.store.records import RunState
from tests.unit.runtime.scripted import START_S, VIRTUAL, Stage, a_run, an_offer


class Killed(BaseException):
    """The process is gone at this very place."""


@dataclass
class KillingLog(MemoryLog):
    """Ends the process at one write: before it, or after it is on disk."""

    kill_at: int | None = None
    after: bool = True
    writes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        MemoryLog.__init__(self)

    def append(self, events: Sequence[ev.Event]) -> None:
        self.writes += 1
        if self.writes == self.kill_at and not self.after:
            raise Killed
        super().append(events)
        if self.writes == self.kill_at and self.after:
            raise Killed


def a_tight_run() -> RunSpec:
    jobs = tuple(
        JobSpec(
            name=name,
            commands={"any": "python train.py"},
            steps_total=steps,
            accelerators=(AcceleratorRequest(accelerator="V100"),),
            throughput_steps_per_s={"V100": 0.1},
            checkpoint=CheckpointPlan(save_s=20.0, restore_s=40.0, every_s=600.0),
            deadline_s=deadline_s,
        )
        for name, steps, deadline_s in (("one", 700, 4 * 3600.0), ("two", 600, 5 * 3600.0))
    )
    return RunSpec(
        name="tight", jobs=jobs, rehearsal=RehearsalSpec(seed=3, interruptions_per_hour=0.9)
    )


def story(log: KillingLog, budget_usd: float) -> RunState:
    """Run to the end; a killed controller is begun anew in the same world."""
    run = a_tight_run()
    log.append([ev.RunCreated(at_s=START_S, run_id="r", spec=run, budget_usd=budget_usd,
                              best_effort=True)])  # fmt: skip
    offers = [
        an_offer("z1", spot=True, price=0.9, rate_per_hour=0.9),
        an_offer("z2", spot=True, price=1.0, rate_per_hour=0.9),
        an_offer("z3", price=3.0),
    ]
    cloud = SimulatedCloud(offers=offers, market=rehearsal_market(run, START_S), now_s=START_S)
    world = SimulatedWorld(cloud)
    surroundings = Surroundings(
        log=log,
        provider=cloud,
        channel=world.channel,
        decide=bind_policy(policy_named("fifo")),
        settings=VIRTUAL,
        paced=True,
    )
    while True:
        loop = Loop(surroundings)
        try:
            VirtualDriver(loop, world).run(lambda: world.now_s() > START_S + 24 * 3600.0)
            return loop.state
        except Killed:
            continue


def essence(state: RunState) -> object:
    jobs = {
        name: (job.phase, job.steps_done, job.spent_micro_usd, job.finished_at_s, job.attempt,
               job.moves, job.interruptions)
        for name, job in state.jobs.items()
    }  # fmt: skip
    return state.ended, state.ended_at_s, state.spent_micro_usd, state.decisions, jobs


@pytest.mark.parametrize(("budget_usd", "stride"), [(1.0, 3), (2.5, 23)])
def test_killed_at_any_write_it_decides_no_more_and_no_less(budget_usd: float, stride: int) -> None:
    log = KillingLog()
    whole = story(log, budget_usd)
    assert whole.ended == "budget_exhausted"
    for kill_at in range(2, log.writes + 1, stride):
        after = kill_at % 2 == 0
        again = story(KillingLog(kill_at=kill_at, after=after), budget_usd)
        assert essence(again) == essence(whole), (kill_at, after)


def test_what_a_person_asked_for_while_nobody_was_there_calls_for_a_decision() -> None:
    stage = Stage(a_run(), [an_offer()])
    stage.run_until(100)
    decided = stage.loop.state.decisions
    stage.restart()
    stage.loop.step(stage.now_s)
    assert stage.loop.state.decisions == decided
    stage.log.append([ev.BudgetSet(at_s=stage.now_s, budget_usd=50.0)])
    stage.restart()
    stage.loop.step(stage.now_s)
    assert stage.loop.state.decisions == decided + 1
