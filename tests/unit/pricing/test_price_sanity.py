"""Every rule on the anomaly that made it."""

import math

import pytest

from cloudgavel.pricing.findings import Finding, Rule, Severity
from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.pricing.sanity import check_offers, comparable_units, is_local_zone
from tests.unit.pricing.pricing_builders import a_slice, a_spot_offer, an_offer


def rules(findings: tuple[Finding, ...]) -> list[tuple[str, Rule, Severity]]:
    return [(f.offer_id, f.rule, f.severity) for f in findings]


def a_fleet(price: float = 3.06, **changes: object) -> list[Offer]:
    """Five zones of one machine at one price: a median to compare with."""
    return [
        an_offer(zone=f"usw2-az{i}", region="us-west-2", price_usd_per_hour=price, **changes)
        for i in range(1, 6)
    ]


def test_honest_offers_are_accepted_in_their_order_without_findings() -> None:
    offers = (an_offer(), a_spot_offer(), an_offer(zone="use1-az2"))
    assert check_offers(offers) == (offers, ())


def test_on_demand_a100_80gb_below_its_spot_refuses_both() -> None:
    machine = {"accelerator": "A100-80GB", "instance_type": "a2-ultragpu-1g"}
    on_demand = an_offer(price_usd_per_hour=1.85, **machine)
    spot = a_spot_offer(price_usd_per_hour=1.96, **machine)
    accepted, findings = check_offers([on_demand, spot])
    assert accepted == ()
    assert rules(findings) == [
        (on_demand.offer_id, Rule.ON_DEMAND_BELOW_SPOT, Severity.REFUSED),
        (spot.offer_id, Rule.ON_DEMAND_BELOW_SPOT, Severity.REFUSED),
    ]
    assert "$1.85/h is below spot $1.96/h" in findings[0].reason


def test_a_trusted_on_demand_price_survives_a_dearer_spot() -> None:
    on_demand, spot = an_offer(price_usd_per_hour=1.85), a_spot_offer(price_usd_per_hour=1.96)
    accepted, findings = check_offers([on_demand, spot], trusted=lambda o: o is on_demand)
    assert accepted == (on_demand,)
    assert [f.offer_id for f in findings] == [spot.offer_id]


def test_spot_in_a_zone_without_on_demand_is_held_against_the_reference() -> None:
    spot = a_spot_offer(price_usd_per_hour=4.0)
    accepted, findings = check_offers([spot], reference=[an_offer(), a_spot_offer()])
    assert accepted == ()
    assert rules(findings) == [(spot.offer_id, Rule.ON_DEMAND_BELOW_SPOT, Severity.REFUSED)]


@pytest.mark.parametrize("slice_name", ["tpu-v6e-1", "tpu-v6e-8", "tpu-v6e-256"])
def test_700_dollars_for_a_tpu_v6e_is_a_placeholder(slice_name: str) -> None:
    honest = [a_slice("tpu-v6e-1", price_usd_per_hour=2.7, zone=f"us-central1-{z}") for z in "abc"]
    placeholder = a_slice(slice_name, zone="us-south1-a", price_usd_per_hour=700.0)
    accepted, findings = check_offers([*honest, placeholder])
    assert list(accepted) == honest
    assert rules(findings) == [(placeholder.offer_id, Rule.PLACEHOLDER, Severity.REFUSED)]


def test_one_hundred_times_the_median_is_a_placeholder_whoever_vouches() -> None:
    placeholder = an_offer(price_usd_per_hour=306.0)
    accepted, findings = check_offers([*a_fleet(3.06), placeholder], trusted=lambda _: True)
    assert placeholder not in accepted
    assert findings[0].rule is Rule.PLACEHOLDER


def test_of_two_prices_the_lower_is_the_yardstick() -> None:
    honest, placeholder = an_offer(), an_offer(zone="use1-az2", price_usd_per_hour=700.0)
    accepted, _ = check_offers([placeholder, honest])
    assert accepted == (honest,)


