"""From shares of time to rounds: credits, and a maximum-weight b-matching on them.

Every round a unit (a job or a pair of jobs, in a pool) earns its share as credit and pays 1 when
it is served; the round is the set of whole units with most credit times accelerators that fits.
Then the fraction of rounds received goes to the share whenever the shares lie in the hull of whole
rounds: what is owed stays bounded. (The rule of the 2020 paper, share over fraction received,
picked greedily, does not converge: a worst gap of .096 after 3,000 rounds on 3 x 3.) Where the
shares do not lie in the hull, as with three gangs of 2 on 3 accelerators, ``realisable_level``
says which part of them can be had, for the caller to state as a relaxed promise.

Credits and not lifetime fractions are kept over a new allocation: a job whose share rises is not
made to wait until its lifetime average has caught up, and one that leaves takes its credit along.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from cloudgavel.mechanism.b_matching import RoundRows, best_units
from cloudgavel.policies.problem import AllocationProblem, FloatArray, IntArray
from cloudgavel.policies.sharing import ClassRows

MOST_OWED = 50.0
"""Rounds; more is not remembered, so that unrealisable shares do not pile up."""
STAY_BONUS = 1e-6
"""Worth of staying in place: decides ties only."""
IDLE_WORTH = 1e-4
"""Worth of a unit with nothing owed: it gets what would be idle, and does not pay for it."""
PROTECT_FROM = 2.0
"""Rounds owed from which the most-owed gang is placed before anything else."""

UnitKey = tuple[str, str, str]
"""Job, its partner (``""`` = alone) and the pool's label."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """Jobs that hold accelerators of a pool for one round."""

    jobs: tuple[str, ...]
    """One, or two that share."""
    pool: int
    extended: bool
    """The same jobs held the same pool before: the lease goes on, nothing is saved or restarted."""


