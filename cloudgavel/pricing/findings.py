"""What was noticed about a price, and what follows from it."""

from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """The closed set of things that can be noticed about an offer."""

    NOT_OFFERED = "not_offered"
    """The source lists the machine without a price under this capacity type."""
    NOT_A_PRICE = "not_a_price"
    """Zero, negative, NaN or infinite; or no accelerators to divide by."""
    LOCAL_ZONE = "local_zone"
    SUSPECT_SOURCE = "suspect_source"
    """The source itself doubts the figure."""
    DUPLICATE = "duplicate"
    PLACEHOLDER = "placeholder"
    """A sentinel such as 700.0, or at least 100 times the fleet's median."""
    FAR_BELOW_FLEET = "far_below_fleet"
    """Under 20 % of the fleet's median per accelerator."""
    ON_DEMAND_BELOW_SPOT = "on_demand_below_spot"
    SPOT_EQUALS_ON_DEMAND = "spot_equals_on_demand"
    SPOT_NEAR_ON_DEMAND = "spot_near_on_demand"
    FLOOR_PRICE = "floor_price"
    """Exactly 10 % of on-demand: a floor, likely without capacity."""
    REGIONS_DISAGREE = "regions_disagree"


class Severity(StrEnum):
    """What a finding does to the offer."""

    REFUSED = "refused"
    """Left out of the catalogue's offers."""
    FLAGGED = "flagged"
    """Kept, with the reason beside it."""
    ABSENT = "absent"
    """There is no offer to keep or refuse: nothing is sold there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One noticed thing: about which offer, by which rule, with what effect and why."""

    offer_id: str
    rule: Rule
    severity: Severity
    reason: str
    """One sentence for a person, with the figures that led to it."""
