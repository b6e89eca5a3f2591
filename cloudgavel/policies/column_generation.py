"""Solve a planning LP over the columns that matter, and prove that the others do not.

A job rarely uses more than a few of its pools. Starting from each job's cheapest and fastest, the
LP is solved; a column left out can only help if its reduced cost ``c - A'y`` is negative; those are
added and the LP is solved again from the last basis. When none is left the answer is optimal for
*all* columns. Small problems start with all of them.
"""

import numpy as np

from cloudgavel.policies.planning_lp import PlanningModel
from cloudgavel.policies.problem import BoolArray, FloatArray, IntArray
from cloudgavel.policies.solve import (
    ITERATION_LIMIT,
    LinearAnswer,
    LinearProgram,
    SolveStatus,
    WarmModel,
)

ALL_CELLS_UP_TO = 4000
"""Problems with no more cells than this are solved whole."""
CHEAPEST_COUNT = 6
FASTEST_COUNT = 2
PAIRS_PER_JOB_AND_PASS = 3
REDUCED_COST_TOLERANCE = 1e-8
"""In units of the mean job's cheapest cost."""
PASS_LIMIT = 200
COLD_START_GROWTH_SHARE = 0.02
"""After more new columns than this, HiGHS starts afresh: its presolve is worth more than a basis
that says nothing about them (1,000 jobs, tight: 8 s instead of 27 s)."""


class ColumnGeneration:
    """One planning LP kept warm while costs, limits and columns change.

    All arguments and answers number columns as the full model does.
    """

    def __init__(self, model: PlanningModel, *, whole: bool | None = None) -> None:
        self.model = model
        program = model.program
        self._cost = program.cost.copy()
        self._upper = program.upper.copy()
        cells = model.cell_count
        present = np.ones(program.cost.size, dtype=bool)
        if not (cells <= ALL_CELLS_UP_TO if whole is None else whole):
            present[:cells] = first_pairs(model)[model.cell_job, model.cell_pool]
        self._present = present
        self._columns = np.flatnonzero(present)
        self._place = np.full(present.size, -1, dtype=np.int64)
        self._place[self._columns] = np.arange(self._columns.size)
        self.passes = 0
        matrix = program.matrix if present.all() else program.matrix[:, self._columns]
        self._warm = WarmModel(
            LinearProgram(
                cost=self._cost[self._columns],
                matrix=matrix,
                row_lower=program.row_lower,
                row_upper=program.row_upper,
                lower=program.lower[self._columns],
                upper=self._upper[self._columns],
            )
        )

    @property
    def columns_present(self) -> IntArray:
        """Columns in use so far, in the full model's numbering, sorted."""
        return np.sort(self._columns)

    def set_row(self, row: int, lower: float, upper: float) -> None:
        """Change the limits of one row."""
        self._warm.set_row(row, lower, upper)

    def set_upper(self, columns: IntArray, upper: FloatArray) -> None:
        """Change the upper limits of shortfall or lateness columns (always present)."""
        self._upper[columns] = upper
        self._warm.set_columns(self._place[columns], np.zeros(columns.size), upper)

    def minimise(
        self, cost: FloatArray, *, price: bool = True, iteration_limit: int | None = None
    ) -> LinearAnswer:
        """Minimise ``cost`` (n,); ``price=False`` keeps to the columns present.

        With ``iteration_limit`` the answer may be FEASIBLE only: no worse than where it began.
        """
        model = self.model
        cells = model.cell_count
        self._cost = cost
        self._warm.set_cost(cost[self._columns])
        answer = (
            self._warm.solve() if iteration_limit is None else self._warm.improve(iteration_limit)
        )
        for _ in range(PASS_LIMIT):
            self.passes += 1
            if not answer.is_usable or answer.row_duals is None:
                return answer
            if answer.status is SolveStatus.FEASIBLE:
                break
            absent = np.flatnonzero(~self._present[:cells])
            if not price or not absent.size:
                break
            reduced = cost - model.program.matrix.T @ answer.row_duals
            entering = self._entering(reduced[:cells], absent)
            if not entering.size:
                break
            answer = self._with(entering, iteration_limit)
        values = np.zeros(model.program.cost.size)
        assert answer.values is not None
        values[self._columns] = answer.values
        return LinearAnswer(
            status=answer.status,
            values=values,
            objective=answer.objective,
            row_duals=answer.row_duals,
            message=answer.message,
        )

    def _with(self, entering: IntArray, iteration_limit: int | None) -> LinearAnswer:
        """Solve again with more columns: the old basis stays feasible, so by the primal simplex."""
        is_many = entering.size > COLD_START_GROWTH_SHARE * self._columns.size
        self._add(entering)
        if is_many and iteration_limit is None:
            self._warm.forget_basis()
            return self._warm.solve()
        answer = self._warm.improve(iteration_limit or ITERATION_LIMIT)
        return self._warm.solve() if answer.status is SolveStatus.FAILED else answer

    def _entering(self, reduced: FloatArray, absent: IntArray) -> IntArray:
        """Cells of the best few (job, pool) pairs per job whose reduced cost is negative."""
        model = self.model
        pool_count = model.terms.usable.shape[1]
        best = np.full(model.terms.usable.size, np.inf)
        np.minimum.at(best, model.pair[absent], reduced[absent])
        table: FloatArray = best.reshape(-1, pool_count)
        rank = np.argsort(np.argsort(table, axis=1, kind="stable"), axis=1, kind="stable")
        chosen = (table < -REDUCED_COST_TOLERANCE) & (rank < PAIRS_PER_JOB_AND_PASS)
        entering: IntArray = absent[chosen.reshape(-1)[model.pair[absent]]]
        return entering

    def _add(self, entering: IntArray) -> None:
        program = self.model.program
        self._present[entering] = True
        self._place[entering] = self._columns.size + np.arange(entering.size)
        self._columns = np.concatenate([self._columns, entering])
        self._warm.add_columns(
            self._cost[entering],
            program.matrix[:, entering],
            program.lower[entering],
            self._upper[entering],
        )


def first_pairs(model: PlanningModel) -> BoolArray:
    """(m, R) pairs to begin with: the cheapest and the fastest pools of each job."""
    terms = model.terms
    chosen = np.zeros(terms.usable.shape, dtype=bool)
    rows = np.arange(len(chosen))[:, np.newaxis]
    by_cost = np.argsort(terms.usd_to_finish, axis=1, kind="stable")[:, :CHEAPEST_COUNT]
    by_time = np.argsort(terms.hours_to_finish, axis=1, kind="stable")[:, :FASTEST_COUNT]
    chosen[rows, by_cost] = True
    chosen[rows, by_time] = True
    chosen &= terms.usable
    return chosen
