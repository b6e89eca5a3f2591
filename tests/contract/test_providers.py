"""What every provider promises (``providers/base.py``); one suite for all of them."""

import pytest

from cloudgavel.pricing.offer import CapacityType
from cloudgavel.providers.base import EndReason, MachineState, Quota
from cloudgavel.providers.failures import CallFailed, FailureKind, LaunchFailed
from cloudgavel.providers.simulated.habits import CloudHabits
from tests.contract.harness import RUN_ID, START_AT_S, a_request, an_offer, by_id

LONG_S = 5_000.0
A, B, C = (an_offer(zone=f"use1-az{n}") for n in (1, 2, 3))


def test_a_launched_instance_boots_and_is_listed_with_what_was_asked_for(make_cloud):
    cloud = make_cloud(A)
    launched = cloud.provider.launch(a_request(A))
    assert (launched.token, launched.run_id, launched.offer_id) == ("token-1", RUN_ID, A.offer_id)
    assert launched.state is MachineState.PENDING
    assert launched.price_usd_per_hour == 1.0
    assert launched.launched_at_s == pytest.approx(START_AT_S)
    cloud.advance_s(LONG_S)
    listed = by_id(cloud.provider.list_instances(RUN_ID))[launched.instance_id]
    assert listed.state is MachineState.RUNNING
    assert listed.ended_at_s is None


def test_the_same_token_never_rents_twice(make_cloud):
    cloud = make_cloud(A)
    first = cloud.provider.launch(a_request(A))
    again = cloud.provider.launch(a_request(A))
    other = cloud.provider.launch(a_request(A, token="token-2"))
    assert again.instance_id == first.instance_id != other.instance_id
    assert len(cloud.provider.list_instances(RUN_ID)) == 2


def test_the_same_token_does_not_rent_again_even_after_the_end(make_cloud):
    cloud = make_cloud(A)
    first = cloud.provider.launch(a_request(A))
    cloud.provider.terminate(first.instance_id)
    cloud.advance_s(LONG_S)
    again = cloud.provider.launch(a_request(A))
    assert again.instance_id == first.instance_id
    assert again.state is MachineState.TERMINATED


def test_a_launch_whose_answer_got_lost_is_found_again_by_its_token(make_cloud):
    cloud = make_cloud(A)
    cloud.lose_next_answer()
    with pytest.raises(LaunchFailed) as caught:
        cloud.provider.launch(a_request(A))
    assert caught.value.kind is FailureKind.UNREACHABLE
    found = cloud.provider.launch(a_request(A))
    assert [listed.instance_id for listed in cloud.provider.list_instances(RUN_ID)] == [
        found.instance_id
    ]


def test_lists_may_lag_but_catch_up(make_cloud):
    cloud = make_cloud(A, habits=CloudHabits(list_lag_s=30.0))
    launched = cloud.provider.launch(a_request(A))
    assert launched.instance_id not in by_id(cloud.provider.list_instances(RUN_ID))
    cloud.advance_s(31.0)
    assert launched.instance_id in by_id(cloud.provider.list_instances(RUN_ID))


def test_only_the_runs_own_instances_are_listed(make_cloud):
    cloud = make_cloud(A)
    mine = cloud.provider.launch(a_request(A))
    other = cloud.provider.launch(a_request(A, token="token-2", run_id="another-run"))
    assert list(by_id(cloud.provider.list_instances(RUN_ID))) == [mine.instance_id]
    assert list(by_id(cloud.provider.list_instances("another-run"))) == [other.instance_id]
    cloud.provider.terminate(other.instance_id)


def test_an_end_is_known_only_when_a_list_confirms_it(make_cloud):
    cloud = make_cloud(A, habits=CloudHabits(terminate_confirm_s=20.0))
    launched = cloud.provider.launch(a_request(A))
    cloud.advance_s(100.0)
    cloud.provider.terminate(launched.instance_id)
    listed = by_id(cloud.provider.list_instances(RUN_ID))[launched.instance_id]
    assert listed.state is MachineState.TERMINATING
    assert listed.ended_at_s is None
    cloud.advance_s(20.0)
    listed = by_id(cloud.provider.list_instances(RUN_ID))[launched.instance_id]
    assert listed.state is MachineState.TERMINATED
    assert listed.end_reason is EndReason.REQUESTED
    assert listed.ended_at_s == pytest.approx(START_AT_S + 120.0)


