"""The budget reserve: what live machines may still cost, and when to decide again.

The rule of every plan: ``spent + committed <= budget``, where *committed* is what the live
machines cost at worst until the end that the next decision could ask for is confirmed. Holding it
at every decision holds it always: the next decision can end everything within what was committed.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cloudgavel.mechanism.checkpoint_costs import WorstTraffic, worst_storage_usd_per_hour
from cloudgavel.mechanism.fleet import Instance, InstanceState
from cloudgavel.mechanism.state import ClusterState, ReserveRules
from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.units import HOUR_S

ROUNDING_S = 1.0
"""Seconds are billed begun: one more than elapsed at most."""
STORAGE = "checkpoints in the store"
"""Stands for a machine where liabilities are named by machine."""
SMALLEST_WAKE_S = 1.0
"""Decisions are at least this far apart; with less money than for it, machines end at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Liability:
    """One live machine as the budget sees it: rent that cannot be avoided any more."""

    instance_id: str
    usd_per_hour: float
    """Worst rate until its end."""
    wind_down_s: float
    """From the order to end it (or to save and stop first) until the end is confirmed."""
    minimum_left_s: float
    """Rest of the minimum charge."""
    ending: bool = False
    """Its end is asked for already: the next decision does not matter."""
    least_s: float = 0.0
    """Rent that is put aside whenever the next decision comes (a covered promise's)."""
    traffic_usd_per_hour: float = 0.0
    """Worst price of the periodic saves of its jobs, while it is not told to end."""
    traffic_once_usd: float = 0.0
    """Of saves and restores that do not depend on time."""

    def usd(self, wake_in_s: float, lag_s: float) -> float:
        """Worst cost from now when the next decision comes ``wake_in_s`` from now."""
        span_s = self.wind_down_s + (0.0 if self.ending else wake_in_s + lag_s)
        span_s = max(span_s, self.minimum_left_s, self.least_s)
        usd_per_hour = self.usd_per_hour + self.traffic_usd_per_hour
        return usd_per_hour * (span_s + ROUNDING_S) / HOUR_S + self.traffic_once_usd


def with_traffic(liability: Liability, traffic: WorstTraffic) -> Liability:
    """The machine with what checkpoints on their way to and from it cost at worst."""
    return replace(
        liability,
        traffic_usd_per_hour=traffic.usd_per_hour,
        traffic_once_usd=traffic.once_usd,
    )


def storage_liability(state: ClusterState) -> Liability | None:
    """What keeping checkpoints in the store costs till the next decision; ``None`` = nothing."""
    usd_per_hour = worst_storage_usd_per_hour(state)
    if usd_per_hour == 0:
        return None
    return Liability(
        instance_id=STORAGE,
        usd_per_hour=usd_per_hour,
        wind_down_s=state.rules.terminate_confirm_s,
        minimum_left_s=0.0,
    )


def committed_usd(liabilities: Iterable[Liability], wake_in_s: float, lag_s: float) -> float:
    """Worst cost of all machines if the next decision comes in ``wake_in_s`` and ends them."""
    return math.fsum(each.usd(wake_in_s, lag_s) for each in liabilities)


def affordable_wake_s(
    liabilities: Sequence[Liability], money_usd: float, lag_s: float, at_most_s: float
) -> float | None:
    """Latest next decision, in seconds from now, that ``money_usd`` still pays for.

    ``None`` when not even a decision right now could end everything in time; ``at_most_s`` when
    money does not bind. Piecewise linear and rising in the wake, so bisection finds it; the answer
    is rounded down so that the money suffices.
    """
    if committed_usd(liabilities, at_most_s, lag_s) <= money_usd:
        return at_most_s
    if committed_usd(liabilities, 0.0, lag_s) > money_usd:
        return None
    low_s, high_s = 0.0, at_most_s
    while high_s - low_s > 1e-3:
        middle_s = (low_s + high_s) / 2
        if committed_usd(liabilities, middle_s, lag_s) <= money_usd:
            low_s = middle_s
        else:
            high_s = middle_s
    return low_s


def on_demand_prices(offers: Iterable[Offer]) -> dict[tuple[str, str, str], float]:
    """Highest on-demand price by provider, region and instance type."""
    prices: dict[tuple[str, str, str], float] = {}
    for offer in offers:
        price = offer.price_usd_per_hour
        if price is None or offer.capacity_type is CapacityType.SPOT:
            continue
        key = (offer.provider, offer.region, offer.instance_type)
        prices[key] = max(prices.get(key, 0.0), price)
    return prices


def worst_rate(
    offer: Offer,
    usd_per_hour: float,
    rules: ReserveRules,
    on_demand: Mapping[tuple[str, str, str], float],
) -> float:
    """Highest rate a machine may have until the end that the next decision asks for."""
    if offer.capacity_type is not CapacityType.SPOT:
        return usd_per_hour
    raised = usd_per_hour * (1 + rules.price_rise_share)
    cap = on_demand.get((offer.provider, offer.region, offer.instance_type))
    return raised if cap is None or cap < usd_per_hour else min(raised, cap)


def liability_of(
    instance: Instance,
    state: ClusterState,
    on_demand: Mapping[tuple[str, str, str], float],
    *,
    stop_s: float = 0.0,
    terminate_now: bool = False,
) -> Liability:
    """What one live machine may still cost.

    ``stop_s`` is the worst time its jobs need to save and stop once told to, with the decision
    that then ends the machine; 0 when they are gone or were told already. ``terminate_now`` says
    that this plan ends it.
    """
    rules = state.rules
    age_s = max(0.0, state.now_s - instance.launched_at_s)
    if instance.state is InstanceState.REQUESTED:
        # Whether and when it was rented is not known yet.
        age_s = 0.0
    wind_down_s = rules.terminate_confirm_s
    ending = terminate_now
    if instance.state is InstanceState.TERMINATING:
        ending = True
        if instance.terminate_asked_at_s is not None:
            asked_for_s = state.now_s - instance.terminate_asked_at_s
            wind_down_s = max(0.0, wind_down_s - asked_for_s)
    elif not terminate_now and stop_s > 0:
        wind_down_s += stop_s + rules.wake_lag_s
    return Liability(
        instance_id=instance.instance_id,
        usd_per_hour=worst_rate(instance.offer, instance.price_usd_per_hour, rules, on_demand),
        wind_down_s=wind_down_s,
        minimum_left_s=max(0.0, rules.minimum_billed_s - age_s),
        ending=ending,
    )


def liability_of_launch(
    token: str,
    offer: Offer,
    price_limit_usd_per_hour: float,
    state: ClusterState,
    on_demand: Mapping[tuple[str, str, str], float],
) -> Liability:
    """What a machine of this plan's launches may cost if the next decision ends it unused."""
    return Liability(
        instance_id=token,
        usd_per_hour=worst_rate(offer, price_limit_usd_per_hour, state.rules, on_demand),
        wind_down_s=state.rules.terminate_confirm_s,
        minimum_left_s=state.rules.minimum_billed_s,
    )
