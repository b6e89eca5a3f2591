"""One job's map -> ``JobSpec``, after ``defaults`` and variables."""

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from cloudgavel.jobs.accelerator_fields import check_memory, read_requests, read_throughput
from cloudgavel.jobs.accelerators import CATALOGUE, AcceleratorKind
from cloudgavel.jobs.fields import Fields, scalar_text, whole_within, within
from cloudgavel.jobs.instants import looks_like_instant, parse_instant_at_s
from cloudgavel.jobs.mistakes import Mistakes, Place
from cloudgavel.jobs.names import job_name
from cloudgavel.jobs.profiles import read_profile
from cloudgavel.jobs.quantities import (
    QuantityError,
    format_duration,
    parse_boolean,
    parse_duration_s,
    parse_integer,
    parse_number,
    parse_size_gib,
    parse_steps,
    parse_usd,
    quoted,
)
from cloudgavel.jobs.spec import AcceleratorRequest, CheckpointPlan, JobSpec
from cloudgavel.jobs.variables import IDENTIFIER
from cloudgavel.jobs.yaml_nodes import MapNode, ScalarNode
from cloudgavel.units import span

REQUIRED_KEYS: Final = ("name", "command", "steps", "accelerators")
OWN_KEYS: Final = ("name", "foreach", "after")
"""Keys that belong to one job and cannot stand under ``defaults``."""
SHARED_KEYS: Final = (
    "command",
    "setup",
    "workdir",
    "image",
    "env",
    "secrets",
    "inputs",
    "steps",
    "accelerators",
    "throughput",
    "profile",
    "memory",
    "checkpoint",
    "progress",
    "grace",
    "deadline",
    "weight",
    "max_cost",
    "max_duration",
    "entity",
    "arrives",
    "spot_only",
    "retries",
)
JOB_KEYS: Final = (*OWN_KEYS, *SHARED_KEYS)
SHELL_KEYS: Final = ("command", "setup")
"""Texts for the job's own shell: the environment is not replaced in them."""
CHECKPOINT_KEYS: Final = ("path", "every", "size", "save", "restore")
COMMAND_KEYS: Final = ("any", "gpu", "tpu")


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What a job's fields may depend on besides its own text."""

    base_dir: str
    home: str | None
    now_s: float
    mistakes: Mistakes


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadJob:
    """A job as far as it could be read: ``spec`` is ``None`` if any of it is wrong."""

    name: str | None
    place: Place
    after: tuple[tuple[str, Place], ...]
    spec: JobSpec | None


_positive_duration = within(parse_duration_s, above=0, what="the duration")
_positive_number = within(parse_number, above=0, at_most=1e9, what="the weight")
_positive_usd = within(parse_usd, above=0, what="the cost")
_retries = whole_within(parse_integer, at_least=0, at_most=1000, what="the retries")


def job_keys(node: MapNode, elsewhere: Mapping[str, str], mistakes: Mistakes) -> Fields:
    """Record unknown and missing keys of a job, and return its fields to be read."""
    fields = Fields(node, mistakes, JOB_KEYS, elsewhere=elsewhere)
    for key in REQUIRED_KEYS:
        if fields.get(key) is None:
            mistakes.add(node.place, f"the job has no `{key}`")
    return fields


