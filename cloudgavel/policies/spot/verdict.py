"""What a job should hold in a round, and why: the answer of ``rounds.decide_round``."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class SpotVerdict:
    """What a job should hold in this round, and why."""

    job: str
    hold: str
    """``wait``, ``spot`` or ``on_demand``."""
    offer_id: str | None
    wait_usd: float | None
    """Expected cost to the end if nothing is held this round; ``None`` = not allowed."""
    spot_usd: Mapping[str, float]
    """The same by spot offer that may be held this round."""
    on_demand_usd: float
    on_demand_offer_id: str
    """The fall-back these figures count on."""
    loss_chance: Mapping[str, float]
    """By spot offer: chance that it is gone by the next round."""
    latest_on_demand_start_s: float
    """Seconds from now until the safety net calls for on-demand if nothing happens before;
    negative = it has called."""
    cap_usd: float
    """Most it may ever cost: the cap on risk."""
    forced_by: str | None
    """``own deadline`` or ``shared on-demand slots`` when the safety net decided, else ``None``."""
