"""Water filling: lexicographic max-min fairness, of one level or through entities."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import scipy.sparse as sparse

from cloudgavel.policies.allocation import Allocation, LimitPrice
from cloudgavel.policies.fixed.answer import (
    EXACT_PRICES_UP_TO,
    allocation_of,
    isolated_fallback,
    prices_by_moving,
    prices_of_limits,
)
from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.columns import Columns
from cloudgavel.policies.fixed.entities import EntityTree, Inside
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.fixed.share_policy import SharePolicy, per_rate
from cloudgavel.policies.fixed.share_program import (
    ShareProgram,
    Shares,
    goal,
    groups_of,
    read_back,
    share_program,
    solve_shares,
)
from cloudgavel.policies.problem import BoolArray, FloatArray
from cloudgavel.policies.solve import LinearAnswer, LinearProgram, SolveStatus, WarmModel
from cloudgavel.policies.solve_interior import solve_interior

SATURATED_SHARE = 1e-7
"""A demand whose price is above this part of the whole is tight in every optimum."""
SLACK_SHARES = (1e-8, 1e-7, 1e-6)
"""Parts of a level already reached that may be given back: the solver keeps rows within 1e-9 each,
so with hundreds of rows the exact level may be out of reach by a little. Tried in turn."""


ITERATIONS_PER_ROW = 2
"""Of the simplex method, before the interior point is asked instead."""


@dataclass(frozen=True, kw_only=True)
class Filled:
    """Shares after the last rise (``None``: a solver failed), and how many programs it took."""

    shares: Shares | None
    step_count: int
    status: SolveStatus = SolveStatus.OPTIMAL
    message: str = ""


class WaterFilling(SharePolicy):
    """Raise all jobs together; who can rise no more is frozen, the others go on.

    Repeat: maximise the common increment s, ``thr_j(X) k_j / n_j >= t_j + omega_j s`` for growing
    jobs and ``>= t_j`` for frozen ones. A job whose constraint has a positive price is at the same
    level in every optimum: it cannot rise without another falling, and is frozen (complementary
    slackness; at least one is found each time, so the end is reached in at most m steps, and
    nobody is frozen early). A job also stops at its best rate; those stops are known in advance,
    so runs of them are passed over by bisection instead of one by one. omega_j comes from the
    entities' weights among the growing jobs; the weight of a frozen job goes to its siblings.
    Without entities the result is the lexicographically largest vector of
    ``k_j thr_j / (w_j n_j)``.

    ``entity_weights``: by path, 1 if not named. ``inside``: ``fairness`` (default) or ``fifo`` by
    path; ``""`` is the top.
    """

    name = "water_filling"
    summary = "max-min fairness to the last job: what one cannot use goes to the next worst"
    source = "Narayanan et al., OSDI 2020, section 4.3; saturation by duals instead of a MILP"
    unit = "normalised throughput of the least-served job"

    def __init__(
        self,
        *,
        agnostic: bool = False,
        space_sharing: bool = False,
        entity_weights: Mapping[str, float] | None = None,
        inside: Mapping[str, Inside | str] | None = None,
    ) -> None:
        super().__init__(agnostic=agnostic, space_sharing=space_sharing)
        self.entity_weights = dict(entity_weights or {})
        self.inside = dict(inside or {})

    def tree(self, cluster: Cluster) -> EntityTree:
        """Return the entities of the problem's jobs (none: every job stands for itself)."""
        jobs = tuple(replace(job, entity=None) for job in cluster.problem.jobs)
        return EntityTree(jobs, weights={}, inside={})

    def prices(self, cluster: Cluster, value: float) -> tuple[LimitPrice, ...]:
        """Price the limits that hold down the least-served job: those of max-min fairness."""
        fair = MaxMinFairness(space_sharing=self.space_sharing)
        return fair.prices(
            cluster, solve_shares(cluster, fair.goal(cluster), space_sharing=self.space_sharing)
        )

    def decide(self, seen: Cluster, cluster: Cluster) -> Allocation:
        """Fill, and wrap the last shares."""
        filled = self.fill(seen)
        if filled.shares is None:
            return isolated_fallback(cluster, filled.status, filled.message, self.unit)
        value = self.least(cluster, self.true_throughput(cluster, filled.shares))
        return allocation_of(
            cluster,
            filled.shares,
            value=value,
            unit=self.unit,
            limit_prices=() if self.agnostic else self.prices(cluster, value),
            message=f"{filled.step_count} linear programs",
        )

    def fill(self, cluster: Cluster) -> Filled:
        """Raise everybody as far as it goes."""
        tree = self.tree(cluster)
        asker: _Asker
        if self.space_sharing and cluster.problem.sharing is not None:
            asker = _AskWithPairs(cluster)
        else:
            asker = _AskWarm(cluster, tree, centred=self.agnostic)
        return _fill(cluster, tree, asker)

    def least(self, cluster: Cluster, throughput: FloatArray) -> float:
        """``min_j k_j thr_j / (w_j n_j)`` over the able jobs."""
        weight = np.where(cluster.able, cluster.weight, 1.0)
        normalised = throughput * per_rate(1 / weight, cluster.equal_rate, cluster)
        return float(normalised[cluster.able].min())


