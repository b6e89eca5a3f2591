import numpy as np
import pytest

from cloudgavel.policies.fixed import finish_time_fairness
from cloudgavel.policies.fixed.cluster import cluster_of
from cloudgavel.policies.fixed.finish_time_fairness import FinishTimeFairness
from tests.unit.policies_fixed.building import cluster_problem, random_problem
from tests.unit.policies_fixed.oracle import best_level


def rho_by_bisection(problem, elapsed: np.ndarray) -> float:
    """The formula of the paper, bisected over feasibility of matrices."""
    rates = np.where(problem.feasible, problem.throughput_steps_per_s, 0.0)
    m = rates.shape[0]
    accelerators = np.array(problem.cluster_accelerators)
    steps = np.array([job.steps_left for job in problem.jobs])
    alone = np.where(rates > 0, np.minimum(1.0, accelerators / m), 0.0)
    alone /= np.maximum(alone.sum(axis=1, keepdims=True), 1)
    iso = elapsed + steps / (alone * rates).sum(axis=1)
    low, high = float((elapsed / iso).max()), 50.0
    for _ in range(60):
        middle = (low + high) / 2
        left = middle * iso - elapsed
        if (left > 0).all() and best_level(rates, accelerators, steps / left) >= 1:
            high = middle
        else:
            low = middle
    return high


@pytest.mark.parametrize("seed", range(5))
def test_equals_bisection_over_the_matrices(seed):
    dice = np.random.default_rng(seed)
    elapsed = dice.exponential(3000, 9) if seed else np.zeros(9)
    problem = random_problem(9, [2, 3, 1], seed=seed, elapsed=elapsed.tolist())
    found = FinishTimeFairness().allocate(problem)
    assert found.objective_value == pytest.approx(rho_by_bisection(problem, elapsed), rel=1e-6)


def test_the_cone_and_the_linear_programs_agree_at_200_jobs():
    elapsed = np.random.default_rng(1).exponential(2000, 200).tolist()
    problem = random_problem(200, [20, 30, 25], seed=8, elapsed=elapsed)
    cluster = cluster_of(problem, with_steps=True)
    times = finish_time_fairness._Times(cluster)
    cone = finish_time_fairness._by_cones(cluster, times)
    _, rho = FinishTimeFairness()._fall(cluster, times, None)
    assert times.rho(cone.throughput()) == pytest.approx(rho, rel=1e-6)


def test_history_counts():
    # Two equal jobs on one accelerator; the first has waited as long as its own work takes.
    problem = cluster_problem([[1.0], [1.0]], [1], elapsed=[1000.0, 0.0])
    found = FinishTimeFairness().allocate(problem)
    assert found.shares.ravel() == pytest.approx([0.5, 0.5], abs=1e-6)  # (1 + 2)/(1 + 2) = 2/2
    # If those 1000 s brought nothing that 1/n of the cluster would not have brought at once:
    late = cluster_problem(
        [[1.0], [1.0]], [1], elapsed=[1000.0, 0.0], extra={"isolated_so_far_s": np.zeros(2)}
    )
    rescued = FinishTimeFairness().allocate(late)
    assert rescued.shares[0, 0] > found.shares[0, 0] + 0.1


def test_prices_are_the_slopes_of_rho():
    problem = random_problem(12, [2, 3, 2], seed=4)
    found = FinishTimeFairness().allocate(problem)
    assert found.limit_prices
    for each in found.limit_prices:
        assert each.exact and each.per_unit_down >= each.per_unit_up - 1e-6
        assert each.per_unit_up > 0
