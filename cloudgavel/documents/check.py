"""``cloudgavel/check``: what ``cloudgavel check`` answers."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cloudgavel.documents.encode import as_json


class CheckStatus(StrEnum):
    """How one line came out."""

    PASSED = "passed"
    WARNING = "warning"
    """It will run, but not everywhere, or not everything was to be seen."""
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckLine:
    """One thing that was looked at."""

    provider: str
    """``aws``, ``gcp``, ``store``, or ``rehearsal`` (nothing outside this machine is used)."""
    region: str | None
    subject: str
    """``credentials``, ``clock``, ``permission``, ``quota``, ``image``, ``store``, ..."""
    status: CheckStatus
    detail: str
    """What was found, in one line."""
    hint: str | None = None
    """What to do about it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckDocument:
    """Every line, in the order of looking."""

    schema: str = "cloudgavel/check"
    schema_version: int = 1
    now: str
    lines: tuple[CheckLine, ...]

    @property
    def failed(self) -> tuple[CheckLine, ...]:
        """The lines that did not pass."""
        return tuple(line for line in self.lines if line.status is CheckStatus.FAILED)

    def to_json(self) -> dict[str, Any]:
        """Return the document as plain JSON values, fields under their own names."""
        encoded = as_json(self)
        assert isinstance(encoded, dict)
        return encoded
