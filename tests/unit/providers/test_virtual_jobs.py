"""The arithmetic of jobs in virtual time, one sentence each."""

import math

import pytest

from cloudgavel.messages.orders import RehearsalTerms, Verb
from cloudgavel.messages.report import ProcessState
from cloudgavel.pricing.offer import CapacityType
from cloudgavel.providers.base import EndReason, MachineState
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.providers.simulated.world import SimulatedWorld
from tests.contract.harness import RUN_ID, START_AT_S, ScriptedMarket, a_request, an_offer
from tests.unit.providers.stories import a_job, job_of, orders

AWS = an_offer()
GCP = an_offer(provider="gcp", zone="us-central1-a")
TPU = an_offer(provider="gcp", zone="us-central1-b", accelerator="tpu-v3-8", instance_type="v3-8")
BOOT_S = 60.0
STEPPING_AT_S = START_AT_S + BOOT_S + 10.0
"""When a job of ``TERMS`` ordered before the boot makes its first step (2 steps/s)."""


class Stage:
    """One simulated world with a few words to lead it."""

    def __init__(self, **market) -> None:
        self.market = ScriptedMarket(**market)
        cloud = SimulatedCloud(offers=[AWS, GCP, TPU], market=self.market, now_s=START_AT_S)
        self.world = SimulatedWorld(cloud)
        self.sequence = 0

    def launch(self, offer=AWS, token="token-1"):
        return self.world.provider.launch(a_request(offer, token=token)).instance_id

    def order(self, instance_id, *jobs, **options):
        self.sequence += 1
        self.world.channel.send(orders(instance_id, self.sequence, *jobs, **options))

    def job(self, instance_id, job="job", attempt=1):
        return job_of(self.world, instance_id, job, attempt)

    def at(self, seconds):
        self.world.advance_to(START_AT_S + seconds)

    def state_of(self, instance_id):
        return next(
            listed
            for listed in self.world.provider.list_instances(RUN_ID)
            if listed.instance_id == instance_id
        )


def test_a_job_restores_then_steps_at_its_rate():
    stage = Stage()
    one = stage.launch()
    stage.order(one, a_job())
    stage.at(59.0)
    assert stage.world.channel.reports() == {}
    stage.at(60.0)
    assert stage.job(one).state is ProcessState.STARTING
    stage.at(70.0)
    assert (stage.job(one).state, stage.job(one).step) == (ProcessState.RUNNING, 0)
    stage.at(73.4)
    assert stage.job(one).step == 6
    assert stage.job(one).steps_per_s == 2.0


def test_periodic_saves_hold_the_job_and_count_at_their_end():
    stage = Stage()
    one = stage.launch()
    stage.order(one, a_job())
    stage.at(170.0 + 4.9)
    assert (stage.job(one).state, stage.job(one).step) == (ProcessState.SAVING, 200)
    assert stage.job(one).saved_step is None
    stage.at(175.0)
    assert (stage.job(one).state, stage.job(one).saved_step) == (ProcessState.RUNNING, 200)
    stage.at(176.0)
    assert stage.job(one).step == 202


def test_the_finish_counts_periodic_saves_exactly():
    stage = Stage()
    one = stage.launch()
    stage.order(one, a_job(total=1_000))
    stage.at(60.0)
    # 500 s of stepping; saves at 100, 200, 300 and 400 s; none at the finish.
    assert stage.world.next_event_at_s() == STEPPING_AT_S + 500.0 + 4 * 5.0
    stage.world.advance_to(stage.world.next_event_at_s())
    found = stage.job(one)
    assert (found.state, found.exit_code) == (ProcessState.EXITED, 0)
    assert found.step == found.saved_step == 1_000


def test_an_ordered_save_happens_once_and_its_end_is_an_event():
    stage = Stage()
    one = stage.launch()
    stage.order(one, a_job())
    stage.at(80.0)
    stage.order(one, a_job(save_sequence=1))
    assert stage.job(one).save_sequence_done == 0
    assert stage.world.next_event_at_s() == START_AT_S + 85.0
    stage.at(85.0)
    assert (stage.job(one).save_sequence_done, stage.job(one).saved_step) == (1, 20)
    stage.order(one, a_job(save_sequence=1))
    stage.at(86.0)
    assert stage.job(one).state is ProcessState.RUNNING
    assert stage.job(one).step == 22


def test_a_save_before_any_step_is_done_at_once():
    stage = Stage()
    one = stage.launch()
    stage.order(one, a_job())
    stage.at(65.0)
    stage.order(one, a_job(save_sequence=1))
    assert stage.job(one).save_sequence_done == 1
    assert stage.job(one).saved_step is None


