"""Laws of a simulated rented run, over small random worlds, from its records and the market."""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.jobs.spec import AcceleratorRequest, CheckpointPlan, JobSpec, RunSpec
from cloudgavel.policies.registry import policy_named
from cloudgavel.pricing.market import Outages, PriceWalk, SeededMarket
from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.simulated.agents import VirtualAgents
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.runtime.assemble import bind_policy
from cloudgavel.simulator.progress_reports import ProgressReports
from cloudgavel.simulator.rented.believed import believed_run
from cloudgavel.simulator.rented.untrue import UntrueAgents
from cloudgavel.simulator.virtual_run import VirtualRun, virtual_run
from cloudgavel.units import MICRO
from tests.builders import an_offer

START_S = 1_800_000_000.0
LEAST_BILLED_S = 60
FREE_IF_TAKEN_WITHIN_S = 3600
GPUS = {"V100": (3.0, 1.0), "T4": (0.5, 0.3)}
"""Price on demand and steps/s."""


@dataclass(frozen=True, kw_only=True)
class World:
    run: RunSpec
    offers: tuple[Offer, ...]
    market: SeededMarket
    policy: str
    budget_usd: float | None
    measured_share: float | None
    reports: ProgressReports

    @property
    def told(self) -> RunSpec:
        if self.measured_share is None:
            return self.run
        return believed_run(self.run, measured_share=self.measured_share, seed=1)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    offers = []
    for gpu, (price, _) in GPUS.items():
        for size in (1, 4):
            for zone in ("use1-az1", "use1-az2"):
                offers.append(an_offer(gpu, size=size, price=price * size, zone=zone))
                offers.append(
                    an_offer(
                        gpu,
                        size=size,
                        price=round(price * size * draw(st.sampled_from([0.2, 0.33, 0.9])), 4),
                        zone=zone,
                        spot=True,
                        interruption_rate_per_hour=draw(st.sampled_from([0.05, 0.5, 2.0])),
                    )
                )
    jobs = []
    for number in range(draw(st.integers(1, 4))):
        gang = draw(st.sampled_from([1, 1, 2, 4, 8]))
        requests = tuple(AcceleratorRequest(accelerator=gpu, count=gang) for gpu in GPUS)
        arrives_s = draw(st.sampled_from([0.0, 0.0, 600.0, 5000.0]))
        steps = draw(st.integers(50, 20_000))
        jobs.append(
            JobSpec(
                name=f"j{number}",
                commands={"any": "x"},
                steps_total=steps,
                accelerators=requests,
                throughput_steps_per_s={
                    request.label: GPUS[request.accelerator][1] * gang for request in requests
                },
                checkpoint=CheckpointPlan(
                    save_s=draw(st.sampled_from([0.0, 30.0, 200.0])),
                    restore_s=draw(st.sampled_from([0.0, 60.0])),
                ),
                arrives_s=arrives_s,
                deadline_s=draw(
                    st.sampled_from([None, arrives_s + 1800.0 + 1.5 * steps / gang, 40_000.0])
                ),
                weight=draw(st.sampled_from([1.0, 3.0])),
            )
        )
    return World(
        run=RunSpec(name="random", jobs=tuple(jobs), round_s=draw(st.sampled_from([360.0, 900.0]))),
        offers=tuple(offers),
        market=SeededMarket(
            seed=draw(st.integers(0, 10_000)),
            boot_delay_s=draw(st.sampled_from([None, 0.0, 400.0])),
            outages=draw(st.sampled_from([None, Outages(mean_gap_s=3600.0, mean_outage_s=900.0)])),
            price_walk=draw(st.sampled_from([None, PriceWalk(step_s=1000.0)])),
            origin_s=START_S,
        ),
        policy=draw(st.sampled_from(["min_cost", "on_demand_only", "min_makespan"])),
        budget_usd=draw(st.sampled_from([None, 3.0, 50.0])),
        measured_share=draw(st.sampled_from([None, None, 0.3])),
        reports=ProgressReports(
            error_share=draw(st.sampled_from([0.0, 0.0, 0.7])),
            late_s=draw(st.sampled_from([0.0, 0.0, 5000.0])),
        ),
    )


def simulated(world: World) -> VirtualRun:
    def untrue(agents: VirtualAgents, cloud: SimulatedCloud) -> UntrueAgents:
        return UntrueAgents(agents, cloud, truth=world.run, reports=world.reports, seed=1)

    return virtual_run(
        world.told,
        offers=world.offers,
        market=world.market,
        decide=bind_policy(policy_named(world.policy)),
        now_s=START_S,
        budget_usd=world.budget_usd,
        best_effort=True,
        channel_of=untrue,
    )