class HierarchicalWaterFilling(WaterFilling):
    """Water filling through ``JobRow.entity`` paths of any depth (see ``EntityTree``)."""

    name = "hierarchical_water_filling"
    summary = "fairness among entities, and fairness or FIFO inside each, to any depth"
    source = "Narayanan et al., OSDI 2020, section 4.3 (hierarchical policies), any depth"

    def prices(self, cluster: Cluster, value: float) -> tuple[LimitPrice, ...]:
        """Price the limits in terms of the least-served job.

        With few jobs by filling again with each limit moved. With many by the dual of the first
        rise if the least-served job stopped there, else not at all.
        """
        if not cluster.problem.wants_prices:
            return ()
        if int(cluster.able.sum()) <= EXACT_PRICES_UP_TO:
            return prices_by_moving(cluster, value, self._value_with)
        speed = self._first_speed(cluster)
        wanted = goal(cluster.able.size, demand=cluster.equal_rate * speed)
        first = solve_shares(cluster, wanted, space_sharing=self.space_sharing)
        weight = np.where(cluster.able, cluster.weight, 1.0)
        least = float((speed / weight)[cluster.able].min())
        if first.limit_duals is None or abs(least * first.level - value) > 1e-6 * abs(value):
            return ()
        return prices_of_limits(cluster, first.limit_duals * least, value, self._value_with)

    def _first_speed(self, cluster: Cluster) -> FloatArray:
        return _state(np.zeros(cluster.able.size), cluster.able, self.tree(cluster)).speed

    def _value_with(self, cluster: Cluster) -> float | None:
        filled = self.fill(cluster)
        return None if filled.shares is None else self.least(cluster, filled.shares.throughput())

    def tree(self, cluster: Cluster) -> EntityTree:
        """Return the entities by path."""
        return EntityTree(cluster.problem.jobs, weights=self.entity_weights, inside=self.inside)


@dataclass(frozen=True, kw_only=True)
class _State:
    """Levels reached (in normalised throughput), who still grows, and how fast."""

    reached: FloatArray
    growing: BoolArray
    speed: FloatArray


@dataclass(frozen=True, kw_only=True)
class _Reply:
    """How far everybody can rise together from a state, and the price of each job's demand."""

    status: SolveStatus
    step: float = 0.0
    price: FloatArray | None = None
    """(m,) times speed: parts of 1."""
    shares: Callable[[], Shares] | None = None
    message: str = ""


class _Asker(Protocol):
    def ask(self, state: _State, *, is_reached: bool) -> _Reply: ...


def _fill(cluster: Cluster, tree: EntityTree, asker: _Asker) -> Filled:
    """Raise, freeze, and go on until nobody grows."""
    equal, able = cluster.equal_rate, cluster.able
    cap = np.zeros(able.size)
    np.divide(cluster.best_rate, equal, out=cap, where=able)
    state = _state(np.zeros(able.size), able.copy(), tree)
    asked = 0
    while True:
        path = _Path(state, cap, tree)
        low, high, best = _furthest(path, asker)
        asked += high
        if best.price is None:
            return Filled(shares=None, step_count=asked, status=best.status, message=best.message)
        here = path.point(low)
        assert here is not None
        reply = best
        if not here.speed.any():
            break
        step = min(best.step, path.distance(low))
        reached = here.reached + here.speed * step
        saturated = (best.price * here.speed > SATURATED_SHARE) & here.growing
        rising = here.speed > 0
        saturated |= rising & (reached >= cap * (1 - 1e-12))
        if not saturated.any():
            saturated[int(np.where(rising, best.price * here.speed, -1.0).argmax())] = True
        growing = here.growing & ~saturated
        state = _state(reached, growing, tree)
    assert reply.shares is not None
    return Filled(shares=reply.shares(), step_count=asked)