def test_a_large_slice_is_not_a_placeholder() -> None:
    small = a_slice("tpu-v6e-1", price_usd_per_hour=2.7)
    large = a_slice("tpu-v6e-256", price_usd_per_hour=691.2)
    assert check_offers([small, large]) == ((small, large), ())


def test_spot_equal_to_on_demand_is_refused_and_on_demand_kept() -> None:
    on_demand = an_offer(instance_type="p5.48xlarge", price_usd_per_hour=55.04)
    spot = a_spot_offer(instance_type="p5.48xlarge", price_usd_per_hour=55.04)
    accepted, findings = check_offers([on_demand, spot])
    assert accepted == (on_demand,)
    assert rules(findings) == [(spot.offer_id, Rule.SPOT_EQUALS_ON_DEMAND, Severity.REFUSED)]
    assert "no reason to take the risk" in findings[0].reason


def test_spot_near_on_demand_is_kept_and_flagged() -> None:
    on_demand = an_offer(price_usd_per_hour=21.95764)
    spot = a_spot_offer(price_usd_per_hour=21.8535)
    accepted, findings = check_offers([on_demand, spot])
    assert accepted == (on_demand, spot)
    assert rules(findings) == [(spot.offer_id, Rule.SPOT_NEAR_ON_DEMAND, Severity.FLAGGED)]


def test_exactly_ten_percent_is_flagged_as_a_floor() -> None:
    on_demand, spot = an_offer(price_usd_per_hour=24.48), a_spot_offer(price_usd_per_hour=2.448)
    accepted, findings = check_offers([on_demand, spot])
    assert accepted == (on_demand, spot)
    assert rules(findings) == [(spot.offer_id, Rule.FLOOR_PRICE, Severity.FLAGGED)]
    assert check_offers([on_demand, a_spot_offer(price_usd_per_hour=2.47)])[1] == ()


def test_under_a_fifth_of_the_fleets_median_is_refused_unless_trusted() -> None:
    low = an_offer(price_usd_per_hour=0.61)
    fleet = a_fleet(3.06)
    accepted, findings = check_offers([low, *fleet])
    assert low not in accepted
    assert (low.offer_id, Rule.FAR_BELOW_FLEET, Severity.REFUSED) in rules(findings)
    assert low in check_offers([low, *fleet], trusted=lambda o: o is low)[0]
    assert (
        an_offer(price_usd_per_hour=0.62)
        in check_offers([an_offer(price_usd_per_hour=0.62), *fleet])[0]
    )


def test_a_feed_of_nothing_but_0_00001_cannot_vouch_for_itself() -> None:
    fake = [
        a_spot_offer(zone=f"use1-az{i}", price_usd_per_hour=0.00001, source="fake feed")
        for i in range(1, 7)
    ]
    accepted, findings = check_offers(fake, reference=[an_offer(), a_spot_offer()])
    assert accepted == ()
    assert {f.rule for f in findings} == {Rule.FAR_BELOW_FLEET}
    assert len(findings) == len(fake)


def test_of_duplicates_the_latest_stays_then_the_dearest() -> None:
    old = an_offer(price_usd_per_hour=5.0, observed_at_s=1.0)
    low = an_offer(price_usd_per_hour=3.0, observed_at_s=2.0)
    high = an_offer(price_usd_per_hour=3.5, observed_at_s=2.0)
    accepted, findings = check_offers([old, low, high])
    assert accepted == (high,)
    assert [f.rule for f in findings] == [Rule.DUPLICATE, Rule.DUPLICATE]
    assert "$3.5/h is kept" in findings[0].reason


def test_a_duplicate_of_the_very_same_row_is_noted_once() -> None:
    accepted, findings = check_offers([an_offer(), an_offer()])
    assert accepted == (an_offer(),)
    assert [f.rule for f in findings] == [Rule.DUPLICATE]


