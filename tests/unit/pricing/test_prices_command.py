"""``cloudgavel prices``: what is printed, and that text, JSON and CSV say the same."""

import csv
import io
import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cloudgavel.cli.commands.prices import prices, prices_document
from cloudgavel.errors import ExitCode, UsageError
from cloudgavel.pricing.catalog import Catalog, checked_catalog
from cloudgavel.runtime import real_clock
from cloudgavel.views.prices import prices_csv, prices_text
from tests.unit.pricing.pricing_builders import a_spot_offer, an_offer

SNAPSHOT_S = 1_793_491_200.0


@pytest.fixture(autouse=True)
def three_days_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_clock, "now_s", lambda: SNAPSHOT_S + 3 * 86400)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(prices, arguments, catch_exceptions=False)


def document(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0
    parsed = json.loads(result.stdout)
    assert isinstance(parsed, dict)
    return parsed


def refusal(*arguments: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        run(*arguments)
    assert caught.value.exit_code is ExitCode.USAGE
    return caught.value


def test_the_table_at_one_hundred_columns() -> None:
    offers = (
        an_offer(),
        a_spot_offer(zone="use1-az4", price_usd_per_hour=0.4281),
        an_offer(
            instance_type="p3.16xlarge", accelerators_per_instance=8, price_usd_per_hour=24.48
        ),
        a_spot_offer(
            zone="use1-az2",
            price_usd_per_hour=None,
            interruption_rate_per_hour=None,
            observed_at_s=None,
        ),
    )
    text = prices_text(
        prices_document(
            Catalog(offers=offers),
            considered=offers,
            matching=offers[:],
            sort="price",
            limit=0,
            now_s=SNAPSHOT_S + 180,
        ),
        width=100,
    )
    assert text.splitlines() == [
        "  INSTANCE         WHERE     ACCELERATORS  KIND  PRICE/H  PER ACC-H  INTERRUPTED    SEEN",
        "  aws p3.2xlarge   use1-az1  1 x V100      od      $3.06      $3.06            -  3m ago",
        "  aws p3.2xlarge   use1-az4  1 x V100      spot  $0.4281    $0.4281         5%/h  3m ago",
        "  aws p3.16xlarge  use1-az1  8 x V100      od     $24.48      $3.06            -  3m ago",
        "  aws p3.2xlarge   use1-az2  1 x V100      spot  unknown          -      unknown   never",
        "",
        "4 of 4 offers match, cheapest hour first (`--sort per-gpu` for cheapest accelerator-hour)",
        "oldest price: 3m ago",
    ]


def test_narrow_terminals_drop_columns_and_never_wrap() -> None:
    offers = (an_offer(), a_spot_offer())
    made = prices_document(
        Catalog(offers=offers),
        considered=offers,
        matching=offers,
        sort="price",
        limit=0,
        now_s=SNAPSHOT_S,
    )
    lines = prices_text(made, width=60).splitlines()[:3]
    assert all(len(line) <= 60 for line in lines)
    assert "PRICE/H" in lines[0] and "INTERRUPTED" not in lines[0]


def test_cheapest_first_is_the_default_and_nothing_is_coloured() -> None:
    result = run("--gpu", "v100", "--spot", "--limit", "3")
    assert "\x1b" not in result.stdout
    lines = result.stdout.splitlines()
    assert lines[1].split()[:2] == ["aws", "p3.2xlarge"]
    assert "$0.3707" in lines[1] and lines[1].endswith("3d00h ago")
    assert "cheapest hour first" in result.stdout
    assert "the first 3 are shown" in result.stdout
    assert "assumptions" in result.stdout


def test_the_document_has_schema_units_and_instants() -> None:
    answer = document("--gpu", "V100", "--on-demand", "--region", "us-east-1")
    assert (answer["schema"], answer["schema_version"]) == ("cloudgavel/prices", 1)
    assert answer["now"] == "2026-11-04T00:00:00Z"
    assert answer["oldest_age_s"] == 3 * 86400
    first = answer["offers"][0]
    assert first["offer_id"] == "aws/use1-az1/p3.2xlarge/on_demand"
    assert first["price_usd_per_hour"] == 3.06
    assert first["observed_at"] == "2026-11-01T00:00:00Z"
    assert first["age_s"] == 3 * 86400
    assert first["capacity_type"] == "on_demand"
    assert first["status"] == "accepted" and first["reasons"] == []
    assert {o["accelerator"] for o in answer["offers"]} == {"V100"}
    assert {o["region"] for o in answer["offers"]} == {"us-east-1"}


def test_json_and_csv_show_all_unless_limited() -> None:
    everything = document()
    assert len(everything["offers"]) == everything["matching_count"] > 1000
    assert len(document("--limit", "7")["offers"]) == 7
    rows = list(csv.DictReader(io.StringIO(run("--output", "csv", "--limit", "4").stdout)))
    assert [row["offer_id"] for row in rows] == [
        offer["offer_id"] for offer in everything["offers"][:4]
    ]
    assert rows[0]["price_usd_per_hour"] == str(everything["offers"][0]["price_usd_per_hour"])


def test_filters_combine() -> None:
    answer = document("--provider", "gcp", "--gpu", "t4", "--spot", "--max-price", "0.25")
    assert answer["offers"]
    for offer in answer["offers"]:
        assert offer["provider"] == "gcp" and offer["capacity_type"] == "spot"
        assert offer["accelerator"] == "T4" and offer["price_usd_per_hour"] <= 0.25
    assert document("--min-count", "16")["offers"][0]["accelerators_per_instance"] == 16


def test_sort_per_gpu() -> None:
    offers = document("--gpu", "V100", "--sort", "per-gpu")["offers"]
    rates = [offer["usd_per_accelerator_hour"] for offer in offers]
    assert rates == sorted(rates)
    assert offers[0]["accelerators_per_instance"] == 8


def test_a_slice_is_priced_whole() -> None:
    (slice_offer,) = document("--gpu", "tpu-v3-8", "--region", "us-east1")["offers"]
    assert slice_offer["price_usd_per_hour"] == slice_offer["usd_per_accelerator_hour"] == 8.0


def test_all_shows_refused_rows_with_the_reason() -> None:
    arguments = ("--gpu", "H100", "--provider", "aws", "--region", "us-east-1", "--spot")
    plain = document(*arguments)
    assert {o["status"] for o in plain["offers"]} == {"accepted"}
    everything = document(*arguments, "--all")
    refused = [o for o in everything["offers"] if o["status"] == "refused"]
    assert [o["offer_id"] for o in refused] == [
        "aws/use1-az1/p5.48xlarge/spot",
        "aws/use1-az4/p5.48xlarge/spot",
    ]
    assert "no reason to take the risk" in refused[0]["reasons"][0]
    text = run(*arguments, "--all").stdout
    assert "spot (refused)" in text
    assert "refused  aws/use1-az1/p5.48xlarge/spot: spot costs as much as on-demand" in text


def test_flagged_rows_are_always_shown_with_the_reason() -> None:
    text = run("--gpu", "V100", "--region", "us-east-2", "--min-count", "8", "--spot").stdout
    assert "spot (flagged)" in text
    assert "exactly 10% of on-demand" in text


def test_of_a_duplicate_only_the_refused_row_carries_the_reason() -> None:
    catalog = checked_catalog([an_offer(), an_offer(price_usd_per_hour=3.0)])
    offers = (*catalog.offers, *catalog.refused)
    made = prices_document(
        catalog, considered=offers, matching=offers, sort="price", limit=0, now_s=SNAPSHOT_S
    )
    assert [(o.price_usd_per_hour, o.status) for o in made.offers] == [
        (3.06, "accepted"),
        (3.0, "refused"),
    ]
    assert made.offers[0].reasons == ()


def test_historic_prices_only_when_asked_for() -> None:
    result = run("--gpu", "k80")
    assert result.exit_code == 0
    assert result.stdout.startswith("0 of ")
    assert "`--historic`" in result.stderr
    answer = document("--gpu", "k80", "--historic")
    assert answer["offers"][0]["flags"] == ["derived", "historic"]
    assert any("simulation only" in note for note in answer["notes"])


def test_unknown_names_are_refused_with_the_nearest() -> None:
    assert refusal("--provider", "awz").hints == ("did you mean `aws`?",)
    assert refusal("--region", "us-east1-1").hints[0].startswith("did you mean `us-east")
    assert "V100" in " ".join(refusal("--gpu", "v10").hints)


def test_contradictions_and_impossible_prices_are_refused() -> None:
    assert "exclude each other" in refusal("--spot", "--on-demand").message
    for price in ("0", "-1", "nan", "inf"):
        assert "--max-price" in refusal("--max-price", price).message


def test_csv_leaves_the_unknown_empty() -> None:
    offers = (a_spot_offer(price_usd_per_hour=None, interruption_rate_per_hour=None),)
    made = prices_document(
        Catalog(offers=offers),
        considered=offers,
        matching=offers,
        sort="price",
        limit=0,
        now_s=SNAPSHOT_S,
    )
    (row,) = csv.DictReader(io.StringIO(prices_csv(made)))
    assert (row["price_usd_per_hour"], row["interruption_rate_per_hour"]) == ("", "")
    assert (row["shareable"], row["flags"]) == ("true", "")
