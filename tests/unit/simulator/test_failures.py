"""Jobs that fail on a fixed cluster: what was not saved is done again."""

import pytest

from cloudgavel.policies.registry import policy_named
from cloudgavel.simulator.cluster_run import ClusterRun, ClusterRunSettings, run_cluster
from cloudgavel.simulator.failures import Failures, unsaved_s
from cloudgavel.simulator.metrics import result_of
from tests.unit.simulator.building import a_job, a_table, a_workload, types

HOUR_S = 3600.0


def run(policy: str = "fifo", **settings: object) -> ClusterRun:
    return run_cluster(
        a_workload(a_job("a", 10 * HOUR_S), a_job("b", 5 * HOUR_S, arrives_s=100.0)),
        a_table(),
        types(1, 1),
        policy_named(policy),
        ClusterRunSettings(**settings),  # type: ignore[arg-type]
    )


def test_what_was_lost_is_done_again_and_every_failure_costs_a_change_over() -> None:
    done = run(failures_per_hour=1.0, save_every_s=600.0, change_over_s=50.0)
    a = done.outcomes[0]
    assert a.failures > 0 and 0 < a.lost_steps < 600.0 * a.failures
    # It runs on one accelerator at a step a second from the beginning to the end.
    assert a.moves == 0
    assert a.finished_s == pytest.approx(10 * HOUR_S + a.lost_steps + 50.0 * a.failures)
    result = result_of(done, policy="fifo")
    assert result.interruptions == sum(each.failures for each in done.outcomes)
    assert result.lost_steps == round(sum(each.lost_steps for each in done.outcomes))


def test_without_failures_nothing_changes() -> None:
    assert run(save_every_s=1.0).outcomes == run().outcomes
    assert run().outcomes[0].failures == 0 and run().outcomes[0].lost_steps == 0.0


def test_saving_more_often_loses_less() -> None:
    often, seldom = (
        sum(each.lost_steps for each in run(failures_per_hour=1.0, save_every_s=every_s).outcomes)
        for every_s in (60.0, 7200.0)
    )
    assert often < seldom / 4


def test_a_seed_draws_the_failures_and_every_policy_meets_the_same_ones() -> None:
    one = run(failures_per_hour=0.2, save_every_s=1.0, seed=1).outcomes
    same = run(failures_per_hour=0.2, save_every_s=1.0, seed=1).outcomes
    assert one == same
    counts = {
        tuple(o.failures for o in run(failures_per_hour=0.2, save_every_s=1.0, seed=n).outcomes)
        for n in range(6)
    }
    assert len(counts) > 1
    first = Failures(2.0, seed=3)
    again = Failures(2.0, seed=3)
    assert first.next(5, 0.0) == again.next(5, 0.0)
    assert Failures(0.0, seed=3).next(5, 0.0) == float("inf")


@pytest.mark.parametrize(
    ("running_s", "lost_s"), [(0.0, 0.0), (100.0, 100.0), (1900.0, 100.0), (-5.0, 0.0)]
)
def test_a_save_is_taken_every_so_often(running_s: float, lost_s: float) -> None:
    assert unsaved_s(running_s, 1800.0) == lost_s
