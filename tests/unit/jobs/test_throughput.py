import pytest

from cloudgavel.jobs.spec import AcceleratorRequest, JobSpec
from cloudgavel.jobs.throughput import gang_speedup, memory_fits


def gang(name: str) -> AcceleratorRequest:
    return AcceleratorRequest(accelerator=name)


def job(memory_gib: float | None) -> JobSpec:
    return JobSpec(
        name="a",
        commands={"any": "./a"},
        steps_total=1,
        accelerators=(gang("V100"), gang("A100")),
        memory_gib=memory_gib,
    )


def test_gangs_lose_a_tenth_with_every_doubling() -> None:
    assert gang_speedup(1) == 1
    assert gang_speedup(8) == pytest.approx(8 * 0.9**3)


def test_a_model_larger_than_the_memory_does_not_fit() -> None:
    assert not memory_fits(job(30), gang("V100"))
    assert memory_fits(job(30), gang("A100"))
    assert memory_fits(job(None), gang("P4"))
