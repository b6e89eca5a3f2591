"""``prices --refresh``: what clouds say is judged, kept, and used by the next command."""

import json
from pathlib import Path

import pytest

from cloudgavel.cli.app import run_command_line
from cloudgavel.cli.price_refresh import refresh_prices
from cloudgavel.documents.plan import PlanPrices
from cloudgavel.errors import CredentialsError
from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.pricing.offer import RATE_IS_ASSUMED, CapacityType, Offer
from cloudgavel.providers.failures import CallFailed, FailureKind
from cloudgavel.providers.gcp.prices import COMPUTE_SERVICE
from cloudgavel.runtime import real_clock
from cloudgavel.runtime.assemble import prices_by_cloud
from cloudgavel.runtime.price_cache import known_catalog
from cloudgavel.views.plan import plan_text
from tests.golden.documents import a_plan
from tests.unit.aws.account import an_account
from tests.unit.aws.test_aws_prices import a_product, points
from tests.unit.gcp.project import a_project, a_sku

NOW_S = 1_796_000_000.0
EAST = "us-east-1"
ZONE = ("us-east-1b", "use1-az1")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLOUDGAVEL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(real_clock, "now_s", lambda: NOW_S)
    return tmp_path / "cache" / "prices.json"


def bundled(instance_type: str, capacity_type: CapacityType) -> Offer:
    offer = bundled_catalog().get(f"aws/{ZONE[1]}/{instance_type}/{capacity_type}")
    assert offer is not None
    return offer


def now(instance_type: str, capacity_type: CapacityType) -> Offer | None:
    import os

    return known_catalog(os.environ).get(f"aws/{ZONE[1]}/{instance_type}/{capacity_type}")


V100 = "p3.2xlarge"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch):
    """An account whose price list and spot history say a little more than the snapshot."""
    spot = bundled(V100, CapacityType.SPOT)
    on_demand = bundled(V100, CapacityType.ON_DEMAND)
    price, ceiling = spot.price_usd_per_hour, on_demand.price_usd_per_hour
    assert price is not None
    assert ceiling is not None
    climbing = [
        (NOW_S - (29 - day) * 86_400, price * (1.02 if day % 2 else 1.0)) for day in range(29)
    ]
    history = points(*climbing, instance_type=V100, zone_name=ZONE[0])
    listed = [a_product(instanceType=V100, price=f"{ceiling * 1.01:.10f}")]
    with an_account(price_list=listed, spot_history=history) as account:
        account.clock.advance_to(NOW_S)
        monkeypatch.setattr("cloudgavel.providers.aws.clients.AwsClients", lambda: account.clients)
        yield account


def test_prices_of_aws_are_read_kept_and_shown_with_their_age(aws, cache, capsys):
    asked = ["prices", "--refresh", "--provider", "aws", "--region", EAST, "--gpu", "v100"]
    assert run_command_line([*asked, "--json"]) == 0
    said = capsys.readouterr()
    shown = {each["offer_id"]: each for each in json.loads(said.out)["offers"]}
    spot = shown[f"aws/{ZONE[1]}/{V100}/spot"]
    assert spot["age_s"] == 0.0
    assert spot["price_usd_per_hour"] == pytest.approx(
        bundled(V100, CapacityType.SPOT).price_usd_per_hour
    )
    assert "prices read" in said.err
    assert cache.exists()
    fresh = now(V100, CapacityType.ON_DEMAND)
    before = bundled(V100, CapacityType.ON_DEMAND)
    assert fresh is not None
    assert before.price_usd_per_hour is not None
    assert fresh.price_usd_per_hour == pytest.approx(before.price_usd_per_hour * 1.01)
    assert fresh.source == "AWS price list"


def test_a_quiet_history_leaves_the_rate_an_assumption_and_says_so(aws):
    refresh_prices(["aws"], {"aws": [EAST]}, now_s=NOW_S)
    fresh = now(V100, CapacityType.SPOT)
    assert fresh is not None
    assert fresh.source == "AWS spot price history" + RATE_IS_ASSUMED
    before = bundled(V100, CapacityType.SPOT)
    assert fresh.interruption_rate_per_hour == before.interruption_rate_per_hour


