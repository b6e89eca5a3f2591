"""Prices read from clouds, as text to keep between commands: what was read, and when."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any

from cloudgavel.pricing.catalog import Catalog
from cloudgavel.pricing.findings import Finding, Rule, Severity
from cloudgavel.pricing.offer import CapacityType, Offer

SCHEMA = "cloudgavel/price-cache"
SCHEMA_VERSION = 1


class CacheError(ValueError):
    """A text that is no cache of this version."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceCache:
    """What was read from clouds, judged already; ``bundled.merge(catalog)`` is what is known."""

    catalog: Catalog = field(default_factory=lambda: Catalog(offers=()))
    read_at_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """UNIX seconds of the last reading, by cloud."""

    def with_read(self, provider: str, fresh: Catalog, at_s: float) -> "PriceCache":
        """The cache after one more reading; what it did not cover stays as it was read before."""
        return PriceCache(
            catalog=self.catalog.merge(fresh),
            read_at_s=MappingProxyType({**self.read_at_s, provider: at_s}),
        )


def cache_to_json(cache: PriceCache) -> str:
    """Write a cache as one JSON text."""
    return json.dumps(
        {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "read_at_s": dict(cache.read_at_s),
            "offers": [asdict(offer) for offer in cache.catalog.offers],
            "refused": [asdict(offer) for offer in cache.catalog.refused],
            "findings": [asdict(finding) for finding in cache.catalog.findings],
        },
        separators=(",", ":"),
    )


def cache_from_json(text: str) -> PriceCache:
    """Read what ``cache_to_json`` wrote; ``CacheError`` for anything else."""
    try:
        raw = json.loads(text)
        if raw["schema"] != SCHEMA or raw["schema_version"] != SCHEMA_VERSION:
            raise CacheError(f"expected {SCHEMA} version {SCHEMA_VERSION}")
        return PriceCache(
            catalog=Catalog(
                offers=tuple(_offer(each) for each in raw["offers"]),
                refused=tuple(_offer(each) for each in raw["refused"]),
                findings=tuple(
                    Finding(
                        offer_id=str(each["offer_id"]),
                        rule=Rule(each["rule"]),
                        severity=Severity(each["severity"]),
                        reason=str(each["reason"]),
                    )
                    for each in raw["findings"]
                ),
            ),
            read_at_s=MappingProxyType({str(k): float(v) for k, v in raw["read_at_s"].items()}),
        )
    except CacheError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CacheError(f"not a cache of prices: {error!r}") from error


_OFFER_FIELDS = tuple(each.name for each in fields(Offer))


def _offer(raw: Mapping[str, Any]) -> Offer:
    values = {name: raw[name] for name in _OFFER_FIELDS}
    values["capacity_type"] = CapacityType(values["capacity_type"])
    values["flags"] = tuple(values["flags"])
    return Offer(**values)
