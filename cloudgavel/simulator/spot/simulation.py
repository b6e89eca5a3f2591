"""Many runs of several policies over availability traces, from the same random starts."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cloudgavel.documents.spot_simulation import (
    SpotPolicyResult,
    SpotSimulationDocument,
    SpotTraceResult,
)
from cloudgavel.errors import UsageError
from cloudgavel.policies.baselines.clairvoyant import (
    clairvoyant_changeovers,
    clairvoyant_usd,
    work_unit_s,
)
from cloudgavel.policies.baselines.greedy_spot import GreedySpot
from cloudgavel.policies.baselines.on_demand_only import OnDemandOnly
from cloudgavel.policies.baselines.region_failover import RegionFailover
from cloudgavel.policies.baselines.uniform_progress import UniformProgress
from cloudgavel.policies.spot.controller import SpotUnderDeadline
from cloudgavel.policies.spot.tables import TableShelf
from cloudgavel.policies.spot.view import Floats, Ints, SpotPolicy, SpotTerms
from cloudgavel.simulator.spot.replay import Market, on_demand_only_usd, replay
from cloudgavel.simulator.spot.traces import Merge, SpotTrace, merge_ticks

CLAIRVOYANT = "clairvoyant"
_CLAIRVOYANT_CELLS = 40_000
"""Jobs times grid levels in one pass of the clairvoyant: what stays in a processor's cache."""

PolicyMaker = Callable[[SpotTerms, TableShelf], SpotPolicy]
POLICIES: Mapping[str, PolicyMaker] = {
    "min_cost": lambda terms, shelf: SpotUnderDeadline(terms, shelf=shelf),
    "uniform_progress": lambda terms, shelf: UniformProgress(terms),
    "uniform_progress_eager": lambda terms, shelf: UniformProgress(terms, hysteresis=False),
    "greedy": lambda terms, shelf: GreedySpot(terms),
    "region_failover": lambda terms, shelf: RegionFailover(terms),
    "on_demand_only": lambda terms, shelf: OnDemandOnly(terms),
}
"""By the name ``--policies`` takes; ``clairvoyant`` comes on top."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpotSimulationSettings:
    """What ``cloudgavel simulate spot`` is asked for."""

    job_hours: float = 48.0
    deadline_ratio: float = 1.25
    tick_s: float | None = None
    """``None`` = the trace's own."""
    merge: Merge = Merge.ALL_UP
    changeover_s: float = 585.0
    on_demand_ratio: float = 3.33
    """On-demand price over the (mean) spot price."""
    runs: int = 20
    """Random starts for each trace, or for all traces together."""
    seed: int = 0
    policies: tuple[str, ...] = ("min_cost", "uniform_progress", "greedy", CLAIRVOYANT)
    together: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyRuns:
    """One policy's outcome over a batch of runs."""

    cost_ratio: Floats
    regret: Floats
    missed: int
    changeovers: int


def simulate_spot(
    traces: Sequence[SpotTrace],
    settings: SpotSimulationSettings,
    *,
    shelf: TableShelf | None = None,
) -> SpotSimulationDocument:
    """Replay all policies on all traces and sum up; ``UsageError`` when settings do not fit."""
    _check(traces, settings)
    shelf = TableShelf() if shelf is None else shelf
    ticked = [
        merge_ticks(
            trace,
            tick_s=trace.tick_s if settings.tick_s is None else settings.tick_s,
            merge=settings.merge,
        )
        for trace in traces
    ]
    groups = [ticked] if settings.together else [[trace] for trace in ticked]
    dice = np.random.default_rng(settings.seed)
    by_trace: list[SpotTraceResult] = []
    pooled: dict[str, list[PolicyRuns]] = {name: [] for name in settings.policies}
    for group in groups:
        terms, market = runs_of(group, settings, dice)
        for name, outcome in policy_runs(terms, market, settings.policies, shelf).items():
            pooled[name].append(outcome)
            by_trace.append(
                SpotTraceResult(
                    trace="+".join(trace.name for trace in group),
                    policy=name,
                    runs=settings.runs,
                    mean_cost_ratio=_rounded(outcome.cost_ratio.mean()),
                    mean_regret=_rounded(outcome.regret.mean()),
                    deadline_misses=outcome.missed,
                )
            )
    return SpotSimulationDocument(
        traces=tuple(trace.name for trace in traces),
        together=settings.together,
        job_hours=settings.job_hours,
        deadline_ratio=settings.deadline_ratio,
        changeover_s=settings.changeover_s,
        on_demand_ratio=settings.on_demand_ratio,
        tick_s=tuple(trace.tick_s for trace in ticked),
        merge=settings.merge.value,
        runs_per_trace=settings.runs,
        seed=settings.seed,
        results=tuple(_summary(name, outcomes) for name, outcomes in pooled.items()),
        by_trace=tuple(by_trace),
    )


