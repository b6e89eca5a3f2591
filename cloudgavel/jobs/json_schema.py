"""JSON Schema of jobs.yaml, for completion and checks in editors.

It accepts everything that ``parse_run`` accepts and catches the commonest mistakes; the last word
has ``parse_run``.
"""

from typing import Any, Final

from cloudgavel.jobs.accelerators import CATALOGUE
from cloudgavel.jobs.profiles import PROFILES

_TEXT: Final = {"type": "string"}
_NUMBER_OR_TEXT: Final = {"type": ["number", "string"]}
_VALUE: Final = {"type": ["string", "number", "boolean", "null"]}
_TEXT_OR_TEXTS: Final = {"oneOf": [_TEXT, {"type": "array", "items": _TEXT}]}


def _described(schema: dict[str, Any], description: str, *examples: Any) -> dict[str, Any]:
    described = {**schema, "description": description}
    if examples:
        described["examples"] = list(examples)
    return described


def _object(properties: dict[str, Any], *, required: tuple[str, ...] = ()) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }
    if required:
        schema["required"] = list(required)
    return schema


def _accelerators() -> dict[str, Any]:
    count = {"type": ["integer", "string", "null"], "minimum": 1}
    counts = {"oneOf": [count, {"type": "array", "items": count, "minItems": 1}]}
    by_name = {
        "type": "object",
        "properties": dict.fromkeys(CATALOGUE, counts),
        "additionalProperties": counts,
        "minProperties": 1,
    }
    return {
        "oneOf": [
            _TEXT,
            by_name,
            {"type": "array", "items": {"oneOf": [_TEXT, by_name]}, "minItems": 1},
        ]
    }


def _clouds() -> dict[str, Any]:
    common = {
        "regions": _described(_TEXT_OR_TEXTS, "Regions to rent in; all when left out"),
        "max_instances": {"type": ["integer", "string"], "minimum": 1},
    }
    queue = _described(_TEXT_OR_TEXTS, "SQS queues that get spot interruption warnings")
    aws = {**_object({**common, "interruption_queue": queue}), "type": ["object", "null"]}
    gcp = {**_object({"project": _TEXT, **common}), "type": ["object", "null"]}
    by_name = _object({"aws": aws, "gcp": gcp})
    names = {"type": "string", "enum": ["aws", "gcp"]}
    listed = {"type": "array", "items": {"oneOf": [names, by_name]}}
    return {"oneOf": [by_name, names, listed]}


def _checkpoint() -> dict[str, Any]:
    fields = {
        "path": _described(_TEXT, "Directory inside workdir", "ckpt"),
        "every": _described(_TEXT, "Time between periodic saves", "auto", "10m"),
        "size": _described(_TEXT, "Size of one checkpoint", "400MiB"),
        "save": _described(_NUMBER_OR_TEXT, "How long one save holds the job up", "30s"),
        "restore": _described(_NUMBER_OR_TEXT, "Time from start to the first step", "60s"),
    }
    return {"oneOf": [_TEXT, _object(fields)]}


def _job_properties() -> dict[str, Any]:
    command = {"oneOf": [_TEXT, _object({"any": _TEXT, "gpu": _TEXT, "tpu": _TEXT})]}
    throughput = {
        "oneOf": [
            _NUMBER_OR_TEXT,
            {"type": "object", "additionalProperties": {"type": ["number", "string", "null"]}},
        ]
    }
    return {
        "command": _described(command, "Shell command, or one for each of gpu and tpu"),
        "setup": _described(_TEXT, "Shell command run once per machine and content"),
        "workdir": _described(_TEXT, "Directory of the job, relative to this file"),
        "image": _described(_TEXT, "Container image (no effect in this version)"),
        "env": _described(
            {"type": "object", "additionalProperties": _VALUE}, "Environment of the command"
        ),
        "secrets": _described(_TEXT_OR_TEXTS, "Variables handed over from your environment"),
        "inputs": _described(_TEXT_OR_TEXTS, "Data beside the job (no effect in this version)"),
        "steps": _described(
            {"type": ["integer", "number", "string"]}, "Steps to make in all", 900000, "900k"
        ),
        "accelerators": _described(
            _accelerators(), "Acceptable accelerators", "V100", ["V100", "A100:8"]
        ),
        "throughput": _described(throughput, "Steps/s of the whole gang", {"V100": 7.8}),
        "profile": _described(
            _TEXT,
            "Reference profile that speeds are estimated from: " + ", ".join(PROFILES),
            "resnet50/bs32",
        ),
        "memory": _described(_TEXT, "Memory needed of each accelerator", "12GiB"),
        "checkpoint": _described(_checkpoint(), "Where and how often state is saved"),
        "progress": _described(
            _TEXT, "Pattern over the output with the step as its group", "step ([0-9]+)"
        ),
        "grace": _described(_NUMBER_OR_TEXT, "Time between SIGTERM and SIGKILL", "20s"),
        "deadline": _described(
            _TEXT, "From the run's creation, or an instant", "24h", "2026-12-01T12:00:00Z"
        ),
        "weight": _described(_NUMBER_OR_TEXT, "Importance against other jobs", 1),
        "max_cost": _described(_NUMBER_OR_TEXT, "US dollars this job may cost", 120),
        "max_duration": _described(_TEXT, "Time on machines this job may take", "30h"),
        "entity": _described(_TEXT, "Team or person, for hierarchical fairness"),
        "arrives": _described(_NUMBER_OR_TEXT, "Not before, from the run's creation", "2h"),
        "spot_only": _described({"type": ["boolean", "string"]}, "Never rent on-demand"),
        "retries": _described({"type": ["integer", "string"]}, "Restarts after a failure", 2),
    }


