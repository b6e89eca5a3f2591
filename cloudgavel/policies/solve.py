"""The single door to solvers: every status mapped, no exception let through, always repeatable.

One thread, a fixed seed, and limits on iterations, nodes and gaps rather than on time, so the same
problem gives the same answer on a slow machine. Nothing here reads a clock.

cvxpy formulates what is written as a problem of its own (``solve_cvxpy``, ``solve_linear`` with
``Formulation.CVXPY``). Where matrices exist already and are solved many times a round, HiGHS is
called on them directly (``WarmModel``): measured on 6 jobs x 20 pools x 8 intervals, one solve
takes about 1 ms instead of about 20 ms, nearly all of it cvxpy's compilation. Both are tested
against each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import highspy
import numpy as np
import scipy.sparse as sparse

if TYPE_CHECKING:
    import cvxpy

from cloudgavel.policies.problem import BoolArray, FloatArray, IntArray

FEASIBILITY_TOLERANCE = 1e-9
"""Asked of HiGHS for primal and dual feasibility (its default is 1e-7)."""
ITERATION_LIMIT = 2_000_000


class SolveStatus(StrEnum):
    """What a solver claims."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    """A limit was reached with an answer in hand (integer problems)."""
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    FAILED = "failed"
    """No usable answer; ``message`` says what the solver said."""


class Formulation(StrEnum):
    """Who turns a linear program into the solver's own form."""

    DIRECT = "direct"
    CVXPY = "cvxpy"


@dataclass(frozen=True, kw_only=True)
class LinearProgram:
    """``min cost @ x`` with ``row_lower <= matrix @ x <= row_upper``, ``lower <= x <= upper``.

    n columns, p rows; ``matrix`` is (p, n) and kept by columns. Infinite bounds are ``inf``.
    """

    cost: FloatArray
    matrix: sparse.csc_matrix
    row_lower: FloatArray
    row_upper: FloatArray
    lower: FloatArray
    upper: FloatArray
    integer: BoolArray | None = None
    """(n,) mask of the columns that must be whole numbers."""


@dataclass(frozen=True, kw_only=True)
class LinearAnswer:
    """A solver's answer; arrays are ``None`` unless the status is OPTIMAL or FEASIBLE."""

    status: SolveStatus
    values: FloatArray | None = None
    objective: float | None = None
    row_duals: FloatArray | None = None
    """(p,): change of the optimum per unit of the row's active bound (``None`` if integer)."""
    message: str = ""

    @property
    def is_usable(self) -> bool:
        """True when ``values`` hold an answer that keeps the constraints."""
        return self.status in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE)


def solve_linear(
    program: LinearProgram,
    *,
    formulation: Formulation = Formulation.DIRECT,
    is_small_and_scaled: bool = False,
) -> LinearAnswer:
    """Solve a continuous linear program once (``is_small_and_scaled``: see ``WarmModel``)."""
    if formulation is Formulation.CVXPY:
        return _solve_linear_in_cvxpy(program)
    answer = WarmModel(program, is_small_and_scaled=is_small_and_scaled).solve()
    if answer.status is SolveStatus.FAILED:
        return _solve_linear_in_cvxpy(program, solver="CLARABEL")
    return answer


def solve_integer(
    program: LinearProgram,
    *,
    relative_gap: float = 1e-6,
    node_limit: int = 2000,
    quick: bool = False,
) -> LinearAnswer:
    """Solve a mixed-integer program with HiGHS.

    Stops at the gap or the node limit; FEASIBLE then means "best found, not proved best".
    ``quick`` leaves out the searches that cost most at the root (restarts, sub-MIP heuristics).
    """
    if program.cost.size == 0:
        return _answer_without_columns(program)
    options: dict[str, bool | int | float | str] = {
        "mip_rel_gap": relative_gap,
        "mip_max_nodes": node_limit,
        "mip_detect_symmetry": False,
    }
    if quick:
        options |= {"mip_heuristic_effort": 0.0, "mip_allow_restart": False}
    try:
        highs = _loaded_highs(program, options)
        highs.run()
        said = highs.getModelStatus()
        values = np.array(highs.getSolution().col_value, dtype=np.float64)
        objective = float(highs.getInfo().objective_function_value)
        message = highs.modelStatusToString(said)
        has_answer = highs.getInfo().primal_solution_status == highspy.kSolutionStatusFeasible
    except Exception as error:  # a solver's exception must not end a round
        return LinearAnswer(status=SolveStatus.FAILED, message=f"HiGHS: {error}")
    if has_answer and values.size == program.cost.size and np.isfinite(values).all():
        proved = said == highspy.HighsModelStatus.kOptimal
        return LinearAnswer(
            status=SolveStatus.OPTIMAL if proved else SolveStatus.FEASIBLE,
            values=values,
            objective=objective,
            message=message,
        )
    return LinearAnswer(status=_STATUS.get(said, SolveStatus.FAILED), message=f"HiGHS: {message}")


