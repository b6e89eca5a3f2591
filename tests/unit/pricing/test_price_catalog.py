import pytest

from cloudgavel.pricing.catalog import (
    Catalog,
    accelerator_price_order,
    checked_catalog,
    price_order,
)
from cloudgavel.pricing.findings import Rule
from cloudgavel.pricing.offer import CapacityType
from tests.unit.pricing.pricing_builders import a_spot_offer, an_offer


def a_catalog() -> Catalog:
    return Catalog(
        offers=(
            an_offer(),
            a_spot_offer(),
            an_offer(
                instance_type="p3.16xlarge", accelerators_per_instance=8, price_usd_per_hour=24.48
            ),
            an_offer(
                provider="gcp",
                region="us-west1",
                zone="us-west1-a",
                accelerator="T4",
                instance_type="n1-standard-4+1xT4",
                price_usd_per_hour=None,
            ),
            an_offer(
                instance_type="p2.xlarge",
                accelerator="K80",
                price_usd_per_hour=0.9,
                flags=("historic",),
            ),
        )
    )


def types(offers: tuple[object, ...]) -> list[str]:
    return [f"{o.instance_type} {o.capacity_type}" for o in offers]  # type: ignore[attr-defined]


def test_offers_are_sorted_by_id_whatever_their_order() -> None:
    offers = a_catalog().offers
    assert Catalog(offers=offers[::-1]).offers == offers
    assert [o.offer_id for o in offers] == sorted(o.offer_id for o in offers)


def test_an_offer_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="once"):
        Catalog(offers=(an_offer(), an_offer(price_usd_per_hour=9.0)))


def test_get_finds_by_id() -> None:
    assert a_catalog().get("aws/use1-az1/p3.2xlarge/spot") == a_spot_offer()
    assert a_catalog().get("aws/nowhere/p3.2xlarge/spot") is None


def test_search_without_filters_leaves_out_only_the_historic() -> None:
    assert types(a_catalog().search()) == [
        "p3.16xlarge on_demand",
        "p3.2xlarge on_demand",
        "p3.2xlarge spot",
        "n1-standard-4+1xT4 on_demand",
    ]
    assert "p2.xlarge on_demand" in types(a_catalog().search(include_historic=True))


def test_search_filters() -> None:
    catalog = a_catalog()
    assert types(catalog.search(providers=["gcp"])) == ["n1-standard-4+1xT4 on_demand"]
    assert types(catalog.search(regions=["us-west1"])) == ["n1-standard-4+1xT4 on_demand"]
    assert types(catalog.search(zones=["us-west1-a"])) == ["n1-standard-4+1xT4 on_demand"]
    assert len(catalog.search(accelerators=["V100"])) == 3
    assert types(catalog.search(min_accelerators=2)) == ["p3.16xlarge on_demand"]
    assert types(catalog.search(capacity_types=[CapacityType.SPOT])) == ["p3.2xlarge spot"]
    assert catalog.search(regions=[]) == ()


def test_an_unknown_price_does_not_pass_a_ceiling() -> None:
    assert types(a_catalog().search(max_usd_per_hour=3.06)) == [
        "p3.2xlarge on_demand",
        "p3.2xlarge spot",
    ]


def test_cheapest_per_key_leaves_unknown_prices_out() -> None:
    cheapest = a_catalog().cheapest_per(lambda o: o.accelerator)
    assert cheapest == {"V100": a_spot_offer()}
    assert set(a_catalog().cheapest_per(lambda o: o.accelerator, include_historic=True)) == {
        "V100",
        "K80",
    }


def test_cheapest_ties_go_to_the_smaller_id() -> None:
    catalog = Catalog(offers=(an_offer(zone="use1-az2"), an_offer(zone="use1-az1")))
    assert catalog.cheapest_per(lambda o: o.accelerator)["V100"].zone == "use1-az1"


def test_orders_put_unknown_last() -> None:
    offers = sorted(a_catalog().offers, key=price_order)
    assert [o.price_usd_per_hour for o in offers] == [0.9, 0.92, 3.06, 24.48, None]
    per_accelerator = sorted(a_catalog().offers, key=accelerator_price_order)
    assert per_accelerator[-1].price_usd_per_hour is None
    assert [o.usd_per_accelerator_hour for o in per_accelerator[:4]] == [0.9, 0.92, 3.06, 3.06]


