"""The schema for editors agrees with the parser: on keys, and on texts right and wrong."""

import re
from typing import Any

import pytest
import yaml

from cloudgavel.jobs.job_fields import CHECKPOINT_KEYS, JOB_KEYS, SHARED_KEYS
from cloudgavel.jobs.json_schema import jobs_yaml_schema
from cloudgavel.jobs.run_fields import REHEARSAL_KEYS, RUN_KEYS
from cloudgavel.jobs.template import JOBS_YAML_TEMPLATE
from tests.unit.jobs.reading import a_job_text, a_run, mistakes_in

TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "object": dict,
    "array": list,
}
KNOWN_WORDS = {
    "$schema", "title", "description", "examples", "type", "enum", "oneOf", "anyOf", "required",
    "properties", "additionalProperties", "propertyNames", "minProperties", "items", "minItems",
    "minimum", "pattern",
}  # fmt: skip


def accepts(schema: Any, value: Any) -> bool:
    """The part of JSON Schema that ours uses; a word that is not known here fails the test."""
    if isinstance(schema, bool):
        return schema
    assert set(schema) <= KNOWN_WORDS, set(schema) - KNOWN_WORDS
    types = schema.get("type", list(TYPES))
    types = [types] if isinstance(types, str) else types
    if not any(
        isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))
        for name in types
    ):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "oneOf" in schema and sum(accepts(each, value) for each in schema["oneOf"]) != 1:
        return False
    if "anyOf" in schema and not any(accepts(each, value) for each in schema["anyOf"]):
        return False
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        names = schema.get("propertyNames", {}).get("pattern", "")
        return (
            len(value) >= schema.get("minProperties", 0)
            and set(schema.get("required", ())) <= set(value)
            and all(re.search(names, key) for key in value)
            and all(
                accepts(properties.get(key, schema.get("additionalProperties", True)), each)
                for key, each in value.items()
            )
        )
    if isinstance(value, list):
        return len(value) >= schema.get("minItems", 0) and all(
            accepts(schema.get("items", True), each) for each in value
        )
    if isinstance(value, int | float) and not isinstance(value, bool):
        return bool(value >= schema.get("minimum", value))
    return True


def test_keys_are_those_of_the_parser() -> None:
    schema = jobs_yaml_schema()["properties"]
    assert set(schema) == set(RUN_KEYS)
    job = schema["jobs"]["items"]["properties"]
    assert set(job) == set(JOB_KEYS)
    assert set(schema["defaults"]["anyOf"][0]["properties"]) == set(SHARED_KEYS)
    assert set(schema["rehearsal"]["anyOf"][0]["properties"]) == set(REHEARSAL_KEYS)
    checkpoint = job["checkpoint"]["anyOf"][0]["oneOf"][1]["properties"]
    assert set(checkpoint) == set(CHECKPOINT_KEYS)


@pytest.mark.parametrize(
    "text",
    [
        JOBS_YAML_TEMPLATE,
        a_run(a_job_text(accelerators="{V100: 1, A100: [1, 8], tpu-v3-8: 1}")),
        a_run(a_job_text(accelerators="[{T4: 1}, A100:8]", deadline="null", env="{A: no, B: 1}")),
        a_run(a_job_text(command="{gpu: ./a, any: ./b}", foreach="{lr: [0.1, 1e-3]}")),
        a_run(a_job_text(), head="clouds: {aws: {regions: [us-east-1]}, gcp: }"),
        a_run(a_job_text(), head="clouds: [aws, gcp]\nbudget: $500\ndeadline_margin: 10%"),
        a_run(a_job_text(checkpoint="ckpt", throughput="{V100: 7.8}", retries="3")),
    ],
)
def test_both_accept(text: str) -> None:
    assert mistakes_in(text) == ()
    assert accepts(jobs_yaml_schema(), yaml.safe_load(text))


@pytest.mark.parametrize(
    "text",
    [
        a_run(a_job_text(num_workers="3")),
        a_run(a_job_text(checkpoint="{evry: 3m}")),
        a_run(a_job_text(accelerators="[]")),
        a_run(a_job_text(accelerators="{V100: 0}")),
        a_run(a_job_text(foreach="{lr: 3}")),
        a_run(a_job_text(), head="clouds: {azure: {}}"),
        a_run(a_job_text(), head="polcy: x"),
        "name: x",
        "name: x\njobs: []",
    ],
)
def test_both_refuse(text: str) -> None:
    assert mistakes_in(text)
    assert not accepts(jobs_yaml_schema(), yaml.safe_load(text))
