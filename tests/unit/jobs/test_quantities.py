import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.jobs.quantities import (
    LONGEST_DURATION_S,
    QuantityError,
    format_duration,
    format_size_gib,
    parse_boolean,
    parse_duration_s,
    parse_integer,
    parse_number,
    parse_share,
    parse_size_gib,
    parse_steps,
    parse_usd,
    quoted,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("24h", 86400),
        ("90m", 5400),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("1 hour and 30 minutes", 5400),
        ("1 hour, 30 minutes", 5400),
        ("2 days", 172800),
        ("45s", 45),
        ("1.5h", 5400),
        (".5h", 1800),
        ("01:30:00", 5400),
        ("12:30:00", 45000),
        ("250ms", 0.25),
        ("1w", 604800),
        ("2H", 7200),
        ("0", 0),
        ("0s", 0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("24", "the unit is missing: write 24s, 24m, 24h or 24d"),
        ("1:30", "write 1h30m, 1m30s or HH:MM:SS"),
        ("-5m", "cannot be negative"),
        ("6pm", "expected a duration like 24h"),
        ("1h2h", "expected a duration"),
        ("h", "expected a duration"),
        ("", "expected a duration"),
        ("1h and", "expected a duration"),
        ("1h,", "expected a duration"),
        ("nan", "expected a duration"),
        ("inf h", "expected a duration"),
        ("200 years", "expected a duration"),
        ("99999999d", "longer than 100 years"),
        ("٣h", "expected a duration"),
    ],
)
def test_durations_refused(text: str, part: str) -> None:
    with pytest.raises(QuantityError, match="got") as caught:
        parse_duration_s(text)
    assert part in str(caught.value)
    assert quoted(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "gib"),
    [
        ("12GiB", 12),
        ("12Gi", 12),
        ("512MiB", 0.5),
        ("1 TiB", 1024),
        ("400MB", 400e6 / 2**30),
        ("16G", 16e9 / 2**30),
        ("1073741824B", 1),
        ("1.5gib", 1.5),
    ],
)
def test_sizes(text: str, gib: float) -> None:
    assert parse_size_gib(text) == pytest.approx(gib, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("12", "the unit is missing: write 12GiB or 12MiB"),
        ("0GiB", "more than zero"),
        ("-1GiB", "more than zero"),
        ("12 bananas", "expected a size"),
        ("nanGiB", "expected a size"),
        ("", "expected a size"),
    ],
)
def test_sizes_refused(text: str, part: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_size_gib(text)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("900_000", 900_000),
        ("900,000", 900_000),
        ("9e5", 900_000),
        ("900k", 900_000),
        ("1.5M", 1_500_000),
        ("2B", 2_000_000_000),
        ("10.0", 10),
        ("1", 1),
        ("123456789012345", 123456789012345),
    ],
)
def test_steps_are_exact(text: str, steps: int) -> None:
    found = parse_steps(text)
    assert found == steps
    assert type(found) is int


@pytest.mark.parametrize("text", ["0", "-3", ".nan", "nan", "inf", "1.5", "1e-3", "1e99", "", "k"])
def test_steps_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_steps(text)


@pytest.mark.parametrize(
    ("text", "usd"),
    [("500", 500), ("$500", 500), ("1,500.50", 1500.5), ("500 USD", 500), ("-5", -5), ("-$5", -5)],
)
def test_money(text: str, usd: float) -> None:
    assert parse_usd(text) == usd


def test_other_currencies_are_named() -> None:
    with pytest.raises(QuantityError, match="only US dollars"):
        parse_usd("€500")
    with pytest.raises(QuantityError, match=r"at most \$1e12"):
        parse_usd("1e14")
    with pytest.raises(QuantityError, match="expected an amount"):
        parse_usd("nan")


def test_shares() -> None:
    assert parse_share("10%") == parse_share("0.1") == 0.1
    assert parse_share("100%") == 1
    assert parse_share("0") == 0
    for text, part in (("10", "write 10%"), ("101%", "at most"), ("-1%", "negative"), ("x", "10%")):
        with pytest.raises(QuantityError, match=part):
            parse_share(text)


def test_numbers_integers_and_booleans() -> None:
    assert parse_number("1e-3") == 0.001
    assert parse_integer("1_000") == 1000
    assert parse_boolean("No") is False
    assert parse_boolean("TRUE") is True
    for reader, text in (
        (parse_number, "nan"),
        (parse_number, "1e999"),
        (parse_number, "7,8"),
        (parse_integer, "1.5"),
        (parse_boolean, "maybe"),
    ):
        with pytest.raises(QuantityError):
            reader(text)


@settings(max_examples=150, deadline=None)
@given(st.floats(min_value=0, max_value=LONGEST_DURATION_S - 1))
def test_durations_round_trip_exactly(duration_s: float) -> None:
    assert parse_duration_s(format_duration(duration_s)) == duration_s


@settings(max_examples=150, deadline=None)
@given(st.floats(min_value=1e-9, max_value=1e9))
def test_sizes_round_trip_exactly(size_gib: float) -> None:
    assert parse_size_gib(format_size_gib(size_gib)) == size_gib


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="0123456789.,:-+ehmsdk_ GiBMUSD$%naif", max_size=12))
def test_readers_return_finite_numbers_or_say_why_not(text: str) -> None:
    for reader in (
        parse_duration_s,
        parse_size_gib,
        parse_steps,
        parse_integer,
        parse_number,
        parse_share,
        parse_usd,
    ):
        try:
            value = reader(text)
        except QuantityError as wrong:
            assert "got" in str(wrong)
        else:
            assert math.isfinite(value)


def test_durations_are_written_for_people() -> None:
    assert format_duration(5400) == "1h30m"
    assert format_duration(0) == "0s"
    assert format_duration(90061.5) == "1d1h1m1.5s"
    with pytest.raises(ValueError, match="not a duration"):
        format_duration(math.nan)


def test_quoting_is_short_and_on_one_line() -> None:
    assert quoted('a"b\nc') == '"a\\"b\\nc"'
    assert len(quoted("x" * 500)) == 62