def read_job(node: MapNode, elsewhere: Mapping[str, str], around: Surroundings) -> ReadJob:
    """Read every field of one job; mistakes go to ``around.mistakes``."""
    mistakes = around.mistakes
    before = len(mistakes)
    fields = job_keys(node, elsewhere, mistakes)
    name = fields.read("name", job_name)
    after = fields.placed_texts("after")
    requests_node = fields.get("accelerators")
    requests = None if requests_node is None else read_requests(requests_node, mistakes)
    commands = _commands(fields, requests)
    throughput_node = fields.get("throughput")
    throughput = (
        {} if throughput_node is None else read_throughput(throughput_node, requests, mistakes)
    )
    memory_gib = fields.read("memory", parse_size_gib)
    if memory_gib is not None and requests is not None:
        check_memory(memory_gib, requests, fields.place("memory"), mistakes)
    steps_total = fields.read("steps", parse_steps)
    arrives_s = fields.read("arrives", parse_duration_s)
    deadline_s, deadline_at_s = _deadline(fields, around.now_s)
    if deadline_s is not None and arrives_s is not None and deadline_s <= arrives_s:
        fields.wrong(
            "deadline",
            f"the deadline is {format_duration(deadline_s)} after the run's creation, "
            f"not later than the arrival at {format_duration(arrives_s)}",
        )
    retries = fields.read("retries", _retries)
    weight = fields.read("weight", _positive_number)
    grace_s = fields.read("grace", _positive_duration)
    optional = {
        "setup": fields.text("setup"),
        "image": fields.text("image"),
        "profile": fields.read("profile", read_profile),
        "entity": fields.text("entity"),
        "max_cost_usd": fields.read("max_cost", _positive_usd),
        "max_duration_s": fields.read("max_duration", _positive_duration),
        "progress_pattern": fields.read("progress", _progress_pattern),
    }
    defaulted = {
        "retries": retries,
        "weight": weight,
        "grace_s": grace_s,
        "arrives_s": arrives_s,
        "spot_only": fields.read("spot_only", parse_boolean),
    }
    whole = {
        "env": _env(fields),
        "secrets": _secrets(fields),
        "inputs": fields.texts("inputs"),
        "checkpoint": _checkpoint(fields),
        "workdir": _workdir(fields, around),
    }
    spec = None
    complete = name is not None and requests is not None and steps_total is not None
    if complete and commands and len(mistakes) == before:
        assert name is not None and requests is not None and steps_total is not None
        spec = JobSpec(
            name=name,
            commands=MappingProxyType(commands),
            steps_total=steps_total,
            accelerators=requests,
            throughput_steps_per_s=MappingProxyType(throughput),
            memory_gib=memory_gib,
            deadline_s=deadline_s,
            deadline_at_s=deadline_at_s,
            after=tuple(dict.fromkeys(each for each, _ in after)),
            line=node.place.line,
            **optional,  # type: ignore[arg-type]
            **{key: value for key, value in defaulted.items() if value is not None},  # type: ignore[arg-type]
            **whole,  # type: ignore[arg-type]
        )
    return ReadJob(name=name, place=node.place, after=after, spec=spec)


def _commands(fields: Fields, requests: tuple[AcceleratorRequest, ...] | None) -> dict[str, str]:
    """Commands by platform; each acceptable accelerator must have one."""
    node = fields.get("command")
    if node is None:
        return {}
    if isinstance(node, ScalarNode):
        text = fields.text("command")
        return {} if text is None else {"any": text}
    if not isinstance(node, MapNode):
        fields.wrong("command", "expected one shell command as text, got a list")
        return {}
    platforms = Fields(node, fields.mistakes, COMMAND_KEYS)
    found = {key: platforms.text(key) for key in COMMAND_KEYS}
    commands = {key: text for key, text in found.items() if text is not None}
    for request in requests or ():
        kind = CATALOGUE[request.accelerator].kind
        wanted = "any" if kind is AcceleratorKind.OTHER else str(kind)
        if "any" not in commands and wanted not in {key.text for key, _ in node.entries}:
            fields.wrong("command", f"`{request.label}` is accepted but has no `{wanted}` command")
    return commands


def _deadline(fields: Fields, now_s: float) -> tuple[float | None, float | None]:
    """Deadline as (seconds from the run's creation, UNIX seconds), at most one of them."""
    node = fields.get("deadline")
    if node is None:
        return None, None
    text = scalar_text(node, fields.mistakes)
    if text is None:
        return None, None
    if looks_like_instant(text):
        at_s = fields.read("deadline", parse_instant_at_s)
        if at_s is not None and at_s <= now_s:
            ago = span(now_s - at_s)
            fields.wrong("deadline", f"the deadline is in the past, {ago} ago, got {quoted(text)}")
            return None, None
        return None, at_s
    return fields.read("deadline", _deadline_duration_s), None


