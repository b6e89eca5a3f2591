"""Orders, reports and the lease as JSON, both ways; a malformed message says where it is wrong."""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from cloudgavel.errors import CloudgavelError
from cloudgavel.messages.orders import Orders
from cloudgavel.messages.report import Report

SCHEMA_VERSION = 1

_Message = TypeVar("_Message")


class MalformedMessage(CloudgavelError):
    """A message cannot be read; ``where`` is the path to the mistake (``jobs[0].attempt``)."""

    def __init__(self, kind: str, where: str, problem: str) -> None:
        at = f" at {where}" if where else ""
        super().__init__(f"the {kind} cannot be read{at}: {problem}")
        self.where = where


def encode_orders(orders: Orders) -> bytes:
    """Orders as UTF-8 JSON; the same orders always give the same bytes."""
    return _encode("orders", orders)


def decode_orders(data: bytes) -> Orders:
    """Read orders; raises ``MalformedMessage``. Unknown keys are ignored."""
    return _decode("orders", Orders, data)


def encode_report(report: Report) -> bytes:
    """Report as UTF-8 JSON; the same report always gives the same bytes."""
    return _encode("report", report)


def decode_report(data: bytes) -> Report:
    """Read a report; raises ``MalformedMessage``. Unknown keys are ignored."""
    return _decode("report", Report, data)


def encode_lease(renewed_at_s: float) -> bytes:
    """Encode the controller's sign of life; ``renewed_at_s`` is real UNIX time."""
    return _dump({"kind": "lease", "schema_version": SCHEMA_VERSION, "renewed_at_s": renewed_at_s})


def decode_lease(data: bytes) -> float:
    """Read ``renewed_at_s``; raises ``MalformedMessage``."""
    return float(_value(float, _document("lease", data).get("renewed_at_s"), "lease", "lease"))


def to_plain(value: object) -> Any:
    """Dataclasses, tuples, mappings and enums as what ``json`` writes; NaN becomes ``null``."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def from_plain(kind: str, target: type[_Message], document: object, where: str = "") -> _Message:
    """Build the dataclass ``target`` from parsed JSON; missing keys take the field's default."""
    if not isinstance(document, dict):
        raise MalformedMessage(kind, where, f"expected an object, found {_named(document)}")
    hints: dict[str, Any] = _hints(target)  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for item in fields(target):  # type: ignore[arg-type]
        place = f"{where}.{item.name}" if where else item.name
        if item.name in document:
            values[item.name] = _value(hints[item.name], document[item.name], kind, place)
        elif item.default is MISSING and item.default_factory is MISSING:
            raise MalformedMessage(kind, place, "it is missing")
    return target(**values)


@cache
def _hints(target: type) -> dict[str, Any]:
    return get_type_hints(target)


def _encode(kind: str, message: object) -> bytes:
    return _dump({"kind": kind, "schema_version": SCHEMA_VERSION, **to_plain(message)})


def _dump(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


def _decode(kind: str, target: type[_Message], data: bytes) -> _Message:
    return from_plain(kind, target, _document(kind, data))


def _document(kind: str, data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(kind, "", f"it is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise MalformedMessage(kind, "", f"expected an object, found {_named(document)}")
    if document.get("kind", kind) != kind:
        raise MalformedMessage(kind, "kind", f"it is {document['kind']!r}")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise MalformedMessage(
            kind,
            "schema_version",
            f"expected {SCHEMA_VERSION}, found {document.get('schema_version')!r}",
        )
    return document


def _value(hint: Any, value: object, kind: str, where: str) -> Any:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        if value is None and type(None) in get_args(hint):
            return None
        inner = [option for option in get_args(hint) if option is not type(None)]
        return _value(inner[0], value, kind, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise MalformedMessage(kind, where, f"expected a list, found {_named(value)}")
        item_hint = get_args(hint)[0]
        return tuple(
            _value(item_hint, item, kind, f"{where}[{index}]") for index, item in enumerate(value)
        )
    if origin is Mapping:
        if not isinstance(value, dict):
            raise MalformedMessage(kind, where, f"expected an object, found {_named(value)}")
        item_hint = get_args(hint)[1]
        return MappingProxyType(
            {key: _value(item_hint, item, kind, f"{where}.{key}") for key, item in value.items()}
        )
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        try:
            return hint(str(value))
        except ValueError as error:
            known = ", ".join(item.value for item in hint)
            raise MalformedMessage(kind, where, f"{value!r} is none of {known}") from error
    if is_dataclass(hint) and isinstance(hint, type):
        return from_plain(kind, hint, value, where)
    return _scalar(hint, value, kind, where)


def _scalar(hint: Any, value: object, kind: str, where: str) -> Any:
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint in (str, bool) and isinstance(value, hint):
        return value
    expected = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}
    raise MalformedMessage(kind, where, f"expected {expected[hint]}, found {_named(value)}")


def _named(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return repr(value)