def _furthest(path: "_Path", asker: _Asker) -> tuple[int, int, _Reply]:
    """The furthest point of a path that can be reached: gallop, then bisect.

    Returns the point's number, how often was asked, and the answer at the point.
    """
    start = path.point(0)
    assert start is not None
    low, high, jump, asked = 0, -1, 1, 1
    best = asker.ask(start, is_reached=True)
    while best.price is not None and best.step >= path.distance(low) * (1 - 1e-9):
        if high >= 0 and high - low <= 1:
            break
        at = low + jump if high < 0 else (low + high) // 2
        jump *= 2
        here = path.point(at)
        if here is None:
            high = at
            continue
        found = asker.ask(here, is_reached=False)
        asked += 1
        if found.price is None:
            high = at
        else:
            low, best = at, found
    return low, asked, best


def _state(reached: FloatArray, growing: BoolArray, tree: EntityTree) -> _State:
    speed = tree.weights(growing)
    most = float(speed.max(initial=0.0))
    return _State(reached=reached, growing=growing, speed=speed / most if most > 0 else speed)


class _Path:
    """How levels would rise if nothing but each job's best rate ever stopped one."""

    def __init__(self, start: _State, cap: FloatArray, tree: EntityTree) -> None:
        self._points = [start]
        self._distances: list[float] = []
        self._cap = cap
        self._tree = tree

    def point(self, number: int) -> _State | None:
        """The state after so many stops; ``None`` behind the last one."""
        while len(self._points) <= number:
            last = self._points[-1]
            if not last.speed.any():
                return None
            reached = last.reached + last.speed * self.distance(len(self._points) - 1)
            stopped = (last.speed > 0) & (reached >= self._cap * (1 - 1e-12))
            reached = np.where(stopped, self._cap, reached)
            self._points.append(_state(reached, last.growing & ~stopped, self._tree))
        return self._points[number]

    def distance(self, number: int) -> float:
        """The increment from a point to the next stop."""
        while len(self._distances) <= number:
            point = self._points[len(self._distances)]
            rising = point.speed > 0
            left = (self._cap[rising] - point.reached[rising]) / point.speed[rising]
            self._distances.append(max(float(left.min(initial=np.inf)), 0.0))
        return self._distances[number]


