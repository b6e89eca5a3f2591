"""Small steps from one ``RunState`` to the next."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from cloudgavel.store.records import RunState

_Value = TypeVar("_Value")


def with_item(mapping: Mapping[str, _Value], key: str, value: _Value) -> Mapping[str, _Value]:
    """Return the mapping with one item set."""
    return MappingProxyType({**mapping, key: value})


def without_item(mapping: Mapping[str, _Value], key: str) -> Mapping[str, _Value]:
    """Return the mapping without one item."""
    return MappingProxyType({k: v for k, v in mapping.items() if k != key})


def with_job(state: RunState, name: str, /, **changes: Any) -> RunState:
    """Return the state with one job changed; ``KeyError`` for an unknown one."""
    return replace(state, jobs=with_item(state.jobs, name, replace(state.jobs[name], **changes)))


def with_instance(state: RunState, instance_id: str, /, **changes: Any) -> RunState:
    """Return the state with one instance changed; ``KeyError`` for an unknown one."""
    record = replace(state.instances[instance_id], **changes)
    return replace(state, instances=with_item(state.instances, instance_id, record))
