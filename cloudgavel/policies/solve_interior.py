"""The door to solvers, second leaf: CLARABEL's interior point on matrices that exist already.

``solve`` sends linear programs to HiGHS' simplex method, which is the faster one with few rows.
With a fairness row and a time row per job it is not: max-min fairness of 30,000 different jobs on
3 types takes CLARABEL 1.8 s and the simplex method 187 s; at 2,048 jobs 0.06 s and 0.7 s. cvxpy
with the same solver spends several times the solve on compiling, so the matrices are passed on
directly; the tests compare both. One thread, iteration limits and no time limit, as in ``solve``.
"""

from __future__ import annotations

from typing import Any

import clarabel  # type: ignore[import-untyped]
import highspy
import numpy as np
import scipy.sparse as sparse

from cloudgavel.policies.problem import FloatArray
from cloudgavel.policies.solve import LinearAnswer, LinearProgram, SolveStatus, solve_linear

GAP_TOLERANCE = 1e-9
SIMPLEX_COLUMN_LIMIT = 900
"""Programs with at most so many columns go to the simplex method: exact vertices, and faster."""


def solve_share_program(program: LinearProgram, *, centred: bool = False) -> LinearAnswer:
    """Solve a program of shares by whichever method is faster at its size; the other if it fails.

    Infeasible or unbounded is believed of the simplex method only; CLARABEL's word is checked.
    ``centred``: the interior point's answer is wanted, whatever the size.
    """
    if not centred and program.cost.size <= SIMPLEX_COLUMN_LIMIT:
        return solve_linear(program, is_small_and_scaled=True)
    answer = solve_interior(program)
    return answer if answer.is_usable else solve_linear(program)


def solve_paired(program: LinearProgram) -> LinearAnswer:
    """Solve a program with pairs of jobs, whose columns couple the rows of two jobs.

    Such programs have no sparse Cholesky factor: at 2,048 jobs and 16,000 combinations CLARABEL
    takes 12 s and the simplex method 6-16 s; HiGHS' interior point, which solves its equations
    iteratively, takes 0.3-1.2 s. Without crossover: no vertex is needed.
    """
    if program.cost.size <= SIMPLEX_COLUMN_LIMIT:
        return solve_linear(program)
    answer = _solve_highs_interior(program)
    return answer if answer.is_usable else solve_linear(program)


def _solve_highs_interior(program: LinearProgram) -> LinearAnswer:
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    options: dict[str, bool | int | float | str] = {
        "output_flag": False,
        "log_to_console": False,
        "threads": 1,
        "parallel": "off",
        "random_seed": 0,
        "solver": "ipx",
        "run_crossover": "off",
        "ipm_optimality_tolerance": GAP_TOLERANCE,
    }
    for name, value in options.items():
        highs.setOptionValue(name, value)
    matrix = program.matrix.tocsc()
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = int(program.cost.size), int(program.row_upper.size)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = program.cost, program.lower, program.upper
    lp.row_lower_, lp.row_upper_ = program.row_lower, program.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = lp.num_col_, lp.num_row_
    lp.a_matrix_.start_ = matrix.indptr
    lp.a_matrix_.index_ = matrix.indices
    lp.a_matrix_.value_ = matrix.data
    try:
        highs.passModel(lp)
        highs.run()
        said = highs.getModelStatus()
        solution = highs.getSolution()
        values = np.array(solution.col_value, dtype=np.float64)
        duals = np.array(solution.row_dual, dtype=np.float64)
    except Exception as error:  # a solver's exception must not end a round
        return LinearAnswer(status=SolveStatus.FAILED, message=f"HiGHS: {error}")
    if said != highspy.HighsModelStatus.kOptimal or not (
        values.size == program.cost.size and np.isfinite(values).all() and np.isfinite(duals).all()
    ):
        return LinearAnswer(status=SolveStatus.FAILED, message=f"HiGHS interior point: {said}")
    return LinearAnswer(
        status=SolveStatus.OPTIMAL,
        values=values,
        objective=float(program.cost @ values),
        row_duals=duals,
    )


