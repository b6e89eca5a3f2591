"""The provider on a fake project: what goes wrong in the field, and what it answers."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cloudgavel.errors import UsageError
from cloudgavel.jobs.spec import CloudSpec
from cloudgavel.pricing.catalog import Catalog
from cloudgavel.pricing.offer import CapacityType
from cloudgavel.providers.base import EndReason, MachineState, Provider
from cloudgavel.providers.failures import CallFailed, FailureKind, LaunchFailed
from cloudgavel.providers.gcp.assembly import gcp_settings
from cloudgavel.providers.gcp.clients import GcpClients
from cloudgavel.providers.gcp.mocked.cloud import Habits, QuotaLimit
from cloudgavel.providers.gcp.provider import GcpProvider
from tests.unit.gcp.project import (
    AGENT,
    RUN_ID,
    START_AT_S,
    a_project,
    a_request,
    a_slice,
    an_a100,
    an_offer,
    settings,
)

ZONES = [f"us-central1-{letter}" for letter in "abc"]
SPOT_EVERYWHERE = [an_offer(zone=zone) for zone in ZONES]


def refused(provider: Provider, request) -> LaunchFailed:
    with pytest.raises(LaunchFailed) as caught:
        provider.launch(request)
    return caught.value


def one(provider: Provider):
    (listed,) = provider.list_instances(RUN_ID)
    return listed


# -- launching ------------------------------------------------------------------------------------


def test_a_stock_out_in_every_zone_is_capacity_each_time_and_nothing_is_left():
    with a_project(*SPOT_EVERYWHERE) as project:
        project.faults.stocked_out = lambda zone, machine_type, is_spot: is_spot
        for offer in SPOT_EVERYWHERE:
            failure = refused(project.provider, a_request(offer, token=offer.zone))
            assert failure.kind is FailureKind.CAPACITY
            assert failure.code.startswith("ZONE_RESOURCE_POOL_EXHAUSTED")
            assert offer.zone in failure.message
        assert project.cloud.calls["instances.insert"] == 3
        assert not project.provider.list_instances(RUN_ID)


@pytest.mark.parametrize("code", ["ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_X"])
def test_a_stock_out_told_late_by_the_operation_is_waited_for(code):
    with a_project(habits=Habits(operation_s=20.0)) as project:
        project.faults.stocked_out = lambda *_: True
        project.faults.stock_out_code = code
        failure = refused(project.provider, a_request(an_offer()))
        assert failure.kind is FailureKind.CAPACITY
        assert 20.0 <= sum(project.pauses_s) < 30.0


def test_an_insertion_still_undecided_is_pending_and_its_failure_found_later_costs_nothing():
    given = settings(operation_wait_s=10.0)
    with a_project(given=given, habits=Habits(operation_s=60.0)) as project:
        project.faults.stocked_out = lambda *_: True
        launched = project.provider.launch(a_request(an_offer()))
        assert launched.state is MachineState.PENDING
        assert one(project.provider).state is MachineState.PENDING
        project.advance_s(120.0)
        listed = one(project.provider)
        assert listed.state is MachineState.TERMINATED
        assert listed.ended_at_s == listed.launched_at_s


def test_a_zero_quota_makes_no_call_that_creates_and_says_quota():
    limits = [QuotaLimit(region="us-central1", metric="NVIDIA_V100_GPUS", most=0.0)]
    with a_project(*SPOT_EVERYWHERE, limits=limits) as project:
        for offer in SPOT_EVERYWHERE:
            failure = refused(project.provider, a_request(offer))
            assert failure.kind is FailureKind.QUOTA
            assert "quota NVIDIA_V100_GPUS of us-central1 is 0" in failure.message
        assert project.cloud.calls["instances.insert"] == 0


@pytest.mark.parametrize("in_operation", [False, True], ids=["at once", "by the operation"])
def test_a_quota_that_is_used_up_is_told_by_the_cloud(in_operation):
    limits = [QuotaLimit(region="us-central1", metric="PREEMPTIBLE_NVIDIA_V100_GPUS", most=1.0)]
    with a_project(*SPOT_EVERYWHERE, limits=limits) as project:
        project.faults.quota_in_operation = in_operation
        project.provider.launch(a_request(SPOT_EVERYWHERE[0], token="1"))
        failure = refused(project.provider, a_request(SPOT_EVERYWHERE[1], token="2"))
        assert failure.kind is FailureKind.QUOTA
        assert "PREEMPTIBLE_NVIDIA_V100_GPUS" in failure.message


def test_quotas_that_may_not_be_read_are_unknown_not_zero():
    with a_project() as project:
        project.faults.refuse_next("regions.get", 403, "forbidden")
        project.faults.refuse_next("projects.get", 403, "forbidden")
        assert project.provider.quotas() == ()
        assert project.provider.launch(a_request(an_offer())).state is MachineState.PENDING


def test_throttling_is_repeated_by_the_caller_with_the_same_token():
    with a_project() as project:
        project.faults.refuse_next("instances.insert", 403, "rateLimitExceeded")
        assert refused(project.provider, a_request(an_offer())).kind is FailureKind.THROTTLED
        assert project.provider.launch(a_request(an_offer())).state is MachineState.PENDING
        assert len(project.cloud.vms) == 1


@pytest.mark.parametrize("offer", [an_offer(), a_slice()], ids=["machine", "slice"])
def test_after_a_crash_the_same_token_finds_the_machine_and_makes_none(offer):
    with a_project(offer) as project:
        first = project.provider.launch(a_request(offer))
        project.advance_s(300.0)
        after = project.another_process()
        again = after.launch(a_request(offer))
        assert again.instance_id == first.instance_id
        assert again.launched_at_s == pytest.approx(START_AT_S, abs=1.0)
        assert len(project.cloud.vms) + len(project.cloud.slices) == 1


def test_a_name_that_is_taken_long_after_googles_memory_of_the_token_is_ours():
    with a_project() as project:
        first = project.provider.launch(a_request(an_offer()))
        project.faults.refuse_next("instances.insert", 409, "alreadyExists")
        again = project.another_process().launch(a_request(an_offer()))
        assert again.instance_id == first.instance_id


def test_an_answer_that_got_lost_is_unreachable_and_the_machine_is_found_by_the_token():
    with a_project() as project:
        project.faults.unanswered["instances.insert"] = 1
        assert refused(project.provider, a_request(an_offer())).kind is FailureKind.UNREACHABLE
        found = project.another_process().launch(a_request(an_offer()))
        assert [vm.name for vm in project.cloud.vms.values()] == [found.instance_id]


def test_a_type_that_vanished_is_refused_without_a_call():
    sold = an_offer(instance_type="n1-standard-16+2xV100", accelerators_per_instance=2)
    gone = an_a100(zone="us-central1-b")
    with a_project(sold) as project:
        provider = project.another_process(catalogue=[sold, gone])
        assert [offer.offer_id for offer in provider.offers()] == [sold.offer_id]
        failure = refused(provider, a_request(gone))
        assert failure.kind in (FailureKind.CAPACITY, FailureKind.INVALID)
        assert "us-central1-b" in failure.message
        assert project.cloud.calls["instances.insert"] == 0


def test_a_gpu_that_the_zone_does_not_have_is_capacity():
    sold = an_offer(instance_type="n1-standard-8+1xT4", accelerator="T4")
    asked = an_offer()
    with a_project(sold) as project:
        failure = refused(project.another_process(catalogue=[sold, asked]), a_request(asked))
        assert failure.kind is FailureKind.CAPACITY
        assert "V100 is not offered in us-central1-a" in failure.message


@pytest.mark.parametrize(
    "offer",
    [
        an_offer(flags=("historic",), instance_type="n1-standard-8+1xK80", accelerator="K80"),
        an_a100(instance_type="a3-highgpu-1g", accelerator="H100"),
        a_slice(instance_type="tpu-v5litepod-16", accelerator="tpu-v5litepod-16"),
    ],
    ids=["historic", "spot only", "several hosts"],
)
def test_what_is_never_rented_is_not_offered_and_refused(offer):
    with a_project(an_offer(), offer) as project:
        assert [each.offer_id for each in project.provider.offers()] == [an_offer().offer_id]
        failure = refused(project.provider, a_request(offer))
        assert failure.kind is FailureKind.INVALID
        assert failure.code == "NotRented"


def test_an_image_family_that_is_gone_is_told():
    with a_project(given=settings(image_family="no-such-family")) as project:
        failure = refused(project.provider, a_request(an_offer()))
        assert failure.kind is FailureKind.INVALID
        assert "no-such-family" in failure.message


def test_a_wrong_project_is_told_by_name():
    with a_project(given=settings(project="another-project")) as project:
        with pytest.raises(CallFailed, match="another-project"):
            project.provider.offers()
        assert "another-project" in refused(project.provider, a_request(an_offer())).message


def test_a_wrong_region_is_told_at_once_with_the_nearest():
    cloud = CloudSpec(provider="gcp", regions=("us-centrall1",), project="p")
    with pytest.raises(UsageError) as caught:
        gcp_settings(
            cloud,
            catalog=Catalog(offers=(an_offer(),)),
            store_url="gs://runs/r",
            agent=AGENT,
            environment={},
        )
    assert "us-central1" in caught.value.hints[0]


def test_no_credentials_are_told_as_such(monkeypatch, tmp_path):
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    provider = GcpProvider(
        settings=settings(),
        catalogue=[an_offer()],
        now_s=lambda: START_AT_S,
        clients=GcpClients(repeat_reads_s=0.0),
    )
    with pytest.raises(CallFailed) as caught:
        provider.offers()
    assert caught.value.kind is FailureKind.CREDENTIALS
    assert refused(provider, a_request(an_offer())).kind is FailureKind.CREDENTIALS


@pytest.mark.parametrize("reason", ["forbidden", "accessNotConfigured"])
def test_a_missing_permission_is_credentials(reason):
    with a_project() as project:
        project.faults.refuse_next("instances.insert", 403, reason)
        assert refused(project.provider, a_request(an_offer())).kind is FailureKind.CREDENTIALS


def test_fifty_launches_are_one_wait():
    with a_project(habits=Habits(operation_s=1.0)) as project:
        together = threading.Barrier(50)
        met = []

        def pause(seconds: float) -> None:
            if not met:
                together.wait(timeout=60)
                met.append(1)
            with project.cloud.lock:
                project.advance_s(seconds)

        provider = project.another_process(pause=pause)
        requests = [a_request(an_offer(), token=f"t{n}") for n in range(50)]
        with ThreadPoolExecutor(50) as pool:
            launched = list(pool.map(provider.launch, requests))
        assert len({each.instance_id for each in launched}) == 50
        assert len(provider.list_instances(RUN_ID)) == 50


# -- listing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stays", [False, True], ids=["gone", "TERMINATED"])
def test_a_preemption_is_seen_in_both_forms(stays):
    with a_project() as project:
        project.faults.preempted_stay = stays
        launched = project.provider.launch(a_request(an_offer()))
        project.advance_s(1_000.0)
        project.provider.list_instances(RUN_ID)
        project.cloud.interrupt(launched.instance_id)
        project.advance_s(60.0)
        listed = one(project.provider)
        assert listed.state is MachineState.TERMINATED
        assert listed.end_reason is EndReason.INTERRUPTED
        assert listed.ended_at_s == pytest.approx(START_AT_S + 1_030.0, abs=1.0)
        # What stays costs its disk: the listing has it deleted.
        assert project.cloud.status(launched.instance_id) is None
        assert one(project.provider) == listed


def test_a_machine_gone_between_list_and_get_is_gone_and_not_an_error():
    with a_project() as project:
        launched = project.provider.launch(a_request(an_offer()))
        project.advance_s(500.0)
        assert one(project.provider).state is MachineState.RUNNING
        project.cloud.vanish(launched.instance_id)
        listed = one(project.provider)
        assert listed.state is MachineState.TERMINATED
        assert listed.end_reason is EndReason.VANISHED
        project.provider.terminate(launched.instance_id)


def test_a_machine_that_shut_itself_down_has_expired_and_is_deleted():
    with a_project(an_a100()) as project:
        launched = project.provider.launch(a_request(an_a100()))
        project.advance_s(500.0)
        project.cloud.power_off(launched.instance_id)
        listed = one(project.provider)
        assert (listed.state, listed.end_reason) == (MachineState.TERMINATED, EndReason.EXPIRED)
        assert project.cloud.status(launched.instance_id) is None


def test_a_machine_at_the_end_of_its_lifetime_has_expired():
    with a_project(given=settings(lifetime_s=3_600.0)) as project:
        launched = project.provider.launch(a_request(an_offer()))
        project.advance_s(3_600.0 + 600.0 + 31.0)
        listed = one(project.provider)
        assert project.cloud.status(launched.instance_id) is None
        assert (listed.state, listed.end_reason) == (MachineState.TERMINATED, EndReason.EXPIRED)


def test_a_zone_without_an_answer_keeps_its_machines_as_they_were():
    with a_project(*SPOT_EVERYWHERE) as project:
        launched = project.provider.launch(a_request(SPOT_EVERYWHERE[0]))
        project.advance_s(500.0)
        before = one(project.provider)
        project.faults.silent_zones.add(SPOT_EVERYWHERE[0].zone)
        assert one(project.provider) == before
        project.faults.silent_zones.clear()
        assert one(project.provider).instance_id == launched.instance_id


def test_silence_of_one_kind_keeps_what_was_known_of_it():
    with a_project(an_offer(), a_slice()) as project:
        project.provider.launch(a_request(an_offer(), token="1"))
        project.provider.launch(a_request(a_slice(), token="2"))
        before = project.provider.list_instances(RUN_ID)
        project.faults.refuse_next("nodes.list", 503, "backendError")
        assert project.provider.list_instances(RUN_ID) == before
        project.faults.refuse_next("nodes.list", 503, "backendError")
        project.faults.refuse_next("instances.aggregatedList", 503, "backendError")
        with pytest.raises(CallFailed) as caught:
            project.provider.list_instances(RUN_ID)
        assert caught.value.kind is FailureKind.UNREACHABLE


def test_another_process_knows_the_machines_by_their_descriptions():
    with a_project(an_offer(), a_slice()) as project:
        project.provider.launch(a_request(an_offer(), token="Token/With:Odd chars"))
        project.provider.launch(a_request(a_slice(), token="2"))
        project.advance_s(400.0)
        seen = {each.token: each for each in project.another_process().list_instances(RUN_ID)}
        assert set(seen) == {"Token/With:Odd chars", "2"}
        machine = seen["Token/With:Odd chars"]
        assert (machine.run_id, machine.offer_id) == (RUN_ID, an_offer().offer_id)
        assert machine.launched_at_s == pytest.approx(START_AT_S, abs=1.0)
        assert machine.state is MachineState.RUNNING


def test_a_thousand_machines_are_listed_page_by_page_in_one_pass():
    with a_project() as project:
        project.provider.launch(a_request(an_offer()))
        (vm,) = project.cloud.vms.values()
        for n in range(1, 1_000):
            name = f"cloudgavel-vm-{n}"
            copy = type(vm)(
                **{
                    **{slot: getattr(vm, slot) for slot in vm.__dataclass_fields__},
                    "name": name,
                    "body": {**vm.body, "name": name},
                }
            )
            project.cloud.vms[vm.zone, name] = copy
        project.calls.clear()
        assert len(project.another_process().list_instances(RUN_ID)) == 1_000
        assert project.cloud.calls["instances.aggregatedList"] == 2
        assert [call.operation for call in project.calls] == ["aggregated_list"]


# -- ending ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("offer", [an_offer(), a_slice()], ids=["machine", "slice"])
def test_a_machine_of_an_earlier_process_is_ended_by_its_name_alone(offer):
    with a_project(offer) as project:
        launched = project.provider.launch(a_request(offer))
        after = project.another_process()
        after.terminate(launched.instance_id)
        assert project.cloud.status(launched.instance_id) is None
        after.terminate(launched.instance_id)


def test_a_name_that_is_not_ours_is_left_alone():
    with a_project() as project:
        project.provider.terminate("somebody-elses-machine")
        assert not project.calls


def test_an_end_that_failed_can_be_asked_for_again():
    with a_project() as project:
        launched = project.provider.launch(a_request(an_offer()))
        project.faults.refuse_next("instances.delete", 403, "rateLimitExceeded")
        with pytest.raises(CallFailed) as caught:
            project.provider.terminate(launched.instance_id)
        assert caught.value.kind is FailureKind.THROTTLED
        assert one(project.provider).end_reason is None
        project.provider.terminate(launched.instance_id)
        assert one(project.provider).end_reason is EndReason.REQUESTED


@pytest.mark.parametrize(
    ("offer", "operation"),
    [(an_offer(), "instances.delete"), (a_slice(), "nodes.delete")],
    ids=["machine", "slice"],
)
def test_a_machine_on_its_way_out_may_refuse_to_be_told_so_again(offer, operation):
    with a_project(offer, habits=Habits(stopping_s=60.0)) as project:
        launched = project.provider.launch(a_request(offer))
        project.faults.refuse_next(operation, 400, "resourceNotReady")
        with pytest.raises(CallFailed):
            project.provider.terminate(launched.instance_id)
        project.provider.terminate(launched.instance_id)
        project.faults.refuse_next(operation, 400, "resourceNotReady")
        project.provider.terminate(launched.instance_id)
        assert one(project.provider).state is MachineState.TERMINATING


# -- slices of TPUs -------------------------------------------------------------------------------


@pytest.mark.parametrize("wait_s", [None, 30.0], ids=["direct", "queued"])
def test_a_preempted_slice_is_deleted_before_the_next_is_created(wait_s):
    limits = {("us-central1-a", "v5litepod"): 1}
    with a_project(
        a_slice(), given=settings(tpu_queue_wait_s=wait_s), tpu_limits=limits
    ) as project:
        first = project.provider.launch(a_request(a_slice(), token="1"))
        project.advance_s(500.0)
        project.cloud.interrupt(first.instance_id, at_s=project.clock.now_s())
        # Without a listing in between, in a process that knows nothing of the first.
        after = project.another_process()
        second = after.launch(a_request(a_slice(), token="2"))
        assert project.cloud.status(first.instance_id) is None
        assert project.cloud.status(second.instance_id) == "CREATING"
        listed = {each.instance_id: each for each in after.list_instances(RUN_ID)}
        assert listed[first.instance_id].end_reason is EndReason.INTERRUPTED
        assert [
            each.instance_id
            for each in listed.values()
            if each.state is not MachineState.TERMINATED
        ] == [second.instance_id]
        (alive,) = after._slices.of_run(RUN_ID).machines
        assert alive.instance_id == second.instance_id


@pytest.mark.parametrize("wait_s", [None, 30.0], ids=["direct", "queued"])
def test_a_dead_slice_of_the_very_name_is_deleted_first(wait_s):
    with a_project(a_slice(), given=settings(tpu_queue_wait_s=wait_s)) as project:
        first = project.provider.launch(a_request(a_slice()))
        project.advance_s(500.0)
        project.cloud.interrupt(first.instance_id, at_s=project.clock.now_s())
        again = project.another_process().launch(a_request(a_slice()))
        assert again.instance_id == first.instance_id
        assert project.cloud.status(again.instance_id) == "CREATING"


def test_a_preempted_slice_shows_as_interrupted_and_is_cleared_away():
    with a_project(a_slice()) as project:
        launched = project.provider.launch(a_request(a_slice()))
        project.advance_s(500.0)
        project.cloud.interrupt(launched.instance_id, at_s=project.clock.now_s())
        listed = one(project.provider)
        assert (listed.state, listed.end_reason) == (
            MachineState.TERMINATED,
            EndReason.INTERRUPTED,
        )
        assert project.cloud.status(launched.instance_id) is None
        assert one(project.provider) == listed


def test_a_queued_slice_that_gets_nothing_is_taken_back():
    with a_project(a_slice(), given=settings(tpu_queue_wait_s=60.0)) as project:
        project.faults.stocked_out = lambda *_: True
        failure = refused(project.provider, a_request(a_slice()))
        assert failure.kind is FailureKind.CAPACITY
        assert 50.0 <= sum(project.pauses_s) <= 60.0
        # Later capacity is not granted to a request that nobody waits for.
        project.faults.stocked_out = lambda *_: False
        assert not project.provider.list_instances(RUN_ID)
        assert not project.cloud.slices


def test_a_queued_slice_that_gets_capacity_while_waiting_is_launched():
    with a_project(a_slice(), given=settings(tpu_queue_wait_s=60.0)) as project:
        project.faults.stocked_out = lambda *_: project.clock.now_s() < START_AT_S + 20.0
        assert project.provider.launch(a_request(a_slice())).state is MachineState.PENDING


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('There is no more capacity in the zone "us-central1-a"', FailureKind.CAPACITY),
        ("Quota limit 'TPUV5sLitepodPerProject' has been exceeded. Limit: 0", FailureKind.QUOTA),
        ("Quota exceeded for metric 'Create requests per minute'", FailureKind.THROTTLED),
    ],
)
def test_one_code_of_the_tpus_means_three_things(message, kind):
    with a_project(a_slice()) as project:
        project.faults.refuse_next("nodes.create", 429, "", message)
        assert refused(project.provider, a_request(a_slice())).kind is kind


def test_a_zone_whose_slices_are_not_for_this_project_has_none():
    elsewhere = a_slice(zone="us-central1-b")
    with a_project(a_slice()) as project:
        provider = project.another_process(catalogue=[a_slice(), elsewhere])
        assert [offer.offer_id for offer in provider.offers()] == [a_slice().offer_id]


def test_a_project_without_the_tpu_interface_still_rents_machines():
    with a_project(an_offer(), a_slice()) as project:
        for operation in ("acceleratorTypes.list", "nodes.list"):
            project.faults.refuse_next(operation, 403, "SERVICE_DISABLED", times=9)
        assert [offer.offer_id for offer in project.provider.offers()] == [an_offer().offer_id]
        launched = project.provider.launch(a_request(an_offer()))
        assert one(project.provider).instance_id == launched.instance_id


def test_a_slices_limit_that_is_used_up_is_quota():
    limits = {("us-central1-a", "v5litepod"): 1}
    with a_project(a_slice(), tpu_limits=limits) as project:
        project.provider.launch(a_request(a_slice(), token="1"))
        assert refused(project.provider, a_request(a_slice(), token="2")).kind is FailureKind.QUOTA


def test_a_run_without_slices_never_calls_the_tpu_interface():
    with a_project(an_offer()) as project:
        launched = project.provider.launch(a_request(an_offer()))
        project.provider.offers()
        project.provider.list_instances(RUN_ID)
        project.provider.terminate(launched.instance_id)
        assert {call.service for call in project.calls if call.service == "tpu"} == set()


def test_on_demand_is_asked_for_as_such():
    with a_project(an_a100(), a_slice(capacity_type=CapacityType.ON_DEMAND)) as project:
        for token, offer in enumerate(project.offers):
            project.provider.launch(a_request(offer, token=str(token)))
        (vm,), (node,) = project.cloud.vms.values(), project.cloud.slices.values()
        assert not vm.is_spot
        assert not node.is_spot
