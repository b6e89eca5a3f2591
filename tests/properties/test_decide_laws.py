"""Laws of ``decide`` over arbitrary valid states, not only those a history reaches."""

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.mechanism.actions import Launch, Move
from cloudgavel.mechanism.decide import decide
from cloudgavel.mechanism.fleet import InstanceState
from cloudgavel.mechanism.state import BlockedOffer, ClusterState, QuotaLimit
from tests.builders import (
    NOW_S,
    FailingPolicy,
    GreedyPolicy,
    a_job,
    a_state,
    an_instance,
    an_offer,
    on_machine,
)

OFFERS = (
    an_offer(),
    an_offer(spot=True, price=1.0),
    an_offer("T4", price=None),
    an_offer("T4", spot=True, price=0.2),
    an_offer("A100", size=8, price=30.0),
    an_offer("tpu-v3-8", price=8.0, provider="gcp", shareable=False),
)
LAWS = settings(max_examples=60, deadline=None, derandomize=True)


def any_state(seed: int) -> ClusterState:
    """Odd states: lost machines, notices, failed saves, past deadlines, no money, no offers."""
    dice = Random(seed)
    instances = []
    for number in range(dice.randint(0, 4)):
        offer = dice.choice([each for each in OFFERS if each.price_usd_per_hour is not None])
        instances.append(
            an_instance(
                offer,
                instance_id=f"i-{number}",
                state=dice.choice(list(InstanceState)[:4]),
                notice_ends_at_s=dice.choice([None, None, NOW_S + 90, NOW_S - 10]),
                intended_jobs=dice.choice([(), ("j0",), ("j1", "gone")]),
            )
        )
    free = {each.instance_id: each.offer.accelerators_per_instance for each in instances}
    jobs = []
    for number in range(dice.randint(0, 5)):
        job = a_job(
            f"j{number}",
            steps=dice.randint(1, 90_000),
            on=dice.choice(["V100", "T4", "V100 T4 A100", "A100:8 V100", "tpu-v3-8"]),
            deadline_in_s=dice.choice([None, dice.uniform(-5000, 40_000)]),
            spec={
                "weight": dice.choice([0.5, 1.0, 3.0]),
                "spot_only": dice.random() < 0.1,
                "memory_gib": dice.choice([None, None, 14.0, 500.0]),
                "max_cost_usd": dice.choice([None, None, 0.5, 20.0]),
                "max_duration_s": dice.choice([None, None, 300.0, 90_000.0]),
            },
            release_at_s=dice.choice([0.0, 0.0, NOW_S + 500]),
            waits_for=dice.choice([(), (), ("j0",), ("gone",)]) if number else (),
            promise_released=dice.random() < 0.1,
            spent_usd=dice.choice([0.0, 0.4]),
        )
        home = [
            each
            for each in instances
            if free[each.instance_id] > 0
            and each.state is InstanceState.READY
            and any(ask.accelerator == each.offer.accelerator for ask in job.spec.accelerators)
        ]
        if home and not job.waits_for and dice.random() < 0.7:
            place = dice.choice(home)
            job = on_machine(job, place)
            used = len(job.accelerator_indices)
            first = place.offer.accelerators_per_instance - free[place.instance_id]
            if used <= free[place.instance_id]:
                free[place.instance_id] -= used
                job = replace(
                    job,
                    accelerator_indices=tuple(range(first, first + used)),
                    phase=dice.choice([JobPhase.RUNNING, JobPhase.STARTING, JobPhase.SAVING]),
                    steps_done=job.spec.steps_total // 2,
                    saved_steps=job.spec.steps_total // 3,
                    save_error=dice.choice([None, None, "disk full"]),
                    stopping=dice.random() < 0.2,
                )
            else:
                job = replace(job, phase=JobPhase.WAITING, instance_ids=(), request=None)
        elif dice.random() < 0.1:
            job = replace(job, instance_ids=("lost",), phase=JobPhase.RUNNING)
        elif dice.random() < 0.1:
            job = replace(job, phase=JobPhase.FINISHED)
        jobs.append(job)
    return a_state(
        *jobs,
        instances=tuple(instances),
        offers=OFFERS if dice.random() < 0.9 else (),
        budget_usd=dice.choice([None, 0.01, 2.0, 500.0]),
        spent_usd=dice.choice([0.0, 1.0]),
        max_usd_per_hour=dice.choice([None, 2.0, 50.0]),
        quotas=(QuotaLimit(name="v100", limit=1, units_per_instance={OFFERS[0].offer_id: 1.0}),),
        blocked=(BlockedOffer(offer_id=OFFERS[1].offer_id, until_s=NOW_S + 60, reason="capacity"),)
        if dice.random() < 0.3
        else (),
        stopping=dice.random() < 0.1,
    )


@LAWS
@given(seed=st.integers(0, 10**6))
def test_decide_answers_every_state_whatever_the_policy_does(seed: int) -> None:
    state = any_state(seed)
    for policy in (GreedyPolicy(), FailingPolicy()):
        plan = decide(state, policy)
        known = {job.spec.name for job in state.jobs if job.active}
        assert {each.job for each in plan.forecasts} == known
        leased = {each.job for each in plan.leases}
        waiting = {each.job for each in plan.actions if type(each).__name__ == "Wait"}
        assert known == leased | waiting, "a job without a place has no reason"
        if known or state.instances:
            assert plan.next_wake_at_s is not None and plan.next_wake_at_s > state.now_s


@LAWS
@given(seed=st.integers(0, 10**6))
def test_the_same_state_gives_the_same_plan(seed: int) -> None:
    state = any_state(seed)
    shuffled = replace(state, jobs=tuple(reversed(state.jobs)), offers=state.offers[::-1])
    first, second = decide(state, GreedyPolicy()), decide(state, GreedyPolicy())
    assert first == second
    assert decide(shuffled, GreedyPolicy()).actions == first.actions


@LAWS
@given(seed=st.integers(0, 10**6))
def test_nothing_is_launched_when_nothing_is_left_to_do(seed: int) -> None:
    state = any_state(seed)
    done = tuple(
        replace(job, phase=JobPhase.FINISHED, instance_ids=(), stopping=False) for job in state.jobs
    )
    plan = decide(replace(state, jobs=done), GreedyPolicy())
    assert not any(isinstance(each, (Launch, Move)) for each in plan.actions)


@LAWS
@given(seed=st.integers(0, 10**6))
def test_a_stopping_run_launches_and_starts_nothing(seed: int) -> None:
    plan = decide(replace(any_state(seed), stopping=True), GreedyPolicy())
    assert not plan.leases
    assert {type(each).__name__ for each in plan.actions} <= {"Move", "Terminate", "Wait"}


@LAWS
@given(seed=st.integers(0, 10**6))
def test_a_job_whose_save_failed_is_not_moved_while_its_machine_stays(seed: int) -> None:
    state = replace(any_state(seed), budget_usd=None, stopping=False)
    stuck = {
        job.spec.name
        for job in state.jobs
        if job.save_error is not None
        and job.spec.max_duration_s is None
        and job.spec.max_cost_usd is None
        and all(each.usable for each in state.instances if each.instance_id in job.instance_ids)
    }
    plan = decide(state, GreedyPolicy())
    assert not stuck & {each.job for each in plan.actions if isinstance(each, Move)}
