import json

from cloudgavel.jobs.json_schema import jobs_yaml_schema
from cloudgavel.jobs.profiles import PROFILES
from tests.unit.jobs.reading import job_with, mistake_with


def test_a_profile_is_named_in_any_case() -> None:
    assert job_with(profile="ResNet50/BS32").profile == "resnet50/bs32"
    assert job_with().profile is None


def test_an_unknown_profile_is_a_mistake_with_the_nearest_name() -> None:
    said = mistake_with(profile="resnet50/bs31")
    assert said.startswith("unknown profile `resnet50/bs31`; did you mean `resnet50/bs")
    assert "; known are resnet18/bs16, " in mistake_with(profile="my-own-model")


def test_rates_are_positive_and_what_was_not_measured_is_missing() -> None:
    assert len(PROFILES) == 26
    for name, rates in PROFILES.items():
        assert rates and all(rate > 0 for rate in rates.values()), name
    assert PROFILES["lm/bs20"]["V100:8"] == 497
    assert "K80:2" not in PROFILES["resnet50/bs128"]
    assert set(PROFILES["a3c"]) == {"V100", "P100", "K80"}


def test_the_schema_names_them() -> None:
    text = json.dumps(jobs_yaml_schema())
    assert all(name in text for name in PROFILES)
