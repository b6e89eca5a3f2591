"""What a run may rent, from the catalogue alone."""

import pytest

from cloudgavel.errors import UsageError
from cloudgavel.jobs.spec import AcceleratorRequest, CloudSpec, JobSpec, RunSpec
from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.runtime.assemble import rehearsal_offers

GOOGLE = (CloudSpec(provider="gcp", project="p"),)


def a_run(*accelerators: str, clouds=GOOGLE) -> RunSpec:
    job = JobSpec(
        name="a",
        commands={"any": "true"},
        steps_total=1,
        accelerators=tuple(AcceleratorRequest(accelerator=each) for each in accelerators),
    )
    return RunSpec(name="x", jobs=(job,), clouds=clouds)


def test_a_slice_of_several_hosts_is_refused_with_the_reason_when_nothing_else_will_do():
    with pytest.raises(UsageError, match="job `a` accepts nothing that is rented") as caught:
        rehearsal_offers(a_run("tpu-v3-32"), bundled_catalog())
    assert ("why", "tpu-v3-32 has 4 hosts; slices of one host are run") in caught.value.facts


def test_with_another_choice_it_is_only_left_out():
    offers = rehearsal_offers(a_run("tpu-v3-32", "tpu-v3-8"), bundled_catalog())
    assert {offer.accelerator for offer in offers} == {"tpu-v3-8"}
