"""The price list, spot histories, and what they are allowed to change."""

import json

import pytest

from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.pricing.catalog import checked_catalog
from cloudgavel.pricing.findings import Rule
from cloudgavel.pricing.offer import CapacityType
from cloudgavel.providers.aws.prices import (
    SpotPoint,
    on_demand_price,
    prior_of_history,
    read_catalog,
    read_price_list,
    read_spot_history,
    refreshed_catalog,
)
from tests.unit.aws.account import START_AT_S, a_spot_offer, an_account, an_offer

OD, SPOT = an_offer(), a_spot_offer()
ZONES = {"us-east-1": {"us-east-1b": "use1-az1"}}
DAY_S = 86_400.0


def a_product(*, price="1.0060000000", unit="Hrs", region="us-east-1", **attributes) -> str:
    """One product as the price list writes it."""
    sku = "ABCDEF0123456789"
    term = f"{sku}.JRTCKXETXF"
    return json.dumps(
        {
            "product": {
                "productFamily": "Compute Instance",
                "sku": sku,
                "attributes": {
                    "instanceType": "g5.xlarge",
                    "regionCode": region,
                    "operatingSystem": "Linux",
                    "tenancy": "Shared",
                    "capacitystatus": "Used",
                    "preInstalledSw": "NA",
                    "marketoption": "OnDemand",
                    "vcpu": "4",
                    "memory": "16 GiB",
                    **attributes,
                },
            },
            "serviceCode": "AmazonEC2",
            "terms": {
                "OnDemand": {
                    term: {
                        "priceDimensions": {
                            f"{term}.6YS6EN2CT7": {
                                "unit": unit,
                                "beginRange": "0",
                                "endRange": "Inf",
                                "pricePerUnit": {"USD": price},
                            }
                        },
                        "effectiveDate": "2026-11-01T00:00:00Z",
                    }
                }
            },
            "version": "20261101000000",
        }
    )


def points(*changes, instance_type="g5.xlarge", zone_name="us-east-1b"):
    return [
        SpotPoint(zone_name=zone_name, instance_type=instance_type, at_s=at_s, usd_per_hour=price)
        for at_s, price in changes
    ]


def test_a_plain_machine_has_its_price():
    assert on_demand_price(a_product()) == ("us-east-1", "g5.xlarge", 1.006)


@pytest.mark.parametrize(
    "text",
    [
        a_product(operatingSystem="Windows"),
        a_product(tenancy="Dedicated"),
        a_product(capacitystatus="UnusedCapacityReservation"),
        a_product(preInstalledSw="SQL Std"),
        a_product(marketoption="CapacityBlock"),
        a_product(price="0.0000000000"),
        a_product(price="NaN"),
        a_product(unit="Quantity"),
        "not json",
        "{}",
        '{"product": {"attributes": {}}, "terms": {}}',
    ],
)
def test_anything_else_is_no_price(text):
    assert on_demand_price(text) is None


def test_the_price_list_is_read_page_by_page_and_only_for_what_was_asked():
    listed = [
        *(a_product(instanceType=f"m7i.{n}xlarge") for n in range(130)),
        a_product(),
        a_product(region="us-west-2", price="1.10"),
    ]
    with an_account(price_list=listed) as account:
        found = read_price_list(
            account.clients, regions=["us-east-1"], instance_types=["g5.xlarge"]
        )
        assert found == {("us-east-1", "g5.xlarge"): 1.006}
        assert account.layer.calls["GetProducts"] == 2


def test_a_spot_history_starts_with_the_price_that_held():
    history = points(
        (START_AT_S - 9_000.0, 0.40), (START_AT_S - 5_000.0, 0.41), (START_AT_S - 100.0, 0.44)
    )
    with an_account(spot_history=history) as account:
        read = read_spot_history(
            account.clients,
            "us-east-1",
            instance_types=["g5.xlarge"],
            since_s=START_AT_S - 1_000.0,
        )
    assert [(point.at_s, point.usd_per_hour) for point in read] == [
        (START_AT_S - 5_000.0, 0.41),
        (START_AT_S - 100.0, 0.44),
    ]


def test_a_long_history_is_followed_over_its_pages():
    history = points(*((START_AT_S - 1_000.0 + n, 0.40 + n / 1e4) for n in range(250)))
    with an_account(spot_history=history) as account:
        read = read_spot_history(
            account.clients, "us-east-1", instance_types=["g5.xlarge"], since_s=START_AT_S - 2e3
        )
        assert len(read) == 250
        assert account.layer.calls["DescribeSpotPriceHistory"] == 3


