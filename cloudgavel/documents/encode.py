"""Documents -> plain JSON values, and instants -> ISO 8601."""

import dataclasses
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from cloudgavel.units import micro_usd, usd


def as_json(value: Any) -> Any:
    """Turn a document (frozen dataclass, nested) into JSON values.

    Fields keep their names; tuples become lists; enums their value. Money (fields that end in
    ``_usd`` or ``usd_per_hour``) is rounded to the ledger's micro-dollar, here and nowhere else.
    NaN and infinity raise ``ValueError``: an unknown number is ``None``.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _field(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(v) for v in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"not a number to show: {value}")
        return value
    if value is None or isinstance(value, str | int | bool):
        return value
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _field(name: str, value: Any) -> Any:
    plain = as_json(value)
    if isinstance(plain, float) and name.endswith(("_usd", "usd_per_hour")):
        return usd(micro_usd(plain))
    return plain


def iso_utc(at_s: float) -> str:
    """``2026-11-29T14:06:02Z``: UNIX seconds as ISO 8601 in UTC, whole seconds."""
    return datetime.fromtimestamp(round(at_s), tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
