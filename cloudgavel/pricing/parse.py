"""The text of a price snapshot -> offers.

A snapshot is a description (JSON: schema, when it was observed, its sources) and a table (CSV: one
row per zone and machine with its on-demand and its spot price). The caller opens the files.
"""

import csv
import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime

from cloudgavel.pricing.findings import Finding, Rule, Severity
from cloudgavel.pricing.offer import CapacityType, Offer

SCHEMA = "cloudgavel/offers"
SCHEMA_VERSION = 1
SUSPECT_ON_DEMAND = "suspect_on_demand"
"""Row flag that concerns the on-demand price only; the offer then carries ``suspect``."""


class SnapshotError(ValueError):
    """A snapshot that cannot be read: names the line and what is wrong with it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A parsed snapshot, before any judgement about its prices."""

    offers: tuple[Offer, ...]
    findings: tuple[Finding, ...]
    """One ``NOT_OFFERED`` per empty price: not sold so, which is not the same as free."""
    observed_at_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """The JSON beside the table."""

    offers_name: str
    observed_at_s: float
    sources: dict[str, str]
    interruption_rate_source: str


def parse_description(text: str) -> Description:
    """Read the snapshot's description; ``SnapshotError`` for another schema or a naive instant."""
    raw = json.loads(text)
    if raw.get("schema") != SCHEMA or raw.get("schema_version") != SCHEMA_VERSION:
        raise SnapshotError(
            f"expected {SCHEMA} version {SCHEMA_VERSION}, got {raw.get('schema')} "
            f"version {raw.get('schema_version')}"
        )
    observed_at = datetime.fromisoformat(raw["observed_at"])
    if observed_at.tzinfo is None:
        raise SnapshotError(f"observed_at has no time zone: {raw['observed_at']}")
    return Description(
        offers_name=raw["offers"],
        observed_at_s=observed_at.astimezone(UTC).timestamp(),
        sources=dict(raw["sources"]),
        interruption_rate_source=raw["interruption_rate_source"],
    )


def parse_offers(text: str, description: Description) -> Snapshot:
    """Read the table: up to two offers a row (on-demand, spot).

    An empty price makes no offer but a finding. An on-demand offer's interruption rate is 0; a
    spot offer's is the row's, or ``None`` if empty. ``SnapshotError`` names the line of a price
    that is no number; a price of 0 or NaN passes here and is refused by ``sanity``.
    """
    offers: list[Offer] = []
    findings: list[Finding] = []
    for line, row in enumerate(csv.DictReader(text.splitlines()), start=2):
        try:
            source = description.sources[row["source"]]
            flags = frozenset(row["flags"].split())
            prices = (
                (CapacityType.ON_DEMAND, _number(row["on_demand_usd_per_hour"])),
                (CapacityType.SPOT, _number(row["spot_usd_per_hour"])),
            )
            for capacity_type, price in prices:
                is_spot = capacity_type is CapacityType.SPOT
                rate = _number(row["interruption_rate_per_hour"]) if is_spot else 0.0
                offer = Offer(
                    provider=row["provider"],
                    region=row["region"],
                    zone=row["zone"],
                    instance_type=row["instance_type"],
                    accelerator=row["accelerator"],
                    accelerators_per_instance=int(row["accelerators_per_instance"]),
                    shareable=_is_true(row["shareable"]),
                    vcpus=_number(row["vcpus"]),
                    memory_gib=_number(row["memory_gib"]),
                    capacity_type=capacity_type,
                    price_usd_per_hour=price,
                    interruption_rate_per_hour=rate,
                    observed_at_s=description.observed_at_s,
                    source=(
                        f"{source}; interruption rate: {description.interruption_rate_source}"
                        if is_spot and rate is not None
                        else source
                    ),
                    flags=_offer_flags(flags, is_spot=is_spot),
                )
                if price is None:
                    findings.append(_not_offered(offer))
                else:
                    offers.append(offer)
        except (KeyError, ValueError) as error:
            raise SnapshotError(f"line {line} of the price table: {error!r}") from error
    return Snapshot(
        offers=tuple(offers), findings=tuple(findings), observed_at_s=description.observed_at_s
    )


def _offer_flags(row_flags: frozenset[str], *, is_spot: bool) -> tuple[str, ...]:
    if SUSPECT_ON_DEMAND in row_flags:
        row_flags -= {SUSPECT_ON_DEMAND}
        if not is_spot:
            row_flags |= {"suspect"}
    return tuple(sorted(row_flags))


def _number(text: str) -> float | None:
    if not text:
        return None
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"not a finite number: {text}")
    return value


def _is_true(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError(f"expected 0 or 1, got {text!r}")
    return text == "1"


def _not_offered(offer: Offer) -> Finding:
    word = "spot" if offer.capacity_type is CapacityType.SPOT else "on-demand"
    return Finding(
        offer_id=offer.offer_id,
        rule=Rule.NOT_OFFERED,
        severity=Severity.ABSENT,
        reason=f"the source has no {word} price here: not offered, not free",
    )
