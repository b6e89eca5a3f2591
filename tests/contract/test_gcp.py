"""The contract suite on Google Cloud over the fake one: machines, and slices of TPUs.

What Google does otherwise is told in its own terms below: limits have names of their own, lists are
made good by look-ups, notices come thirty seconds before, and only of machines.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import pytest

from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.base import MachineState
from cloudgavel.providers.failures import FailureKind, LaunchFailed
from cloudgavel.providers.gcp.mocked.cloud import Habits, QuotaLimit
from cloudgavel.providers.gcp.prices import COMPUTE_SERVICE
from cloudgavel.providers.gcp.provider import GcpProvider
from cloudgavel.providers.simulated.habits import CloudHabits
from tests.contract import test_providers as suite
from tests.contract.harness import RUN_ID, START_AT_S, ScriptedMarket, a_request, by_id
from tests.unit.gcp.project import Project, a_project, a_sku, a_slice, an_offer, settings

TOLD_HERE = {
    "test_a_quota_refuses_without_a_call_and_names_itself",
    "test_a_quota_counts_over_offers_until_an_end_is_confirmed",
    "test_lists_may_lag_but_catch_up",
    "test_a_notice_comes_before_the_interruption",
}
for _name in dir(suite):
    if _name.startswith("test_") and _name not in TOLD_HERE:
        globals()[_name] = getattr(suite, _name)

ZONES = ("us-central1-a", "us-central1-b", "us-central1-c")


def gpu_offer(zone: str = ZONES[0], price: float = 1.0, **changes) -> Offer:
    return an_offer(zone=zone, price_usd_per_hour=price, **changes)


def tpu_offer(zone: str = ZONES[0], price: float = 1.0, **changes) -> Offer:
    return a_slice(zone=zone, price_usd_per_hour=price, **changes)


KINDS = {
    "machines": (gpu_offer, {}),
    "slices": (tpu_offer, {}),
    "queued slices": (tpu_offer, {"tpu_queue_wait_s": 30.0}),
}


@dataclass
class GcpHarness:
    project: Project
    is_tpu: bool
    market: ScriptedMarket = field(default_factory=ScriptedMarket)
    lives_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.project.cloud.on_start = self._started
        self.project.faults.stocked_out = self._stocked_out

    @property
    def provider(self) -> GcpProvider:
        return self.project.provider

    @property
    def _creations(self) -> tuple[str, ...]:
        if not self.is_tpu:
            return ("instances.insert",)
        return ("nodes.create", "queuedResources.create")

    def advance_s(self, seconds: float) -> None:
        self.project.advance_s(seconds)
        self._price_skus()

    def next_launch_lives_s(self, offer: Offer, seconds: float) -> None:
        self.lives_s[offer.zone] = seconds

    def close_zone(self, offer: Offer) -> None:
        self.market.closed.add(offer.offer_id)

    def lose_next_answer(self) -> None:
        self.project.faults.unanswered.update(dict.fromkeys(self._creations, 1))

    def throttle_next_launch(self) -> None:
        for operation in self._creations:
            self.project.faults.refuse_next(operation, 403, "rateLimitExceeded")

    def fail_next_terminate(self) -> None:
        operation = "queuedResources.delete" if self.is_tpu else "instances.delete"
        self.project.faults.refuse_next(operation, 503, "backendError")

    def create_calls(self) -> int:
        return sum(self.project.cloud.calls[operation] for operation in self._creations)

    def _started(self, started) -> None:
        if started.zone in self.lives_s:
            at_s = self.project.clock.now_s() + self.lives_s[started.zone]
            self.project.cloud.interrupt(started.name, at_s=at_s)

    def _stocked_out(self, zone: str, machine_type: str, is_spot: bool) -> bool:
        return zone in {offer_id.split("/")[1] for offer_id in self.market.closed}

    def _price_skus(self) -> None:
        """The market's price of now, as the parts that Google prices."""
        now_s = self.project.clock.now_s()
        offer = self.project.offers[0]
        changes = [each for each in self.market.prices.get(offer.offer_id, []) if each[0] <= now_s]
        if not changes:
            return
        since_s, price = changes[-1]
        from datetime import UTC, datetime

        since = datetime.fromtimestamp(since_s, tz=UTC).isoformat()
        sku = partial(a_sku, since=since, usage_type="Preemptible")
        self.project.cloud.skus[COMPUTE_SERVICE] = (
            [sku("TpuV5e attached to Spot Preemptible VMs running in Iowa", price / 8)]
            if self.is_tpu
            else [
                sku("Spot Preemptible N1 Predefined Instance Core running in Iowa", 0.01),
                sku("Spot Preemptible N1 Predefined Instance Ram running in Iowa", 0.001),
                sku(
                    "Nvidia Tesla V100 GPU attached to Spot Preemptible VMs running in Iowa",
                    price - 0.08 - 0.03,
                ),
            ]
        )