def dollars_are_machine_seconds_times_the_price_of_their_time(world: World, done: VirtualRun):
    offers = {offer.offer_id: offer for offer in world.offers}
    total = 0
    for record in done.state.instances.values():
        offer = offers[record.offer.offer_id]
        began_s = record.launched_at_s
        ended_s = done.state.at_s if record.ended_at_s is None else record.ended_at_s
        lived_s = seconds_begun(began_s, ended_s)
        micro = Fraction(0)
        at_s, second = began_s, 0
        while second < max(lived_s, LEAST_BILLED_S):
            change_s = world.market.next_price_change_s(offer, at_s)
            last = change_s is None or change_s > ended_s
            # Each second begun is billed, at the price that was in force when it began.
            next_second = seconds_begun(began_s, change_s) if not last else 10**9
            next_second = min(next_second, max(lived_s, LEAST_BILLED_S))
            price = Fraction(str(world.market.price_usd_per_hour(offer, at_s)))
            micro += (next_second - second) * price * MICRO / 3600
            at_s, second = change_s, next_second
        if record.end_reason == "interrupted" and ended_s - began_s < FREE_IF_TAKEN_WITHIN_S:
            micro = Fraction(0)  # AWS takes nothing for the first hour of a spot machine it takes
        # A bill is in whole micro-dollars: at most one is lost or won in rounding it.
        assert abs(micro - record.accrued_micro_usd) <= 1
        total += record.accrued_micro_usd
    jobs = sum(job.spent_micro_usd for job in done.state.jobs.values())
    assert done.state.spent_micro_usd == total == jobs + done.state.unattributed_micro_usd
    if world.budget_usd is not None:
        assert done.state.spent_usd <= world.budget_usd + 1e-6


def seconds_begun(from_s: float, to_s: float) -> int:
    """Bills take instants to the millisecond."""
    return -(-(round(to_s * 1000) - round(from_s * 1000)) // 1000)


def progress_is_at_most_throughput_times_time(world: World, done: VirtualRun):
    truth = {job.name: job.throughput_steps_per_s for job in world.run.jobs}
    for name, job in done.state.jobs.items():
        reached = 0
        most = 0.0
        for attempt in job.attempts:
            end_s = done.state.at_s if attempt.ended_at_s is None else attempt.ended_at_s
            possible = truth[name][attempt.request_label] * (end_s - attempt.started_at_s)
            most += possible
            if attempt.restored_step is None or not world.reports.are_true:
                continue
            assert attempt.restored_step <= reached
            step = job.steps_done if attempt.end_step is None else attempt.end_step
            assert step - attempt.restored_step <= possible + 1e-6
            reached = max(reached, step)
        if job.phase is JobPhase.FINISHED:
            assert job.steps_done == job.spec.steps_total <= most + 1e-6


def no_accelerator_holds_two_jobs(world: World, done: VirtualRun):
    held: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for job in done.state.jobs.values():
        for attempt in job.attempts:
            end_s = math.inf if attempt.ended_at_s is None else attempt.ended_at_s
            assert attempt.accelerator_indices
            for instance_id in attempt.instance_ids:
                record = done.state.instances[instance_id]
                assert record.ready_at_s is not None and attempt.started_at_s >= record.ready_at_s
                if record.ended_at_s is not None:
                    assert end_s <= record.ended_at_s
                for index in attempt.accelerator_indices:
                    assert 0 <= index < record.offer.accelerators_per_instance
                    held.setdefault((instance_id, index), []).append((attempt.started_at_s, end_s))
    for spans in held.values():
        assert_apart(spans)


def no_job_is_in_two_places(world: World, done: VirtualRun):
    for job in done.state.jobs.values():
        assert_apart(
            [
                (each.started_at_s, math.inf if each.ended_at_s is None else each.ended_at_s)
                for each in job.attempts
            ]
        )
        for attempt in job.attempts:
            held = len(attempt.accelerator_indices) * len(set(attempt.instance_ids))
            assert held == int(attempt.request_label.partition(":")[2] or 1)
        if job.started_at_s is not None:
            assert job.started_at_s >= done.state.created_at_s + job.spec.arrives_s


def assert_apart(spans: list[tuple[float, float]]) -> None:
    for (_, end_s), (start_s, _) in itertools.pairwise(sorted(spans)):
        assert start_s >= end_s


LAWS = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=False,
    phases=[Phase.explicit, Phase.generate],  # a run takes a third of a second: no shrinking
)


@LAWS
@given(worlds())
def test_the_laws_hold_in_every_world(world: World) -> None:
    done = simulated(world)
    dollars_are_machine_seconds_times_the_price_of_their_time(world, done)
    progress_is_at_most_throughput_times_time(world, done)
    no_accelerator_holds_two_jobs(world, done)
    no_job_is_in_two_places(world, done)
