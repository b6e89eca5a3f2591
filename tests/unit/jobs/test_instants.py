from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.jobs.instants import looks_like_instant, parse_instant_at_s
from cloudgavel.jobs.quantities import QuantityError

NOON_S = datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-01T12:00:00Z",
        "2026-12-01T12:00Z",
        "2026-12-01 12:00:00 Z",
        "2026-12-01T13:00:00+01:00",
        "2026-12-01T13:00:00+0100",
        "2026-12-01T13:00+01",
        "2026-12-01T06:30-05:30",
        "2026-12-01T13:00 Europe/Berlin",
        "2026-12-01T13:00[Europe/Berlin]",
        "2026-12-01T12:00 UTC",
    ],
)
def test_spellings_of_one_instant(text: str) -> None:
    assert parse_instant_at_s(text) == NOON_S


def test_a_date_with_a_zone_is_its_first_moment() -> None:
    assert parse_instant_at_s("2026-12-01 UTC") == NOON_S - 12 * 3600


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("2026-12-01T12:00:00", "time zone is missing: write 2026-12-01T12:00:00Z for UTC"),
        ("2026-12-01", "time zone is missing: write 2026-12-01T00:00Z"),
        ("2026-03-29T02:30 Europe/Berlin", "does not exist in Europe/Berlin"),
        (
            "2026-10-25T02:30 Europe/Berlin",
            "happens twice in Europe/Berlin: write "
            "2026-10-25T02:30+02:00 or 2026-10-25T02:30+01:00",
        ),
        ("2026-12-01T12:00 Europe/Berln", "unknown time zone `Europe/Berln`"),
        ("2026-12-01T12:00 Europe", "unknown time zone"),
        ("2026-12-01T12:00+01:00 Europe/Berlin", "not both"),
        ("2026-13-01T12:00Z", "no such date"),
        ("2026-12-01T25:00Z", "no such date"),
        ("2026-12-01T12:00+19:00", "no place on earth"),
        ("0001-01-01T00:00Z", "year is out of range"),
        ("tomorrow", "expected an instant"),
    ],
)
def test_refused_with_what_would_be_right(text: str, part: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_instant_at_s(text)
    assert part in str(caught.value)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(min_value=32_000_000, max_value=200_000_000_000),
    st.integers(min_value=-12 * 60, max_value=14 * 60),
)
def test_any_offset_means_the_same_instant(at_s: int, ahead_min: int) -> None:
    sign = "-" if ahead_min < 0 else "+"
    hours, minutes = divmod(abs(ahead_min), 60)
    local = datetime.fromtimestamp(at_s, UTC) + timedelta(minutes=ahead_min)
    text = f"{local:%Y-%m-%dT%H:%M:%S}{sign}{hours:02}:{minutes:02}"
    assert parse_instant_at_s(text) == at_s


def test_what_begins_like_a_date_is_meant_as_one() -> None:
    assert looks_like_instant("2026-12-01T12:00Z")
    assert not looks_like_instant("12:30:00")
    assert not looks_like_instant("24h")