def _deadline_duration_s(text: str) -> float:
    try:
        duration_s = parse_duration_s(text)
    except QuantityError as wrong:
        if str(wrong).startswith("expected a duration"):
            raise QuantityError(
                "expected a duration like 24h or an instant like 2026-12-01T12:00:00Z, "
                f"got {quoted(text)}"
            ) from None
        raise
    if duration_s <= 0:
        raise QuantityError(f"the deadline must be more than 0, got {quoted(text)}")
    return duration_s


def _checkpoint(fields: Fields) -> CheckpointPlan:
    """Read ``checkpoint``: a map, or the path alone."""
    node = fields.get("checkpoint")
    default = CheckpointPlan()
    if node is None:
        return default
    if isinstance(node, ScalarNode):
        path = fields.read("checkpoint", _checkpoint_path)
        return default if path is None else CheckpointPlan(path=path)
    if not isinstance(node, MapNode):
        fields.wrong("checkpoint", "expected a map like {path: ckpt, every: auto}, got a list")
        return default
    inner = Fields(node, fields.mistakes, CHECKPOINT_KEYS)
    path = inner.read("path", _checkpoint_path)
    save_s = inner.read("save", parse_duration_s)
    restore_s = inner.read("restore", parse_duration_s)
    return CheckpointPlan(
        path=default.path if path is None else path,
        every_s=inner.read("every", _every_s),
        size_gib=inner.read("size", parse_size_gib),
        save_s=default.save_s if save_s is None else save_s,
        restore_s=default.restore_s if restore_s is None else restore_s,
    )


def _every_s(text: str) -> float | None:
    return None if text.strip().lower() == "auto" else _positive_duration(text)


def _checkpoint_path(text: str) -> str:
    path = posixpath.normpath(text.strip() or ".")
    if posixpath.isabs(path) or path == ".." or path.startswith(("../", "~")):
        raise QuantityError(
            f"expected a directory inside the job's workdir like ckpt, got {quoted(text)}"
        )
    if path == ".":
        raise QuantityError("the checkpoints need a directory of their own like ckpt")
    return path


def _progress_pattern(text: str) -> str:
    try:
        groups = re.compile(text).groups
    except (re.error, OverflowError, RecursionError) as wrong:
        raise QuantityError(f"not a regular expression ({wrong}), got {quoted(text)}") from None
    if groups != 1:
        raise QuantityError(
            f"expected a pattern with one group around the step like 'step ([0-9]+)', "
            f"got {groups} groups in {quoted(text)}"
        )
    return text


def _env(fields: Fields) -> Mapping[str, str]:
    node = fields.map("env")
    if node is None:
        return MappingProxyType({})
    found: dict[str, str] = {}
    for key, value in node.entries:
        if not _may_set(key, fields.mistakes):
            continue
        if isinstance(value, ScalarNode) and value.is_null:
            found[key.text] = ""
            continue
        text = scalar_text(value, fields.mistakes)
        if text is not None:
            found[key.text] = text
    return MappingProxyType(found)


def _may_set(key: ScalarNode, mistakes: Mistakes) -> bool:
    """Whether a name may be set in a job's environment; records why not."""
    if not IDENTIFIER.fullmatch(key.text):
        mistakes.add(key.place, f"`{key.text}` is not the name of an environment variable")
        return False
    if key.text.startswith("CLOUDGAVEL_"):
        mistakes.add(key.place, f"`{key.text}` is set by cloudgavel itself")
        return False
    return True


def _secrets(fields: Fields) -> tuple[str, ...]:
    found = []
    for text, place in fields.placed_texts("secrets"):
        if _may_set(ScalarNode(text=text, is_plain=True, place=place), fields.mistakes):
            found.append(text)
    return tuple(dict.fromkeys(found))


def _workdir(fields: Fields, around: Surroundings) -> str:
    """Absolute directory of the job; relative ones count from the file's directory."""
    text = fields.text("workdir")
    if text is None:
        text = "."
    if text == "~" or text.startswith("~/"):
        if around.home is None:
            fields.wrong("workdir", f"HOME is not set, so `~` is unknown, got {quoted(text)}")
            return around.base_dir
        text = around.home + text[1:]
    return posixpath.normpath(posixpath.join(around.base_dir, text))