def test_a_refresh_dates_the_prices_and_keeps_the_rest_of_the_machine():
    known = checked_catalog([OD, SPOT])
    fresh = refreshed_catalog(
        known,
        on_demand={("us-east-1", "g5.xlarge"): 1.10},
        spot={"us-east-1": points((START_AT_S - 50.0, 0.30), (START_AT_S - 10.0, 0.50))},
        zone_id_by_name=ZONES,
        observed_at_s=START_AT_S,
    )
    prices = {offer.capacity_type: offer for offer in fresh.offers}
    assert prices[CapacityType.ON_DEMAND].price_usd_per_hour == 1.10
    assert prices[CapacityType.SPOT].price_usd_per_hour == 0.50
    for offer in fresh.offers:
        assert (offer.observed_at_s, offer.accelerator, offer.vcpus) == (START_AT_S, "A10G", 4.0)
    merged = known.merge(fresh)
    assert merged.age_s(START_AT_S) == 0.0


def test_a_refresh_does_not_believe_what_cannot_be():
    known = checked_catalog([OD, SPOT, an_offer(zone="use1-az2"), a_spot_offer(zone="use1-az2")])
    fresh = refreshed_catalog(
        known,
        on_demand={("us-east-1", "g5.xlarge"): 1.006},
        spot={"us-east-1": points((START_AT_S, 0.00001))},
        zone_id_by_name=ZONES,
        observed_at_s=START_AT_S,
    )
    assert [offer.offer_id for offer in fresh.refused] == [SPOT.offer_id]
    assert {finding.rule for finding in fresh.findings} == {Rule.FAR_BELOW_FLEET}


def test_a_refresh_of_mocked_spot_prices_changes_no_spot_price():
    catalog = bundled_catalog()
    with an_account() as account:
        fresh = read_catalog(account.clients, catalog, regions=["us-east-1"], now_s=START_AT_S)
    assert {finding.rule for finding in fresh.findings} == {Rule.FAR_BELOW_FLEET}
    merged = catalog.merge(fresh)
    assert all((offer.price_usd_per_hour or 1.0) > 0.001 for offer in merged.offers)


def test_a_machine_that_the_catalogue_does_not_describe_is_not_priced():
    known = checked_catalog([OD])
    fresh = refreshed_catalog(
        known,
        on_demand={("us-east-1", "m7i.large"): 0.1},
        spot={"us-east-1": points((START_AT_S, 0.3))},
        zone_id_by_name=ZONES,
        observed_at_s=START_AT_S,
    )
    assert fresh.offers == ()


# -- interruptions ------------------------------------------------------------------------------


def belief(*changes, assumed=0.05, on_demand=1.0):
    return prior_of_history(
        points(*changes),
        on_demand_usd_per_hour=on_demand,
        until_s=START_AT_S,
        assumed_per_hour=assumed,
    )


def test_a_quiet_month_leaves_the_assumption():
    quiet = belief((START_AT_S - 30 * DAY_S, 0.3), (START_AT_S - 10 * DAY_S, 0.32))
    assert quiet is not None
    assert quiet.mean_per_hour == pytest.approx(0.05)


def test_a_price_that_keeps_climbing_to_on_demand_raises_the_rate():
    climbs = []
    for n in range(24):  # every hour of one day
        climbs += [
            (START_AT_S - DAY_S + 3600.0 * n, 0.4),
            (START_AT_S - DAY_S + 3600.0 * n + 1800.0, 0.95),
        ]
    busy = belief(*climbs)
    assert busy is not None
    assert busy.mean_per_hour == pytest.approx(1.0)


def test_a_history_without_an_assumption_says_something_only_when_it_is_not_quiet():
    assert belief((START_AT_S - 2 * DAY_S, 0.3), assumed=None) is None
    climb = belief((START_AT_S - 2 * DAY_S, 0.3), (START_AT_S - DAY_S, 0.95), assumed=None)
    assert climb is not None
    assert climb.mean_per_hour == pytest.approx(1 / 48)


def test_without_an_on_demand_price_or_a_day_of_history_nothing_is_learnt():
    assert belief((START_AT_S - 2 * DAY_S, 0.3), on_demand=None) is None
    short = belief((START_AT_S - 3600.0, 0.3), (START_AT_S - 60.0, 0.95))
    assert short is not None
    assert short.mean_per_hour == pytest.approx(0.05)