@pytest.fixture(params=sorted(KINDS))
def kind(request, monkeypatch) -> str:
    """Let the suite speak of offers of this kind."""
    make, _ = KINDS[request.param]
    for name, zone in zip("ABC", ZONES, strict=True):
        monkeypatch.setattr(suite, name, make(zone))
    monkeypatch.setattr(suite, "an_offer", make)
    return request.param


@pytest.fixture
def make_cloud(kind) -> Iterator[Callable[..., GcpHarness]]:
    with ExitStack() as stack:

        def make(*offers: Offer, habits: CloudHabits | None = None, limits=()) -> GcpHarness:
            mine = Habits(pending_s=60.0)
            if habits is not None:
                mine.list_lag_s = habits.list_lag_s
                mine.stopping_s = habits.terminate_confirm_s
            project = stack.enter_context(
                a_project(
                    *offers,
                    habits=mine,
                    limits=limits,
                    given=settings(prices_age_s=60.0, **KINDS[kind][1]),
                    read_prices=True,
                    start_at_s=START_AT_S,
                )
            )
            return GcpHarness(project, is_tpu=kind != "machines")

        yield make


@pytest.mark.parametrize("kind", ["machines"], indirect=True)
@pytest.mark.parametrize("region", ["us-central1", ""], ids=["a region's", "the project's"])
def test_a_zero_quota_refuses_without_a_call_and_names_itself(make_cloud, region):
    metric = "NVIDIA_V100_GPUS" if region else "GPUS_ALL_REGIONS"
    cloud = make_cloud(suite.A, limits=[QuotaLimit(region=region, metric=metric, most=0.0)])
    with pytest.raises(LaunchFailed) as caught:
        cloud.provider.launch(a_request(suite.A))
    assert caught.value.kind is FailureKind.QUOTA
    assert metric in caught.value.message
    assert cloud.create_calls() == 0


@pytest.mark.parametrize("kind", ["machines"], indirect=True)
def test_a_quota_counts_over_zones_until_an_end_is_confirmed(make_cloud):
    a, b = suite.A, suite.B
    limit = QuotaLimit(region="us-central1", metric="PREEMPTIBLE_NVIDIA_V100_GPUS", most=2.0)
    cloud = make_cloud(a, b, limits=[limit], habits=CloudHabits(terminate_confirm_s=20.0))
    (quota,) = cloud.provider.quotas()
    assert quota.limit == 2.0
    assert quota.units_per_instance == {a.offer_id: 1.0, b.offer_id: 1.0}
    first = cloud.provider.launch(a_request(a, token="1"))
    cloud.provider.launch(a_request(b, token="2"))
    cloud.provider.terminate(first.instance_id)
    with pytest.raises(LaunchFailed) as caught:
        cloud.provider.launch(a_request(a, token="3"))
    assert caught.value.kind is FailureKind.QUOTA
    cloud.advance_s(30.0)
    assert cloud.provider.launch(a_request(a, token="3")).state is MachineState.PENDING


def test_a_list_that_lags_is_made_good_by_look_ups_and_catches_up(make_cloud):
    cloud = make_cloud(suite.A, habits=CloudHabits(list_lag_s=30.0))
    launched = cloud.provider.launch(a_request(suite.A))
    assert launched.instance_id in by_id(cloud.provider.list_instances(RUN_ID))
    if cloud.project.settings.tpu_queue_wait_s is None:
        assert not cloud.project.another_process().list_instances(RUN_ID)
    cloud.advance_s(31.0)
    assert launched.instance_id in by_id(cloud.project.another_process().list_instances(RUN_ID))


@pytest.mark.parametrize("kind", ["machines"], indirect=True)
def test_a_notice_comes_thirty_seconds_before_the_interruption(make_cloud):
    cloud = make_cloud(suite.A)
    cloud.next_launch_lives_s(suite.A, 500.0)
    launched = cloud.provider.launch(a_request(suite.A))
    cloud.advance_s(460.0)
    assert cloud.provider.list_instances(RUN_ID)[0].notice_ends_at_s is None
    cloud.advance_s(15.0)
    listed = by_id(cloud.provider.list_instances(RUN_ID))[launched.instance_id]
    assert listed.state is MachineState.RUNNING
    assert listed.notice_ends_at_s == pytest.approx(START_AT_S + 500.0, abs=1.0)
    assert listed.offer_id.endswith(CapacityType.SPOT)
