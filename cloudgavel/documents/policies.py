"""``cloudgavel/policies``: what ``cloudgavel policies`` answers."""

from dataclasses import dataclass
from typing import Any

from cloudgavel.documents.encode import as_json


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyEntry:
    """One policy that jobs.yaml may name."""

    name: str
    summary: str
    source: str
    """Where the formula comes from."""
    plans_for: str
    """``rented fleet`` (hours of offers), ``fixed cluster`` (shares of time), or both."""
    variant_of: str | None = None
    """The policy this one is a twin of (type-blind, or with space sharing)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PoliciesDocument:
    """Every bundled policy, by name."""

    schema: str = "cloudgavel/policies"
    schema_version: int = 1
    policies: tuple[PolicyEntry, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the document as plain JSON values, fields under their own names."""
        encoded = as_json(self)
        assert isinstance(encoded, dict)
        return encoded
