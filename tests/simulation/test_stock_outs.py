"""When a cloud has nothing to give: other offers, on-demand where a deadline needs it, patience."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.policies.registry import policy_named
from cloudgavel.pricing.market import ExpectedMarket
from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.base import LaunchRequest, ListedInstance, Provider, Quota
from cloudgavel.providers.failures import FailureKind, LaunchFailed
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.runtime.account import run_document
from cloudgavel.runtime.assemble import bind_policy
from cloudgavel.simulator.virtual_run import VirtualRun, virtual_run
from cloudgavel.store import events as ev
from cloudgavel.store.ledger import imbalance_micro_usd
from tests.unit.runtime.scripted import START_S, a_job, a_run, an_offer

SPOT = [an_offer(zone, spot=True, price=0.9, rate_per_hour=0.1) for zone in ("z1", "z2", "z3")]
ON_DEMAND = an_offer("z1", price=3.06)
HOUR_S = 3600.0


class Refusing:
    """A cloud that refuses some launches; everything else is as it is."""

    def __init__(
        self,
        cloud: SimulatedCloud,
        refuses: Callable[[Offer, float], bool],
        kind: FailureKind,
    ) -> None:
        self.name = cloud.name
        self._cloud, self._refuses, self._kind = cloud, refuses, kind
        for verb in ("offers", "boot_s", "quotas", "list_instances", "price_changes", "terminate"):
            setattr(self, verb, getattr(cloud, verb))

    def launch(self, request: LaunchRequest) -> ListedInstance:
        offer = request.offer
        if self._refuses(offer, self._cloud.now_s() - START_S):
            raise LaunchFailed(self._kind, f"{offer.offer_id}: none", offer_id=offer.offer_id)
        return self._cloud.launch(request)


def ran(
    refuses: Callable[[Offer, float], bool],
    *,
    deadline_s: float | None,
    offers: Sequence[Offer] = (*SPOT, ON_DEMAND),
    kind: FailureKind = FailureKind.CAPACITY,
    quotas: Sequence[Quota] = (),
    max_spot_wait_s: float = HOUR_S,
) -> VirtualRun:
    def provider_of(cloud: SimulatedCloud) -> Provider:
        return Refusing(cloud, refuses, kind)

    done = virtual_run(
        a_run(a_job("a", steps=3600, deadline_s=deadline_s), max_spot_wait_s=max_spot_wait_s),
        offers=offers,
        market=ExpectedMarket(),
        decide=bind_policy(policy_named("min_cost")),
        now_s=START_S,
        budget_usd=100.0,
        best_effort=True,
        quotas=quotas,
        provider_of=provider_of,
    )
    assert imbalance_micro_usd(done.state) == 0
    return done


def launched(done: VirtualRun) -> list[Offer]:
    return [event.offer for event in done.events if isinstance(event, ev.LaunchSucceeded)]


def refused(done: VirtualRun) -> list[ev.LaunchFailed]:
    return [event for event in done.events if isinstance(event, ev.LaunchFailed)]


def is_spot(offer: Offer) -> bool:
    return offer.capacity_type is CapacityType.SPOT


def test_one_zone_without_stock_means_the_next_zone_at_once():
    done = ran(lambda offer, at_s: offer.zone == "z1" and is_spot(offer), deadline_s=8 * HOUR_S)
    assert [offer.zone for offer in launched(done)] in (["z2"], ["z3"])
    assert launched(done)[0].capacity_type is CapacityType.SPOT
    # In the order of the catalogue z1 comes first: it was asked once, and then left alone.
    assert [event.offer_id for event in refused(done)] == [SPOT[0].offer_id]


def test_spot_out_everywhere_goes_on_demand_in_time_for_the_deadline():
    done = ran(lambda offer, at_s: is_spot(offer), deadline_s=2 * HOUR_S)
    assert [offer.offer_id for offer in launched(done)] == [ON_DEMAND.offer_id]
    (job,) = run_document(done.state).jobs
    assert job.deadline_met
    assert {event.offer_id for event in refused(done)} <= {offer.offer_id for offer in SPOT}


def test_without_a_deadline_it_is_patient_and_asks_less_and_less_often():
    done = ran(
        lambda offer, at_s: is_spot(offer) and at_s < 2 * HOUR_S, deadline_s=None, offers=SPOT
    )
    assert done.complete
    asked = [event.at_s - START_S for event in refused(done) if event.offer_id == SPOT[0].offer_id]
    pauses = [after - before for before, after in pairwise(asked)]
    assert pauses == sorted(pauses)
    assert len(asked) <= 12


@pytest.mark.parametrize("wait_s", [0.0, 0.5 * HOUR_S, 2 * HOUR_S])
def test_without_a_deadline_it_waits_for_spot_as_long_as_it_was_told(wait_s):
    done = ran(lambda offer, at_s: is_spot(offer), deadline_s=None, max_spot_wait_s=wait_s)
    assert launched(done) == [ON_DEMAND]
    (machine,) = done.state.instances.values()
    # A decision comes at least once a round.
    assert wait_s <= machine.launched_at_s - START_S <= wait_s + done.state.spec.round_s


def test_on_demand_out_too_is_told_and_the_job_runs_when_there_is_stock_again():
    done = ran(lambda offer, at_s: at_s < HOUR_S, deadline_s=1.5 * HOUR_S)
    assert done.complete
    document = run_document(done.state)
    (job,) = document.jobs
    assert not job.deadline_met
    assert [each.job for each in document.relaxed] == ["a"], "the promise is named"
    failed = refused(done)
    assert {event.offer_id for event in failed} == {offer.offer_id for offer in (*SPOT, ON_DEMAND)}
    assert all(event.failure == "capacity" for event in failed)
    assert done.state.spent_usd > 0
    # Nothing was paid for while there was nothing to have.
    assert min(instance.launched_at_s for instance in done.state.instances.values()) >= (
        START_S + HOUR_S
    )


def test_stock_that_never_comes_ends_with_the_reason_and_costs_nothing():
    done = ran(lambda offer, at_s: True, deadline_s=None)
    assert done.state.spent_usd == 0
    assert done.state.jobs["a"].phase is JobPhase.WAITING
    assert refused(done)


@pytest.mark.parametrize("kind", [FailureKind.QUOTA, FailureKind.CREDENTIALS, FailureKind.INVALID])
def test_other_refusals_of_spot_go_on_demand_too_and_keep_their_name(kind):
    done = ran(lambda offer, at_s: is_spot(offer), deadline_s=2 * HOUR_S, kind=kind)
    assert launched(done) == [ON_DEMAND]
    assert {event.failure for event in refused(done)} == {kind.value}


def test_a_quota_that_another_run_uses_up_leaves_the_other_offers():
    """The account's limit is the same for all runs: what is left of it is learnt by the refusal."""
    taken_by_others = ran(
        lambda offer, at_s: is_spot(offer) and at_s < HOUR_S / 2,
        deadline_s=6 * HOUR_S,
        kind=FailureKind.QUOTA,
    )
    assert taken_by_others.complete
    (job,) = run_document(taken_by_others.state).jobs
    assert job.deadline_met
    # A quota is asked about again after an hour, not every round.
    assert len(refused(taken_by_others)) <= 2 * len(SPOT)
