import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.estimation.gang_columns import column_of, prior_covariance
from cloudgavel.estimation.job_rates import RateEstimate, estimated_rates
from cloudgavel.estimation.reference_model import column_of_label, reference_model
from cloudgavel.jobs.accelerators import CATALOGUE
from cloudgavel.jobs.profiles import PROFILES
from cloudgavel.jobs.spec import AcceleratorRequest, JobSpec

EVERY = "V100 V100:8 P100 K80 T4 A100 A100:8 H100 tpu-v3-8"
gangs = st.lists(
    st.tuples(st.sampled_from(sorted(CATALOGUE)), st.sampled_from([1, 2, 8])),
    min_size=2,
    max_size=6,
    unique=True,
)


def a_spec(on: str = EVERY, **changes) -> JobSpec:
    requests = []
    for label in on.split():
        accelerator, _, count = label.partition(":")
        requests.append(AcceleratorRequest(accelerator=accelerator, count=int(count or 1)))
    fields = {"name": "a", "commands": {"any": "./a"}, "steps_total": 1}
    return JobSpec(**fields, accelerators=tuple(requests), **changes)


def medians(found: dict[str, RateEstimate]) -> dict[str, float]:
    return {label: each.median_steps_per_s for label, each in found.items()}


def test_what_is_known_is_not_estimated():
    found = estimated_rates(
        a_spec("V100 A100 T4", throughput_steps_per_s={"V100": 2.0}),
        measured_steps_per_s={"A100": 5.0},
    )
    assert list(found) == ["T4"]


def test_nothing_known_is_unknown():
    assert estimated_rates(a_spec()) == {}
    assert estimated_rates(a_spec(), kin_steps_per_s={}, measured_steps_per_s={}) == {}


def test_a_gang_that_does_not_fit_is_left_out():
    spec = a_spec("V100 A100 H100", throughput_steps_per_s={"A100": 2.0}, memory_gib=30.0)
    assert list(estimated_rates(spec)) == ["H100"]


def test_a_profile_alone_is_an_estimate_near_its_own_rates():
    found = estimated_rates(a_spec(profile="resnet50/bs32"))
    assert set(found) == set(EVERY.split())
    for label in ("V100", "V100:8", "P100", "K80"):
        own = PROFILES["resnet50/bs32"][label]
        assert found[label].median_steps_per_s == pytest.approx(own, rel=0.15)
        assert found[label].low_steps_per_s < own
    assert found["A100"].log_sd > found["V100"].log_sd


def test_one_measurement_fixes_the_level_and_the_profile_gives_the_shape():
    spec = a_spec("V100 P100 K80 A100", profile="resnet50/bs32")
    before = estimated_rates(spec)
    after = estimated_rates(spec, measured_steps_per_s={"V100": PROFILES[spec.profile]["V100"] / 2})
    for label in ("P100", "K80"):
        own = PROFILES[spec.profile][label]
        assert after[label].median_steps_per_s == pytest.approx(own / 2, rel=0.2)
    for label, each in after.items():
        assert each.log_sd < before[label].log_sd


def test_kin_tell_of_the_shape_more_than_of_the_level():
    spec = a_spec("V100 A100", throughput_steps_per_s={"V100": 1.0})
    alone = estimated_rates(spec)["A100"]
    with_kin = estimated_rates(spec, kin_steps_per_s={"V100": 2.0, "A100": 16.0})["A100"]
    assert with_kin.median_steps_per_s == pytest.approx(8.0, rel=0.15)
    assert with_kin.log_sd < 0.5 * alone.log_sd


def test_kin_alone_are_enough_for_an_estimate():
    found = estimated_rates(a_spec("V100 A100"), kin_steps_per_s={"V100": 2.0})
    assert found["V100"].median_steps_per_s == pytest.approx(2.0)
    assert found["V100"].low_steps_per_s == pytest.approx(2.0 * math.exp(-1.2816 * 0.5), rel=0.02)


def test_faster_accelerators_are_expected_to_be_faster():
    found = medians(estimated_rates(a_spec(throughput_steps_per_s={"V100": 2.0})))
    assert found["K80"] < found["P100"] < 2.0 < found["A100"] < found["H100"]
    assert found["A100"] < found["A100:8"]


def test_the_low_quantile_is_one_in_ten():
    estimate = RateEstimate(median_steps_per_s=3.0, log_sd=0.4)
    draws = 3.0 * np.exp(0.4 * np.random.default_rng(0).normal(size=100_000))
    assert (draws < estimate.low_steps_per_s).mean() == pytest.approx(0.1, abs=0.005)


@settings(deadline=None, max_examples=40)
@given(gangs, st.floats(1e-5, 1e4), st.floats(1e-3, 1e3))
def test_other_units_of_a_step_change_nothing_else(pairs, rate, factor):
    labels = [name if count == 1 else f"{name}:{count}" for name, count in pairs]
    here = estimated_rates(a_spec(" ".join(labels), throughput_steps_per_s={labels[0]: rate}))
    there = estimated_rates(
        a_spec(" ".join(labels), throughput_steps_per_s={labels[0]: rate * factor})
    )
    for label, each in here.items():
        assert math.isfinite(each.median_steps_per_s) and each.median_steps_per_s > 0
        assert 0 < each.low_steps_per_s < each.median_steps_per_s
        other = there[label]
        assert other.median_steps_per_s == pytest.approx(each.median_steps_per_s * factor, rel=1e-6)
        assert other.log_sd == pytest.approx(each.log_sd)


@settings(deadline=None, max_examples=40)
@given(gangs, st.randoms(use_true_random=False))
def test_the_order_of_accelerators_does_not_matter_and_knowing_more_helps(pairs, dice):
    labels = [name if count == 1 else f"{name}:{count}" for name, count in pairs]
    given_rates = {labels[0]: 2.0}
    one = estimated_rates(a_spec(" ".join(labels), throughput_steps_per_s=given_rates))
    shuffled = labels.copy()
    dice.shuffle(shuffled)
    other = estimated_rates(a_spec(" ".join(shuffled), throughput_steps_per_s=given_rates))
    assert medians(other) == pytest.approx(medians(one))
    more = estimated_rates(
        a_spec(" ".join(labels), throughput_steps_per_s=given_rates),
        measured_steps_per_s={labels[1]: 3.0},
    )
    for label, each in more.items():
        assert each.log_sd <= one[label].log_sd + 1e-9


def test_a_model_of_more_columns_agrees_on_those_that_both_have():
    few = (column_of("V100", 1), column_of("A100", 8))
    many = (column_of("T4", 1), *few, column_of("H100", 1), column_of("K80", 2))
    small, large = reference_model(few), reference_model(many)
    assert large.mean[1:3] == pytest.approx(small.mean)
    assert large.covariance[1:3, 1:3] == pytest.approx(small.covariance)
    assert np.linalg.eigvalsh(large.covariance).min() > 0


def test_new_columns_keep_the_regression_of_the_prior():
    """An accelerator without a profile follows the known ones as the catalogue says."""
    known = tuple(column_of_label(label) for label in sorted(PROFILES["lm/bs20"]))
    new = column_of("A100", 1)
    model = reference_model((*known, new))
    prior = prior_covariance((*known, new))
    n = len(known)
    learnt = np.linalg.solve(model.covariance[:n, :n], model.covariance[:n, n])
    believed = np.linalg.solve(prior[:n, :n], prior[:n, n])
    assert learnt == pytest.approx(believed, abs=1e-6)
