import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.jobs.accelerators import CATALOGUE
from cloudgavel.jobs.spec import AcceleratorRequest, JobSpec
from cloudgavel.jobs.throughput import (
    estimate_steps_per_s,
    gang_speedup,
    memory_fits,
    steps_per_s,
)


def gang(name: str, count: int = 1) -> AcceleratorRequest:
    return AcceleratorRequest(accelerator=name, count=count)


def job(*gangs: AcceleratorRequest, memory_gib: float | None = None, **known: float) -> JobSpec:
    return JobSpec(
        name="a",
        commands={"any": "./a"},
        steps_total=1,
        accelerators=gangs,
        throughput_steps_per_s={key.replace("_x", ":"): value for key, value in known.items()},
        memory_gib=memory_gib,
    )


def test_given_values_are_kept_and_missing_ones_unknown() -> None:
    spec = job(gang("V100"), gang("A100"), V100=7.8)
    assert steps_per_s(spec, gang("V100")) == 7.8
    assert steps_per_s(spec, gang("A100")) is None
    assert estimate_steps_per_s(spec, gang("V100")) == 7.8


def test_the_estimate_is_the_geometric_mean_of_rate_and_bandwidth() -> None:
    spec = job(gang("V100"), gang("A100"), V100=10)
    wanted = 10 * math.sqrt(312 / 125 * 1555 / 900)
    assert estimate_steps_per_s(spec, gang("A100")) == pytest.approx(wanted)


def test_gangs_lose_a_tenth_with_every_doubling() -> None:
    assert gang_speedup(1) == 1
    assert gang_speedup(8) == pytest.approx(8 * 0.9**3)
    spec = job(gang("V100"), gang("V100", 4), V100=10)
    assert estimate_steps_per_s(spec, gang("V100", 4)) == pytest.approx(10 * 4 * 0.81)


def test_the_same_accelerator_is_the_better_witness() -> None:
    spec = job(gang("V100"), gang("A100"), gang("A100", 8), V100=1, A100=100)
    assert estimate_steps_per_s(spec, gang("A100", 8)) == pytest.approx(100 * 8 * 0.729)


def test_slices_count_their_chips() -> None:
    spec = job(gang("tpu-v3-8"), gang("tpu-v3-32"), **{"tpu-v3-8": 10})
    assert estimate_steps_per_s(spec, gang("tpu-v3-32")) == pytest.approx(10 * 4 * 0.81)


def test_nothing_known_or_no_room_is_unknown() -> None:
    assert estimate_steps_per_s(job(gang("V100")), gang("V100")) is None
    spec = job(gang("V100"), gang("A100"), memory_gib=30, A100=10)
    assert estimate_steps_per_s(spec, gang("V100")) is None
    assert not memory_fits(spec, gang("V100"))
    assert memory_fits(spec, gang("A100"))
    assert memory_fits(job(gang("P4")), gang("P4"))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(CATALOGUE)), st.sampled_from(sorted(CATALOGUE)), st.floats(0.01, 1000)
)
def test_estimating_there_and_back_gives_the_given_speed(
    here: str, there: str, speed: float
) -> None:
    forth = estimate_steps_per_s(job(gang(here), gang(there), **{here: speed}), gang(there))
    assert forth is not None and forth > 0
    back = estimate_steps_per_s(job(gang(here), gang(there), **{there: forth}), gang(here))
    assert back == pytest.approx(speed)