def test_a_stop_saves_first_and_a_new_attempt_goes_on_from_there():
    stage = Stage()
    one, two = stage.launch(), stage.launch(token="token-2")
    stage.order(one, a_job())
    stage.at(80.0)
    stage.order(one, a_job(verb=Verb.STOP))
    assert stage.world.next_event_at_s() == START_AT_S + 85.0
    stage.at(85.0)
    assert (stage.job(one).state, stage.job(one).saved_step) == (ProcessState.STOPPED, 20)
    stage.order(two, a_job(attempt=2))
    stage.at(96.0)
    found = stage.job(two, attempt=2)
    assert (found.restored_step, found.step, found.saved_step) == (20, 22, None)


def test_a_stop_that_must_not_save_is_immediate():
    stage = Stage()
    one = stage.launch()
    stage.order(one, a_job())
    stage.at(80.0)
    stage.order(one, a_job(verb=Verb.STOP, save_before_stop=False))
    found = stage.job(one)
    assert (found.state, found.step, found.saved_step) == (ProcessState.STOPPED, 20, None)


def test_a_stop_taken_back_in_time_lets_the_job_go_on():
    stage = Stage()
    one = stage.launch()
    stage.order(one, a_job())
    stage.at(80.0)
    stage.order(one, a_job(verb=Verb.STOP))
    stage.at(82.0)
    stage.order(one, a_job())
    stage.at(86.0)
    assert (stage.job(one).state, stage.job(one).step) == (ProcessState.RUNNING, 22)


def test_a_job_no_longer_ordered_is_saved_and_gone_from_the_report():
    stage = Stage()
    one = stage.launch()
    stage.order(one, a_job())
    stage.at(80.0)
    stage.order(one)
    assert stage.world.channel.reports()[one].jobs == ()
    stage.at(90.0)
    assert stage.world.channel.checkpoint_step("job") == 20


@pytest.mark.parametrize(
    ("offer", "notice_s"), [(AWS, 120.0), (GCP, 30.0), (TPU, 0.0)], ids=["aws", "gcp", "tpu"]
)
def test_each_cloud_gives_its_own_notice_and_the_save_fits_or_not(offer, notice_s):
    stage = Stage(lives_s={(offer.offer_id, 0): 300.0})
    one = stage.launch(offer)
    terms = RehearsalTerms(steps_per_s=2.0, restore_s=10.0, save_s=30.0, save_every_s=math.inf)
    stage.order(one, a_job(terms=terms))
    stage.at(300.0 - notice_s - 1.0)
    assert stage.world.channel.reports()[one].notice is None
    if notice_s:
        stage.at(300.0 - notice_s)
        assert stage.world.channel.reports()[one].notice.ends_at_s == START_AT_S + 300.0
    stage.at(300.0)
    assert stage.state_of(one).end_reason is EndReason.INTERRUPTED
    saved = int((300.0 - notice_s - 70.0) * 2) if notice_s else 0
    assert stage.world.channel.checkpoint_step("job") == saved


def test_a_save_that_does_not_fit_into_the_notice_is_not_begun():
    stage = Stage(lives_s={(GCP.offer_id, 0): 300.0})
    one = stage.launch(GCP)
    terms = RehearsalTerms(steps_per_s=2.0, restore_s=10.0, save_s=31.0, save_every_s=math.inf)
    stage.order(one, a_job(terms=terms))
    stage.at(300.0)
    assert stage.job(one).step == 2 * 230
    assert stage.world.channel.checkpoint_step("job") == 0


def test_after_an_interruption_no_step_is_made_and_only_the_saved_ones_remain():
    stage = Stage(lives_s={(TPU.offer_id, 0): 300.0})
    one, two = stage.launch(TPU), stage.launch(AWS, token="token-2")
    stage.order(one, a_job())
    stage.at(300.0)
    at_the_end = stage.job(one)
    assert at_the_end.step > at_the_end.saved_step == 400
    stage.at(2_000.0)
    assert stage.job(one) == at_the_end
    stage.order(two, a_job(attempt=2))
    stage.at(2_010.0)
    assert stage.job(two, attempt=2).restored_step == 400


def test_a_gang_waits_for_all_its_machines_and_all_their_orders():
    stage = Stage(boots_s={(AWS.offer_id, 1): 200.0})
    one, two = stage.launch(), stage.launch(token="token-2")
    first = a_job(rank=0, world_size=2, peers=(one, two))
    stage.order(one, first)
    stage.order(two, a_job(rank=1, world_size=2, peers=(one, two)))
    stage.at(199.0)
    assert (stage.job(one).state, stage.job(one).step) == (ProcessState.STARTING, 0)
    stage.at(215.0)
    assert stage.job(one).step == stage.job(two).step == 10


