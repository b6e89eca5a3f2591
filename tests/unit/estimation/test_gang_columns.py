import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudgavel.estimation.gang_columns import (
    GangColumn,
    column_of,
    column_of_request,
    prior_covariance,
    roofline,
)
from cloudgavel.jobs.accelerators import CATALOGUE
from cloudgavel.jobs.spec import AcceleratorRequest
from cloudgavel.jobs.throughput import gang_speedup

some_columns = st.lists(
    st.builds(
        column_of,
        st.sampled_from([*CATALOGUE, "v100", "abacus"]),
        st.sampled_from([1, 2, 3, 4, 8, 64]),
        spread=st.booleans(),
    ),
    min_size=1,
    max_size=12,
    unique=True,
)


def test_one_accelerator_is_never_spread():
    assert column_of("V100", 1, spread=True) == column_of("V100", 1)
    assert column_of("V100", 2, spread=True) != column_of("V100", 2)
    asked = AcceleratorRequest(accelerator="A100", count=8)
    assert column_of_request(asked) == GangColumn(accelerator="A100", count=8)


def test_the_roofline_is_the_geometric_mean_of_rate_and_bandwidth_ratio():
    v100, a100, eight = roofline([column_of("V100", 1), column_of("A100", 1), column_of("A100", 8)])
    assert a100 - v100 == pytest.approx(0.5 * math.log(312 / 125 * 1555 / 900))
    assert eight - a100 == pytest.approx(math.log(gang_speedup(8)))


def test_a_slice_counts_its_chips_and_a_spread_gang_is_slower():
    small, large = roofline([column_of("tpu-v3-8", 1), column_of("tpu-v3-32", 1)])
    assert large - small == pytest.approx(math.log(gang_speedup(16) / gang_speedup(4)))
    here, spread = roofline([column_of("V100", 4), column_of("V100", 4, spread=True)])
    assert spread < here


def test_a_strange_accelerator_is_like_a_v100_and_very_uncertain():
    columns = [column_of("V100", 1), column_of("K80", 1), column_of("abacus", 1)]
    v100, _, strange = roofline(columns)
    assert strange == v100 == 0
    assert prior_covariance(columns)[2, 2] > 2


@given(some_columns)
def test_the_prior_covariance_is_positive_definite_and_its_order_does_not_matter(columns):
    covariance = prior_covariance(columns)
    assert np.linalg.eigvalsh(covariance).min() > 0
    assert np.isfinite(roofline(columns)).all()
    backwards = prior_covariance(columns[::-1])
    assert backwards == pytest.approx(covariance[::-1, ::-1])
    part = columns[: len(columns) // 2]
    assert prior_covariance(part) == pytest.approx(covariance[: len(part), : len(part)])