def test_ending_twice_and_ending_what_is_gone_or_never_was_is_fine(make_cloud):
    cloud = make_cloud(A)
    launched = cloud.provider.launch(a_request(A))
    cloud.provider.terminate(launched.instance_id)
    cloud.provider.terminate(launched.instance_id)
    cloud.advance_s(LONG_S)
    before = by_id(cloud.provider.list_instances(RUN_ID))[launched.instance_id]
    cloud.provider.terminate(launched.instance_id)
    cloud.provider.terminate("aws-never-there")
    cloud.advance_s(LONG_S)
    after = by_id(cloud.provider.list_instances(RUN_ID))[launched.instance_id]
    assert after == before


def test_an_end_that_got_no_answer_leaves_the_instance_billing(make_cloud):
    cloud = make_cloud(A)
    launched = cloud.provider.launch(a_request(A))
    cloud.fail_next_terminate()
    with pytest.raises(CallFailed):
        cloud.provider.terminate(launched.instance_id)
    cloud.advance_s(LONG_S)
    listed = by_id(cloud.provider.list_instances(RUN_ID))[launched.instance_id]
    assert listed.state is MachineState.RUNNING
    cloud.provider.terminate(launched.instance_id)
    cloud.advance_s(LONG_S)
    listed = by_id(cloud.provider.list_instances(RUN_ID))[launched.instance_id]
    assert listed.state is MachineState.TERMINATED


def test_ended_instances_stay_listed_for_an_hour(make_cloud):
    cloud = make_cloud(A)
    launched = cloud.provider.launch(a_request(A))
    cloud.provider.terminate(launched.instance_id)
    cloud.advance_s(3_600.0)
    assert launched.instance_id in by_id(cloud.provider.list_instances(RUN_ID))


@pytest.mark.parametrize("life_s", [30.0, 500.0], ids=["while booting", "while running"])
def test_an_interruption_shows_in_the_very_next_list(make_cloud, life_s):
    cloud = make_cloud(A)
    cloud.next_launch_lives_s(A, life_s)
    launched = cloud.provider.launch(a_request(A))
    cloud.advance_s(life_s + 1.0)
    listed = by_id(cloud.provider.list_instances(RUN_ID))[launched.instance_id]
    assert listed.state is MachineState.TERMINATED
    assert listed.end_reason is EndReason.INTERRUPTED
    assert listed.ended_at_s == pytest.approx(START_AT_S + life_s)


def test_a_notice_comes_before_the_interruption(make_cloud):
    cloud = make_cloud(A)
    cloud.next_launch_lives_s(A, 500.0)
    launched = cloud.provider.launch(a_request(A))
    cloud.advance_s(370.0)
    assert cloud.provider.list_instances(RUN_ID)[0].notice_ends_at_s is None
    cloud.advance_s(20.0)
    listed = by_id(cloud.provider.list_instances(RUN_ID))[launched.instance_id]
    assert listed.notice_ends_at_s == pytest.approx(START_AT_S + 500.0)


def test_on_demand_is_never_interrupted(make_cloud):
    steady = an_offer(capacity_type=CapacityType.ON_DEMAND, price=3.0)
    cloud = make_cloud(steady)
    cloud.next_launch_lives_s(steady, 100.0)
    launched = cloud.provider.launch(a_request(steady))
    cloud.advance_s(LONG_S)
    listed = by_id(cloud.provider.list_instances(RUN_ID))[launched.instance_id]
    assert listed.state is MachineState.RUNNING


def test_without_capacity_each_zone_refuses_for_itself(make_cloud):
    cloud = make_cloud(A, B, C)
    cloud.close_zone(A)
    cloud.close_zone(B)
    for offer in (A, B):
        with pytest.raises(LaunchFailed) as caught:
            cloud.provider.launch(a_request(offer, token=offer.zone))
        assert caught.value.kind is FailureKind.CAPACITY
        assert caught.value.offer_id == offer.offer_id
    assert cloud.provider.launch(a_request(C)).offer_id == C.offer_id


