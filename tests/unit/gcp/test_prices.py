"""Parts to prices, and prices to what they are believed to be."""

from types import SimpleNamespace

import pytest

from cloudgavel.pricing.catalog import Catalog
from cloudgavel.pricing.offer import RATE_IS_ASSUMED, CapacityType
from cloudgavel.providers.gcp.prices import (
    COMPUTE_SERVICE,
    SOURCE,
    TPU_SERVICE,
    SkuPrice,
    by_part,
    part_of,
    price_of,
    read_skus,
    refreshed_catalog,
    services_for,
)
from tests.unit.gcp.project import START_AT_S, a_project, a_sku, a_slice, an_a100, an_offer

N1_SPOT = [
    a_sku("Spot Preemptible N1 Predefined Instance Core running in Iowa", 0.006655),
    a_sku("Spot Preemptible N1 Predefined Instance Ram running in Iowa", 0.000892),
    a_sku("Nvidia Tesla V100 GPU attached to Spot Preemptible VMs running in Iowa", 0.74),
]
V100_SPOT = 8 * 0.006655 + 30 * 0.000892 + 0.74


@pytest.mark.parametrize(
    ("description", "part"),
    [
        ("N1 Predefined Instance Core running in Americas", ("n1/core", False)),
        ("Spot Preemptible A2 Instance Ram running in Salt Lake City", ("a2/ram", True)),
        ("Nvidia Tesla A100 GPU running in Americas", ("gpu/A100", False)),
        ("Nvidia Tesla A100 80GB GPU running in Americas", ("gpu/A100-80GB", False)),
        ("Nvidia L4 GPU attached to Spot Preemptible VMs running in Virginia", ("gpu/L4", True)),
        ("Nvidia H100 80GB GPU running in Iowa", ("gpu/H100", False)),
        ("TpuV5e running in Columbus", ("tpu/v5litepod", False)),
        ("TpuV6e attached to Spot Preemptible VMs running in Columbus", ("tpu/v6e", True)),
        ("TPU-v2 Accelerator USA", ("tpu/v2", False)),
        ("Preemptible TPU-v3 Accelerator Europe", ("tpu/v3", True)),
    ],
)
def test_parts_are_read_from_their_descriptions(description, part):
    assert part_of(description) == part


@pytest.mark.parametrize(
    "description",
    [
        "Commitment v1: Nvidia Tesla V100 GPU running in Americas for 1 Year",
        "N1 Custom Instance Core running in Americas",
        "Reserved Nvidia L4 GPU in Iowa",
        "Sole Tenancy Premium for N1 Predefined Instance Core running in Americas",
        "DWS Defined Duration V6e running in Columbus",
        "Capacity Optimized TpuV6e running in Columbus",
        "Nvidia H100 80GB Plus GPU running in Iowa",
        "TPU-v2 Pod Accelerator USA",
        "",
    ],
)
def test_what_is_not_rented_here_is_left_out(description):
    assert part_of(description) is None


def read(skus):
    with a_project() as project:
        project.cloud.skus[COMPUTE_SERVICE] = skus
        return read_skus(project.clients, services=[COMPUTE_SERVICE])


def test_units_and_nanos_make_a_price_by_region():
    (iowa, oregon) = read([a_sku("Nvidia L4 GPU running in x", 2.25, regions=["r1", "r2"])])
    assert iowa == SkuPrice(
        part="gpu/L4", region="r1", is_spot=False, usd_per_hour=2.25, since_s=1_788_220_800.0
    )
    assert oregon.region == "r2"


def test_commitments_and_free_parts_have_no_price():
    assert read([a_sku("Nvidia L4 GPU running in x", 1.0, usage_type="Commit1Yr")]) == []
    assert read([a_sku("Nvidia L4 GPU running in x", 0.0)]) == []


def test_a_machine_is_cores_memory_and_gpus():
    parts = by_part(read(N1_SPOT))
    price, _ = price_of(an_offer(), parts)
    assert price == pytest.approx(V100_SPOT, abs=1e-6)


