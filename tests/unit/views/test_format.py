"""How numbers read."""

import pytest

from cloudgavel.views.format import bar, lateness, money, span
from cloudgavel.views.table import Column, table


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        (None, "unknown"),
        (0.0, "$0.00"),
        (14.2, "$14.20"),
        (-21.96, "-$21.96"),
        (1596.4, "$1,596"),
        (0.0042, "$0.0042"),
    ],
)
def test_money(usd, text):
    assert money(usd) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "unknown"),
        (0, "0s"),
        (45, "45s"),
        (149, "2m29s"),
        (1260, "21m"),
        (3599, "1h00m"),
        (22860, "6h21m"),
        (86_385, "1d00h"),
        (123_780, "1d10h"),
        (273600, "3d04h"),
        (-90, "-1m30s"),
    ],
)
def test_span(seconds, text):
    assert span(seconds) == text


def test_lateness():
    assert lateness(100.0, None) == "none"
    assert lateness(None, 100.0) == "not reached"
    assert lateness(40.0, 100.0) == "1m early"
    assert lateness(160.0, 100.0) == "1m late"


def test_bar_is_full_only_at_the_end():
    assert bar(0.999, 10) == "[#########.]"
    assert bar(1.0, 10) == "[##########]"
    assert bar(2.0, 4) == "[####]"


def test_a_table_drops_columns_in_the_declared_order_and_never_exceeds_its_width():
    columns = (Column(head="A"), Column(head="BBBB", drop=1), Column(head="CCCC", drop=2))
    rows = [("x" * 10, "y" * 10, "z" * 10)]
    wide = table(columns, rows, width=80)
    assert "CCCC" in wide[0] and "BBBB" in wide[0]
    middle = table(columns, rows, width=30)
    assert "CCCC" not in middle[0] and "BBBB" in middle[0]
    narrow = table(columns, rows, width=9)
    assert all(len(line) <= 9 for line in narrow)
    assert narrow[1].endswith("~")