def _check(traces: Sequence[SpotTrace], settings: SpotSimulationSettings) -> None:
    if not traces:
        raise UsageError("no trace was given", hints=("name one or more trace files",))
    known = (*POLICIES, CLAIRVOYANT)
    unknown = [name for name in settings.policies if name not in known]
    if unknown or not settings.policies:
        raise UsageError(
            f"no policy is called {unknown[0]}" if unknown else "no policy was given",
            hints=(f"known: {', '.join(known)}",),
        )
    for label, value, least in (
        ("--job-hours", settings.job_hours, 0.0),
        ("--on-demand-ratio", settings.on_demand_ratio, 0.0),
        ("--runs", settings.runs, 0),
    ):
        if not (math.isfinite(value) and value > least):
            raise UsageError(f"{label} must be more than {least:g}, not {value:g}")
    if not (math.isfinite(settings.changeover_s) and settings.changeover_s >= 0):
        raise UsageError(f"--changeover-s must not be negative, not {settings.changeover_s:g}")
    spare_s = (settings.deadline_ratio - 1) * settings.job_hours * 3600.0
    if not spare_s >= settings.changeover_s:
        raise UsageError(
            "the deadline leaves no room for one change-over, not even on on-demand",
            facts=(
                ("spare time", f"{spare_s:g} s"),
                ("change-over", f"{settings.changeover_s:g} s"),
            ),
            hints=("raise --deadline-ratio",),
        )
    if settings.together and settings.tick_s is None and len({t.tick_s for t in traces}) > 1:
        raise UsageError(
            "traces with different ticks cannot be used together",
            hints=("give --tick-s, a common multiple of their ticks",),
        )


def runs_of(
    group: Sequence[SpotTrace], settings: SpotSimulationSettings, dice: np.random.Generator
) -> tuple[SpotTerms, Market]:
    """Cut random windows, as long as the deadline, out of traces that start at the same instant.

    Where a trace has prices they are used and on-demand costs ``on_demand_ratio`` times their
    mean; else spot costs 1 USD per hour.
    """
    work_s = settings.job_hours * 3600.0
    deadline_s = work_s * settings.deadline_ratio
    tick_s = group[0].tick_s
    ticks = math.ceil(deadline_s / tick_s - 1e-9)
    length = min(len(trace.available) for trace in group)
    if length < ticks:
        short = min(group, key=lambda trace: len(trace.available))
        raise UsageError(
            f"the trace {short.name} is too short for this deadline",
            facts=(
                ("deadline", f"{deadline_s / 3600.0:g} h"),
                ("trace", f"{short.duration_s / 3600.0:g} h"),
            ),
            hints=("lower --job-hours or --deadline-ratio",),
        )
    starts = dice.integers(0, length - ticks + 1, settings.runs)
    available = np.stack([trace.available[:length] for trace in group], axis=1)
    prices = np.stack(
        [
            np.ones(length) if trace.usd_per_hour is None else trace.usd_per_hour[:length]
            for trace in group
        ],
        axis=1,
    )
    on_demand = settings.on_demand_ratio * float(prices.mean())
    windows = starts[:, None] + np.arange(ticks)
    terms = SpotTerms(
        tick_s=tick_s,
        changeover_s=settings.changeover_s,
        work_s=np.full(settings.runs, work_s),
        deadline_s=np.full(settings.runs, deadline_s),
        work_rate=np.ones(len(group)),
        holds_for_tick=True,
    )
    market = Market(
        available=available[windows],
        spot_usd_per_hour=prices[windows],
        on_demand_usd_per_hour=np.full(settings.runs, on_demand),
    )
    return terms, market