class _AskWarm:
    """Answers from one program that HiGHS keeps: a new increment column for every question."""

    def __init__(self, cluster: Cluster, tree: EntityTree, *, centred: bool) -> None:
        self._centred = centred
        base = np.where(cluster.able, cluster.equal_rate, 0.0)
        # Jobs are alike if they have the same rates, weight, entity and (in a queue) place.
        own = np.where(cluster.able, cluster.weight, 0.0)
        alike = goal(
            base.size,
            demand=base * own,
            floor=tree.node_of_job.astype(np.float64),
            gain=tree.order_of_job,
        )
        self._cluster = cluster
        self._groups = groups_of(cluster, alike, space_sharing=False)
        self._program = share_program(cluster, goal(base.size, demand=base), self._groups)
        self._columns = self._program.singles
        self._model, self._linear = _held(self._program, self._columns)
        self._last = self._columns.count - 1
        self._per_level = self._program.wanted.demand * self._groups.members
        self._floor = np.zeros(self._groups.count)
        self._defeated = False
        """The simplex method failed once on this problem: it is not asked again."""

    def ask(self, state: _State, *, is_reached: bool) -> _Reply:
        """Maximise the increment from a state; one that was reached gets the slack it needs."""
        program, groups = self._program, self._groups
        speed = state.speed[groups.example] * self._per_level
        need = state.reached[groups.example] * self._per_level / program.scale.level
        rising = np.flatnonzero(speed)
        column = sparse.csc_matrix(
            (-speed[rising], (rising, np.zeros(rising.size, dtype=np.int64))),
            shape=(self._linear.row_upper.size, 1),
        )
        if self._last >= self._columns.count:
            self._model.set_columns(np.array([self._last]), np.zeros(1), np.zeros(1))
        bound = np.array([np.inf if rising.size else 0.0])
        self._model.add_columns(np.array([-1.0]), column, np.zeros(1), bound)
        self._last += 1
        answer = LinearAnswer(status=SolveStatus.FAILED)
        for slack in SLACK_SHARES if is_reached else SLACK_SHARES[:1]:
            floor = need * (1 - slack)
            for row in np.flatnonzero(floor != self._floor):
                self._model.set_row(int(row), float(floor[row]), np.inf)
            self._floor = floor
            if not self._defeated:
                answer = self._model.improve(ITERATIONS_PER_ROW * self._linear.row_upper.size)
            if answer.status is not SolveStatus.INFEASIBLE:
                break
        at = self._last
        if answer.status in (SolveStatus.FAILED, SolveStatus.FEASIBLE):
            self._defeated = True
            answer, at = self._from_scratch(column, bound), self._columns.count
        if answer.status is SolveStatus.FAILED:
            self._model.forget_basis()
            answer, at = self._model.solve(), self._last
        if not answer.is_usable or answer.values is None or answer.row_duals is None:
            return _Reply(status=answer.status, message=answer.message)
        price = np.maximum(answer.row_duals[: groups.count], 0.0) * self._per_level
        values = np.append(answer.values[: self._columns.count], 0.0)
        return _Reply(
            status=answer.status,
            step=float(answer.values[at]) * program.scale.level,
            price=np.append(price, 0.0)[groups.group_of_job],
            shares=lambda: self._read(values, need),
        )

    def _from_scratch(self, column: sparse.csc_matrix, bound: FloatArray) -> LinearAnswer:
        """Ask the interior point: near-ties within the tolerance can defeat the simplex method."""
        lower = self._linear.row_lower.copy()
        lower[: self._floor.size] = self._floor
        return solve_interior(
            LinearProgram(
                cost=np.append(self._linear.cost, -1.0),
                matrix=sparse.hstack([self._linear.matrix, column], format="csc"),
                row_lower=lower,
                row_upper=self._linear.row_upper,
                lower=np.append(self._linear.lower, 0.0),
                upper=np.append(self._linear.upper, bound),
            )
        )

    def _read(self, values: FloatArray, need: FloatArray) -> Shares:
        per_member = need / self._groups.members
        wanted = replace(self._program.wanted, demand=need * 0.0, floor=per_member)
        done = replace(self._program, wanted=wanted)
        answer = LinearAnswer(status=SolveStatus.OPTIMAL, values=values)
        if self._centred:
            slack = replace(wanted, floor=per_member * (1 - SLACK_SHARES[0]))
            built, _ = replace(self._program, wanted=slack).build(self._columns)
            centre = solve_interior(built)
            answer = centre if centre.is_usable else answer
        _, rows = done.build(self._columns)
        return read_back(self._cluster, done, self._columns, answer, rows, 1)


class _AskWithPairs:
    """Answers with pairs of jobs: each question is priced anew, since a new pair may lift it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._base = np.where(cluster.able, cluster.equal_rate, 0.0)

    def ask(self, state: _State, *, is_reached: bool) -> _Reply:
        """Maximise the increment from a state; one that was reached gets the slack it needs."""
        shares: Shares | None = None
        for slack in SLACK_SHARES if is_reached else SLACK_SHARES[:1]:
            wanted = goal(
                self._base.size,
                demand=self._base * state.speed if state.speed.any() else None,
                floor=self._base * state.reached * (1 - slack),
            )
            shares = solve_shares(self._cluster, wanted, space_sharing=True)
            if shares.is_usable:
                break
        assert shares is not None
        if not shares.is_usable or shares.level_duals is None:
            return _Reply(status=shares.status, message=shares.message)
        per_group = shares.level_duals * shares.groups.members
        found = shares
        return _Reply(
            status=shares.status,
            step=shares.level,
            price=np.append(per_group, 0.0)[shares.groups.group_of_job] * self._base,
            shares=lambda: found,
        )


def _held(program: ShareProgram, columns: Columns) -> tuple[WarmModel, LinearProgram]:
    """The rows of a share program without a level column: levels (all groups), time, limits."""
    built, _ = program.build(columns)
    count = columns.count
    linear = LinearProgram(
        cost=np.zeros(count),
        matrix=built.matrix[:, :count].tocsc(),
        row_lower=built.row_lower,
        row_upper=built.row_upper,
        lower=built.lower[:count],
        upper=built.upper[:count],
    )
    return WarmModel(linear), linear
