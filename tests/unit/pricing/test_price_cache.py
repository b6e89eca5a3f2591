"""What is kept of prices that were read, and what is believed of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.pricing.cache import CacheError, PriceCache, cache_from_json, cache_to_json
from cloudgavel.pricing.catalog import Catalog, checked_catalog
from cloudgavel.pricing.offer import Offer
from cloudgavel.runtime.price_cache import (
    cache_path,
    catalog_of_run,
    known_catalog,
    read_cache,
    write_cache,
)

NOW_S = 1_795_953_600.0


def some_offers(count: int = 3) -> tuple[Offer, ...]:
    return bundled_catalog().search(providers={"aws"}, accelerators={"V100"})[:count]


def read_now(*offers: Offer, factor: float = 1.01) -> Catalog:
    return checked_catalog(
        [
            replace(
                offer,
                price_usd_per_hour=round((offer.price_usd_per_hour or 0.0) * factor, 4),
                observed_at_s=NOW_S,
                source="test",
            )
            for offer in offers
        ],
        reference=bundled_catalog().offers,
    )


def test_a_cache_comes_back_as_it_was_with_what_was_refused() -> None:
    offers = some_offers()
    fresh = read_now(*offers[:2]).merge(read_now(offers[2], factor=0.0001))
    assert fresh.refused
    cache = PriceCache().with_read("aws", fresh, NOW_S)
    assert cache_from_json(cache_to_json(cache)) == cache


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": "cloudgavel/price-cache", "schema_version": 2}',
        '{"schema": "cloudgavel/price-cache", "schema_version": 1, "read_at_s": {}, '
        '"offers": [{"provider": "aws"}], "refused": [], "findings": []}',
    ],
)
def test_what_is_no_cache_is_not_used_and_that_is_told(text: str, tmp_path: Path) -> None:
    with pytest.raises(CacheError):
        cache_from_json(text)
    (tmp_path / "prices.json").write_text(text)
    notes: list[str] = []
    environment = {"CLOUDGAVEL_CACHE_DIR": str(tmp_path)}
    assert known_catalog(environment, note=notes.append) == bundled_catalog()
    assert len(notes) == 1
    assert "is not used" in notes[0]


def test_read_prices_go_before_the_snapshot_and_the_rest_stays(tmp_path: Path) -> None:
    environment = {"CLOUDGAVEL_CACHE_DIR": str(tmp_path / "new" / "directory")}
    first, second, third = some_offers()
    write_cache(cache_path(environment), PriceCache().with_read("aws", read_now(first), NOW_S))
    known = known_catalog(environment)
    read = known.get(first.offer_id)
    assert read is not None
    assert (read.observed_at_s, read.source) == (NOW_S, "test")
    assert known.get(second.offer_id) == second
    assert len(known.offers) == len(bundled_catalog().offers)
    again = read_cache(cache_path(environment)).with_read("aws", read_now(third), NOW_S + 60)
    assert {offer.offer_id for offer in again.catalog.offers} == {first.offer_id, third.offer_id}
    assert again.read_at_s == {"aws": NOW_S + 60}


def test_where_the_cache_is() -> None:
    assert cache_path({"HOME": "/h"}) == Path("/h/.cache/cloudgavel/prices.json")
    assert cache_path({"HOME": "/h", "XDG_CACHE_HOME": "/x"}) == Path("/x/cloudgavel/prices.json")
    assert cache_path({"XDG_CACHE_HOME": "/x", "CLOUDGAVEL_CACHE_DIR": "/c"}) == Path(
        "/c/prices.json"
    )


def test_a_run_keeps_the_prices_that_it_began_with(tmp_path: Path) -> None:
    environment = {"CLOUDGAVEL_CACHE_DIR": str(tmp_path / "cache")}
    notes: list[str] = []
    path = tmp_path / "run" / "prices.json"
    begun = catalog_of_run(path, environment, note=notes.append)
    assert begun == bundled_catalog()
    write_cache(
        cache_path(environment),
        PriceCache().with_read("aws", read_now(*some_offers()), NOW_S),
    )
    assert known_catalog(environment) != begun
    assert catalog_of_run(path, environment, note=notes.append) == begun
    assert notes == []
    unwritable = tmp_path / "file" / "prices.json"
    (tmp_path / "file").write_text("")
    assert catalog_of_run(unwritable, environment, note=notes.append).offers
    assert "could not be kept" in notes[0]


def test_the_file_is_plain_json(tmp_path: Path) -> None:
    write_cache(tmp_path / "prices.json", PriceCache().with_read("aws", read_now(), NOW_S))
    raw = json.loads((tmp_path / "prices.json").read_text())
    assert (raw["schema"], raw["schema_version"]) == ("cloudgavel/price-cache", 1)
    assert [each.name for each in tmp_path.iterdir()] == ["prices.json"]
