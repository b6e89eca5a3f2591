"""The head of a jobs.yaml: everything but its jobs."""

import posixpath
import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final

from cloudgavel.jobs.accelerator_fields import read_cluster
from cloudgavel.jobs.fields import Fields, scalar_text, whole_within, within
from cloudgavel.jobs.mistakes import Mistakes, did_you_mean
from cloudgavel.jobs.names import run_name
from cloudgavel.jobs.quantities import (
    QuantityError,
    parse_duration_s,
    parse_integer,
    parse_number,
    parse_share,
    parse_usd,
    quoted,
)
from cloudgavel.jobs.spec import CloudSpec, RehearsalSpec
from cloudgavel.jobs.yaml_nodes import ListNode, MapNode, Node, ScalarNode, kind_of

RUN_KEYS: Final = (
    "version",
    "name",
    "budget",
    "max_usd_per_hour",
    "policy",
    "round",
    "deadline_margin",
    "max_spot_wait",
    "clouds",
    "cluster",
    "store",
    "notify",
    "rehearsal",
    "defaults",
    "jobs",
)
CLOUD_KEYS: Final = MappingProxyType(
    {
        "aws": ("regions", "max_instances", "interruption_queue"),
        "gcp": ("project", "regions", "max_instances"),
    }
)
"""Clouds that can be named, and the keys of each."""
REHEARSAL_KEYS: Final = ("seed", "clouds", "interruptions_per_hour", "boot")
FORMAT_VERSION: Final = 1

_REGION: Final = re.compile(r"[a-z]{2,}(?:-[a-z]+)+-?[0-9]+")
_ZONE: Final = re.compile(r"([a-z]{2,}(?:-[a-z]+)+-?[0-9]+)-?[a-z]")
_QUEUE: Final = re.compile(
    r"https://sqs\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?/[0-9]+/[A-Za-z0-9_-]+"
)
_POLICY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*)?")


def read_head(fields: Fields, base_dir: str) -> dict[str, Any]:
    """Keyword arguments of ``RunSpec`` but ``jobs`` and ``source``; mistakes are recorded.

    A field that is absent is left out, so that ``RunSpec``'s default holds.
    """
    version = fields.read("version", parse_integer)
    if version is not None and version != FORMAT_VERSION:
        fields.wrong("version", f"this cloudgavel reads version {FORMAT_VERSION}, got {version}")
    if fields.get("name") is None:
        fields.mistakes.add(fields.node.place, "the run has no `name`")
    cluster_node = fields.get("cluster")
    clouds_node = fields.get("clouds")
    if cluster_node is not None and clouds_node is not None:
        fields.wrong("cluster", "a run has `clouds` or a `cluster`, not both")
    mistakes = fields.mistakes
    cluster = None if cluster_node is None else read_cluster(cluster_node, mistakes)
    head: dict[str, Any] = {
        "name": fields.read("name", run_name),
        "budget_usd": fields.read("budget", _budget_usd),
        "max_usd_per_hour": fields.read(
            "max_usd_per_hour", within(parse_usd, above=0, what="the spend rate")
        ),
        "policy": fields.read("policy", _policy),
        "round_s": fields.read("round", within(parse_duration_s, above=0, what="the round")),
        "deadline_margin_share": fields.read("deadline_margin", parse_share),
        "max_spot_wait_s": fields.read("max_spot_wait", parse_duration_s),
        "clouds": None if clouds_node is None else read_clouds(clouds_node, mistakes),
        "cluster": None if cluster is None else MappingProxyType(cluster),
        "store": fields.read("store", _store_reader(base_dir)),
        "notify": _notify(fields),
        "rehearsal": _rehearsal(fields),
    }
    return {key: value for key, value in head.items() if value is not None}


def _budget_usd(text: str) -> float:
    amount_usd = parse_usd(text)
    if amount_usd <= 0:
        raise QuantityError(f"the budget must be more than $0, got {quoted(text)}")
    return amount_usd


def _policy(text: str) -> str:
    if not _POLICY.fullmatch(text):
        raise QuantityError(
            f"expected a policy like min_cost or my_module:MyPolicy, got {quoted(text)}"
        )
    return text


def _store_reader(base_dir: str) -> Callable[[str], str]:
    """Reader of a store's URL; a path without scheme counts from the file's directory."""

    def read(text: str) -> str:
        scheme, separator, rest = text.partition("://")
        if not separator and text.strip():
            return "file://" + posixpath.normpath(posixpath.join(base_dir, text.strip()))
        if scheme not in ("s3", "gs", "file") or not rest.strip("/"):
            raise QuantityError(
                "expected a store like s3://bucket/path, gs://bucket/path or file:///path, "
                f"got {quoted(text)}"
            )
        return text

    return read