def test_age_is_that_of_the_oldest_price_and_unknown_if_one_is() -> None:
    catalog = Catalog(
        offers=(an_offer(observed_at_s=100.0), an_offer(zone="use1-az2", observed_at_s=40.0))
    )
    assert catalog.age_s(now_s=160.0) == 120.0
    assert Catalog(offers=(an_offer(observed_at_s=None),)).age_s(now_s=160.0) is None
    assert Catalog(offers=()).age_s(now_s=160.0) is None


def test_merge_takes_the_later_observation_from_either_side() -> None:
    older, newer = an_offer(observed_at_s=1.0), an_offer(observed_at_s=2.0, price_usd_per_hour=4.0)
    for first, second in ((older, newer), (newer, older)):
        merged = Catalog(offers=(first,)).merge(Catalog(offers=(second,)))
        assert merged.offers == (newer,)


def test_of_equally_old_observations_the_newer_catalogue_counts() -> None:
    merged = Catalog(offers=(an_offer(),)).merge(
        Catalog(offers=(an_offer(price_usd_per_hour=4.0),))
    )
    assert merged.offers == (an_offer(price_usd_per_hour=4.0),)


def test_merge_accepts_an_offer_that_the_newer_catalogue_lists_twice() -> None:
    newer = checked_catalog([an_offer(price_usd_per_hour=3.2), an_offer(price_usd_per_hour=3.1)])
    merged = Catalog(offers=(an_offer(),)).merge(newer)
    assert merged.offers == (an_offer(price_usd_per_hour=3.2),)
    assert merged.refused == ()


def test_merge_keeps_the_original_unchanged_and_adds_what_is_new() -> None:
    before = Catalog(offers=(an_offer(),))
    merged = before.merge(Catalog(offers=(an_offer(zone="use1-az2"),)))
    assert [o.zone for o in merged.offers] == ["use1-az1", "use1-az2"]
    assert before.offers == (an_offer(),)


def test_merge_never_replaces_a_known_figure_by_an_unknown_one() -> None:
    known = a_spot_offer(observed_at_s=1.0)
    blank = a_spot_offer(
        observed_at_s=2.0, price_usd_per_hour=None, interruption_rate_per_hour=None
    )
    assert Catalog(offers=(known,)).merge(Catalog(offers=(blank,))).offers == (known,)
    repriced = a_spot_offer(
        observed_at_s=2.0, price_usd_per_hour=1.5, interruption_rate_per_hour=None
    )
    (merged,) = Catalog(offers=(known,)).merge(Catalog(offers=(repriced,))).offers
    assert (merged.price_usd_per_hour, merged.interruption_rate_per_hour) == (1.5, 0.05)


def test_merge_drops_what_the_newer_catalogue_refuses() -> None:
    before = Catalog(offers=(a_spot_offer(observed_at_s=1.0), an_offer(observed_at_s=1.0)))
    newer = checked_catalog([a_spot_offer(price_usd_per_hour=0.0, observed_at_s=2.0)])
    merged = before.merge(newer)
    assert merged.offers == (an_offer(observed_at_s=1.0),)
    assert [o.price_usd_per_hour for o in merged.refused] == [0.0]
    assert [f.rule for f in merged.findings] == [Rule.NOT_A_PRICE]


def test_merge_forgets_a_refusal_that_a_newer_honest_price_lifts() -> None:
    before = checked_catalog([an_offer(price_usd_per_hour=0.0, observed_at_s=1.0)])
    merged = before.merge(checked_catalog([an_offer(observed_at_s=2.0)]))
    assert merged.offers == (an_offer(observed_at_s=2.0),)
    assert (merged.refused, merged.findings) == ((), ())


def test_a_checked_catalogue_holds_what_was_refused_with_the_reason() -> None:
    duplicate = an_offer(price_usd_per_hour=3.0)
    floor = a_spot_offer(price_usd_per_hour=0.306)
    catalog = checked_catalog([an_offer(), duplicate, floor])
    assert catalog.refused == (duplicate,)
    assert catalog.offers == (an_offer(), floor)
    assert [f.rule for f in catalog.flags_of(floor.offer_id)] == [Rule.FLOOR_PRICE]
    assert catalog.flags_of(an_offer().offer_id) == ()