_STATUS = {
    highspy.HighsModelStatus.kOptimal: SolveStatus.OPTIMAL,
    highspy.HighsModelStatus.kInfeasible: SolveStatus.INFEASIBLE,
    highspy.HighsModelStatus.kUnbounded: SolveStatus.UNBOUNDED,
    highspy.HighsModelStatus.kUnboundedOrInfeasible: SolveStatus.INFEASIBLE,
}


def _loaded_highs(
    program: LinearProgram, options: dict[str, bool | int | float | str]
) -> highspy.Highs:
    """Hand a program over to HiGHS: silent, one thread, one seed."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    always: dict[str, bool | int | float | str] = {
        "output_flag": False,
        "log_to_console": False,
        "threads": 1,
        "parallel": "off",
        "random_seed": 0,
    }
    for name, value in (always | options).items():
        highs.setOptionValue(name, value)
    matrix = program.matrix.tocsc()
    bounds = (program.row_lower, program.row_upper, program.lower, program.upper)
    numbers = np.isfinite(program.cost).all() and np.isfinite(matrix.data).all()
    if not numbers or any(np.isnan(bound).any() for bound in bounds):
        raise ValueError("the model holds something that is not a number")
    lp = highspy.HighsLp()
    lp.num_col_ = int(program.cost.size)
    lp.num_row_ = int(program.row_upper.size)
    lp.col_cost_ = program.cost
    lp.col_lower_ = program.lower
    lp.col_upper_ = program.upper
    lp.row_lower_ = program.row_lower
    lp.row_upper_ = program.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.num_col_ = lp.num_col_
    lp.a_matrix_.num_row_ = lp.num_row_
    lp.a_matrix_.start_ = matrix.indptr
    lp.a_matrix_.index_ = matrix.indices
    lp.a_matrix_.value_ = matrix.data
    if program.integer is not None:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        lp.integrality_ = [kinds[int(whole)] for whole in program.integer]
    if highs.passModel(lp) == highspy.HighsStatus.kError:
        raise ValueError("HiGHS refused the model")
    return highs


def solve_cvxpy(problem: cvxpy.Problem, *, solver: str | None = None) -> SolveStatus:
    """Solve a cvxpy problem in place and say how it went; never raises.

    Linear and mixed-integer problems go to HiGHS, the rest to CLARABEL; if the first one fails,
    the other is tried when it can. Values are read from the problem's variables.
    """
    import cvxpy as cp
    from cvxpy.error import DCPError

    linear = problem.is_qp() and problem.objective.expr.is_affine()
    order = [solver] if solver else (["HIGHS", "CLARABEL"] if linear else ["CLARABEL"])
    known = {
        cp.OPTIMAL: SolveStatus.OPTIMAL,
        cp.OPTIMAL_INACCURATE: SolveStatus.FEASIBLE,
        cp.USER_LIMIT: SolveStatus.FEASIBLE,
        cp.INFEASIBLE: SolveStatus.INFEASIBLE,
        cp.INFEASIBLE_INACCURATE: SolveStatus.INFEASIBLE,
        cp.settings.INFEASIBLE_OR_UNBOUNDED: SolveStatus.INFEASIBLE,
        cp.UNBOUNDED: SolveStatus.UNBOUNDED,
        cp.UNBOUNDED_INACCURATE: SolveStatus.UNBOUNDED,
    }
    status = SolveStatus.FAILED
    for name in order:
        options: dict[str, Any] = (
            {"threads": 1, "random_seed": 0} if name == "HIGHS" else {"max_threads": 1}
        )
        try:
            problem.solve(solver=name, **options)  # type: ignore[no-untyped-call]
        except DCPError:
            raise  # a mistake of the person who wrote the problem, not the solver's
        except Exception:
            continue
        status = known.get(problem.status, SolveStatus.FAILED)
        values = [v.value for v in problem.variables()]
        if status in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE) and not all(
            v is not None and np.isfinite(v).all() for v in values
        ):
            status = SolveStatus.FAILED
        if status is not SolveStatus.FAILED:
            break
    return status


def _solve_linear_in_cvxpy(program: LinearProgram, *, solver: str = "HIGHS") -> LinearAnswer:
    """State the program in cvxpy with sparse rows and solve it."""
    import cvxpy as cp

    if program.cost.size == 0:
        return _answer_without_columns(program)
    x = cp.Variable(program.cost.size)
    rows = program.matrix.tocsr()
    has_upper = np.flatnonzero(np.isfinite(program.row_upper))
    has_lower = np.flatnonzero(np.isfinite(program.row_lower))
    at_most = rows[has_upper] @ x <= program.row_upper[has_upper] if has_upper.size else None
    at_least = rows[has_lower] @ x >= program.row_lower[has_lower] if has_lower.size else None
    capped = np.flatnonzero(np.isfinite(program.upper))
    constraints = [part for part in (at_most, at_least) if part is not None]
    constraints.append(x >= program.lower)
    if capped.size:
        constraints.append(x[capped] <= program.upper[capped])
    problem = cp.Problem(cp.Minimize(program.cost @ x), constraints)
    status = solve_cvxpy(problem, solver=solver)
    if status not in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE) or x.value is None:
        return LinearAnswer(status=status, message=f"cvxpy with {solver}: {status}")
    duals = np.zeros(program.row_upper.size)
    if at_most is not None:
        duals[has_upper] -= at_most.dual_value
    if at_least is not None:
        duals[has_lower] += at_least.dual_value
    return LinearAnswer(
        status=status,
        values=np.asarray(x.value, dtype=np.float64),
        objective=float(problem.value),
        row_duals=duals,
    )


def _answer_without_columns(program: LinearProgram) -> LinearAnswer:
    """Answer a program that has nothing to decide: its rows read ``lower <= 0 <= upper``."""
    kept = bool((program.row_lower <= 0).all() and (program.row_upper >= 0).all())
    if not kept:
        return LinearAnswer(status=SolveStatus.INFEASIBLE, message="no columns")
    return LinearAnswer(
        status=SolveStatus.OPTIMAL,
        values=np.zeros(0),
        objective=0.0,
        row_duals=np.zeros(program.row_upper.size),
    )


class WarmModel:
    """A linear program held by HiGHS, solved again from the last basis when numbers change.

    The only mutable object of the policies; it lives inside one ``allocate`` call.
    """

    def __init__(self, program: LinearProgram, *, is_small_and_scaled: bool = False) -> None:
        """Hand the program over; presolve and scaling are left out where they cost more than the
        solve (some hundred columns, coefficients near 1).
        """
        self._column_count = int(program.cost.size)
        self._empty_answer = None if self._column_count else _answer_without_columns(program)
        self._refused = ""
        plain: dict[str, bool | int | float | str] = {}
        if is_small_and_scaled:
            plain = {"presolve": "off", "simplex_scale_strategy": 0}
        try:
            self._highs = _loaded_highs(
                program,
                plain
                | {
                    "solver": "simplex",
                    "primal_feasibility_tolerance": FEASIBILITY_TOLERANCE,
                    "dual_feasibility_tolerance": FEASIBILITY_TOLERANCE,
                    "simplex_iteration_limit": ITERATION_LIMIT,
                    "ipm_optimality_tolerance": FEASIBILITY_TOLERANCE,
                },
            )
        except Exception as error:  # a solver's exception must not end a round
            self._highs = highspy.Highs()  # type: ignore[no-untyped-call]
            self._refused = f"HiGHS: {error}"

    def add_columns(
        self, cost: FloatArray, matrix: sparse.csc_matrix, lower: FloatArray, upper: FloatArray
    ) -> None:
        """Append columns; the basis stays valid (they enter at their lower bound)."""
        count = int(cost.size)
        self._highs.addCols(
            count,
            cost,
            lower,
            upper,
            int(matrix.nnz),
            matrix.indptr[:-1].astype(np.int32),
            matrix.indices.astype(np.int32),
            matrix.data,
        )
        self._column_count += count

    def set_cost(self, cost: FloatArray) -> None:
        """Replace the whole objective."""
        indices = np.arange(self._column_count, dtype=np.int32)
        self._highs.changeColsCost(self._column_count, indices, cost)

    def set_row(self, row: int, lower: float, upper: float) -> None:
        """Change the bounds of one row."""
        self._highs.changeRowBounds(int(row), float(lower), float(upper))

    def set_columns(self, columns: IntArray, lower: FloatArray, upper: FloatArray) -> None:
        """Change the bounds of some columns."""
        self._highs.changeColsBounds(int(columns.size), columns.astype(np.int32), lower, upper)

    def forget_basis(self) -> None:
        """Start the next solve from nothing, with presolve."""
        self._highs.clearSolver()

    def solve(self) -> LinearAnswer:
        """Solve from the present basis; once more from scratch if that fails."""
        if self._empty_answer is not None and not self._column_count:
            return self._empty_answer
        if self._refused:
            return LinearAnswer(status=SolveStatus.FAILED, message=self._refused)
        answer = self._run()
        if answer.status is SolveStatus.FAILED:
            self._highs.clearSolver()
            answer = self._run()
        return answer

    def solve_interior(self) -> LinearAnswer:
        """Solve afresh by HiGHS' interior point with crossover, so that a basis is left to go on
        from; by the simplex method if that fails.
        """
        if self._refused:
            return LinearAnswer(status=SolveStatus.FAILED, message=self._refused)
        self._highs.clearSolver()
        self._highs.setOptionValue("solver", "ipx")
        answer = self._run()
        self._highs.setOptionValue("solver", "simplex")
        if answer.status is not SolveStatus.OPTIMAL:
            self._highs.clearSolver()
            answer = self.solve()
        return answer

    def improve(self, iteration_limit: int) -> LinearAnswer:
        """Go on from a feasible basis with the primal simplex, for so many iterations.

        FEASIBLE when the limit was reached: the answer keeps every constraint and is at least as
        good as where it started.
        """
        if self._empty_answer is not None and not self._column_count:
            return self._empty_answer
        self._highs.setOptionValue("simplex_strategy", 4)
        self._highs.setOptionValue("simplex_iteration_limit", iteration_limit)
        answer = self._run()
        self._highs.setOptionValue("simplex_strategy", 1)
        self._highs.setOptionValue("simplex_iteration_limit", ITERATION_LIMIT)
        return answer

    def _run(self) -> LinearAnswer:
        try:
            self._highs.run()
            said = self._highs.getModelStatus()
            kind = _STATUS.get(said, SolveStatus.FAILED)
            message = self._highs.modelStatusToString(said)
            feasible = highspy.kSolutionStatusFeasible
            if (
                said == highspy.HighsModelStatus.kIterationLimit
                and self._highs.getInfo().primal_solution_status == feasible
            ):
                kind = SolveStatus.FEASIBLE
            if kind not in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE):
                return LinearAnswer(status=kind, message=f"HiGHS: {message}")
            solution = self._highs.getSolution()
            values = np.array(solution.col_value, dtype=np.float64)
            duals = np.array(solution.row_dual, dtype=np.float64)
            objective = float(self._highs.getInfo().objective_function_value)
        except Exception as error:  # a solver's exception must not end a round
            return LinearAnswer(status=SolveStatus.FAILED, message=f"HiGHS: {error}")
        if not (np.isfinite(values).all() and np.isfinite(duals).all()):
            return LinearAnswer(status=SolveStatus.FAILED, message="HiGHS returned non-numbers")
        return LinearAnswer(status=kind, values=values, objective=objective, row_duals=duals)