def _notify(fields: Fields) -> tuple[str, ...]:
    found = []
    for text, place in fields.placed_texts("notify"):
        if re.fullmatch(r"https?://[^\s/]+\S*", text):
            found.append(text)
        else:
            fields.mistakes.add(place, f"expected an address like https://..., got {quoted(text)}")
    return tuple(found)


def read_clouds(node: Node, mistakes: Mistakes) -> tuple[CloudSpec, ...]:
    """Clouds of ``{aws: {regions: [...]}, gcp: {...}}``, or their names alone: ``[aws, gcp]``."""
    if isinstance(node, MapNode):
        pairs: list[tuple[ScalarNode, Node | None]] = [*node.entries]
    else:
        pairs = []
        for item in node.items if isinstance(node, ListNode) else (node,):
            if isinstance(item, ScalarNode):
                pairs.append((item, None))
            elif isinstance(item, MapNode):
                pairs.extend(item.entries)
            else:
                mistakes.add(item.place, "expected a cloud like aws, got a list")
    found: dict[str, CloudSpec] = {}
    for key, value in pairs:
        provider = key.text.lower()
        if provider not in CLOUD_KEYS:
            advice = did_you_mean(provider, CLOUD_KEYS) or "; known are aws and gcp"
            mistakes.add(key.place, f"unknown cloud `{key.text}`{advice}")
        elif provider in found:
            mistakes.add(key.place, f"`{provider}` is given twice")
        else:
            found[provider] = _cloud(provider, value, mistakes)
    return tuple(found.values())


def _cloud(provider: str, node: Node | None, mistakes: Mistakes) -> CloudSpec:
    if node is None or (isinstance(node, ScalarNode) and node.is_null):
        return CloudSpec(provider=provider)
    if not isinstance(node, MapNode):
        mistakes.add(
            node.place, f"expected a map like {{regions: [us-east-1]}}, got {kind_of(node)}"
        )
        return CloudSpec(provider=provider)
    fields = Fields(node, mistakes, CLOUD_KEYS[provider])
    regions = []
    for text, place in fields.placed_texts("regions"):
        zone = _ZONE.fullmatch(text)
        if _REGION.fullmatch(text):
            regions.append(text)
        elif zone is not None:
            mistakes.add(place, f"`{text}` is a zone; did you mean the region `{zone[1]}`?")
        else:
            mistakes.add(place, f"expected a region like us-east-1, got {quoted(text)}")
    queues = []
    for text, place in fields.placed_texts("interruption_queue"):
        if _QUEUE.fullmatch(text):
            queues.append(text)
        else:
            mistakes.add(
                place,
                "expected a queue like https://sqs.us-east-1.amazonaws.com/ACCOUNT/NAME, got "
                + quoted(text),
            )
    return CloudSpec(
        provider=provider,
        interruption_queues=tuple(queues),
        regions=tuple(dict.fromkeys(regions)),
        project=fields.text("project"),
        max_instances=fields.read(
            "max_instances",
            whole_within(parse_integer, at_least=1, at_most=10**6, what="max_instances"),
        ),
    )


def _rehearsal(fields: Fields) -> RehearsalSpec | None:
    node = fields.map("rehearsal")
    if node is None:
        return None
    inner = Fields(node, fields.mistakes, REHEARSAL_KEYS)
    seed = inner.read(
        "seed", whole_within(parse_integer, at_least=0, at_most=2**32 - 1, what="the seed")
    )
    clouds_node = inner.get("clouds")
    return RehearsalSpec(
        seed=0 if seed is None else seed,
        clouds=() if clouds_node is None else read_clouds(clouds_node, fields.mistakes),
        interruptions_per_hour=inner.read(
            "interruptions_per_hour",
            within(parse_number, at_least=0, at_most=3600, what="the rate"),
        ),
        boot_s=inner.read("boot", parse_duration_s),
    )


def jobs_items(fields: Fields) -> tuple[MapNode, ...]:
    """Return the maps under ``jobs``, recording what is not one."""
    node = fields.get("jobs")
    if node is None:
        fields.mistakes.add(fields.place("jobs"), "the run has no `jobs`")
        return ()
    if not isinstance(node, ListNode):
        fields.mistakes.add(
            node.place,
            f"expected a list of jobs, each beginning with `- name:`, got {kind_of(node)}",
        )
        return ()
    if not node.items:
        fields.mistakes.add(node.place, "the list of jobs is empty")
    found = []
    for item in node.items:
        if isinstance(item, MapNode):
            found.append(item)
        elif scalar_text(item, fields.mistakes) is not None:
            fields.mistakes.add(item.place, f"expected a job, got {kind_of(item)}")
    return tuple(found)