def _nullable(properties: dict[str, Any]) -> dict[str, Any]:
    """Allow null in every property: it means that the key is not given."""
    return {key: {"anyOf": [value, {"type": "null"}]} for key, value in properties.items()}


def jobs_yaml_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a whole jobs.yaml."""
    shared = _job_properties()
    values = {"type": "array", "items": _VALUE, "minItems": 1}
    foreach = {
        "type": "object",
        "additionalProperties": values,
        "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "minProperties": 1,
    }
    own = {
        "name": _described({"type": ["string", "number"]}, "Name of the job"),
        "foreach": _described(foreach, "One job for each combination", {"lr": [0.1, 0.01]}),
        "after": _described(_TEXT_OR_TEXTS, "Jobs that must finish first"),
    }
    # A required key may come from `defaults`, so only the name is required of each job.
    job = _object({**_nullable(own), **_nullable(shared)}, required=("name",))
    rehearsal = {
        "seed": {"type": ["integer", "string"], "minimum": 0},
        "clouds": _described(_clouds(), "Clouds whose prices are rehearsed"),
        "interruptions_per_hour": {"type": ["number", "string"], "minimum": 0},
        "boot": _described(_NUMBER_OR_TEXT, "Boot delay of every machine", "90s"),
    }
    cluster = {
        "type": "object",
        "additionalProperties": {"type": ["integer", "string"], "minimum": 1},
        "minProperties": 1,
    }
    top = {
        "version": {"enum": [1, "1", None]},
        "name": _described({"type": ["string", "number"]}, "Name of the run"),
        "budget": _described(_NUMBER_OR_TEXT, "US dollars for the whole run", 500, "$500"),
        "max_usd_per_hour": _described(_NUMBER_OR_TEXT, "Highest spend rate", 60),
        "policy": _described(_TEXT, "A policy, or module:Class", "min_cost"),
        "round": _described(_TEXT, "Time between decisions", "6m"),
        "deadline_margin": _described(_NUMBER_OR_TEXT, "Share kept free", "10%"),
        "max_spot_wait": _described(_NUMBER_OR_TEXT, "Longest wait for refused spot", "1h"),
        "clouds": _described(_clouds(), "Where to rent; left out, the run is a rehearsal"),
        "cluster": _described(cluster, "A fixed cluster", {"V100": 8}),
        "store": _described(_TEXT, "Where checkpoints live", "s3://my-bucket/runs"),
        "notify": _described(
            _TEXT_OR_TEXTS, "Addresses to tell of a spent budget, a released promise, the end"
        ),
        "rehearsal": _described(_object(_nullable(rehearsal)), "The rehearsed market"),
        "defaults": _described(_object(_nullable(shared)), "Laid under every job"),
        "jobs": {"type": "array", "items": job, "minItems": 1},
    }
    required = ("name", "jobs")
    properties = {
        key: value if key in required else {"anyOf": [value, {"type": "null"}]}
        for key, value in top.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "cloudgavel jobs.yaml",
        **_object(properties, required=required),
    }
