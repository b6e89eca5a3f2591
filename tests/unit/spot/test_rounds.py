"""Decisions of a round: offers by name, histories, shared slots."""

import pytest

from cloudgavel.policies.spot.regimes import RegimeFamily
from cloudgavel.policies.spot.rounds import (
    OnDemandOffer,
    RoundJob,
    Sighting,
    SpotOffer,
    SpotVerdict,
    decide_round,
)
from cloudgavel.policies.spot.tables import TableShelf

FAMILY = RegimeFamily(
    stay_scales_s=(600.0, 6000.0), away_scales_s=(600.0, 6000.0), age_edges_s=(3000.0,)
)
SHELF = TableShelf()
SPOT = SpotOffer(offer_id="a/spot", usd_per_hour=0.9, available=True)
FALL = OnDemandOffer(offer_id="a/od", usd_per_hour=3.0)


def job(name: str = "j", **changes: object) -> RoundJob:
    values: dict[str, object] = {
        "name": name,
        "steps_left": 36_000.0,
        "steps_total": 36_000.0,
        "steps_per_s": {"a/spot": 1.0, "b/spot": 1.0, "a/od": 1.0, "b/od": 2.0},
        "deadline_left_s": 60_000.0,
        "changeover_s": 300.0,
    }
    return RoundJob(**(values | changes))  # type: ignore[arg-type]


def decide(
    jobs: list[RoundJob], spot: list[SpotOffer], **changes: object
) -> dict[str, SpotVerdict]:
    values: dict[str, object] = {
        "on_demand_offers": [FALL],
        "now_s": 100_000.0,
        "round_s": 600.0,
        "shelf": SHELF,
        "family": FAMILY,
    }
    return decide_round(jobs, spot, **(values | changes))  # type: ignore[arg-type]


def test_available_spot_is_taken_and_explained() -> None:
    verdict = decide([job()], [SPOT])["j"]
    assert (verdict.hold, verdict.offer_id) == ("spot", "a/spot")
    assert verdict.spot_usd["a/spot"] < verdict.on_demand_usd
    assert verdict.wait_usd is not None
    assert 0 < verdict.loss_chance["a/spot"] < 1
    assert verdict.forced_by is None
    # 60,000 s less 36,000 s of work, one change-over (at most a quarter above 300 s).
    assert 60_000 - 36_000 - 375 <= verdict.latest_on_demand_start_s <= 60_000 - 36_000 - 300


def test_the_net_forces_on_demand() -> None:
    verdict = decide([job(deadline_left_s=36_800.0)], [SPOT])["j"]
    assert (verdict.hold, verdict.forced_by) == ("on_demand", "own deadline")
    assert verdict.wait_usd is None


def test_history_of_losses_raises_the_loss_chance_and_the_steadier_zone_wins() -> None:
    flapping = tuple(Sighting(at_s=k * 1200.0, available=k % 2 == 0) for k in range(83))
    steady = (Sighting(at_s=0.0, available=True, until_s=100_000.0),)
    offers = [
        SpotOffer(offer_id="a/spot", usd_per_hour=0.9, available=True, sightings=flapping),
        SpotOffer(offer_id="b/spot", usd_per_hour=0.9, available=True, sightings=steady),
    ]
    verdict = decide([job()], offers)["j"]
    assert verdict.loss_chance["a/spot"] > 2 * verdict.loss_chance["b/spot"]
    assert verdict.offer_id == "b/spot"


def test_no_spot_offer_at_all_means_on_demand_or_waiting() -> None:
    verdict = decide([job(steps_per_s={"a/od": 1.0})], [SPOT])["j"]
    assert verdict.hold in ("on_demand", "wait")
    assert verdict.spot_usd == {}


def test_the_fall_back_is_the_cheapest_that_is_in_time() -> None:
    fast = OnDemandOffer(offer_id="b/od", usd_per_hour=7.0)
    loose = decide([job()], [SPOT], on_demand_offers=[FALL, fast])["j"]
    tight = decide([job(deadline_left_s=30_000.0)], [SPOT], on_demand_offers=[FALL, fast])["j"]
    assert loose.on_demand_offer_id == "a/od"
    assert tight.on_demand_offer_id == "b/od"


def test_a_job_without_any_on_demand_offer_is_refused() -> None:
    with pytest.raises(ValueError, match="no on-demand offer"):
        decide([job(steps_per_s={"a/spot": 1.0})], [SPOT])


def test_shared_slots_go_to_those_who_must() -> None:
    gone = [SpotOffer(offer_id="a/spot", usd_per_hour=0.9, available=False)]
    jobs = [
        job("early", deadline_left_s=37_500.0),
        job("late", deadline_left_s=75_500.0),
    ]
    alone = decide(jobs, gone, on_demand_slots=2)
    shared = decide(jobs, gone, on_demand_slots=1)
    assert alone["early"].hold == "on_demand" or alone["early"].forced_by is None
    assert shared["early"].hold == "on_demand"
    assert shared["early"].forced_by in ("shared on-demand slots", "own deadline", None)
    assert sum(verdict.hold == "on_demand" for verdict in shared.values()) <= 1


def test_the_order_of_jobs_changes_nothing() -> None:
    jobs = [job(f"j{i}", steps_left=36_000.0 - 3000 * i) for i in range(5)]
    assert decide(jobs, [SPOT]) == decide(jobs[::-1], [SPOT])


@pytest.mark.parametrize("deadline_left_s", [-500.0, 0.0, 100.0, 4e7])
def test_a_deadline_that_is_past_or_far_away_still_gets_an_answer(deadline_left_s: float) -> None:
    verdict = decide([job(deadline_left_s=deadline_left_s)], [SPOT])["j"]
    assert verdict.hold == ("spot" if deadline_left_s > 1e6 else "on_demand")


def test_a_job_that_is_done_holds_nothing() -> None:
    assert decide([job(steps_left=0.0)], [SPOT])["j"].hold == "wait"
