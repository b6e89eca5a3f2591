"""What a run costs, and whether it is in time, over many simulated markets.

Each market is drawn by its own seed: spot capacity runs out in zones, prices wander, machines live
exponential lifetimes (``runtime.assemble.rehearsal_market``). The loop and the policy are those of
the plan; to be quick, each kind of machine is offered in its cheapest places only and no limit's
price is worked out.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cloudgavel.jobs.spec import RunSpec
from cloudgavel.policies.base import Policy
from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.base import Quota
from cloudgavel.runtime.account import deadline_met
from cloudgavel.runtime.assemble import bind_policy, rehearsal_market
from cloudgavel.runtime.cluster_state import deadline_at_s
from cloudgavel.runtime.loop import Decide
from cloudgavel.simulator.virtual_run import VirtualRun, virtual_run

CHEAPEST_PLACES = 4
"""Offers of one kind of machine in a simulated market: enough to go elsewhere in an outage."""
FIRST_SEED = 1_000_003
"""Away from the seeds that people give to rehearsals: a range is not of the story to come."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MarketRange:
    """Outcomes over ``markets`` simulated markets."""

    markets: int
    p05_usd: float
    p95_usd: float
    deadline_share: Mapping[str, float]
    """By job with a deadline: share of the markets in which it was kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Outcome:
    spent_usd: float
    met: Mapping[str, bool]


def market_range(
    run: RunSpec,
    *,
    markets: int,
    offers: Sequence[Offer],
    policy: Policy,
    now_s: float,
    budget_usd: float | None,
    best_effort: bool = False,
    quotas: Sequence[Quota] = (),
    decide_of: Callable[[Policy], Decide] = bind_policy,
    workers: int = 1,
) -> MarketRange | None:
    """Run ``run`` in so many markets; the same arguments give the same range.

    A market in which jobs are left unfinished counts with what was spent, and as missed. ``None``
    without markets. ``workers`` > 1 spreads them over processes.
    """
    if markets < 1:
        return None
    places = cheapest_places(offers)
    quick = without_prices(policy)

    def outcome(number: int) -> _Outcome:
        market = dataclasses.replace(rehearsal_market(run, now_s), seed=FIRST_SEED + number)
        return _outcome(
            virtual_run(
                run,
                offers=places,
                market=market,
                decide=decide_of(quick),
                now_s=now_s,
                budget_usd=budget_usd,
                best_effort=best_effort,
                quotas=quotas,
            )
        )

    outcomes = _all(outcome, markets, workers)
    costs = sorted(each.spent_usd for each in outcomes)
    return MarketRange(
        markets=markets,
        p05_usd=percentile(costs, 0.05),
        p95_usd=percentile(costs, 0.95),
        deadline_share={
            name: sum(each.met[name] for each in outcomes) / markets for name in outcomes[0].met
        },
    )


def cheapest_places(offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """Keep the cheapest offers of each accelerator, count and capacity type, by id."""
    kinds: dict[tuple[str, int, str], list[Offer]] = {}
    for offer in offers:
        kind = (offer.accelerator, offer.accelerators_per_instance, offer.capacity_type.value)
        kinds.setdefault(kind, []).append(offer)
    kept = [
        offer
        for group in kinds.values()
        for offer in sorted(group, key=_price_then_id)[:CHEAPEST_PLACES]
    ]
    return tuple(sorted(kept, key=lambda offer: offer.offer_id))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between order statistics; ``ordered`` ascends and is not empty."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _price_then_id(offer: Offer) -> tuple[float, str]:
    price = offer.price_usd_per_hour
    return (math.inf if price is None else price, offer.offer_id)


def without_prices(policy: Policy) -> Policy:
    """Spare a policy the explanations that nobody will read."""
    if dataclasses.is_dataclass(policy) and hasattr(policy, "explained_count"):
        return dataclasses.replace(policy, explained_count=0)
    return policy


def _all(outcome: Callable[[int], _Outcome], markets: int, workers: int) -> list[_Outcome]:
    if workers <= 1 or markets == 1:
        return [outcome(number) for number in range(markets)]
    import joblib

    # Cloudpickled by loky: closures travel, and no lock of this process is inherited by a fork.
    with joblib.parallel_config(
        backend="loky", n_jobs=min(workers, markets), inner_max_num_threads=1
    ):
        found: list[_Outcome] = joblib.Parallel()(
            joblib.delayed(outcome)(number) for number in range(markets)
        )
    return found


def _outcome(done: VirtualRun) -> _Outcome:
    state = done.state
    return _Outcome(
        spent_usd=state.spent_usd,
        met={
            name: deadline_met(job, state) is True
            for name, job in state.jobs.items()
            if deadline_at_s(job.spec, state.created_at_s) is not None
        },
    )
