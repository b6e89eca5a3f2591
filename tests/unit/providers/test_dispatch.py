"""Several clouds behind one provider: routing, and one that is silent beside one that is not."""

from dataclasses import replace

import pytest

from cloudgavel.pricing.market import ExpectedMarket
from cloudgavel.providers.base import LaunchRequest, MachineState, Provider, Quota
from cloudgavel.providers.dispatch import DispatchingProvider
from cloudgavel.providers.failures import CallFailed, FailureKind, LaunchFailed
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from tests.unit.runtime.scripted import START_S, an_offer

A_OFFER = replace(an_offer("z1", price=1.0), provider="a")
B_OFFER = replace(an_offer("z2", price=2.0), provider="b")
RUN = "run-1"


class Cloud(SimulatedCloud):
    """A simulated cloud that can fall silent."""

    def __init__(self, name, offer, run_prefix):
        quota = Quota(name=f"{name} gpus", limit=4.0, units_per_instance={offer.offer_id: 1.0})
        super().__init__(
            offers=[offer], market=ExpectedMarket(), now_s=START_S, name=name, quotas=[quota]
        )
        self.silent = False
        self.prefix = run_prefix
        self.ended = []

    def _answer(self):
        if self.silent:
            raise CallFailed(FailureKind.UNREACHABLE, f"{self.name} gave no answer")

    def offers(self):
        self._answer()
        return super().offers()

    def quotas(self):
        self._answer()
        return super().quotas()

    def launch(self, request):
        self._answer()
        listed = super().launch(request)
        return replace(listed, instance_id=self.prefix + listed.instance_id)

    def list_instances(self, run_id):
        self._answer()
        return [
            replace(each, instance_id=self.prefix + each.instance_id)
            for each in super().list_instances(run_id)
        ]

    def price_changes(self, instance_id, since_s):
        return [(since_s + 1.0, float(len(self.prefix)))]

    def terminate(self, instance_id):
        self._answer()
        self.ended.append(instance_id)
        super().terminate(instance_id.removeprefix(self.prefix))


@pytest.fixture
def clouds():
    return {"a": Cloud("a", A_OFFER, "a-"), "b": Cloud("b", B_OFFER, "bb-")}


@pytest.fixture
def provider(clouds):
    return DispatchingProvider(clouds)


def launch(provider, offer, token="t"):
    return provider.launch(LaunchRequest(token=token, run_id=RUN, offer=offer)).instance_id


def listed(provider):
    return {each.instance_id: each.state for each in provider.list_instances(RUN)}


def test_it_is_a_provider_with_the_offers_and_limits_of_all(provider):
    assert isinstance(provider, Provider)
    assert {offer.offer_id for offer in provider.offers()} == {A_OFFER.offer_id, B_OFFER.offer_id}
    assert [quota.name for quota in provider.quotas()] == ["a gpus", "b gpus"]
    assert provider.boot_s(A_OFFER) == ExpectedMarket().boot_s(A_OFFER, 0)


def test_each_machine_is_rented_priced_and_ended_where_its_offer_is_from(provider, clouds):
    one, two = launch(provider, A_OFFER, "1"), launch(provider, B_OFFER, "2")
    assert set(listed(provider)) == {one, two}
    assert [price for _, price in provider.price_changes(two, START_S)] == [3.0]
    provider.terminate(two)
    assert (clouds["a"].ended, clouds["b"].ended) == ([], [two])


def test_an_offer_of_no_cloud_here_is_invalid(provider):
    with pytest.raises(LaunchFailed) as caught:
        launch(provider, replace(A_OFFER, provider="c"))
    assert caught.value.kind is FailureKind.INVALID


def test_a_silent_cloud_is_as_it_was_with_what_was_launched_since(provider, clouds):
    one = launch(provider, A_OFFER, "1")
    first = launch(provider, B_OFFER, "2")
    listed(provider)
    second = launch(provider, B_OFFER, "3")
    offers = provider.offers()
    clouds["b"].silent = True
    clouds["a"].terminate(one)
    seen = listed(provider)
    assert set(seen) == {one, first, second}
    assert seen[one] is not MachineState.RUNNING
    assert list(provider.offers()) == list(offers)
    clouds["b"].silent = False
    assert set(listed(provider)) == {one, first, second}


def test_machines_of_a_cloud_that_never_answered_are_not_taken_for_lost(provider, clouds):
    launch(provider, B_OFFER)
    clouds["b"].silent = True
    after_a_crash = DispatchingProvider(clouds)
    launch(after_a_crash, A_OFFER, "1")
    with pytest.raises(CallFailed, match="b gave no answer"):
        after_a_crash.list_instances(RUN)
    assert [offer.provider for offer in after_a_crash.offers()] == ["a"]


def test_silence_everywhere_is_a_failure(provider, clouds):
    listed(provider)
    for cloud in clouds.values():
        cloud.silent = True
    with pytest.raises(CallFailed):
        provider.list_instances(RUN)
    with pytest.raises(CallFailed):
        provider.offers()


def test_the_end_of_a_machine_that_was_never_seen_is_asked_of_every_cloud(provider, clouds):
    provider.terminate("bb-unknown")
    assert clouds["a"].ended == clouds["b"].ended == ["bb-unknown"]
    assert provider.price_changes("bb-unknown", START_S) == ()
    clouds["a"].silent = True
    with pytest.raises(CallFailed):
        provider.terminate("other")
    assert clouds["b"].ended[-1] == "other"
