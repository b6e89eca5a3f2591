"""Documents -> plain JSON values, and instants -> ISO 8601."""

import dataclasses
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any


def as_json(value: Any) -> Any:
    """Turn a document (frozen dataclass, nested) into JSON values.

    Fields keep their names; tuples become lists; enums their value. NaN and infinity raise
    ``ValueError``: an unknown number is ``None``.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
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


def iso_utc(at_s: float) -> str:
    """``2026-11-29T14:06:02Z``: UNIX seconds as ISO 8601 in UTC, whole seconds."""
    return datetime.fromtimestamp(round(at_s), tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
