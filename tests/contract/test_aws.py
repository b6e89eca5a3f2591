"""The contract suite on the AWS provider over mocked EC2.

Two promises about quotas are told in AWS's own terms below: its limits have their own names and
span every zone of a region.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.aws.mocked.layer import Habits
from cloudgavel.providers.aws.prices import SpotPoint
from cloudgavel.providers.aws.provider import AwsProvider
from cloudgavel.providers.aws.quotas import VcpuLimit
from cloudgavel.providers.base import MachineState
from cloudgavel.providers.failures import FailureKind, LaunchFailed
from cloudgavel.providers.simulated.habits import CloudHabits
from tests.contract import test_providers as suite
from tests.contract.harness import START_AT_S, ScriptedMarket, a_request, an_offer
from tests.unit.aws.account import Account, an_account

TOLD_HERE = {
    "test_a_quota_refuses_without_a_call_and_names_itself",
    "test_a_quota_counts_over_offers_until_an_end_is_confirmed",
}
for _name in dir(suite):
    if _name.startswith("test_") and _name not in TOLD_HERE:
        globals()[_name] = getattr(suite, _name)

ZONE_NAMES = {"use1-az1": "us-east-1b", "use1-az2": "us-east-1c", "use1-az3": "us-east-1e"}
A, B = an_offer(zone="use1-az1"), an_offer(zone="use1-az2")


@dataclass
class AwsHarness:
    account: Account
    market: ScriptedMarket = field(default_factory=ScriptedMarket)
    lives_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.account.layer.on_launch = self._launched
        self.account.faults.stocked_out = self._stocked_out

    @property
    def provider(self) -> AwsProvider:
        return self.account.provider

    def advance_s(self, seconds: float) -> None:
        self.account.advance_s(seconds)
        offers = {offer.offer_id: offer for offer in self.account.offers}
        self.account.layer.spot_history = [
            SpotPoint(
                zone_name=ZONE_NAMES[offers[offer_id].zone],
                instance_type=offers[offer_id].instance_type,
                at_s=at_s,
                usd_per_hour=price,
            )
            for offer_id, changes in self.market.prices.items()
            for at_s, price in changes
        ]

    def next_launch_lives_s(self, offer: Offer, seconds: float) -> None:
        if offer.capacity_type is CapacityType.SPOT:
            self.lives_s[offer.instance_type] = seconds

    def close_zone(self, offer: Offer) -> None:
        self.market.closed.add(offer.offer_id)

    def lose_next_answer(self) -> None:
        self.account.faults.unanswered["RunInstances"] = 1

    def throttle_next_launch(self) -> None:
        self.account.faults.fail_next("RunInstances", ("RequestLimitExceeded", 503))

    def fail_next_terminate(self) -> None:
        self.account.faults.fail_next("TerminateInstances", ("InternalError", 500))

    def create_calls(self) -> int:
        return self.account.layer.calls["RunInstances"]

    def _launched(self, instance_id: str, region: str, user_data: str) -> None:
        for life_s in self.lives_s.values():
            self.account.layer.interrupt(instance_id, after_s=life_s)

    def _stocked_out(self, zone_name: str, instance_type: str, is_spot: bool) -> bool:
        closed = {offer.zone for offer in self.account.offers} & {
            offer_id.split("/")[1] for offer_id in self.market.closed
        }
        return zone_name in {ZONE_NAMES[zone] for zone in closed}


@pytest.fixture
def make_cloud() -> Iterator[Callable[..., AwsHarness]]:
    import contextlib

    with contextlib.ExitStack() as stack:

        def make(*offers: Offer, habits: CloudHabits | None = None, limits=()) -> AwsHarness:
            mine = Habits(pending_s=60.0, ended_listed_s=1e9)
            if habits is not None:
                mine.list_lag_s = habits.list_lag_s
                mine.shutting_down_s = habits.terminate_confirm_s
            account = stack.enter_context(an_account(*offers, habits=mine, limits=limits))
            account.clock._now_s = START_AT_S
            harness = AwsHarness(account)
            harness.advance_s(0.0)
            return harness

        yield make


def spot_v100_limit(vcpus: float) -> VcpuLimit:
    return VcpuLimit(
        region="us-east-1",
        capacity_type=CapacityType.SPOT,
        families=("p4", "p3", "p2"),
        vcpus=vcpus,
        title="All P4, P3 and P2 Spot Instance Requests",
        code="L-7212CCBC",
    )


def test_a_zero_quota_refuses_without_a_call_and_names_itself(make_cloud):
    cloud = make_cloud(A, limits=[spot_v100_limit(0.0)])
    with pytest.raises(LaunchFailed) as caught:
        cloud.provider.launch(a_request(A))
    assert caught.value.kind is FailureKind.QUOTA
    assert "All P4, P3 and P2 Spot Instance Requests" in caught.value.message
    assert cloud.create_calls() == 0


def test_a_quota_counts_over_zones_until_an_end_begins(make_cloud):
    cloud = make_cloud(A, B, limits=[spot_v100_limit(16.0)])
    (quota,) = cloud.provider.quotas()
    assert quota.limit == 16.0
    assert quota.units_per_instance == {A.offer_id: 8.0, B.offer_id: 8.0}
    first = cloud.provider.launch(a_request(A, token="1"))
    cloud.provider.launch(a_request(B, token="2"))
    with pytest.raises(LaunchFailed) as caught:
        cloud.provider.launch(a_request(A, token="3"))
    assert caught.value.kind is FailureKind.QUOTA
    cloud.provider.terminate(first.instance_id)
    cloud.advance_s(30.0)
    assert cloud.provider.launch(a_request(A, token="3")).state is MachineState.PENDING
