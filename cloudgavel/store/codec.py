"""Typed values (frozen dataclasses, nested) <-> plain JSON values, driven by the type hints.

A union of dataclasses carries the class's name under ``type``; everything else is told by its hint.
Unknown keys of older or newer writers are ignored; missing ones take the field's default.
"""

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin

_T = TypeVar("_T")

TYPE_KEY = "type"


def encode(value: Any) -> Any:
    """Return ``value`` as JSON values; every dataclass carries its class name."""
    if value is None or (isinstance(value, bool | int | float) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        body = {name: encode(getattr(value, name)) for name in _field_names(type(value))}
        return {TYPE_KEY: type(value).__name__, **body}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, frozenset | set):
        return sorted(encode(item) for item in value)
    raise TypeError(f"no JSON form for {type(value).__name__}")


def decode(expected: type[_T], value: Any) -> _T:
    """Return the ``expected`` dataclass that ``encode`` turned into ``value``.

    Raises ``ValueError`` when the value does not fit the hints.
    """
    result: _T = _decode(expected, value)
    return result


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode(hint: Any, value: Any) -> Any:
    origin = get_origin(hint)
    if origin is Union or origin is types.UnionType:
        return _decode_union(get_args(hint), value)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _decode_dataclass(hint, value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if origin is tuple:
        arguments = get_args(hint)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_decode(arguments[0], item) for item in value)
        return tuple(_decode(a, item) for a, item in zip(arguments, value, strict=True))
    if origin is frozenset:
        return frozenset(_decode(get_args(hint)[0], item) for item in value)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        inner = get_args(hint)[1]
        return types.MappingProxyType({str(k): _decode(inner, v) for k, v in value.items()})
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is Any or (isinstance(hint, type) and isinstance(value, hint)):
        return value
    raise ValueError(f"expected {hint}, got {value!r}")


def _decode_union(options: tuple[Any, ...], value: Any) -> Any:
    if value is None:
        if type(None) in options:
            return None
        raise ValueError("unexpected null")
    rest = [option for option in options if option is not type(None)]
    if isinstance(value, dict) and TYPE_KEY in value:
        for option in rest:
            if isinstance(option, type) and option.__name__ == value[TYPE_KEY]:
                return _decode(option, value)
    if len(rest) == 1:
        return _decode(rest[0], value)
    for option in rest:
        if isinstance(option, type) and isinstance(value, option):
            return value
    raise ValueError(f"{value!r} is none of {[str(option) for option in rest]}")


def _decode_dataclass(kind: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"expected {kind.__name__}, got {value!r}")
    hints = _hints(kind)
    known = {
        name: _decode(hints[name], value[name]) for name in _field_names(kind) if name in value
    }
    try:
        return kind(**known)
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from error