def test_a_gang_loses_its_attempt_with_any_machine():
    stage = Stage(lives_s={(TPU.offer_id, 0): 300.0})
    one, two = stage.launch(AWS), stage.launch(TPU, token="token-2")
    stage.order(one, a_job(rank=0, world_size=2, peers=(one, two)))
    stage.order(two, a_job(rank=1, world_size=2, peers=(one, two)))
    stage.at(301.0)
    found = stage.job(one)
    assert found.state is ProcessState.STOPPED
    assert two in found.error
    assert stage.state_of(one).state is MachineState.RUNNING


def test_a_newer_attempt_fences_the_older_ones_saves():
    stage = Stage()
    one, two = stage.launch(), stage.launch(token="token-2")
    stage.order(one, a_job())
    stage.at(80.0)
    stage.order(two, a_job(attempt=2))
    stage.order(one, a_job(save_sequence=1))
    stage.at(85.0)
    found = stage.job(one)
    assert found.saved_step is None
    assert found.save_sequence_done == 1
    assert "attempt 2" in found.save_error
    assert stage.world.channel.checkpoint_step("job") == 0
    stage.order(one, a_job(), a_job(attempt=0))
    assert "attempt 2" in stage.job(one, attempt=0).error


def test_the_fence_survives_being_written_down():
    stage = Stage()
    one = stage.launch()
    stage.order(one, a_job(attempt=3))
    stage.at(80.0)
    stage.world = SimulatedWorld.from_json(
        stage.world.to_json(), offers=[AWS, GCP, TPU], market=stage.market
    )
    stage.order(one, a_job(attempt=2))
    found = stage.job(one, attempt=2)
    assert found.state is ProcessState.STOPPED
    assert "attempt 3" in found.error


def test_power_off_saves_ends_the_jobs_and_then_the_machine():
    stage = Stage()
    one = stage.launch()
    stage.order(one, a_job())
    stage.at(80.0)
    stage.order(one, a_job(), power_off=True)
    stage.at(200.0)
    assert stage.state_of(one).ended_at_s == START_AT_S + 85.0
    assert stage.state_of(one).end_reason is EndReason.REQUESTED
    assert stage.world.channel.reports()[one].ending
    assert stage.job(one).saved_step == 20


def test_terminating_ends_jobs_at_once_and_unsaved():
    stage = Stage()
    one = stage.launch()
    stage.order(one, a_job())
    stage.at(80.0)
    stage.world.provider.terminate(one)
    stage.at(400.0)
    assert stage.job(one).step == 20
    assert stage.world.channel.checkpoint_step("job") == 0


def test_older_or_repeated_orders_change_nothing():
    stage = Stage()
    one = stage.launch()
    stage.sequence = 4
    stage.order(one, a_job())
    stage.at(80.0)
    for sequence in (4, 5):
        stage.world.channel.send(orders(one, sequence, a_job(verb=Verb.STOP)))
    assert stage.job(one).state is ProcessState.RUNNING


def test_a_finished_jobs_state_cannot_be_lost():
    stage = Stage(lives_s={(TPU.offer_id, 0): 600.0})
    one, two = stage.launch(TPU), stage.launch(token="token-2")
    stage.order(one, a_job(total=100))
    stage.at(700.0)
    stage.order(two, a_job(attempt=2, total=100))
    assert stage.world.next_event_at_s() == START_AT_S + 710.0
    stage.at(710.0)
    found = stage.job(two, attempt=2)
    assert (found.state, found.step, found.restored_step) == (ProcessState.EXITED, 100, 100)


@pytest.mark.parametrize(
    "terms",
    [
        RehearsalTerms(steps_per_s=0.0, restore_s=1, save_s=1, save_every_s=1),
        RehearsalTerms(steps_per_s=math.nan, restore_s=1, save_s=1, save_every_s=1),
        RehearsalTerms(steps_per_s=1.0, restore_s=-1, save_s=1, save_every_s=1),
        RehearsalTerms(steps_per_s=1.0, restore_s=1, save_s=1, save_every_s=0),
        None,
    ],
)
def test_impossible_terms_are_refused(terms):
    stage = Stage()
    one = stage.launch()
    with pytest.raises(ValueError, match="job"):
        stage.order(one, a_job(terms=terms))


def test_time_does_not_go_back():
    stage = Stage()
    stage.at(10.0)
    with pytest.raises(ValueError, match="back"):
        stage.at(9.0)


def test_on_demand_lives_on():
    steady = an_offer(capacity_type=CapacityType.ON_DEMAND)
    market = ScriptedMarket(lives_s={(steady.offer_id, 0): 10.0})
    world = SimulatedWorld(SimulatedCloud(offers=[steady], market=market, now_s=START_AT_S))
    world.provider.launch(a_request(steady))
    world.advance_to(START_AT_S + 60.0)
    assert world.next_event_at_s() is None
