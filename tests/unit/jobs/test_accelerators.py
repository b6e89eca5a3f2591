import csv
import os
from pathlib import Path

import pytest

from cloudgavel.errors import ExitCode
from cloudgavel.jobs.accelerators import (
    CATALOGUE,
    AcceleratorKind,
    UnknownAcceleratorError,
    accelerator,
    canonical,
)


@pytest.mark.parametrize(
    ("spelt", "name"),
    [
        ("V100", "V100"),
        ("v100", "V100"),
        (" nvidia-tesla-v100 ", "V100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("tesla_v100_sxm2_32gb", "V100-32GB"),
        ("a100-40gb", "A100"),
        ("A100-SXM4-80GB", "A100-80GB"),
        ("nvidia-h100-80gb", "H100"),
        ("nvidia-l4", "L4"),
        ("trn1", "Trainium"),
        ("tpu-v5e-8", "tpu-v5litepod-8"),
        ("v5litepod-8", "tpu-v5litepod-8"),
        ("v3-8", "tpu-v3-8"),
        ("TPU-v3-8", "tpu-v3-8"),
        ("tpuv3-8", "tpu-v3-8"),
    ],
)
def test_spellings_people_use(spelt: str, name: str) -> None:
    assert canonical(spelt) == name


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_canonical_name_in_any_case_is_itself(name: str) -> None:
    assert canonical(name) == canonical(name.lower()) == canonical(name.upper()) == name


@pytest.mark.parametrize(
    ("wrong", "suggestion"),
    [("V1000", "V100"), ("A10", "A10G"), ("tpu-v3-16", "tpu-v3-32"), ("a100-32gb", "A100")],
)
def test_unknown_names_suggest_the_nearest(wrong: str, suggestion: str) -> None:
    with pytest.raises(UnknownAcceleratorError) as caught:
        canonical(wrong)
    assert suggestion in caught.value.suggestions
    assert f"`{suggestion}`" in caught.value.hints[0]
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_name_like_nothing_lists_what_is_known() -> None:
    with pytest.raises(UnknownAcceleratorError) as caught:
        canonical("RTX4090")
    assert caught.value.suggestions == ()
    assert "K80" in caught.value.hints[0]


@pytest.mark.parametrize("name", CATALOGUE)
def test_figures_are_plausible_and_sourced(name: str) -> None:
    record = CATALOGUE[name]
    assert record.source
    assert 8 <= record.memory_gib <= 192
    assert 100 <= record.bandwidth_gb_per_s <= 10_000
    assert 4 <= record.peak_tflops <= 3_000
    assert record.is_slice == (record.kind is AcceleratorKind.TPU)
    if not record.is_slice:
        assert record.chips == 1


def test_a_slice_names_cores_up_to_v4_and_chips_for_v5e() -> None:
    assert accelerator("v3-8").chips == 4
    assert accelerator("v3-32").chips == 16
    assert accelerator("tpu-v5e-8").chips == 8


def test_every_accelerator_with_a_price_is_in_the_catalogue() -> None:
    data = os.environ.get("CLOUDGAVEL_DATA")
    if not data or not (prices := Path(data) / "prices.csv").exists():
        pytest.skip("CLOUDGAVEL_DATA does not point to the raw price list")
    with prices.open(encoding="utf-8") as file:
        names = {row["accelerator"] for row in csv.DictReader(file)} - {""}
    assert len(names) > 20
    assert names <= set(CATALOGUE)