def solve_interior(
    program: LinearProgram,
    *,
    cone_matrix: sparse.csc_matrix | None = None,
    cone_offset: FloatArray | None = None,
) -> LinearAnswer:
    """Solve a continuous program, with second-order cones of three rows each if given.

    ``cone_matrix`` (3q, n) and ``cone_offset`` (3q,): every three rows of ``offset + matrix @ x``
    form a vector (a, b, c) with ``a >= |(b, c)|``. ``row_duals`` are of the linear rows. An answer
    that the solver calls almost solved is FEASIBLE.
    """
    n = int(program.cost.size)
    blocks: list[sparse.spmatrix] = []
    sides: list[FloatArray] = []
    cones: list[Any] = []
    rows = program.matrix.tocsr()
    equal = program.row_lower == program.row_upper
    fixed = np.flatnonzero(equal)
    upper = np.flatnonzero(np.isfinite(program.row_upper) & ~equal)
    lower = np.flatnonzero(np.isfinite(program.row_lower) & ~equal)
    identity = sparse.identity(n, format="csr")
    floor = np.flatnonzero(np.isfinite(program.lower))
    ceiling = np.flatnonzero(np.isfinite(program.upper))
    if fixed.size:
        blocks.append(rows[fixed])
        sides.append(program.row_upper[fixed])
        cones.append(clarabel.ZeroConeT(int(fixed.size)))
    inequalities = (
        (rows[upper], program.row_upper[upper]),
        (-rows[lower], -program.row_lower[lower]),
        (-identity[floor], -program.lower[floor]),
        (identity[ceiling], program.upper[ceiling]),
    )
    for block, side in inequalities:
        if side.size:
            blocks.append(block)
            sides.append(side)
            cones.append(clarabel.NonnegativeConeT(int(side.size)))
    if cone_matrix is not None and cone_offset is not None:
        blocks.append(-cone_matrix.tocsr())
        sides.append(cone_offset)
        cones.extend(clarabel.SecondOrderConeT(3) for _ in range(cone_offset.size // 3))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.max_iter = 200
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = GAP_TOLERANCE
    try:
        found = clarabel.DefaultSolver(
            sparse.csc_matrix((n, n)),
            program.cost,
            sparse.vstack(blocks, format="csc"),
            np.concatenate(sides),
            cones,
            settings,
        ).solve()
        values = np.asarray(found.x, dtype=np.float64)
        dual = np.asarray(found.z, dtype=np.float64)
    except BaseException as error:  # the solver is Rust: its panics are not Exceptions
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return LinearAnswer(status=SolveStatus.FAILED, message=f"CLARABEL: {error}")
    said = str(found.status)
    kinds = {
        "Solved": SolveStatus.OPTIMAL,
        "AlmostSolved": SolveStatus.FEASIBLE,
        "PrimalInfeasible": SolveStatus.INFEASIBLE,
        "DualInfeasible": SolveStatus.UNBOUNDED,
    }
    status = kinds.get(said, SolveStatus.FAILED)
    if status not in (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE):
        return LinearAnswer(status=status, message=f"CLARABEL: {said}")
    if not (np.isfinite(values).all() and np.isfinite(dual).all()):
        return LinearAnswer(status=SolveStatus.FAILED, message="CLARABEL returned non-numbers")
    duals = np.zeros(program.row_upper.size)
    at = fixed.size
    duals[fixed] = -dual[:at]
    duals[upper] -= dual[at : at + upper.size]
    at += upper.size
    duals[lower] += dual[at : at + lower.size]
    return LinearAnswer(
        status=status,
        values=values,
        objective=float(program.cost @ values),
        row_duals=duals,
        message=f"CLARABEL: {said}",
    )
