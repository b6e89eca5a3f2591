"""Finding and ending what carries our tag, without the database."""

import pytest

from cloudgavel.providers.aws.mocked.layer import Habits
from cloudgavel.providers.aws.sweep import enabled_regions, end_tagged, find_tagged
from cloudgavel.providers.base import MachineState
from cloudgavel.providers.failures import CallFailed
from tests.unit.aws.account import RUN_ID, a_request, an_account, an_offer, settings

EAST = an_offer()
WEST = an_offer(region="us-west-2", zone="usw2-az1")
EUROPE = an_offer(region="eu-west-1", zone="euw1-az1")
BOTH = settings(regions=("us-east-1", "us-west-2"))


def test_every_tagged_machine_is_found_in_every_region_and_only_ours():
    with an_account(EAST, WEST, given=BOTH) as account:
        mine = {
            account.provider.launch(a_request(EAST, token="1")).instance_id,
            account.provider.launch(a_request(WEST, token="2")).instance_id,
        }
        other = account.provider.launch(a_request(WEST, token="3", run_id="another")).instance_id
        account.clients.client("ec2", "us-east-1").run_instances(
            ImageId="ami-00000000000000001", MinCount=1, MaxCount=1, InstanceType="t3.micro"
        )
        found = find_tagged(account.clients, None, RUN_ID)
        assert {each.instance_id for each in found.instances} == mine
        assert {each.region for each in found.instances} == {"us-east-1", "us-west-2"}
        assert found.silent == ()
        everything = find_tagged(account.clients, None, None)
        assert {each.instance_id for each in everything.instances} == {*mine, other}


def test_regions_that_no_run_asked_for_are_searched_too():
    with an_account(EAST, EUROPE, given=settings(regions=("us-east-1", "eu-west-1"))) as account:
        account.provider.launch(a_request(EUROPE))
        assert "eu-west-1" in enabled_regions(account.clients)
        assert len(find_tagged(account.clients).instances) == 1
        assert find_tagged(account.clients, ["us-east-1"]).instances == ()


def test_what_is_ended_is_gone_at_a_later_look_and_ending_is_idempotent():
    with an_account(EAST, WEST, given=BOTH, habits=Habits(shutting_down_s=30.0)) as account:
        for token, offer in (("1", EAST), ("2", WEST)):
            account.provider.launch(a_request(offer, token=token))
        found = find_tagged(account.clients, BOTH.regions, RUN_ID).instances
        assert end_tagged(account.clients, found) == {}
        assert end_tagged(account.clients, found) == {}
        going = find_tagged(account.clients, BOTH.regions, RUN_ID).instances
        assert {each.state for each in going} == {MachineState.TERMINATING}
        account.advance_s(31.0)
        assert find_tagged(account.clients, BOTH.regions, RUN_ID).instances == ()


def test_what_could_not_be_ended_is_told_and_the_others_are_ended():
    with an_account(EAST, WEST, given=BOTH) as account:
        here = account.provider.launch(a_request(EAST, token="1")).instance_id
        there = account.provider.launch(a_request(WEST, token="2")).instance_id
        found = find_tagged(account.clients, BOTH.regions, RUN_ID).instances
        account.faults.silent_regions.add("us-west-2")
        failed = end_tagged(account.clients, found)
        assert list(failed) == [there]
        assert account.layer.live_ids() == [there]
        assert here not in failed


def test_a_region_that_does_not_answer_is_told_and_not_taken_for_empty():
    with an_account(EAST, WEST, given=BOTH) as account:
        account.provider.launch(a_request(EAST, token="1"))
        account.faults.silent_regions.add("us-west-2")
        found = find_tagged(account.clients, BOTH.regions)
        assert len(found.instances) == 1
        assert [each.region for each in found.silent] == ["us-west-2"]


def test_without_the_list_of_regions_nothing_is_claimed():
    with an_account() as account:
        account.faults.denied.add("DescribeRegions")
        with pytest.raises(CallFailed, match="list the account's regions"):
            find_tagged(account.clients)


def test_a_stopped_machine_is_found_for_its_disk_costs():
    with an_account() as account:
        launched = account.provider.launch(a_request(EAST)).instance_id
        account.layer._machines.clear()  # moto's own states from here on
        account.clients.client("ec2", "us-east-1").stop_instances(InstanceIds=[launched])
        (found,) = find_tagged(account.clients, ["us-east-1"]).instances
        assert found.instance_id == launched
