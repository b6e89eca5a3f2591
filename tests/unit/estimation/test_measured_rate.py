import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgavel.estimation.measured_rate import KEPT_WINDOWS, WINDOW_S, RateWindows


def after(*reports: tuple[float, int]) -> RateWindows:
    windows = RateWindows()
    for at_s, step in reports:
        windows = windows.progressed(at_s, step)
    return windows


def test_nothing_counts_before_three_windows():
    steady = [(120.0 * n, 60 * n) for n in range(5)]
    assert after(*steady[:3]).steps_per_s is None
    assert after(*steady[:4]).steps_per_s == pytest.approx(0.5)


def test_a_slow_job_is_measured_from_step_to_step():
    reports = [(1000.0 * n + lag, n) for n in range(5) for lag in (0.0, 100.0, 600.0)]
    assert after(*reports).steps_per_s == pytest.approx(0.001, rel=0.01)


def test_wild_reports_are_outvoted():
    """A save, a jump ahead and a lie: the others are right."""
    step, reports = 0, [(0.0, 0)]
    for n in range(1, 10):
        step += {3: 5, 6: 10**9}.get(n, 240)
        reports.append((120.0 * n, step))
    assert after(*reports).steps_per_s == pytest.approx(2.0)


def test_a_pause_is_not_measured():
    windows = after((0.0, 0), (120.0, 120), (240.0, 240))
    windows = windows.paused().progressed(5000.0, 240).progressed(5120.0, 360)
    assert windows.rates_steps_per_s == (1.0, 1.0, 1.0)


def test_what_runs_backwards_says_nothing():
    windows = after((0.0, 1000), (120.0, 400), (240.0, 520))
    assert windows.rates_steps_per_s == (1.0,)
    assert after((500.0, 0), (100.0, 50), (220.0, 170)).rates_steps_per_s == (1.0,)


def test_a_new_pace_is_believed_after_half_of_the_windows():
    reports = [(120.0 * n, 120 * n) for n in range(31)]
    at_s, step = reports[-1]
    reports += [(at_s + 120.0 * n, step + 12 * n) for n in range(1, KEPT_WINDOWS)]
    assert after(*reports[:-10]).steps_per_s == pytest.approx(1.0)
    assert after(*reports).steps_per_s == pytest.approx(0.1)


@given(
    st.floats(1e-4, 1e5),
    st.lists(st.floats(15, 300), min_size=40, max_size=80),
    st.integers(0, 2**31),
)
def test_irregular_reports_of_a_steady_job_give_its_rate(rate, gaps, begin):
    at_s, reports = 0.0, []
    for gap_s in gaps:
        at_s += gap_s
        reports.append((at_s, begin + int(rate * at_s)))
    found = after(*reports)
    assert len(found.rates_steps_per_s) <= KEPT_WINDOWS
    if found.steps_per_s is not None:
        # A count of whole steps is off by one at either end of a window.
        slack = 1.0 / (rate * WINDOW_S)
        assert rate * (1 - slack) - 1e-9 <= found.steps_per_s <= rate * (1 + slack) + 1e-9
