import json

import numpy as np
import pytest

from cloudgavel.errors import UsageError
from cloudgavel.simulator.spot.traces import Merge, SpotTrace, load_trace, merge_ticks, parse_trace


def trace(*bits: int, prices: list[float] | None = None) -> SpotTrace:
    return SpotTrace(
        name="t",
        tick_s=100.0,
        available=np.array(bits, dtype=bool),
        usd_per_hour=None if prices is None else np.array(prices),
    )


def test_a_merged_tick_is_up_only_if_all_of_it_is() -> None:
    merged = merge_ticks(trace(1, 1, 1, 0, 1, 1, 1), tick_s=300.0)
    assert merged.available.tolist() == [True, False]
    assert merged.tick_s == 300.0


def test_other_merges() -> None:
    bits = trace(1, 0, 0, 1, 1, 0, 0, 0, 0)
    assert merge_ticks(bits, tick_s=300, merge=Merge.ANY_UP).available.tolist() == [1, 1, 0]
    assert merge_ticks(bits, tick_s=300, merge=Merge.MAJORITY).available.tolist() == [0, 1, 0]


def test_prices_are_averaged_over_a_merged_tick() -> None:
    merged = merge_ticks(trace(1, 1, 1, 1, prices=[1.0, 3.0, 2.0, 2.0]), tick_s=200)
    assert merged.usd_per_hour is not None
    assert merged.usd_per_hour.tolist() == [2.0, 2.0]


def test_a_tick_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="do not fit"):
        merge_ticks(trace(1, 1, 1), tick_s=150)
    with pytest.raises(UsageError, match="shorter"):
        merge_ticks(trace(1, 1, 1), tick_s=400)


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"data": [1]},
        {"metadata": {"gap_seconds": 0}, "data": [1]},
        {"metadata": {"gap_seconds": True}, "data": [1]},
        {"metadata": {"gap_seconds": 10}, "data": []},
        {"metadata": {"gap_seconds": 10}, "data": [0, 2]},
        {"metadata": {"gap_seconds": 10}, "data": [0, 1], "prices": [1.0]},
    ],
)
def test_what_is_not_a_trace_is_refused(document: object) -> None:
    with pytest.raises(UsageError):
        parse_trace(document, name="x")


def test_unknown_prices_take_the_last_known_one(tmp_path) -> None:
    path = tmp_path / "zone.json"
    path.write_text(
        json.dumps(
            {
                "metadata": {"gap_seconds": 10},
                "data": [0, 1, 1, 0],
                "prices": [None, 2.0, None, 3.0],
            }
        )
    )
    loaded = load_trace(path)
    assert loaded.name == "zone"
    assert loaded.usd_per_hour is not None
    assert loaded.usd_per_hour.tolist() == [2.0, 2.0, 2.0, 3.0]


def test_a_missing_file_is_a_usage_error(tmp_path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        load_trace(tmp_path / "nowhere.json")
