"""The door to solvers: statuses mapped, both formulations agree, warm models follow changes."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.policies.solve import (
    Formulation,
    LinearProgram,
    SolveStatus,
    WarmModel,
    solve_cvxpy,
    solve_integer,
    solve_linear,
)

INF = np.inf


def program(**changes: object) -> LinearProgram:
    """min x + 2 y with x + y >= 1, x - y <= 0.5: (0.75, 0.25), duals 1.5 and -0.5."""
    fields: dict[str, object] = {
        "cost": np.array([1.0, 2.0]),
        "matrix": sparse.csc_matrix(np.array([[1.0, 1.0], [1.0, -1.0]])),
        "row_lower": np.array([1.0, -INF]),
        "row_upper": np.array([INF, 0.5]),
        "lower": np.zeros(2),
        "upper": np.full(2, INF),
    }
    return LinearProgram(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("formulation", list(Formulation))
def test_both_formulations_give_values_and_duals(formulation: Formulation) -> None:
    answer = solve_linear(program(), formulation=formulation)
    assert answer.status is SolveStatus.OPTIMAL
    assert answer.objective == pytest.approx(1.25)
    assert answer.values == pytest.approx([0.75, 0.25])
    assert answer.row_duals == pytest.approx([1.5, -0.5])


@pytest.mark.parametrize("formulation", list(Formulation))
def test_statuses_are_mapped(formulation: Formulation) -> None:
    impossible = program(upper=np.array([0.2, 0.2]))
    assert solve_linear(impossible, formulation=formulation).status is SolveStatus.INFEASIBLE
    endless = program(cost=np.array([0.0, -1.0]))
    answer = solve_linear(endless, formulation=formulation)
    assert answer.status in (SolveStatus.UNBOUNDED, SolveStatus.INFEASIBLE)
    assert answer.values is None and not answer.is_usable


@pytest.mark.parametrize("formulation", list(Formulation))
def test_nothing_to_decide_is_decided(formulation: Formulation) -> None:
    nothing = program(
        cost=np.zeros(0), matrix=sparse.csc_matrix((2, 0)), lower=np.zeros(0), upper=np.zeros(0)
    )
    assert solve_linear(nothing, formulation=formulation).status is SolveStatus.INFEASIBLE


def test_numbers_that_are_not_numbers_fail_without_an_exception() -> None:
    broken = program(cost=np.array([np.nan, 1.0]))
    assert solve_linear(broken).status is SolveStatus.FAILED
    assert solve_integer(broken).status is SolveStatus.FAILED


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_cvxpy_and_direct_agree(seed: int) -> None:
    dice = np.random.default_rng(seed)
    rows, columns = int(dice.integers(1, 6)), int(dice.integers(1, 8))
    random = LinearProgram(
        cost=dice.uniform(0.1, 2, columns),
        matrix=sparse.csc_matrix(dice.uniform(0, 1, (rows, columns)).round(1)),
        row_lower=dice.uniform(0, 1, rows),
        row_upper=np.full(rows, INF),
        lower=np.zeros(columns),
        upper=np.where(dice.random(columns) < 0.5, 1.0, INF),
    )
    one = solve_linear(random)
    other = solve_linear(random, formulation=Formulation.CVXPY)
    assert one.is_usable == other.is_usable
    if one.is_usable:
        assert one.objective == pytest.approx(other.objective, rel=1e-7, abs=1e-9)


def test_a_warm_model_follows_rows_columns_and_costs() -> None:
    model = WarmModel(program())
    assert model.solve().objective == pytest.approx(1.25)
    model.set_row(0, 2.0, INF)
    assert model.solve().objective == pytest.approx(2.75)
    cheap = sparse.csc_matrix(np.array([[1.0], [0.0]]))
    model.add_columns(np.array([0.1]), cheap, np.zeros(1), np.full(1, 1.5))
    assert model.solve().objective == pytest.approx(0.15 + 0.5)
    model.set_columns(np.array([2]), np.zeros(1), np.zeros(1))
    assert model.solve().objective == pytest.approx(2.75)
    model.set_cost(np.array([3.0, 1.0, 1.0]))
    model.forget_basis()
    assert model.solve().objective == pytest.approx(2.0)
    model.set_row(1, -INF, -3.0)
    model.set_columns(np.array([1]), np.zeros(1), np.full(1, 2.0))
    assert model.solve().status is SolveStatus.INFEASIBLE


def test_a_warm_model_improves_within_a_limit_and_keeps_the_constraints() -> None:
    dice = np.random.default_rng(3)
    rows = sparse.csc_matrix(dice.uniform(0, 1, (20, 60)))
    lp = program(
        cost=dice.uniform(0.1, 1, 60),
        matrix=rows,
        row_lower=np.ones(20),
        row_upper=np.full(20, INF),
        lower=np.zeros(60),
        upper=np.full(60, INF),
    )
    model = WarmModel(lp)
    first = model.solve()
    other = dice.uniform(0.1, 1, 60)
    model.set_cost(other)
    stopped = model.improve(2)
    assert stopped.status is SolveStatus.FEASIBLE and stopped.values is not None
    assert first.values is not None
    assert other @ stopped.values <= other @ first.values + 1e-9
    assert (rows @ stopped.values >= 1 - 1e-8).all()
    best = model.improve(10_000)
    assert best.status is SolveStatus.OPTIMAL and best.objective is not None
    assert best.objective <= other @ stopped.values + 1e-9


def test_whole_numbers() -> None:
    whole = program(cost=np.array([1.0, 1.9]), integer=np.array([True, True]))
    answer = solve_integer(whole)
    assert answer.status is SolveStatus.OPTIMAL
    assert answer.values == pytest.approx([0.0, 1.0])
    impossible = program(upper=np.array([0.2, 0.2]), integer=np.array([True, True]))
    assert solve_integer(impossible).status is SolveStatus.INFEASIBLE


def test_cvxpy_problems_of_both_kinds() -> None:
    x = cp.Variable(2, nonneg=True)
    linear = cp.Problem(cp.Minimize(cp.sum(x)), [x[0] + 2 * x[1] >= 1])
    assert solve_cvxpy(linear) is SolveStatus.OPTIMAL
    assert linear.value == pytest.approx(0.5)
    conic = cp.Problem(cp.Minimize(cp.sum_squares(x)), [cp.sum(x) == 2])
    assert solve_cvxpy(conic) is SolveStatus.OPTIMAL
    assert conic.value == pytest.approx(2.0, rel=1e-5)
    assert solve_cvxpy(cp.Problem(cp.Minimize(0), [x[0] <= -1])) is SolveStatus.INFEASIBLE
    with pytest.raises(cp.error.DCPError):
        solve_cvxpy(cp.Problem(cp.Maximize(cp.sum_squares(x))))
