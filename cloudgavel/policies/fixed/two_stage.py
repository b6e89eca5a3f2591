"""A level, and then the most from what it leaves over: both from one model kept by the solver.

The second goal has the rows of the first, with the level held and another objective. So nothing is
built again, and the simplex method goes on from a basis that is feasible already: of a max-min
solve of 50 jobs the second stage then takes a tenth of the first instead of as long.
"""

from collections.abc import Callable

import numpy as np

from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.share_program import (
    Goal,
    Shares,
    groups_of,
    read_back,
    share_program,
)
from cloudgavel.policies.problem import FloatArray
from cloudgavel.policies.solve import ITERATION_LIMIT, WarmModel
from cloudgavel.policies.solve_interior import SIMPLEX_COLUMN_LIMIT


def solve_level_then_gain(
    cluster: Cluster,
    wanted: Goal,
    gain: FloatArray,
    *,
    kept_share: float,
    is_enough: Callable[[Shares], bool],
) -> tuple[Shares, Shares | None] | None:
    """Solve a level goal, hold ``kept_share`` of the level, and maximise ``gain`` (m,) per steps/s.

    Returns the first answer and, unless it ``is_enough`` or fails, the second. ``None`` where this
    way is not the right one: large programs and pairs have solvers of their own.
    """
    groups = groups_of(cluster, wanted, space_sharing=False)
    program = share_program(cluster, wanted, groups)
    columns = program.singles
    if columns.count + 1 > SIMPLEX_COLUMN_LIMIT or not columns.count:
        return None
    built, rows = program.build(columns)
    model = WarmModel(built, is_small_and_scaled=True)
    answer = model.solve()
    first = read_back(cluster, program, columns, answer, rows, 1)
    if not first.is_usable or answer.values is None or is_enough(first):
        return first, None
    level = max(float(answer.values[-1]), 0.0) * kept_share
    worth = gain[groups.example] * program.scale.rate
    most = float(np.abs(worth).max(initial=0.0)) or 1.0
    model.set_columns(
        np.array([columns.count], dtype=np.int64), np.array([level]), np.array([level])
    )
    model.set_cost(np.append(-columns.gain(worth / most), 0.0))
    second = read_back(cluster, program, columns, model.improve(ITERATION_LIMIT), rows, 1)
    return first, second if second.is_usable else None
