import re
from pathlib import Path

from cloudgavel.jobs.accelerators import CATALOGUE
from cloudgavel.jobs.job_fields import CHECKPOINT_KEYS, JOB_KEYS
from cloudgavel.jobs.run_fields import REHEARSAL_KEYS, RUN_KEYS
from tests.unit.jobs.reading import mistakes_in, read

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "jobs-yaml.md").read_text()


def test_every_key_is_explained() -> None:
    for key in {*RUN_KEYS, *JOB_KEYS, *CHECKPOINT_KEYS, *REHEARSAL_KEYS}:
        assert f"`{key}`" in PAGE, key


def test_every_accelerator_is_named() -> None:
    for name in CATALOGUE:
        family, _, size = name.rpartition("-")
        assert re.search(rf"\b{name}\b", PAGE) or (
            re.search(rf"\b{family}-[0-9]", PAGE) and f"-{size}" in PAGE
        ), name


def test_the_example_is_right() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert mistakes_in(example) == ()
    assert [job.name for job in read(example).jobs][-1] == "sweep-lr-0.001"