@dataclass(frozen=True, kw_only=True)
class Credits:
    """Rounds owed: by unit (jobs of one class share theirs), and by job and pool."""

    units: Mapping[UnitKey, float] = field(default_factory=dict)
    jobs: Mapping[tuple[str, str], float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Round:
    """Who runs in a round, and what is owed after it."""

    turns: tuple[Turn, ...]
    credits: Credits


def rows_of_shares(shares: FloatArray) -> ClassRows:
    """Return shares (m, R) without sharing as class rows, every job a class of its own."""
    job, pool = np.nonzero(shares > 1e-9)
    return ClassRows(
        class_of_job=np.arange(shares.shape[0], dtype=np.int64),
        first=job.astype(np.int64),
        second=np.full(job.size, -1, dtype=np.int64),
        pool=pool.astype(np.int64),
        amount=shares[job, pool],
    )


def next_round(
    problem: AllocationProblem,
    rows: ClassRows,
    credits: Credits,
    *,
    held: tuple[Turn, ...] = (),
    running: tuple[Turn, ...] = (),
) -> Round:
    """Choose who runs next.

    ``held``: the turns of the round that ends, for lease extensions. ``running``: turns that go on
    because the round is not over; then only what they leave is given on (a job ended within the
    round), nobody earns, and they have paid already.
    """
    table = _Table(problem, rows)
    owed, each = _earned(table, credits, earns=not running)
    jobs_busy = {job for turn in running for job in turn.jobs}
    round_rows = table.round_rows(running, jobs_busy)
    most = np.maximum(np.ceil(owed - 1e-9), 1).astype(np.int64)
    forced = _protected(round_rows, owed, most)
    counts = forced.copy()
    left = _without(round_rows, forced)
    gang = round_rows.gang[round_rows.pool]
    worth = np.where(owed > 1e-9, owed, 0.0) * gang + IDLE_WORTH * gang / (1 + most)
    stays = table.stays(held)
    worth = worth + STAY_BONUS * stays
    counts += best_units(left, worth, np.maximum(most - forced, 0))
    turns = table.turns(counts, each, held, jobs_busy)
    return Round(turns=(*running, *turns), credits=_paid(table, credits, owed, each, counts, turns))


def realisable_level(
    problem: AllocationProblem, rows: ClassRows, *, steps: int = 200
) -> tuple[float, tuple[FloatArray, ...]]:
    """Return the largest t <= 1 for which t times all amounts is a mixture of whole rounds.

    By column generation over rounds: ``max t`` with ``sum_p y_p n_p >= t amount``, ``sum y = 1``;
    the missing round with most value under the duals is a b-matching. Also returned: the rounds
    (C,) of the mixture, whose fractions are what attains t. Stops after ``steps`` rounds with what
    is proved attainable (a lower bound).
    """
    import scipy.sparse as sparse

    from cloudgavel.policies.solve import LinearProgram, solve_linear

    table = _Table(problem, rows)
    round_rows = table.round_rows((), set())
    wanted = np.flatnonzero(rows.amount > 1e-9)
    if not wanted.size:
        return 1.0, ()
    most = np.full(rows.first.size, np.iinfo(np.int32).max, dtype=np.int64)
    most = np.minimum(most, round_rows.members[rows.first])
    found: list[FloatArray] = []
    prices = np.where(rows.amount > 1e-9, 1.0 / np.maximum(rows.amount, 1e-9), 0.0)
    level, level_price = 0.0, np.inf
    for _ in range(steps):
        new = best_units(round_rows, prices, most).astype(np.float64)
        value = float(prices @ new)
        if found and value <= level_price * (1 + 1e-9) + 1e-12:
            break
        found.append(new)
        whole = np.array(found)[:, wanted].T
        count = len(found)
        matrix = sparse.csc_matrix(
            np.vstack(
                [
                    np.hstack([whole, -rows.amount[wanted][:, None]]),
                    np.append(np.ones(count), 0.0)[None, :],
                ]
            )
        )
        program = LinearProgram(
            cost=np.append(np.zeros(count), -1.0),
            matrix=matrix,
            row_lower=np.append(np.zeros(wanted.size), -np.inf),
            row_upper=np.append(np.full(wanted.size, np.inf), 1.0),
            lower=np.zeros(count + 1),
            upper=np.append(np.full(count, np.inf), 1.0),
        )
        answer = solve_linear(program)
        if answer.values is None or answer.row_duals is None:
            break
        level = float(answer.values[-1])
        if level >= 1 - 1e-9:
            return 1.0, tuple(found)
        prices = np.zeros(rows.first.size)
        prices[wanted] = np.abs(answer.row_duals[:-1])
        level_price = float(np.abs(answer.row_duals[-1]))
    return level, tuple(found)


class _Table:
    """Class rows of a problem with names, and who is in each class."""

    def __init__(self, problem: AllocationProblem, rows: ClassRows) -> None:
        self.problem = problem
        self.rows = rows
        self.names = [job.name for job in problem.jobs]
        self.labels = [pool.label for pool in problem.pools]
        count = int(max(rows.class_of_job.max(initial=-1), rows.first.max(initial=-1))) + 1
        self.members: list[list[int]] = [[] for _ in range(max(count, 1))]
        for job, number in enumerate(rows.class_of_job.tolist()):
            if number >= 0:
                self.members[number].append(job)

    def key(self, row: int) -> UnitKey:
        """A unit's key: the first member stands for its class."""
        first, second = int(self.rows.first[row]), int(self.rows.second[row])
        partner = self.names[self.members[second][0]] if second >= 0 else ""
        return self.names[self.members[first][0]], partner, self.labels[self.rows.pool[row]]

    def round_rows(self, running: tuple[Turn, ...], busy: set[str]) -> RoundRows:
        """What the rounds may choose from, less what goes on running."""
        pools = self.problem.pools
        kinds = sorted({pool.offer_id for pool in pools})
        number = {kind: at for at, kind in enumerate(kinds)}
        type_of_pool = np.array([number[pool.offer_id] for pool in pools], dtype=np.int64)
        size = np.zeros(len(kinds), dtype=np.int64)
        for at, amount in enumerate(self.problem.cluster_accelerators or ()):
            size[type_of_pool[at]] = max(size[type_of_pool[at]], amount)
        for turn in running:
            size[type_of_pool[turn.pool]] -= pools[turn.pool].gang_size
        free = [sum(self.names[job] not in busy for job in jobs) for jobs in self.members]
        return RoundRows(
            first=self.rows.first,
            second=self.rows.second,
            pool=self.rows.pool,
            members=np.array(free, dtype=np.int64),
            gang=np.array([pool.gang_size for pool in pools], dtype=np.int64),
            type_of_pool=type_of_pool,
            accelerators=np.maximum(size, 0),
        )

    def stays(self, held: tuple[Turn, ...]) -> FloatArray:
        """(C,) 1 where a held turn is of this kind of unit."""
        class_of = {self.names[job]: at for at, jobs in enumerate(self.members) for job in jobs}
        kinds = set()
        for turn in held:
            held_classes = sorted(class_of.get(job, -2) for job in turn.jobs)
            kinds.add((tuple(held_classes), turn.pool))
        found = np.zeros(self.rows.first.size)
        for row in range(found.size):
            first, second = int(self.rows.first[row]), int(self.rows.second[row])
            classes = tuple(sorted(each for each in (first, second) if each >= 0))
            found[row] = (classes, int(self.rows.pool[row])) in kinds
        return found

    def turns(
        self,
        counts: IntArray,
        owed: Mapping[tuple[str, str], float],
        held: tuple[Turn, ...],
        busy: set[str],
    ) -> tuple[Turn, ...]:
        """Name the jobs of the chosen units: of a class, those owed most in the pool first."""
        held_pool = {job: turn.pool for turn in held for job in turn.jobs}
        held_turns = {(frozenset(turn.jobs), turn.pool) for turn in held}
        used = set(busy)
        found = []
        for row in np.flatnonzero(counts):
            pool = int(self.rows.pool[row])
            for _ in range(int(counts[row])):
                jobs = []
                for number in (int(self.rows.first[row]), int(self.rows.second[row])):
                    if number < 0:
                        continue
                    free = [job for job in self.members[number] if self.names[job] not in used]
                    job = min(
                        free,
                        key=lambda each: (
                            -round(owed.get((self.names[each], self.labels[pool]), 0.0), 9),
                            held_pool.get(self.names[each]) != pool,
                            each,
                        ),
                    )
                    used.add(self.names[job])
                    jobs.append(self.names[job])
                extended = (frozenset(jobs), pool) in held_turns
                found.append(Turn(jobs=tuple(jobs), pool=pool, extended=extended))
        return tuple(found)


def _earned(
    table: _Table, credits: Credits, *, earns: bool
) -> tuple[FloatArray, dict[tuple[str, str], float]]:
    """What is owed to units (C,), and to jobs by pool, after this round's shares."""
    rows = table.rows
    owed = np.array([credits.units.get(table.key(row), 0.0) for row in range(rows.first.size)])
    if earns:
        owed = owed + rows.amount
    per_job = rows.shares(len(table.labels))
    each: dict[tuple[str, str], float] = {}
    for job, pool in zip(*np.nonzero(per_job), strict=True):
        key = (table.names[job], table.labels[pool])
        more = float(per_job[job, pool]) if earns else 0.0
        each[key] = credits.jobs.get(key, 0.0) + more
    return np.clip(owed, -MOST_OWED, MOST_OWED), each


def _protected(rows: RoundRows, owed: FloatArray, most: IntArray) -> IntArray:
    """The gang that is owed most, if it has waited long: small units may not fill its place."""
    forced = np.zeros(rows.count, dtype=np.int64)
    gang = rows.gang[rows.pool]
    waiting = np.flatnonzero((gang > 1) & (owed >= PROTECT_FROM) & (most > 0))
    for row in waiting[np.argsort(-owed[waiting], kind="stable")]:
        forced[row] = 1
        if rows.fit(forced):
            return forced
        forced[row] = 0
    return forced


def _without(rows: RoundRows, forced: IntArray) -> RoundRows:
    return replace(
        rows,
        members=rows.members - rows.jobs_used(forced),
        accelerators=rows.accelerators - rows.accelerators_used(forced),
    )


def _paid(
    table: _Table,
    credits: Credits,
    owed: FloatArray,
    each: dict[tuple[str, str], float],
    counts: IntArray,
    turns: tuple[Turn, ...],
) -> Credits:
    """Charge what was served; what was given for want of takers is free."""
    units = {}
    for row in range(owed.size):
        paid = min(float(counts[row]), max(np.ceil(owed[row] - 1e-9), 0.0))
        units[table.key(row)] = float(owed[row]) - paid
    jobs = dict(each)
    for turn in turns:
        for job in turn.jobs:
            key = (job, table.labels[turn.pool])
            if jobs.get(key, 0.0) > 1e-9:
                jobs[key] = jobs[key] - 1.0
    live = set(table.names)
    kept = {key: value for key, value in credits.jobs.items() if key[0] in live}
    return Credits(units=units, jobs={**kept, **jobs})
