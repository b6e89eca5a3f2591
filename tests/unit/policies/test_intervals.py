"""Intervals and windows."""

import numpy as np
import pytest

from cloudgavel.policies.intervals import (
    Windows,
    chain_windows,
    interval_bounds,
    rounded_down,
    segments,
)
from tests.unit.policies.problems import a_job


def test_bounds_lie_on_the_instants_and_are_filled_up_early() -> None:
    bounds = interval_bounds(np.array([30.0, 10.0, 10.0]), 100.0, count=5)
    assert bounds.size == 6 and bounds[0] == 0.0 and bounds[-1] == 100.0
    assert {10.0, 30.0} <= set(bounds)


def test_too_many_instants_lose_those_that_matter_least() -> None:
    bounds = interval_bounds(np.array([10.0, 50.0, 50.5, 90.0]), 100.0, count=4)
    assert bounds.tolist() == [0.0, 10.0, 50.0, 90.0, 100.0]


def test_a_chain_passes_its_times_on_in_both_directions() -> None:
    jobs = [a_job("a"), a_job("b", after=("a",)), a_job("c", after=("b", "gone"), deadline_s=90.0)]
    plain = chain_windows(jobs, np.array([10.0, 20.0, 30.0]))
    assert plain.release_s.tolist() == [0.0, 10.0, 30.0]
    assert plain.deadline_s.tolist() == [40.0, 60.0, 90.0]
    shared = chain_windows(jobs, np.array([10.0, 20.0, 30.0]), milestones=True)
    assert shared.deadline_s == pytest.approx([15.0, 45.0, 90.0])
    assert shared.release_s == pytest.approx([0.0, 15.0, 45.0])


def test_a_cycle_keeps_its_own_windows() -> None:
    jobs = [a_job("a", after=("b",), deadline_s=5.0), a_job("b", after=("a",))]
    windows = chain_windows(jobs, np.array([1.0, 1.0]), milestones=True)
    assert windows.deadline_s.tolist() == [5.0, np.inf]
    assert windows.release_s.tolist() == [0.0, 0.0]


def test_deadlines_round_down_only_where_enough_is_left() -> None:
    bounds = np.array([0.0, 10.0, 20.0])
    windows = Windows(release_s=np.zeros(3), deadline_s=np.array([19.0, 19.0, np.inf]))
    rounded = rounded_down(windows, bounds, np.array([5.0, 15.0, 5.0]))
    assert rounded.deadline_s.tolist() == [10.0, 19.0, np.inf]


def test_segments_cover_each_window_once_and_mark_what_is_late() -> None:
    bounds = np.array([0.0, 10.0, 20.0, 40.0])
    windows = Windows(release_s=np.array([5.0]), deadline_s=np.array([15.0]))
    kept = segments(windows, bounds, with_late=False)
    assert kept.length_s.tolist() == [5.0, 5.0] and not kept.late.any()
    both = segments(windows, bounds, with_late=True)
    assert both.length_s[both.late].tolist() == [5.0, 20.0]
    assert both.length_s.sum() == 35.0
    passed = segments(
        Windows(release_s=np.array([0.0]), deadline_s=np.array([-3.0])), bounds, with_late=True
    )
    assert passed.late.all() and passed.length_s.sum() == 40.0