def test_climbs_to_on_demand_raise_the_rate_and_are_named_as_its_source(monkeypatch):
    ceiling = bundled(V100, CapacityType.ON_DEMAND).price_usd_per_hour
    assert ceiling is not None
    # Every two hours for ten days the price goes up to on-demand and back: 0.5 climbs an hour.
    changes = [
        (NOW_S - (240 - hour) * 3600.0, ceiling * (0.95 if hour % 2 else 0.3))
        for hour in range(240)
    ]
    history = points(*changes, (NOW_S - 60, ceiling * 0.3), instance_type=V100, zone_name=ZONE[0])
    listed = [a_product(instanceType=V100, price=f"{ceiling:.10f}")]
    with an_account(price_list=listed, spot_history=history) as account:
        account.clock.advance_to(NOW_S)
        monkeypatch.setattr("cloudgavel.providers.aws.clients.AwsClients", lambda: account.clients)
        refresh_prices(["aws"], {"aws": [EAST]}, now_s=NOW_S)
    fresh = now(V100, CapacityType.SPOT)
    assert fresh is not None
    assert fresh.interruption_rate_per_hour == pytest.approx(0.5, rel=0.02)
    assert "by climbs of the price" in fresh.source


def test_the_constant_of_a_mock_is_never_believed(monkeypatch, capsys):
    with an_account() as account:
        account.clock.advance_to(NOW_S)
        monkeypatch.setattr("cloudgavel.providers.aws.clients.AwsClients", lambda: account.clients)
        (told,) = refresh_prices(["aws"], {"aws": [EAST]}, now_s=NOW_S)
    assert told.refused > 0
    assert "not believed" in capsys.readouterr().err
    import os

    assert not [o for o in known_catalog(os.environ).offers if o.price_usd_per_hour == 0.00001]


def test_prices_of_google_are_put_together_from_skus(monkeypatch):
    with a_project() as project:
        project.cloud.skus[COMPUTE_SERVICE] = [
            a_sku("Spot Preemptible N1 Predefined Instance Core running in Iowa", 0.006655),
            a_sku("Spot Preemptible N1 Predefined Instance Ram running in Iowa", 0.000892),
            a_sku("Nvidia Tesla V100 GPU attached to Spot Preemptible VMs running in Iowa", 0.74),
        ]
        monkeypatch.setattr("cloudgavel.providers.gcp.clients.GcpClients", lambda: project.clients)
        (told,) = refresh_prices(["gcp"], {}, now_s=NOW_S)
    import os

    known = known_catalog(os.environ)
    fresh = known.get("gcp/us-central1-a/n1-standard-8+1xV100/spot")
    assert fresh is not None
    assert fresh.price_usd_per_hour == pytest.approx(8 * 0.006655 + 30 * 0.000892 + 0.74)
    assert fresh.source.endswith(RATE_IS_ASSUMED)
    assert told.read > 0
    used = [o for o in known.offers if o.region in (EAST, "us-central1") and not o.is_historic]
    ages = {each.provider: each for each in prices_by_cloud(used, now_s=NOW_S + 180)}
    assert ages["aws"].source == "snapshot"
    assert (ages["gcp"].source, ages["gcp"].age_s) == ("mixed", 180.0)


def test_one_silent_cloud_leaves_its_prices_and_all_silent_is_an_error(capsys, cache):
    def silent(*_: object):
        raise CallFailed(FailureKind.CREDENTIALS, "nobody is known by this key")

    def nothing_new(known, _regions, _now_s):
        return type(known)(offers=())

    refresh_prices(["aws", "gcp"], {}, now_s=NOW_S, readers={"aws": silent, "gcp": nothing_new})
    assert "aws: its prices stay as they were: nobody is known" in capsys.readouterr().err
    cache.unlink()
    with pytest.raises(CredentialsError):
        refresh_prices(["aws"], {}, now_s=NOW_S, readers={"aws": silent})
    assert not cache.exists()


def test_without_credentials_the_command_says_so(monkeypatch, tmp_path, capsys):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    assert run_command_line(["prices", "--refresh", "--provider", "aws", "--region", EAST]) == 4
    assert "cloudgavel check --provider aws" in capsys.readouterr().err


def test_a_plan_names_the_age_and_source_of_its_prices():
    from dataclasses import replace

    plan = a_plan(feasible=True)
    assert "prices of 2026-11-01" in plan_text(plan, width=100, next_steps=False, file="f")
    ages = (
        PlanPrices(provider="aws", source="live", as_of="2026-11-29", age_s=180.0),
        PlanPrices(provider="gcp", source="snapshot", as_of="2026-11-01", age_s=None),
    )
    text = plan_text(replace(plan, prices=ages), width=100, next_steps=False, file="f")
    assert "prices 3m old (aws live, gcp snapshot of 2026-11-01)" in text
