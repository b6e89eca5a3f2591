"""What was seen of spot offers follows from the log alone."""

from dataclasses import replace

import pytest

from cloudgavel.mechanism.fleet import InstanceState
from cloudgavel.pricing.sightings import Sighting
from cloudgavel.runtime.cluster_state import spot_seen
from cloudgavel.store import events as ev
from cloudgavel.store.fold import apply, fold
from tests.unit.runtime.scripted import START_S, a_run, an_offer

SPOT = an_offer(spot=True, rate_per_hour=0.1)
FIXED = an_offer("z2")


def begun(offer=SPOT) -> list[ev.Event]:
    """A machine of ``offer``, rented at ``START_S``."""
    return [
        ev.RunCreated(at_s=START_S, run_id="r", spec=a_run(), budget_usd=None),
        ev.LaunchIntended(
            at_s=START_S, token="t", offers=(offer,), for_jobs=(), reason="", round_number=1
        ),
        ev.LaunchSucceeded(
            at_s=START_S, token="t", instance_id="i", offer=offer, launched_at_s=START_S,
            price_usd_per_hour=1.0,
        ),
    ]  # fmt: skip


def ended(reason: str) -> ev.Event:
    return ev.InstanceEnded(
        at_s=START_S + 7300, instance_id="i", ended_at_s=START_S + 7200, reason=reason
    )


@pytest.mark.parametrize(("reason", "taken"), [("interrupted", 1), ("vanished", 1), ("expired", 0)])
def test_the_end_of_a_spot_machine_is_seen_once(reason: str, taken: int) -> None:
    state = fold([*begun(), ended(reason)])
    known = spot_seen(state, START_S + 9000)[SPOT.offer_id]
    assert (known.taken, known.lived_h) == (taken, 2.0)
    assert apply(state, ended(reason)).spot_seen == state.spot_seen


def test_a_refusal_for_capacity_is_seen_and_no_other() -> None:
    for failure, seen in (("capacity", 1), ("quota", 0), ("cancelled", 0)):
        event = ev.LaunchFailed(
            at_s=START_S + 5, token="t", offer_id=SPOT.offer_id, failure=failure, message="",
            closes_intent=True,
        )  # fmt: skip
        state = fold([*begun()[:2], event])
        found = state.spot_seen.get(SPOT.offer_id)
        assert (0 if found is None else len(found.seen)) == seen


def test_on_demand_is_not_watched() -> None:
    assert not fold([*begun(FIXED), ended("vanished")]).spot_seen


def test_what_lives_now_is_there_now_unless_it_has_notice() -> None:
    state = fold(begun())
    known = spot_seen(state, START_S + 1800)[SPOT.offer_id]
    assert known.seen == (Sighting(at_s=START_S, available=True, until_s=START_S + 1800),)
    assert (known.taken, known.lived_h) == (0, 0.5)
    noticed = ev.InterruptionNoticed(at_s=START_S + 1800, instance_id="i", ends_at_s=None)
    known = spot_seen(apply(state, noticed), START_S + 1800)[SPOT.offer_id]
    assert (known.taken, known.seen[-1].available) == (1, False)


def test_a_machine_told_to_end_that_is_taken_before_it_has_still_ended_once() -> None:
    asked = ev.TerminateAsked(at_s=START_S + 60, instance_id="i", reason="r")
    state = fold([*begun(), asked])
    assert state.instances["i"].state is InstanceState.TERMINATING
    assert apply(state, ended("requested")).spot_seen[SPOT.offer_id].taken == 0
    assert replace(state, at_s=0.0).spot_seen == {}