def test_a_failed_launch_leaves_nothing_and_costs_nothing(make_cloud):
    cloud = make_cloud(A)
    cloud.close_zone(A)
    with pytest.raises(LaunchFailed):
        cloud.provider.launch(a_request(A))
    cloud.advance_s(LONG_S)
    assert not cloud.provider.list_instances(RUN_ID)


def test_throttling_has_its_own_kind_and_passes(make_cloud):
    cloud = make_cloud(A)
    cloud.throttle_next_launch()
    with pytest.raises(LaunchFailed) as caught:
        cloud.provider.launch(a_request(A))
    assert caught.value.kind is FailureKind.THROTTLED
    assert not cloud.provider.list_instances(RUN_ID)
    assert cloud.provider.launch(a_request(A)).state is MachineState.PENDING


def test_what_is_not_offered_cannot_be_rented(make_cloud):
    cloud = make_cloud(A)
    with pytest.raises(LaunchFailed) as caught:
        cloud.provider.launch(a_request(B))
    assert caught.value.kind is FailureKind.INVALID


def test_a_quota_refuses_without_a_call_and_names_itself(make_cloud):
    quota = Quota(name="spot V100", limit=0.0, units_per_instance={A.offer_id: 8.0})
    cloud = make_cloud(A, quotas=[quota])
    with pytest.raises(LaunchFailed) as caught:
        cloud.provider.launch(a_request(A))
    assert caught.value.kind is FailureKind.QUOTA
    assert "spot V100" in caught.value.message
    assert cloud.create_calls() == 0


def test_a_quota_counts_over_offers_until_an_end_is_confirmed(make_cloud):
    quota = Quota(name="vcpus", limit=16.0, units_per_instance={A.offer_id: 8.0, B.offer_id: 8.0})
    cloud = make_cloud(A, B, C, quotas=[quota])
    assert list(cloud.provider.quotas()) == [quota]
    first = cloud.provider.launch(a_request(A, token="1"))
    cloud.provider.launch(a_request(B, token="2"))
    cloud.provider.terminate(first.instance_id)
    with pytest.raises(LaunchFailed):
        cloud.provider.launch(a_request(A, token="3"))
    cloud.provider.launch(a_request(C, token="4"))
    cloud.advance_s(30.0)
    assert cloud.provider.launch(a_request(A, token="3")).state is MachineState.PENDING


def test_ids_are_unique_and_fit_into_keys_and_host_names(make_cloud):
    cloud = make_cloud(A, B)
    launched = [
        cloud.provider.launch(a_request(offer, token=token)).instance_id
        for token, offer in (("1", A), ("2", B), ("3", A))
    ]
    assert len(set(launched)) == 3
    for instance_id in launched:
        assert instance_id.replace("-", "").isalnum()
        assert len(instance_id) <= 63


def test_price_changes_are_told_and_prices_are_todays(make_cloud):
    cloud = make_cloud(A)
    cloud.market.prices[A.offer_id] = [(START_AT_S + 100.0, 1.5), (START_AT_S + 900.0, 0.8)]
    launched = cloud.provider.launch(a_request(A))
    cloud.advance_s(200.0)
    assert cloud.provider.offers()[0].price_usd_per_hour == 1.5
    assert cloud.provider.list_instances(RUN_ID)[0].price_usd_per_hour == 1.5
    cloud.advance_s(800.0)
    changes = cloud.provider.price_changes(launched.instance_id, START_AT_S)
    assert list(changes) == [(START_AT_S + 100.0, 1.5), (START_AT_S + 900.0, 0.8)]
    later = cloud.provider.price_changes(launched.instance_id, START_AT_S + 100.0)
    assert list(later) == [(START_AT_S + 900.0, 0.8)]
    assert list(cloud.provider.price_changes("aws-never-there", START_AT_S)) == []


def test_prices_stop_changing_for_what_has_ended(make_cloud):
    cloud = make_cloud(A)
    cloud.market.prices[A.offer_id] = [(START_AT_S + 900.0, 0.8)]
    launched = cloud.provider.launch(a_request(A))
    cloud.provider.terminate(launched.instance_id)
    cloud.advance_s(2_000.0)
    assert list(cloud.provider.price_changes(launched.instance_id, START_AT_S)) == []
    assert cloud.provider.list_instances(RUN_ID)[0].price_usd_per_hour == 1.0
