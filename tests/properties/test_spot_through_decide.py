"""Spot under a deadline through the whole loop: whatever the market does, what was covered is in
time, and no job alone costs more than the cap on risk above on-demand only.
"""

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.jobs.spec import AcceleratorRequest, CheckpointPlan, JobSpec, RunSpec
from cloudgavel.policies.min_cost import MinCost
from cloudgavel.policies.on_demand_only import OnDemandOnly
from cloudgavel.pricing.market import ExpectedMarket
from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.base import Quota
from cloudgavel.runtime.account import deadline_met
from cloudgavel.runtime.assemble import bind_policy
from cloudgavel.simulator.virtual_run import VirtualRun, virtual_run
from tests.builders import NOW_S, an_offer

OFFERS = (
    an_offer(price=3.0),
    an_offer(spot=True, price=1.0),
    an_offer(spot=True, price=1.05, zone="use1-az2"),
    an_offer("T4", price=1.2),
    an_offer("T4", spot=True, price=0.4),
)
RATES = {"V100": 1.0, "T4": 0.4}
POLICY = MinCost(explained_count=0)


@dataclass(frozen=True)
class Nasty(ExpectedMarket):
    """Spot by a pattern of its own; machines are taken when it hurts: while they boot, just before
    the first step, just before a save, or at the end of a spell.
    """

    seed: int = 0
    kind: str = "dice"
    spell_s: float = 1800.0

    def capacity_available(self, offer: Offer, at_s: float) -> bool:
        if offer.capacity_type is not CapacityType.SPOT or self.kind == "always":
            return True
        if self.kind == "never":
            return False
        spell = int((at_s - NOW_S) // self.spell_s)
        if self.kind == "flapping":
            return (spell + len(offer.zone)) % 2 == 0
        return Random(f"{self.seed} {offer.offer_id} {spell}").random() < 0.5

    def next_capacity_change_s(self, offer: Offer, after_s: float) -> float | None:
        return NOW_S + ((after_s - NOW_S) // self.spell_s + 1) * self.spell_s

    def interruption_at_s(
        self, offer: Offer, instance_ordinal: int, launched_at_s: float
    ) -> float | None:
        if offer.capacity_type is not CapacityType.SPOT:
            return None
        end_s = NOW_S + ((launched_at_s - NOW_S) // self.spell_s + 1) * self.spell_s
        dice = Random(f"{self.seed} {offer.offer_id} {instance_ordinal}")
        hurts_s = dice.choice([1.0, 89.0, 151.0, 640.0, 1500.0, 4000.0])
        if self.kind in ("always", "dice"):
            return launched_at_s + hurts_s
        return min(end_s, launched_at_s + hurts_s)


def a_run(dice: Random, count: int, *, ratio: float, save_s: float) -> RunSpec:
    jobs = []
    for number in range(count):
        steps = round(dice.uniform(0.5, 2.0) * 3600)
        names = dice.choice([("V100",), ("V100", "T4")])
        jobs.append(
            JobSpec(
                name=f"j{number}",
                commands={"any": "true"},
                steps_total=steps,
                accelerators=tuple(AcceleratorRequest(accelerator=name) for name in names),
                throughput_steps_per_s={name: RATES[name] for name in names},
                checkpoint=CheckpointPlan(save_s=save_s, restore_s=60.0),
                deadline_s=steps * ratio + 900.0 + save_s * 5,
            )
        )
    return RunSpec(name="nasty", jobs=tuple(jobs))


def played(run: RunSpec, market: Nasty, policy: object, quotas: tuple[Quota, ...]) -> VirtualRun:
    return virtual_run(
        run,
        offers=OFFERS,
        market=market,
        decide=bind_policy(policy),  # type: ignore[arg-type]
        now_s=NOW_S,
        budget_usd=None,
        quotas=quotas,
    )


def covered(done: VirtualRun) -> set[str]:
    """Jobs whose promise any decision called covered."""
    return {each.job for plan in done.plans for each in plan.forecasts if each.promise == "covered"}


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["never", "always", "flapping", "dice"]),
    ratio=st.sampled_from([1.02, 1.2, 1.6, 2.5]),
)
def test_a_job_alone_is_in_time_and_under_the_cap(seed: int, kind: str, ratio: float) -> None:
    dice = Random(seed)
    run = a_run(dice, 1, ratio=ratio, save_s=dice.choice([2.0, 30.0]))
    market = Nasty(seed=seed, kind=kind, spell_s=dice.choice([400.0, 1800.0, 5000.0]))
    done = played(run, market, POLICY, ())
    (job,) = done.state.jobs.values()
    assert covered(done) == {"j0"}
    assert deadline_met(job, done.state) is True
    bare = played(run, market, OnDemandOnly(), ())
    changeover_s = 90.0 + 60.0 + job.spec.checkpoint.save_s
    cap_usd = max(0.01 * bare.state.spent_usd, 2 * changeover_s / 3600 * 3.0)
    assert done.state.spent_usd <= bare.state.spent_usd + cap_usd + 1e-6


@settings(max_examples=4, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["never", "always", "flapping", "dice"]),
    slots=st.integers(1, 2),
)
def test_jobs_that_share_few_on_demand_machines_are_in_time(
    seed: int, kind: str, slots: int
) -> None:
    dice = Random(seed)
    run = a_run(dice, dice.randint(2, 4), ratio=dice.choice([2.5, 4.0]), save_s=10.0)
    quota = Quota(
        name="on demand",
        limit=float(slots),
        units_per_instance={
            each.offer_id: 1.0 for each in OFFERS if each.capacity_type is not CapacityType.SPOT
        },
    )
    done = played(run, Nasty(seed=seed, kind=kind), POLICY, (quota,))
    for name in covered(done):
        assert deadline_met(done.state.jobs[name], done.state) is True, name


@pytest.mark.parametrize("ratio", [1.3, 3.0])
def test_without_spot_it_waits_within_the_margin_and_then_goes_on_demand(ratio: float) -> None:
    run = a_run(Random(1), 1, ratio=ratio, save_s=5.0)
    done = played(run, Nasty(kind="never"), POLICY, ())
    waits = [plan for plan in done.plans if plan.waits_on_purpose]
    assert waits, "nothing was waited for"
    (job,) = done.state.jobs.values()
    assert [each.end for each in job.attempts] == ["finished"]
    deadline_s = job.spec.deadline_s or 0.0
    assert job.finished_at_s is not None
    # A tenth of the time is kept free, less a round or two.
    assert job.finished_at_s <= NOW_S + 0.9 * deadline_s + 800.0
