"""What a decision answers."""

from dataclasses import dataclass

from cloudgavel.mechanism.actions import Action, Wait
from cloudgavel.policies.allocation import AllocationStatus, RelaxedPromise, ShadowPrice
from cloudgavel.policies.spot.verdict import SpotVerdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """Where a job is to be in this round."""

    job: str
    instance_ids: tuple[str, ...]
    """Ids of instances, or tokens of launches of this plan."""
    offer_id: str
    request_label: str
    extended: bool
    """Same place as before: no save, no restart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What this decision expects of one job."""

    job: str
    finish_at_s: float | None
    cost_usd: float | None
    """From now to its end."""
    deadline_at_s: float | None
    promise: str
    """``none``, ``covered`` (kept even if spot vanishes now), ``expected`` (kept at expected
    prices, the worst case is not paid for), or ``released``."""
    reserve_usd: float | None = None
    """What finishing it on demand costs at worst, put aside while it is covered."""
    latest_on_demand_at_s: float | None = None
    """When the safety net sends it on demand at the latest if nothing is done before; ``None`` =
    no deadline, or nothing on demand that it could use."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundPlan:
    """The decision of one round."""

    plan_id: str
    round_number: int
    state_digest: str
    actions: tuple[Action, ...]
    """In order: saves and moves, launches, starts, terminations, waits."""
    leases: tuple[Lease, ...]
    forecasts: tuple[Forecast, ...]
    relaxed: tuple[RelaxedPromise, ...] = ()
    shadow_prices: tuple[ShadowPrice, ...] = ()
    next_wake_at_s: float | None = None
    """Decide again then at the latest; ``None`` = nothing left to do."""
    out_of_money: bool = False
    """No affordable way on: everything is saved and stopped."""
    status: AllocationStatus = AllocationStatus.OPTIMAL
    notes: tuple[str, ...] = ()
    """Plain sentences for the log (fall-backs, refusals)."""
    committed_usd: float = 0.0
    """What the live machines may still cost until their end is confirmed, after this plan."""
    reserve_usd: float = 0.0
    """On-demand money kept for the covered promises."""
    lower_bound_usd: float | None = None
    expected_cost_left_usd: float | None = None
    spot: tuple[SpotVerdict, ...] = ()
    """Of the jobs that weighed spot against on-demand: what each choice is worth. By job."""

    @property
    def waits_on_purpose(self) -> bool:
        """Some job holds nothing because waiting for spot is worth it."""
        return any(isinstance(each, Wait) and each.until_at_s is not None for each in self.actions)