def test_a_machine_with_a_part_missing_has_no_price():
    for missing in range(3):
        parts = by_part(read([sku for n, sku in enumerate(N1_SPOT) if n != missing]))
        assert price_of(an_offer(), parts) is None
    assert price_of(an_offer(vcpus=None), by_part(read(N1_SPOT))) is None
    # Spot parts are no price of an on-demand machine.
    steady = an_offer(capacity_type=CapacityType.ON_DEMAND)
    assert price_of(steady, by_part(read(N1_SPOT))) is None


@pytest.mark.parametrize(
    ("slice_type", "part", "unit_price", "whole"),
    [
        ("tpu-v2-8", "tpu/v2", 4.5, 4.5),
        ("tpu-v5litepod-4", "tpu/v5litepod", 1.2, 4.8),
        ("tpu-v5p-8", "tpu/v5p", 4.2, 16.8),
        ("tpu-v6e-8", "tpu/v6e", 2.7, 21.6),
    ],
)
def test_slices_are_priced_by_device_or_by_chip(slice_type, part, unit_price, whole):
    offer = a_slice(instance_type=slice_type, capacity_type=CapacityType.ON_DEMAND)
    sku = SkuPrice(
        part=part, region="us-central1", is_spot=False, usd_per_hour=unit_price, since_s=None
    )
    assert price_of(offer, by_part([sku])) == (pytest.approx(whole), None)


def test_of_two_prices_of_a_part_the_dearer_is_believed():
    prices = read(
        [a_sku("Nvidia L4 GPU running in x", 1.0), a_sku("Nvidia L4 GPU running in y", 2.0)]
    )
    (kept,) = by_part(prices).values()
    assert kept.usd_per_hour == 2.0


def test_old_slices_have_a_catalogue_of_their_own():
    assert services_for([an_offer()]) == [COMPUTE_SERVICE]
    old = a_slice(instance_type="tpu-v2-8")
    assert services_for([old, a_slice()]) == sorted([COMPUTE_SERVICE, TPU_SERVICE])


def test_a_refresh_renews_what_it_can_and_keeps_the_rest_with_its_age():
    reference = Catalog(offers=(an_offer(), an_a100(), an_offer(provider="aws")))
    with a_project() as project:
        project.cloud.skus[COMPUTE_SERVICE] = N1_SPOT
        fresh = refreshed_catalog(project.clients, reference=reference, now_s=START_AT_S)
    renewed = fresh.get(an_offer().offer_id)
    assert renewed.price_usd_per_hour == pytest.approx(V100_SPOT, abs=1e-6)
    assert renewed.source == SOURCE + RATE_IS_ASSUMED
    assert renewed.observed_at_s == START_AT_S
    assert fresh.get(an_a100().offer_id) == an_a100()
    assert {offer.provider for offer in fresh.offers} == {"gcp"}


def test_a_refreshed_price_that_cannot_be_true_is_refused():
    reference = Catalog(offers=(an_offer(),))
    with a_project() as project:
        project.cloud.skus[COMPUTE_SERVICE] = [
            *N1_SPOT[:2],
            a_sku("Nvidia Tesla V100 GPU attached to Spot Preemptible VMs running in Iowa", 0.0001),
        ]
        fresh = refreshed_catalog(project.clients, reference=reference, now_s=START_AT_S)
    assert fresh.offers == ()
    assert len(fresh.refused) == 1


def test_a_catalogue_that_may_not_be_read_leaves_the_prices_that_were_known():
    with a_project(read_prices=True) as project:
        project.cloud.faults.refuse_next("skus.list", 403, "forbidden")
        prices = {offer.offer_id: offer.price_usd_per_hour for offer in project.provider.offers()}
        assert prices[an_offer().offer_id] == 1.2


def test_skus_without_prices_are_read_as_none():
    empty = SimpleNamespace(
        description="Nvidia L4 GPU running in x",
        category=SimpleNamespace(usage_type="OnDemand"),
        pricing_info=[],
    )
    from cloudgavel.providers.gcp.prices import read_sku

    assert read_sku(empty) == []
