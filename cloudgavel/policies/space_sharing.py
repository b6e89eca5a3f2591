"""Space sharing without building all pairs: classes of jobs, and column generation.

Jobs with equal rates, kind and goal are one group (``groups_of``), so with k kinds there are about
k^2 R / 2 combinations whatever the number of jobs is: then all of them that are worth something
are stated at once. When jobs differ, the program starts from every job alone, and the duals price
all missing pairs: the best of each job enter until no missing pair can improve the objective by
more than ``GAP_SHARE``. While many enter the interior point is the faster method; towards the end,
when few do, the primal simplex goes on from the last basis (2,048 different jobs: a tenth of a
second a round instead of two seconds).

A pair whose retained shares add to 1 or less is dominated by giving its accelerators to one job
and then to the other; where all pairs are stated it is left out.
"""

from dataclasses import replace

import numpy as np

from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.columns import Columns, joined
from cloudgavel.policies.fixed.share_program import Goal, Rows, ShareProgram
from cloudgavel.policies.pair_pricing import PairPricer, without
from cloudgavel.policies.solve import ITERATION_LIMIT, LinearAnswer, WarmModel
from cloudgavel.policies.solve_interior import solve_paired

ALL_PAIRS_UP_TO = 4_000
"""Undominated pairs of groups that are stated at once."""
GAP_SHARE = 1e-6
"""Of the objective: what missing pairs may be worth together when pricing stops."""
ROUND_LIMIT = 60
FEW_NEW = 400
"""New columns: with no more than this the last basis is worth more than a fresh start."""


def solve_with_pairs(
    cluster: Cluster, program: ShareProgram
) -> tuple[Columns, LinearAnswer, Rows, int]:
    """Solve a share program over single jobs and pairs.

    Returns the columns (scaled rates), the answer over them, where its rows are, and the rounds.
    """
    sharing = cluster.problem.sharing
    columns = program.singles
    if sharing is None or program.groups.kind is None:
        built, rows = program.build(columns)
        return columns, solve_paired(built), rows, 1
    pricer = PairPricer(program, sharing)
    few = pricer.all_pairs(ALL_PAIRS_UP_TO)
    if few is not None:
        columns = joined(columns, few)
        built, rows = program.build(columns)
        return columns, solve_paired(built), rows, 1
    if (program.wanted.floor > 0).any():
        columns, _, _, _ = _with_priced_pairs(_reaching_floors(program), pricer, columns, enough=1)
    return _with_priced_pairs(program, pricer, columns)


def _reaching_floors(program: ShareProgram) -> ShareProgram:
    """The part of all floors that can be reached: which pairs they need must be known first."""
    wanted = program.wanted
    floors = Goal(
        demand=wanted.floor,
        floor=np.zeros(wanted.floor.size),
        gain=np.zeros(wanted.floor.size),
        level_gain=1.0,
    )
    return replace(program, wanted=floors)


def _with_priced_pairs(
    program: ShareProgram, pricer: PairPricer, columns: Columns, *, enough: float = np.inf
) -> tuple[Columns, LinearAnswer, Rows, int]:
    """Price pairs in until none that is missing is worth anything, or the level is ``enough``."""
    model = _GrowingModel(program, columns)
    answer, rows, rounds = model.solve_afresh(), model.rows, 1
    while answer.is_usable and answer.values is not None and rounds < ROUND_LIMIT:
        if answer.values[-1] >= enough:
            break
        found, gap = pricer.price(program, answer, rows)
        new = without(found, columns, program.groups.count, program.groups.rate.shape[1])
        if not new.count or gap <= GAP_SHARE * max(abs(answer.objective or 0.0), 1e-9):
            break
        columns = joined(columns, new)
        model.add(new)
        answer = model.go_on() if new.count <= FEW_NEW else model.solve_afresh()
        rounds += 1
    return columns, answer, rows, rounds


class _GrowingModel:
    """A share program that HiGHS keeps while columns are added; answers as ``program.build``."""

    def __init__(self, program: ShareProgram, columns: Columns) -> None:
        built, self.rows = program.build(columns)
        self._program = program
        self._level_at = columns.count
        """Where the level is in the model: pairs come after it, in ``build`` it is last."""
        self._model = WarmModel(built)

    def add(self, columns: Columns) -> None:
        """Append combinations."""
        built, _ = self._program.build(columns)
        count = columns.count
        self._model.add_columns(
            built.cost[:count], built.matrix[:, :count], built.lower[:count], built.upper[:count]
        )

    def solve_afresh(self) -> LinearAnswer:
        """Solve by the interior point, and then find a vertex."""
        return self._in_order(self._model.solve_interior())

    def go_on(self) -> LinearAnswer:
        """Solve by the primal simplex from the last vertex."""
        return self._in_order(self._model.improve(ITERATION_LIMIT))

    def _in_order(self, answer: LinearAnswer) -> LinearAnswer:
        if answer.values is None:
            return answer
        at = self._level_at
        values = np.append(np.delete(answer.values, at), answer.values[at])
        return LinearAnswer(
            status=answer.status,
            values=values,
            objective=answer.objective,
            row_duals=answer.row_duals,
            message=answer.message,
        )


def worthwhile_pairs(cluster: Cluster, program: ShareProgram, limit: int) -> Columns:
    """Every undominated pair (scaled rates), or each job's best partners if there are too many."""
    sharing = cluster.problem.sharing
    if sharing is None or program.groups.kind is None:
        return program.singles.at(np.zeros(0, dtype=np.int64))
    pricer = PairPricer(program, sharing)
    found = pricer.all_pairs(limit)
    return pricer.best_partners() if found is None else found
