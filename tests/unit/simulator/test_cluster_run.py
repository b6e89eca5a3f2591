"""What a run on a fixed cluster does, on worlds small enough to reckon by hand."""

import pytest

from cloudgavel.errors import UsageError
from cloudgavel.policies.registry import policy_named
from cloudgavel.simulator.cluster_run import ClusterRun, ClusterRunSettings, run_cluster
from cloudgavel.simulator.metrics import result_of
from cloudgavel.simulator.workload import Workload
from tests.unit.simulator.building import a_job, a_table, a_workload, types


def run(workload: Workload, policy: str, cluster: tuple, **settings: object) -> ClusterRun:
    return run_cluster(
        workload,
        a_table(),
        cluster,
        policy_named(policy),
        ClusterRunSettings(keep_leases=True, **settings),  # type: ignore[arg-type]
    )


def finished(found: ClusterRun) -> dict[str, float]:
    return {each.name: each.finished_s for each in found.outcomes if each.finished_s is not None}


def test_one_job_ends_when_its_work_is_done_and_not_at_the_end_of_a_round() -> None:
    found = run(a_workload(a_job("a", 500.0)), "fifo", types(1))
    assert finished(found) == {"a": pytest.approx(500.0)}
    assert result_of(found, policy="fifo").cost_usd == pytest.approx(500 * 0.74 / 3600)


def test_a_finished_jobs_accelerator_is_given_on_within_the_round() -> None:
    found = run(a_workload(a_job("a", 100.0), a_job("b", 50.0)), "fifo", types(1))
    assert finished(found) == {"a": pytest.approx(100.0), "b": pytest.approx(150.0)}


def test_an_arrival_on_an_idle_cluster_starts_at_once() -> None:
    jobs = a_workload(a_job("a", 10.0), a_job("b", 10.0, arrives_s=1_000.0))
    found = run(jobs, "max_min_fairness", types(1))
    assert finished(found)["b"] == pytest.approx(1_010.0)


def test_two_equal_jobs_take_turns_on_one_accelerator() -> None:
    jobs = a_workload(a_job("a", 3_600.0), a_job("b", 3_600.0))
    found = run(jobs, "max_min_fairness", types(1))
    ends = sorted(finished(found).values())
    assert ends[1] == pytest.approx(7_200.0)
    assert ends[0] >= 7_200.0 - 2 * 360.0


def test_the_aware_policy_puts_the_picky_job_on_the_fast_type() -> None:
    jobs = a_workload(a_job("even", 3_600.0), a_job("picky", 36_000.0, kind="picky"))
    found = run(jobs, "max_min_fairness", types(1, 1))
    assert {lease.accelerator for lease in found.leases if "picky" in lease.jobs} == {"v100"}
    assert finished(found) == {"even": pytest.approx(3_600.0), "picky": pytest.approx(3_600.0)}


def test_a_big_gang_is_not_kept_waiting_by_small_jobs() -> None:
    small = [a_job(f"s{number}", 36_000.0) for number in range(8)]
    jobs = a_workload(*small, a_job("gang", 4 * 3_600.0, gang_size=4))
    found = run(jobs, "max_min_fairness", types(4))
    # It is due a fair part of the 4 accelerators; without protection it would end last of all.
    assert finished(found)["gang"] < max(finished(found).values())
    assert finished(found)["gang"] < 12 * 3_600.0


def test_a_move_costs_its_change_over_and_a_lease_that_goes_on_does_not() -> None:
    alone = run(a_workload(a_job("a", 1_000.0)), "fifo", types(1), change_over_s=50.0, start_s=20.0)
    assert finished(alone) == {"a": pytest.approx(1_020.0)}
    turns = run(
        a_workload(a_job("a", 3_600.0), a_job("b", 3_600.0)),
        "max_min_fairness",
        types(1),
        change_over_s=50.0,
    )
    assert turns.moves > 0
    # The last change-over after another job's end may be the same place again: also paid.
    assert max(finished(turns).values()) == pytest.approx(7_200.0 + 50.0 * turns.moves)


def test_a_gang_too_big_for_a_machine_is_spread_at_its_own_rate() -> None:
    jobs = a_workload(a_job("gang", 400.0, gang_size=4))
    whole = run(jobs, "fifo", types(4, per_instance=4))
    spread = run(jobs, "fifo", types(4, per_instance=2))
    assert finished(whole) == {"gang": pytest.approx(100.0)}
    assert finished(spread) == {"gang": pytest.approx(200.0)}
    assert {lease.spread for lease in spread.leases} == {True}


def test_a_job_that_nothing_can_run_breaks_nothing_for_the_others() -> None:
    jobs = a_workload(a_job("a", 100.0), a_job("alien", 100.0, kind="never measured"))
    found = run(jobs, "max_min_fairness", types(1))
    assert finished(found) == {"a": pytest.approx(100.0)}
    assert not found.given_up
    assert result_of(found, policy="x").jobs_completed == 1


def test_lateness_compares_instants_not_durations() -> None:
    jobs = a_workload(
        a_job("early", 100.0, arrives_s=10_000.0, deadline_s=10_200.0),
        a_job("late", 100.0, arrives_s=20_000.0, deadline_s=20_050.0),
    )
    result = result_of(run(jobs, "fifo", types(1)), policy="fifo")
    assert (result.deadlines, result.deadline_misses) == (2, 1)


def test_nothing_is_solved_again_while_nothing_changes() -> None:
    jobs = a_workload(a_job("a", 36_000.0), a_job("b", 36_000.0))
    found = run(jobs, "max_min_fairness", types(1))
    assert found.rounds >= 199
    assert found.solves <= 2


def test_an_empty_workload_is_refused() -> None:
    with pytest.raises(UsageError, match="no jobs"):
        run(Workload(name="none", jobs=()), "fifo", types(1))
