"""What policies know of a fixed cluster: throughputs in part, progress late or wrong."""

import dataclasses
import itertools

import numpy as np
import pytest

from cloudgavel.errors import UsageError
from cloudgavel.mechanism.fixed_cluster.state import FixedClusterState
from cloudgavel.policies.registry import policy_named
from cloudgavel.simulator import cluster_run as module
from cloudgavel.simulator.cluster_run import ClusterRun, ClusterRunSettings, run_cluster
from cloudgavel.simulator.progress_reports import ProgressReports
from tests.unit.simulator.building import a_job, a_table, a_workload, types

JOBS = [a_job(f"j{n}", 3600.0 * (n + 1), kind) for n, kind in enumerate(["even", "picky"] * 3)]


def run(**settings: object) -> tuple[ClusterRun, list[FixedClusterState]]:
    """The run, and every state that a decision saw."""
    seen: list[FixedClusterState] = []
    real = module.decide_leases

    def decide(state: FixedClusterState, *rest: object, **more: object):
        seen.append(state)
        return real(state, *rest, **more)

    module.decide_leases = decide  # type: ignore[assignment]
    try:
        done = run_cluster(
            a_workload(*JOBS),
            a_table(),
            types(1, 2),
            policy_named("max_min_fairness"),
            ClusterRunSettings(**settings),  # type: ignore[arg-type]
        )
    finally:
        module.decide_leases = real
    return done, seen


def test_to_know_everything_is_to_know_the_truth() -> None:
    truth, _ = run()
    known, _ = run(measured_share=1.0)
    assert known.outcomes == truth.outcomes


def test_what_was_not_measured_is_estimated_until_it_ran() -> None:
    _, states = run()
    guessed, guesses = run(measured_share=0.0)
    wrong = [~np.isclose(state.rate, _true_rate(state)) for state in guesses]
    assert wrong[0].any()
    assert all(np.isclose(state.rate, _true_rate(state)).all() for state in states)
    assert wrong[-1].sum() < wrong[0].sum()
    assert (guesses[0].rate > 0).tolist() == (_true_rate(guesses[0]) > 0).tolist()
    assert all(each.finished_s is not None for each in guessed.outcomes)
    assert run(measured_share=0.0)[0].outcomes == guessed.outcomes
    others = {tuple(run(measured_share=0.0, seed=n)[1][0].rate.ravel()) for n in range(5)}
    assert len(others) > 1


def _true_rate(state: FixedClusterState) -> np.ndarray:
    kinds = {job.name: job.kind for job in JOBS}
    table = a_table()
    return np.array(
        [table.rates((kinds[job.name], job.gang_size), state.cluster) for job in state.jobs]
    )


def test_jobs_that_tell_too_much_are_not_believed_to_be_done() -> None:
    done, states = run(reports=ProgressReports(error_share=0.9))
    totals = {job.name: job.total_steps for job in JOBS}
    for state in states:
        total = np.array([totals[job.name] for job in state.jobs])
        assert (state.steps_left >= 1e-3 * total).all() and (state.steps_left <= total).all()
    assert all(each.finished_s is not None for each in done.outcomes)
    # Work is done at the true rate all the same: j0 needs 3,600 s of a type, wherever it runs.
    assert done.outcomes[0].finished_s >= 3600.0


def test_late_reports_change_only_so_often() -> None:
    _, states = run(reports=ProgressReports(late_s=1800.0))
    told = [(state.now_s, float(state.steps_left[-1])) for state in states]
    changes = [
        at for (at, left), (_, before) in zip(told[1:], told, strict=False) if left != before
    ]
    assert changes and all(b - a >= 1800.0 for a, b in itertools.pairwise(changes))


def test_an_error_is_a_share() -> None:
    with pytest.raises(UsageError, match="less than 1"):
        ProgressReports(error_share=1.0)


def test_factors_are_the_jobs_own_and_the_same_for_the_same_seed() -> None:
    reports = ProgressReports(error_share=0.3)
    found = reports.factors(["a", "b"], 7)
    assert found == reports.factors(["a", "b"], 7) != reports.factors(["a", "b"], 8)
    assert all(0.7 <= factor <= 1.3 for factor in found.values())
    assert dataclasses.replace(reports, error_share=0.0).factors(["a"], 7) == {"a": 1.0}
