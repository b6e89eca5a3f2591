"""What a run costs, and whether it is in time, over many simulated markets.

Each market is drawn by its own seed: spot capacity runs out in zones, prices wander, machines live
exponential lifetimes (``runtime.assemble.rehearsal_market``). The loop and the policy are those of
the plan; to be quick, each kind of machine is offered in its cheapest places only, and neither
bounds nor the prices of limits are worked out.
"""

import dataclasses
import math
from collections.abc import Callable, Generator, Mapping, Sequence
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
WORK_OF_USUAL_MARKETS = 60
LEAST_USUAL_MARKETS, MOST_USUAL_MARKETS = 4, 10
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


class ComingRange:
    """Outcomes that other processes may be working on."""

    def __init__(self, coming: Generator[_Outcome, None, None]) -> None:
        """``coming``: outcomes in the order of the markets."""
        self._coming = coming

    def wait(self) -> MarketRange | None:
        """Return the range over all markets; ``None`` without any."""
        outcomes = list(self._coming)
        return _range_of(outcomes) if outcomes else None


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
) -> ComingRange:
    """Begin to run ``run`` in so many markets; the same arguments give the same range.

    A market in which jobs are left unfinished counts with what was spent, and as missed.
    ``workers`` > 1 spreads them over processes, which work while the caller does something else;
    with one worker nothing is done before the range is asked for.
    """
    places = cheapest_places(offers)
    quick = without_explanations(policy)

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

    return ComingRange(_begun(outcome, markets, workers))


def usual_markets(jobs: int) -> int:
    """How many markets a plan of so many jobs draws when nobody says: the more work, the fewer."""
    return min(MOST_USUAL_MARKETS, max(LEAST_USUAL_MARKETS, WORK_OF_USUAL_MARKETS // max(1, jobs)))


def _range_of(outcomes: Sequence[_Outcome]) -> MarketRange:
    costs = sorted(each.spent_usd for each in outcomes)
    return MarketRange(
        markets=len(outcomes),
        p05_usd=quantile(costs, 0.05),
        p95_usd=quantile(costs, 0.95),
        deadline_share={
            name: sum(each.met[name] for each in outcomes) / len(outcomes)
            for name in outcomes[0].met
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


def quantile(ordered: Sequence[float], share: float) -> float:
    """Estimate a quantile from a sample; ``ordered`` ascends and is not empty.

    Of ``n`` values the ``i``-th lies, on average over samples, above ``i / (n + 1)`` of what it was
    drawn from, whatever that is (Weibull 1939; Hyndman and Fan 1996, definition 6): in between
    linearly, beyond the ends the end. From 19 values on another one falls between the 5 % and the
    95 % quantile with probability 0.9; with fewer those are the least and the most, and it does so
    with (n - 1) / (n + 1).
    """
    place = share * (len(ordered) + 1) - 1
    below = min(max(math.floor(place), 0), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    part = min(max(place - below, 0.0), 1.0)
    return ordered[below] + part * (ordered[above] - ordered[below])


def _price_then_id(offer: Offer) -> tuple[float, str]:
    price = offer.price_usd_per_hour
    return (math.inf if price is None else price, offer.offer_id)


def without_explanations(policy: Policy) -> Policy:
    """Spare a policy what nobody will read: prices of limits, and the lower bound."""
    if not dataclasses.is_dataclass(policy):
        return policy
    spared = {"explained_count": 0, "with_bound": False}
    known = {each.name for each in dataclasses.fields(policy)}
    return dataclasses.replace(policy, **{k: v for k, v in spared.items() if k in known})


def _begun(
    outcome: Callable[[int], _Outcome], markets: int, workers: int
) -> Generator[_Outcome, None, None]:
    """Outcomes in the order of the markets, whichever process is done first."""
    if workers <= 1 or markets <= 1:
        return (outcome(number) for number in range(markets))
    import joblib

    # Cloudpickled by loky: closures travel, and no lock of this process is inherited by a fork.
    with joblib.parallel_config(
        backend="loky", n_jobs=min(workers, markets), inner_max_num_threads=1
    ):
        found: Generator[_Outcome, None, None] = joblib.Parallel(return_as="generator")(
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