def test_h100_4_20_against_12_74_between_regions_is_flagged() -> None:
    low = an_offer(
        accelerator="H100", region="us-central1", zone="use1-az1", price_usd_per_hour=4.20
    )
    high = an_offer(
        accelerator="H100", region="europe-west4", zone="use1-az2", price_usd_per_hour=12.74
    )
    accepted, findings = check_offers([low, high])
    assert accepted == (low, high)
    assert rules(findings) == [(low.offer_id, Rule.REGIONS_DISAGREE, Severity.FLAGGED)]
    assert "$4.2/h here against $12.74/h in europe-west4" in findings[0].reason


@pytest.mark.parametrize(
    ("zone", "local"),
    [
        ("use1-az1", False),
        ("usw2-az4", False),
        ("euw1-az3", False),
        ("us-east-1a", False),
        ("us-gov-west-1b", False),
        ("use1-atl2-az1", True),
        ("usw2-lax1-az2", True),
        ("us-west-2-lax-1a", True),
        ("us-east-1-wl1-bos-wlz-1", True),
    ],
)
def test_local_zones_are_known_by_their_ids_and_names(zone: str, local: bool) -> None:
    assert is_local_zone(an_offer(zone=zone)) is local
    accepted, findings = check_offers([an_offer(zone=zone)])
    assert bool(accepted) is not local
    assert [f.rule for f in findings] == ([Rule.LOCAL_ZONE] if local else [])


def test_gcp_zones_are_not_mistaken_for_local_zones() -> None:
    assert not is_local_zone(a_slice("tpu-v3-8", zone="us-central1-a"))


@pytest.mark.parametrize("price", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_price_is_refused_whoever_vouches(price: float) -> None:
    offer = an_offer(price_usd_per_hour=price)
    accepted, findings = check_offers([offer], trusted=lambda _: True)
    assert accepted == ()
    assert [f.rule for f in findings] == [Rule.NOT_A_PRICE]


def test_an_offer_without_accelerators_is_refused_not_divided_by_zero() -> None:
    accepted, findings = check_offers([an_offer(accelerators_per_instance=0)])
    assert accepted == ()
    assert [f.rule for f in findings] == [Rule.NOT_A_PRICE]


def test_an_unknown_price_is_kept_and_is_no_yardstick() -> None:
    unknown = an_offer(zone="use1-az2", price_usd_per_hour=None)
    assert check_offers([an_offer(), unknown]) == ((an_offer(), unknown), ())
    assert check_offers([unknown]) == ((unknown,), ())


def test_a_price_its_source_doubts_is_refused_unless_trusted() -> None:
    suspect = an_offer(flags=("suspect",))
    accepted, findings = check_offers([suspect])
    assert accepted == ()
    assert [f.rule for f in findings] == [Rule.SUSPECT_SOURCE]
    assert check_offers([suspect], trusted=lambda _: True) == ((suspect,), ())


def test_slices_compare_by_the_number_in_their_name() -> None:
    assert comparable_units(a_slice("tpu-v5litepod-16")) == ("tpu-v5litepod", 16)
    assert comparable_units(an_offer(accelerators_per_instance=8)) == ("V100", 8)


def test_nothing_is_dropped_silently() -> None:
    offers = [
        an_offer(price_usd_per_hour=0.0),
        an_offer(zone="use1-atl2-az1"),
        an_offer(zone="use1-az2", flags=("suspect",)),
        *a_fleet(3.0),
        an_offer(zone="use1-az3", price_usd_per_hour=900.0),
        an_offer(zone="use1-az4", price_usd_per_hour=0.01),
        an_offer(zone="use1-az5", price_usd_per_hour=2.0),
        a_spot_offer(zone="use1-az5", price_usd_per_hour=2.5),
        an_offer(zone="usw2-az1", region="us-west-2", price_usd_per_hour=2.9),
    ]
    accepted, findings = check_offers(offers)
    refused = [f for f in findings if f.severity is Severity.REFUSED]
    assert len(accepted) + len(refused) == len(offers)
    assert all(f.reason for f in findings)
    assert [o.zone for o in accepted] == [f"usw2-az{i}" for i in range(1, 6)]
    assert CapacityType.SPOT not in {o.capacity_type for o in accepted}
