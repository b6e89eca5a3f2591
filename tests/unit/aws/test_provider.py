"""The AWS provider where the contract suite does not look: requests, bad days, a thousand lines."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import NoCredentialsError

from cloudgavel.errors import UsageError
from cloudgavel.pricing.offer import CapacityType
from cloudgavel.providers.aws.clients import AwsClients
from cloudgavel.providers.aws.gangs import group_name
from cloudgavel.providers.aws.mocked.layer import Habits
from cloudgavel.providers.aws.prices import SpotPoint
from cloudgavel.providers.aws.translate import client_token
from cloudgavel.providers.base import EndReason, MachineState
from cloudgavel.providers.failures import CallFailed, FailureKind, LaunchFailed
from cloudgavel.providers.tags import GANG_TAG, tags_of
from tests.unit.aws.account import (
    RUN_ID,
    START_AT_S,
    a_limit,
    a_request,
    a_spot_offer,
    an_account,
    an_offer,
    settings,
)

OD, SPOT = an_offer(), a_spot_offer()


# -- the request --------------------------------------------------------------------------------


def test_the_request_is_what_clouds_require_of_it():
    with an_account(SPOT) as account:
        account.provider.launch(a_request(SPOT))
        (call,) = account.sent("RunInstances")
    asked = call.parameters
    assert (asked["MinCount"], asked["MaxCount"]) == (1, 1)
    assert asked["Placement"]["AvailabilityZone"] == "us-east-1b"  # use1-az1, under its name here
    assert asked["MetadataOptions"] == {
        "HttpEndpoint": "enabled",
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 1,
    }
    assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert asked["InstanceMarketOptions"] == {
        "MarketType": "spot",
        "SpotOptions": {
            "SpotInstanceType": "one-time",
            "InstanceInterruptionBehavior": "terminate",
        },
    }
    (disk,) = asked["BlockDeviceMappings"]
    assert disk["Ebs"] == {"VolumeSize": 200, "VolumeType": "gp3", "DeleteOnTermination": True}
    kinds = {each["ResourceType"] for each in asked["TagSpecifications"]}
    assert {"instance", "volume", "spot-instances-request"} <= kinds
    tags = {tag["Key"]: tag["Value"] for tag in asked["TagSpecifications"][0]["Tags"]}
    assert tags["cloudgavel-run"] == RUN_ID
    assert tags["cloudgavel:token"] == "quickstart-r1-0"
    assert tags["cloudgavel:offer"] == SPOT.offer_id


def test_an_on_demand_request_has_no_market():
    with an_account(OD) as account:
        account.provider.launch(a_request(OD))
        assert "InstanceMarketOptions" not in account.sent("RunInstances")[0].parameters


def test_the_tags_of_the_intent_go_along():
    with an_account(OD) as account:
        tags = {
            **tags_of(run_id=RUN_ID, token="quickstart-r1-0", offer_id=OD.offer_id),
            "cloudgavel-jobs": "letters-spirals",
        }
        account.provider.launch(a_request(OD, tags=tags))
        sent = account.sent("RunInstances")[0].parameters["TagSpecifications"][0]["Tags"]
    assert {"Key": "cloudgavel-jobs", "Value": "letters-spirals"} in sent


def test_a_cap_is_for_the_whole_machine_and_below_the_shown_price_no_call_is_made():
    eight = a_spot_offer(
        instance_type="g5.48xlarge", accelerators_per_instance=8, price_usd_per_hour=5.0
    )
    with an_account(eight, given=settings(spot_price_cap_usd_per_hour=6.0)) as account:
        account.provider.launch(a_request(eight))
        spot = account.sent("RunInstances")[0].parameters["InstanceMarketOptions"]["SpotOptions"]
        assert spot["MaxPrice"] == "6.000000"
    with an_account(eight, given=settings(spot_price_cap_usd_per_hour=4.0)) as account:
        with pytest.raises(LaunchFailed) as caught:
            account.provider.launch(a_request(eight))
        assert caught.value.kind is FailureKind.CAPACITY
        assert not account.sent("RunInstances")


def test_the_client_token_follows_from_token_and_offer():
    assert client_token(a_request(OD)) == client_token(a_request(OD))
    assert client_token(a_request(OD)) != client_token(a_request(SPOT))
    assert client_token(a_request(OD)) != client_token(a_request(OD, token="other"))
    assert len(client_token(a_request(OD))) <= 64


def test_machines_of_a_gang_share_a_placement_group_that_goes_with_the_run():
    big = an_offer(instance_type="p4d.24xlarge", accelerator="A100", vcpus=96.0)
    with an_account(OD, big) as account:
        gang = {GANG_TAG: "big-job"}
        ids = [
            account.provider.launch(a_request(offer, token=token, tags=tags)).instance_id
            for offer, token, tags in ((big, "1", gang), (big, "2", gang), (big, "3", {}))
        ]
        # An ordinary network gains little by a group, and is harder to get in one.
        ids.append(account.provider.launch(a_request(OD, token="4", tags=gang)).instance_id)
        groups = [
            call.parameters["Placement"].get("GroupName") for call in account.sent("RunInstances")
        ]
        name = group_name(RUN_ID, "big-job", "us-east-1b")
        assert groups == [name, name, None, None]
        assert len(account.sent("CreatePlacementGroup")) == 1
        account.provider.list_instances(RUN_ID)
        assert account.sent("DeletePlacementGroup") == []
        for instance_id in ids:
            account.provider.terminate(instance_id)
        account.provider.list_instances(RUN_ID)
        ec2 = account.clients.client("ec2", "us-east-1")
        assert ec2.describe_placement_groups()["PlacementGroups"] == []


# -- bad days -----------------------------------------------------------------------------------


def test_without_credentials_every_verb_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with an_account(OD) as account:
        lost = account.another_process(clients=AwsClients())
        _without_credentials(monkeypatch)
        with pytest.raises(LaunchFailed) as refused:
            lost.launch(a_request(OD))
        assert refused.value.kind is FailureKind.CREDENTIALS
        for verb in (
            lost.offers,
            lambda: lost.list_instances(RUN_ID),
            lambda: lost.terminate("i-1"),
        ):
            with pytest.raises(CallFailed, match="no usable AWS credentials") as caught:
                verb()
            assert caught.value.kind is FailureKind.CREDENTIALS
        assert lost.quotas() == ()


def _without_credentials(monkeypatch):
    import botocore.client

    def refuse(self, operation_name, api_params):
        raise NoCredentialsError

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", refuse)


def test_a_region_that_does_not_exist_is_a_usage_error_before_any_call():
    with (
        pytest.raises(UsageError, match="no region `us-east-11`") as caught,
        an_account(given=settings(regions=("us-east-11",))),
    ):
        pass
    assert caught.value.hints == ("did you mean `us-east-1`?",)


def test_a_zero_quota_makes_no_create_call_and_says_which():
    with an_account(limits=[a_limit(vcpus=0.0)]) as account:
        (quota,) = account.provider.quotas()
        assert quota.limit == 0.0
        with pytest.raises(LaunchFailed) as caught:
            account.provider.launch(a_request(OD))
        assert caught.value.kind is FailureKind.QUOTA
        assert "Running On-Demand G and VT instances in us-east-1 is 0" in caught.value.message
        assert not account.sent("RunInstances")
        # The spot limit is another one, and not known here.
        assert account.provider.launch(a_request(SPOT)).state is MachineState.PENDING


def test_a_quota_that_others_have_used_up_is_a_quota_and_not_a_stock_out():
    with an_account(limits=[a_limit(vcpus=4.0)]) as account:
        account.provider.launch(a_request(OD, run_id="somebody-else"))
        with pytest.raises(LaunchFailed) as caught:
            account.provider.launch(a_request(OD, token="2"))
        assert caught.value.kind is FailureKind.QUOTA
        assert caught.value.code == "VcpuLimitExceeded"


def test_a_stock_out_in_every_zone_is_asked_once_each_and_never_repeated_by_the_sdk():
    zones = [an_offer(zone=f"use1-az{number}") for number in (1, 2, 4)]
    with an_account(*zones) as account:
        account.faults.stocked_out = lambda zone, kind, is_spot: True
        for offer in zones:
            with pytest.raises(LaunchFailed) as caught:
                account.provider.launch(a_request(offer))
            assert caught.value.kind is FailureKind.CAPACITY
            assert caught.value.offer_id == offer.offer_id
        assert account.layer.calls["RunInstances"] == 3
        account.faults.stocked_out = lambda zone, kind, is_spot: zone != "us-east-1d"
        assert account.provider.launch(a_request(zones[2])).offer_id == zones[2].offer_id


def test_the_sdk_sends_a_launch_once_and_repeats_the_rest():
    made = []
    clients = AwsClients(lambda service, region, *, attempts: made.append((service, attempts)))
    clients.client("ec2", "us-east-1", once=True)
    clients.client("ec2", "us-east-1")
    assert made[0] == ("ec2", 1)
    assert made[1][1] > 1


def test_throttled_lists_and_ends_are_failures_of_that_kind():
    with an_account() as account:
        launched = account.provider.launch(a_request(OD))
        account.faults.fail_next("DescribeInstances", ("RequestLimitExceeded", 503))
        with pytest.raises(CallFailed) as caught:
            account.provider.list_instances(RUN_ID)
        assert caught.value.kind is FailureKind.THROTTLED
        account.faults.fail_next("TerminateInstances", ("RequestLimitExceeded", 503))
        with pytest.raises(CallFailed) as caught:
            account.provider.terminate(launched.instance_id)
        assert caught.value.kind is FailureKind.THROTTLED


def test_a_half_failed_launch_of_many_leaves_exactly_the_half_that_worked():
    with an_account() as account:
        account.faults.fail_next(
            "RunInstances", ("InsufficientInstanceCapacity", 500), ("RequestLimitExceeded", 503)
        )
        with ThreadPoolExecutor(4) as pool:
            futures = [
                pool.submit(account.provider.launch, a_request(OD, token=str(number)))
                for number in range(4)
            ]
        errors = [future.exception() for future in futures]
        assert sorted(error.kind for error in errors if isinstance(error, LaunchFailed)) == [
            FailureKind.CAPACITY,
            FailureKind.THROTTLED,
        ]
        working = {future.result().instance_id for future in futures if not future.exception()}
        assert {each.instance_id for each in account.provider.list_instances(RUN_ID)} == working
        # The same four again: the two that worked are the same, the other two are new.
        again = [account.provider.launch(a_request(OD, token=str(number))) for number in range(4)]
        assert working < {each.instance_id for each in again}
        assert len(account.provider.list_instances(RUN_ID)) == 4


def test_after_a_crash_the_same_request_gives_the_same_machine_and_its_true_start():
    with an_account() as account:
        account.faults.unanswered["RunInstances"] = 1
        with pytest.raises(LaunchFailed) as caught:
            account.provider.launch(a_request(OD))
        assert caught.value.kind is FailureKind.UNREACHABLE
        account.advance_s(900.0)
        found = account.another_process().launch(a_request(OD))
        assert found.launched_at_s == pytest.approx(START_AT_S, abs=1.0)
        (listed,) = account.provider.list_instances(RUN_ID)
        assert listed.instance_id == found.instance_id
        assert account.layer.live_ids() == [found.instance_id]


def test_after_an_upgrade_the_machine_of_the_token_is_found_though_the_request_differs():
    with an_account() as account:
        first = account.provider.launch(a_request(OD))
        upgraded = account.another_process(settings=settings(disk_gib=300))
        assert upgraded.launch(a_request(OD)).instance_id == first.instance_id
        assert account.layer.live_ids() == [first.instance_id]


def test_a_token_used_otherwise_whose_machine_is_not_listed_yet_is_asked_again():
    with an_account(habits=Habits(list_lag_s=30.0)) as account:
        first = account.provider.launch(a_request(OD))
        upgraded = account.another_process(settings=settings(disk_gib=300))
        with pytest.raises(LaunchFailed) as caught:
            upgraded.launch(a_request(OD))
        assert caught.value.kind is FailureKind.UNREACHABLE
        account.advance_s(31.0)
        assert upgraded.launch(a_request(OD)).instance_id == first.instance_id


def test_not_found_right_after_a_launch_is_not_gone():
    with an_account(habits=Habits(list_lag_s=60.0)) as account:
        launched = account.provider.launch(a_request(OD))
        with pytest.raises(CallFailed, match="does not know it so soon") as caught:
            account.provider.terminate(launched.instance_id)
        assert caught.value.kind is FailureKind.UNREACHABLE
        account.advance_s(61.0)
        account.provider.terminate(launched.instance_id)
        assert account.layer.live_ids() == []


def test_an_instance_gone_between_list_and_end_is_gone():
    with an_account() as account:
        launched = account.provider.launch(a_request(OD))
        account.advance_s(600.0)
        assert account.provider.list_instances(RUN_ID)
        account.layer.forget(launched.instance_id)
        account.provider.terminate(launched.instance_id)
        assert account.provider.list_instances(RUN_ID) == []


def test_a_machine_of_an_earlier_process_is_ended_in_the_region_where_it_is():
    regions = ("us-east-1", "us-west-2")
    west = an_offer(region="us-west-2", zone="usw2-az1")
    with an_account(OD, west, given=settings(regions=regions)) as account:
        launched = account.provider.launch(a_request(west))
        account.another_process().terminate(launched.instance_id)
        assert account.layer.live_ids() == []


def test_an_end_in_an_unsearched_region_is_not_taken_for_an_end():
    regions = ("us-east-1", "us-west-2")
    west = an_offer(region="us-west-2", zone="usw2-az1")
    with an_account(OD, west, given=settings(regions=regions)) as account:
        launched = account.provider.launch(a_request(west))
        account.faults.silent_regions.add("us-west-2")
        with pytest.raises(CallFailed):
            account.another_process().terminate(launched.instance_id)


def test_one_terminated_by_hand_ended_without_a_word_from_us():
    with an_account() as account:
        launched = account.provider.launch(a_request(OD))
        account.advance_s(500.0)
        account.provider.list_instances(RUN_ID)
        account.layer.end_by_hand(launched.instance_id)
        account.advance_s(5.0)
        (listed,) = account.provider.list_instances(RUN_ID)
        assert listed.state is MachineState.TERMINATED
        assert listed.end_reason is None  # the runtime, which did not ask for it, says vanished
        assert listed.ended_at_s == pytest.approx(START_AT_S + 500.0, abs=1.0)


def test_one_that_switched_itself_off_has_expired():
    with an_account() as account:
        launched = account.provider.launch(a_request(OD))
        account.advance_s(500.0)
        account.layer.shut_down_from_inside(launched.instance_id)
        (listed,) = account.provider.list_instances(RUN_ID)
        assert listed.end_reason is EndReason.EXPIRED


def test_an_interruption_ends_when_amazon_says():
    with an_account() as account:
        launched = account.provider.launch(a_request(SPOT))
        account.advance_s(500.0)
        account.layer.interrupt(launched.instance_id)
        account.advance_s(300.0)  # nobody looked meanwhile
        (listed,) = account.provider.list_instances(RUN_ID)
        assert (listed.state, listed.end_reason) == (
            MachineState.TERMINATED,
            EndReason.INTERRUPTED,
        )
        assert listed.ended_at_s == pytest.approx(START_AT_S + 500.0, abs=1.0)


@pytest.mark.parametrize("skew_s", [-120.0, 120.0])
def test_a_clock_two_minutes_off_bends_no_instant_beyond_those_two_minutes(skew_s):
    with an_account() as account:

        def ours_s():
            return account.clock.now_s() + skew_s

        provider = account.another_process(now_s=ours_s)
        launched = provider.launch(a_request(SPOT))
        assert launched.launched_at_s == ours_s()
        account.advance_s(600.0)
        account.layer.interrupt(launched.instance_id)
        truly_s = ours_s()
        account.advance_s(10.0)
        (listed,) = provider.list_instances(RUN_ID)
        assert listed.ended_at_s is not None
        assert listed.launched_at_s <= listed.ended_at_s <= ours_s()
        assert abs(listed.ended_at_s - truly_s) <= 120.0


def test_the_price_of_a_machine_that_no_catalogue_knows_is_the_one_of_its_launch():
    with an_account() as account:
        account.provider.launch(a_request(OD))
        (listed,) = account.another_process(catalogue=[SPOT]).list_instances(RUN_ID)
        assert listed.price_usd_per_hour == 1.006


def test_an_interruption_stays_told_after_amazon_forgot_the_machine():
    with an_account(habits=Habits(ended_listed_s=600.0)) as account:
        launched = account.provider.launch(a_request(SPOT))
        account.layer.interrupt(launched.instance_id)
        account.provider.list_instances(RUN_ID)
        account.advance_s(3_500.0)
        (listed,) = account.provider.list_instances(RUN_ID)
        assert listed.end_reason is EndReason.INTERRUPTED


def test_a_type_that_vanished_from_the_catalogue_is_not_asked_for():
    with an_account() as account:
        smaller = account.another_process(catalogue=[SPOT])
        with pytest.raises(LaunchFailed, match="no longer in the catalogue") as caught:
            smaller.launch(a_request(OD))
        assert caught.value.kind is FailureKind.INVALID
        assert not account.sent("RunInstances")


def test_a_type_that_the_zone_no_longer_sells_is_not_offered_and_not_asked_for():
    gone = an_offer(instance_type="g99.xlarge")
    with an_account(OD) as account:
        later = account.another_process(catalogue=[OD, gone])
        assert [offer.offer_id for offer in later.offers()] == [OD.offer_id]
        with pytest.raises(LaunchFailed, match="is not offered in use1-az1") as caught:
            later.launch(a_request(gone))
        assert (caught.value.kind, caught.value.code) == (FailureKind.CAPACITY, "Unsupported")
        assert not account.sent("RunInstances")


def test_a_zone_of_another_account_is_not_offered():
    foreign = an_offer(zone="use1-az9")
    with an_account(OD, foreign) as account:
        assert [offer.zone for offer in account.provider.offers()] == ["use1-az1"]
        with pytest.raises(LaunchFailed, match="no zone use1-az9"):
            account.provider.launch(a_request(foreign))


def test_an_image_that_does_not_exist_is_said_before_the_call():
    with an_account(given=settings(image="ami-0123456789abcdef0")) as account:
        with pytest.raises(LaunchFailed, match="no image ami-0123456789abcdef0") as caught:
            account.provider.launch(a_request(OD))
        assert caught.value.kind is FailureKind.INVALID
        assert not account.sent("RunInstances")


def test_a_denied_launch_is_a_matter_of_credentials():
    with an_account() as account:
        account.faults.denied.add("RunInstances")
        with pytest.raises(LaunchFailed, match="not authorized") as caught:
            account.provider.launch(a_request(OD))
        assert caught.value.kind is FailureKind.CREDENTIALS


def test_a_silent_region_is_as_it_was_and_does_not_hide_the_others():
    regions = ("us-east-1", "us-west-2")
    west = a_spot_offer(region="us-west-2", zone="usw2-az1")
    with an_account(SPOT, west, given=settings(regions=regions)) as account:
        here = account.provider.launch(a_request(SPOT, token="1"))
        there = account.provider.launch(a_request(west, token="2"))
        assert len(account.provider.list_instances(RUN_ID)) == 2
        account.faults.silent_regions.add("us-west-2")
        account.layer.interrupt(here.instance_id)
        states = {each.instance_id: each.state for each in account.provider.list_instances(RUN_ID)}
        assert states[here.instance_id] is MachineState.TERMINATED
        assert states[there.instance_id] is not MachineState.TERMINATED
        account.faults.silent_regions.add("us-east-1")
        with pytest.raises(CallFailed) as caught:
            account.provider.list_instances(RUN_ID)
        assert caught.value.kind is FailureKind.UNREACHABLE


def test_a_region_never_heard_of_makes_the_list_fail_rather_than_look_empty():
    regions = ("us-east-1", "us-west-2")
    with an_account(given=settings(regions=regions)) as account:
        account.faults.silent_regions.add("us-west-2")
        with pytest.raises(CallFailed):
            account.provider.list_instances(RUN_ID)


def test_quotas_that_may_not_be_read_are_unknown_and_not_zero():
    with an_account(limits=[a_limit(vcpus=0.0)]) as account:
        account.faults.denied.add("ListServiceQuotas")
        assert account.provider.quotas() == ()


def test_facts_that_cannot_be_renewed_stay_as_they_were():
    with an_account() as account:
        before = account.provider.offers()
        account.advance_s(7 * 3600.0)
        account.faults.denied |= {"DescribeAvailabilityZones", "DescribeSpotPriceHistory"}
        assert account.provider.offers() == before


# -- prices -------------------------------------------------------------------------------------


def test_a_price_that_cannot_be_true_is_as_if_never_read():
    # moto says 0.00001 for every spot price there is.
    with an_account() as account:
        prices = {offer.offer_id: offer.price_usd_per_hour for offer in account.provider.offers()}
        assert prices == {OD.offer_id: 1.006, SPOT.offer_id: 0.45}
        launched = account.provider.launch(a_request(SPOT))
        assert launched.price_usd_per_hour == 0.45
        assert account.provider.price_changes(launched.instance_id, START_AT_S) == []


def test_a_spot_price_as_high_as_on_demand_is_billed_and_no_longer_offered():
    climb = SpotPoint(
        zone_name="us-east-1b",
        instance_type="g5.xlarge",
        at_s=START_AT_S + 60.0,
        usd_per_hour=1.006,
    )
    with an_account(spot_history=[climb]) as account:
        launched = account.provider.launch(a_request(SPOT))
        account.advance_s(120.0)
        assert [each.capacity_type for each in account.provider.offers()] == [
            CapacityType.ON_DEMAND
        ]
        assert account.provider.price_changes(launched.instance_id, START_AT_S) == [
            (START_AT_S + 60.0, 1.006)
        ]


def test_after_a_restart_the_price_changes_missed_meanwhile_are_read():
    change = SpotPoint(
        zone_name="us-east-1b",
        instance_type="g5.xlarge",
        at_s=START_AT_S + 60.0,
        usd_per_hour=0.5,
    )
    with an_account(spot_history=[change]) as account:
        launched = account.provider.launch(a_request(SPOT))
        account.advance_s(7200.0)
        later = account.another_process()
        later.offers()
        later.list_instances(RUN_ID)
        account.advance_s(61.0)
        assert later.price_changes(launched.instance_id, START_AT_S) == [(START_AT_S + 60.0, 0.5)]


# -- many ---------------------------------------------------------------------------------------


def test_fifty_launches_are_under_way_at_the_same_time():
    """Each call waits at its start until all fifty are there: one after another, none would go."""
    gate = threading.Barrier(50, timeout=60)
    with an_account() as account:
        account.provider.launch(a_request(OD, token="first"))

        def wait(request):
            if request.operation == "RunInstances":
                gate.wait()

        account.layer.before = wait
        with ThreadPoolExecutor(50) as pool:
            launched = list(
                pool.map(
                    account.provider.launch,
                    [a_request(OD, token=str(number)) for number in range(50)],
                )
            )
        account.layer.before = None
        assert len({each.instance_id for each in launched}) == 50
        assert len(account.layer.live_ids()) == 51


def test_a_thousand_instances_are_one_page_and_pages_are_followed(monkeypatch):
    asked = []

    class Ec2:
        def get_paginator(self, name):
            return self

        def paginate(self, **parameters):
            if "Filters" in parameters and "status-code" in str(parameters["Filters"]):
                return [{"SpotInstanceRequests": []}]
            asked.append(parameters)
            return [{"Reservations": [_reservation(start)]} for start in range(0, 1500, 1000)]

    def _reservation(start):
        return {
            "Instances": [
                {
                    "InstanceId": f"i-{number:017x}",
                    "InstanceType": "g5.xlarge",
                    "State": {"Name": "running"},
                    "Tags": [{"Key": "cloudgavel:run", "Value": RUN_ID}],
                }
                for number in range(start, min(start + 1000, 1500))
            ]
        }

    with an_account() as account:
        provider = account.another_process(
            clients=AwsClients(lambda service, region, *, attempts: Ec2())
        )
        assert len(provider.list_instances(RUN_ID)) == 1500
    (parameters,) = asked
    assert parameters["PaginationConfig"] == {"PageSize": 1000}


def test_a_listing_follows_the_pages_of_the_service():
    with an_account() as account:
        launched = {
            account.provider.launch(a_request(OD, token=str(number))).instance_id
            for number in range(7)
        }
        import cloudgavel.providers.aws.provider as module

        page_size, module.PAGE_SIZE = module.PAGE_SIZE, 5
        try:
            found = {each.instance_id for each in account.provider.list_instances(RUN_ID)}
        finally:
            module.PAGE_SIZE = page_size
        assert found == launched
        assert account.layer.calls["DescribeInstances"] == 2
