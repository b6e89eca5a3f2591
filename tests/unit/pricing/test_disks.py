"""Boot disks: in the price, shown apart, the same for a plan, a run and the ledger."""

from dataclasses import replace

import pytest

from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.pricing.disks import (
    ELSEWHERE_USD_PER_GIB_MONTH,
    USD_PER_GIB_MONTH,
    disk_usd_per_hour,
    with_disk,
)
from cloudgavel.pricing.market import ExpectedMarket
from cloudgavel.providers.base import LaunchRequest
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.providers.with_disks import WithDisks
from cloudgavel.runtime.assemble import disk_sizes, rehearsal_offers
from tests.unit.runtime.scripted import START_S, a_job, a_run
from tests.unit.runtime.scripted import an_offer as a_scripted_offer

GIB = {"aws": 200.0, "gcp": 200.0}


def an_offer(provider: str = "aws", region: str = "us-east-1", **changes: object):
    return replace(a_scripted_offer(), provider=provider, region=region, **changes)


@pytest.mark.parametrize(
    ("offer", "usd_per_hour"),
    [
        (an_offer(), 0.022222),
        (an_offer("gcp", "us-central1"), 0.027778),
        (an_offer(region="moon-north-1"), round(0.16 * 200 / 720, 6)),
        (an_offer("gcp", "us-central1", accelerator="tpu-v3-8"), 0.0),
        (an_offer("another"), 0.0),
    ],
)
def test_what_a_disk_of_200_gib_costs(offer, usd_per_hour):
    assert disk_usd_per_hour(offer, 200) == usd_per_hour
    dearer = with_disk(offer, 200)
    assert dearer.price_usd_per_hour == pytest.approx(3.6 + usd_per_hour)
    assert with_disk(dearer, 200) == dearer


def test_every_bundled_region_has_a_price_and_a_guess_is_never_cheaper():
    regions = {(o.provider, o.region) for o in bundled_catalog().offers
               if not o.accelerator.startswith("tpu")}  # fmt: skip
    assert regions <= USD_PER_GIB_MONTH.keys()
    assert max(USD_PER_GIB_MONTH.values()) < ELSEWHERE_USD_PER_GIB_MONTH


def test_an_unknown_price_stays_unknown():
    offer = an_offer(price_usd_per_hour=None)
    assert with_disk(offer, 200) == offer


def test_sizes_are_those_of_the_clouds_settings():
    sizes = disk_sizes({"CLOUDGAVEL_AWS_DISK_GIB": "500", "CLOUDGAVEL_GCP_DISK_GIB": "none"})
    assert sizes == {"aws": 500.0, "gcp": 200.0}


def test_offers_of_a_plan_count_them_in():
    run = a_run(a_job())
    plain = rehearsal_offers(run, bundled_catalog())
    dearer = rehearsal_offers(run, bundled_catalog(), gib_by_provider=GIB)
    assert [o.offer_id for o in plain] == [o.offer_id for o in dearer]
    for before, after in zip(plain, dearer, strict=True):
        assert after.price_usd_per_hour == pytest.approx(
            before.price_usd_per_hour + after.disk_usd_per_hour
        )
        assert after.disk_usd_per_hour > 0


def test_a_cloud_with_disks_is_dearer_by_them_everywhere_and_asked_at_its_own_price():
    offer = an_offer()
    inner = SimulatedCloud(offers=[offer], market=ExpectedMarket(), now_s=START_S)
    asked: list[LaunchRequest] = []
    launch = inner.launch

    def heard(request: LaunchRequest):
        asked.append(request)
        return launch(request)

    inner.launch = heard  # type: ignore[method-assign]
    cloud = WithDisks(inner, known=[offer], gib_by_provider=GIB)
    (shown,) = cloud.offers()
    assert shown.price_usd_per_hour == pytest.approx(3.622222)
    launched = cloud.launch(LaunchRequest(token="t", run_id="r", offer=shown))
    assert launched.price_usd_per_hour == shown.price_usd_per_hour
    assert asked[0].offer == offer
    (listed,) = cloud.list_instances("r")
    assert listed.price_usd_per_hour == shown.price_usd_per_hour
    inner.price_changes = lambda _id, _since: [(START_S + 5, 4.0)]  # type: ignore[method-assign]
    assert cloud.price_changes(launched.instance_id, 0.0) == [(START_S + 5, 4.022222)]
    assert cloud.name == inner.name
    assert cloud.boot_s(shown) == inner.boot_s(offer)
    assert cloud.quotas() == inner.quotas()
    cloud.terminate(launched.instance_id)
    again = WithDisks(inner, known=[offer], gib_by_provider=GIB)
    assert again.list_instances("r")[0].price_usd_per_hour == shown.price_usd_per_hour
