"""What one look at the world outside gives, and what earlier looks of this controller saw."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cloudgavel.messages.report import Report
from cloudgavel.providers.base import ListedInstance


@dataclass(slots=True)
class Sightings:
    """What the looks of this controller saw; lost with it, and safe to lose."""

    last_seen_at_s: dict[str, float] = field(default_factory=dict)
    missing_since_s: dict[str, float] = field(default_factory=dict)
    progress_at_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """One look at everything outside."""

    now_s: float
    listing: Mapping[str, ListedInstance] | None
    """By instance id; ``None`` = the cloud did not answer: nothing is known to have changed."""
    price_changes: Mapping[str, Sequence[tuple[float, float]]]
    """``(at_s, usd_per_hour)`` since the last known one, by instance id."""
    reports: Mapping[str, Report]
    heard_since_s: float = -math.inf
    """Since when reports arrive without a break; ``inf`` = not now: silence says nothing."""
    with_progress: bool
    """Write every job's progress down now (a decision is due)."""