def policy_runs(
    terms: SpotTerms, market: Market, policies: Sequence[str], shelf: TableShelf
) -> dict[str, PolicyRuns]:
    """Replay each policy and set it against the clairvoyant optimum of the same runs."""
    base = on_demand_only_usd(terms, market)
    oracle, starts = clairvoyant(terms, market, count_starts=CLAIRVOYANT in policies)
    result: dict[str, PolicyRuns] = {}
    for name in policies:
        if name == CLAIRVOYANT:
            cost, missed, changeovers = oracle, 0, int(starts.sum())
        else:
            outcome = replay(POLICIES[name](terms, shelf), terms, market)
            cost = outcome.cost_usd
            missed, changeovers = int(outcome.missed.sum()), int(outcome.changeovers.sum())
        result[name] = PolicyRuns(
            cost_ratio=cost / base,
            regret=(cost - oracle) / base,
            missed=missed,
            changeovers=changeovers,
        )
    return result


def clairvoyant(
    terms: SpotTerms, market: Market, *, count_starts: bool = False
) -> tuple[Floats, Ints]:
    """(J,) cost of the clairvoyant optimum and its change-overs (0 where not counted)."""
    jobs = len(terms.work_s)
    levels = float(terms.work_s.max()) / work_unit_s(terms.tick_s, terms.changeover_s)
    chunk = max(1, int(_CLAIRVOYANT_CELLS / levels))
    costs, starts = np.empty(jobs), np.zeros(jobs, dtype=np.int64)
    for first in range(0, jobs, chunk):
        rows = slice(first, first + chunk)
        part = SpotTerms(
            tick_s=terms.tick_s,
            changeover_s=terms.changeover_s,
            work_s=terms.work_s[rows],
            deadline_s=terms.deadline_s[rows],
            work_rate=terms.work_rate,
        )
        costs[rows] = clairvoyant_usd(
            part,
            available=market.available[rows],
            spot_usd_per_hour=market.spot_usd_per_hour[rows],
            on_demand_usd_per_hour=market.on_demand_usd_per_hour[rows],
        )
        if count_starts:
            starts[rows] = clairvoyant_changeovers(
                part,
                costs[rows],
                available=market.available[rows],
                spot_usd_per_hour=market.spot_usd_per_hour[rows],
                on_demand_usd_per_hour=market.on_demand_usd_per_hour[rows],
            )
    return costs, starts


def _summary(name: str, outcomes: Sequence[PolicyRuns]) -> SpotPolicyResult:
    ratios = np.concatenate([outcome.cost_ratio for outcome in outcomes])
    regrets = np.concatenate([outcome.regret for outcome in outcomes])
    return SpotPolicyResult(
        policy=name,
        mean_cost_ratio=_rounded(ratios.mean()),
        p90_cost_ratio=_rounded(np.quantile(ratios, 0.9)),
        max_cost_ratio=_rounded(ratios.max()),
        mean_regret=_rounded(regrets.mean()),
        deadline_misses=sum(outcome.missed for outcome in outcomes),
        changeovers=sum(outcome.changeovers for outcome in outcomes),
    )


def _rounded(value: float) -> float:
    return round(float(value), 6)
