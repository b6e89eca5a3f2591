"""``cloudgavel/prices``: what ``cloudgavel prices`` answers."""

from dataclasses import dataclass
from typing import Any

from cloudgavel.documents.encode import as_json


@dataclass(frozen=True, kw_only=True, slots=True)
class PricesOffer:
    """One offer with its price, the price's age, and what is doubted about it."""

    offer_id: str
    provider: str
    region: str
    zone: str
    """Zone id on AWS, zone name on GCP."""
    instance_type: str
    accelerator: str
    accelerators_per_instance: int
    shareable: bool
    vcpus: float | None
    memory_gib: float | None
    capacity_type: str
    price_usd_per_hour: float | None
    """Of the whole machine; ``None`` is unknown, not free."""
    usd_per_accelerator_hour: float | None
    interruption_rate_per_hour: float | None
    """0 on demand; ``None`` is unknown."""
    observed_at: str | None
    age_s: float | None
    """Seconds since the price was observed, when the document was made."""
    source: str
    flags: tuple[str, ...]
    status: str
    """``accepted``, ``flagged`` or ``refused``."""
    reasons: tuple[str, ...]
    """Why it is flagged or refused."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PricesDocument:
    """The offers that match, in the order asked for."""

    schema: str = "cloudgavel/prices"
    schema_version: int = 1
    now: str
    sort: str
    """``price``: cheapest hour first; ``per-gpu``: cheapest accelerator-hour first."""
    catalogue_count: int
    """Offers looked at."""
    matching_count: int
    """Offers that match; ``offers`` holds fewer if a limit was given."""
    oldest_age_s: float | None
    """Age of the oldest price looked at; ``None`` if one is unknown."""
    offers: tuple[PricesOffer, ...]
    notes: tuple[str, ...] = ()
    """What a reader must know about all of the figures."""

    def to_json(self) -> dict[str, Any]:
        """Return the document as plain JSON values, fields under their own names."""
        encoded = as_json(self)
        assert isinstance(encoded, dict)
        return encoded
