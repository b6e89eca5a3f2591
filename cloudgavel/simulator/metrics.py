"""Figures of a simulation, from its outcomes."""

from collections.abc import Sequence

import numpy as np

from cloudgavel.documents.simulation import SimulationResult
from cloudgavel.simulator.cluster_run import ClusterRun, JobOutcome


def result_of(
    run: ClusterRun,
    *,
    policy: str,
    seed: int | None = None,
    measured: tuple[int, int] | None = None,
    wall_s: float = 0.0,
) -> SimulationResult:
    """Sum a run up. ``measured`` limits job times to those jobs (first and last, by arrival)."""
    outcomes = run.outcomes
    counted = outcomes if measured is None else outcomes[measured[0] : measured[1] + 1]
    times = np.array(
        [each.finished_s - each.arrives_s for each in counted if each.finished_s is not None]
    )
    span_s = run.ended_s - run.started_s
    whole_s = np.array([kind.count for kind in run.cluster.types]) * span_s
    price = np.array(
        [np.nan if kind.usd_per_hour is None else kind.usd_per_hour for kind in run.cluster.types]
    )
    promised = [each for each in outcomes if each.deadline_s is not None]
    total_s = float(whole_s.sum())
    ended = sum(each.finished_s is not None for each in outcomes)
    return SimulationResult(
        policy=policy,
        seed=seed,
        jobs=len(outcomes),
        jobs_completed=ended,
        avg_jct_s=_number(times.mean()) if times.size else None,
        p50_jct_s=quantile(times, 50),
        p90_jct_s=quantile(times, 90),
        p99_jct_s=quantile(times, 99),
        makespan_s=span_s if ended == len(outcomes) else None,
        cost_usd=_dollars(run.accelerator_s, price),
        idle_cost_usd=_dollars(np.maximum(whole_s - run.accelerator_s, 0.0), price),
        utilization=float(run.accelerator_s.sum()) / total_s if total_s > 0 else 0.0,
        deadlines=len(promised),
        deadline_misses=sum(is_late(each) for each in promised),
        worst_normalised_throughput=_least([each.normalised_throughput for each in counted]),
        mean_normalised_throughput=_mean([each.normalised_throughput for each in counted]),
        worst_finish_time_ratio=_most([each.finish_time_ratio for each in counted]),
        mean_finish_time_ratio=_mean([each.finish_time_ratio for each in counted]),
        rounds=run.rounds,
        moves=run.moves,
        interruptions=sum(each.failures for each in outcomes),
        lost_steps=round(sum(each.lost_steps for each in outcomes)),
        solves=run.solves,
        solve_s=run.solve_s,
        wall_s=wall_s,
        gave_up=run.given_up,
    )


def is_late(outcome: JobOutcome) -> bool:
    """Whether a job ended after its deadline, or not at all. Both instants are absolute."""
    if outcome.deadline_s is None:
        return False
    return outcome.finished_s is None or outcome.finished_s > outcome.deadline_s


def _dollars(seconds: np.ndarray, usd_per_hour: np.ndarray) -> float | None:
    """USD of accelerator-seconds; unknown if a type in use has no price."""
    used = seconds > 0
    if np.isnan(usd_per_hour[used]).any():
        return None
    return float((seconds[used] * usd_per_hour[used]).sum() / 3600.0)


def _number(value: np.floating | float) -> float:
    return float(value)


def quantile(values: np.ndarray, percent: float) -> float | None:
    """Percentile by linear interpolation; ``None`` of nothing."""
    return float(np.percentile(values, percent)) if values.size else None


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _least(values: Sequence[float | None]) -> float | None:
    return min(_known(values), default=None)


def _most(values: Sequence[float | None]) -> float | None:
    return max(_known(values), default=None)


def _mean(values: Sequence[float | None]) -> float | None:
    known = _known(values)
    return sum(known) / len(known) if known else None
