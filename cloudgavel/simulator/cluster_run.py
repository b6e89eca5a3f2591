"""A workload on a fixed cluster in virtual time: the pure decision, driven from event to event.

Every decision is ``mechanism.fixed_cluster.decide_leases``; this module only keeps the accounts
between two decisions. Nothing is stepped: time jumps to the next arrival, completion or round.
Progress, credits and accelerator-seconds are exact sums over the leases. Memory is that of the
jobs, whatever time they take (``keep_leases`` adds one record a lease).
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cloudgavel.errors import UsageError
from cloudgavel.mechanism.fixed_cluster.cluster import AcceleratorType, FixedCluster, fixed_cluster
from cloudgavel.mechanism.fixed_cluster.decide import credits_after, decide_leases
from cloudgavel.mechanism.fixed_cluster.state import (
    ClusterJob,
    FixedClusterState,
    FixedDecision,
    Leases,
    Standing,
)
from cloudgavel.policies.base import Policy
from cloudgavel.policies.problem import BoolArray, FloatArray, IntArray
from cloudgavel.policies.sharing import PairSharing
from cloudgavel.simulator.beliefs import Beliefs
from cloudgavel.simulator.failures import Failures, unsaved_s
from cloudgavel.simulator.progress_reports import TRUE_REPORTS, ProgressReports
from cloudgavel.simulator.throughputs import JobKind, ThroughputTable
from cloudgavel.simulator.workload import Workload

DONE_S = 1e-6
"""Instants closer than this are the same."""
STALLED_ROUNDS = 200
"""Rounds in a row in which nothing runs and nothing arrives, after which a run is given up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterRunSettings:
    """How a fixed cluster is run."""

    round_s: float = 360.0
    change_over_s: float = 0.0
    """Save and restore of a job that goes on elsewhere or later: paid without progress."""
    start_s: float = 0.0
    """The same of a job's very first start."""
    preempts_within_round: bool | None = None
    """An arrival or a completion begins a new round at once; else only what is free is given on.
    ``None``: if moves cost nothing (with 30 s a move, workload A takes 4.20 h so and 4.07 h else).
    """
    failures_per_hour: float = 0.0
    """Of one accelerator in use: its job loses what it has not saved, pays ``change_over_s`` and
    goes on in place."""
    save_every_s: float = 1800.0
    """Running time between saves; what is moved is saved first."""
    exact_rounds: bool = False
    """Rounds of mixed gangs or pairs by the integer program."""
    measured_share: float | None = None
    """Of the throughputs that policies know at first, the others being estimated; ``None`` = they
    know all of them."""
    reports: ProgressReports = TRUE_REPORTS
    """What policies hear of the jobs' progress."""
    seed: int = 0
    """Draws failures, what is measured, and the error of every job's reports."""
    keep_leases: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRecord:
    """Jobs held accelerators from one instant to another."""

    from_s: float
    to_s: float
    jobs: tuple[str, ...]
    accelerator: str
    numbers: tuple[int, ...]
    spread: bool
    steps: tuple[float, ...]
    """Done by each job under this lease."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOutcome:
    """What became of a job; instants from the start of the simulation."""

    name: str
    arrives_s: float
    gang_size: int
    finished_s: float | None
    first_started_s: float | None
    deadline_s: float | None
    normalised_throughput: float | None
    """Mean steps/s over its life, over what the gang does spread over the cluster's type mix."""
    finish_time_ratio: float | None
    """Life over the life it would have had with 1/n of the cluster; above 1 is worse than alone."""
    moves: int
    failures: int
    lost_steps: float
    """Done again after failures."""


@dataclass(frozen=True, kw_only=True)
class ClusterRun:
    """A whole simulation."""

    cluster: FixedCluster
    outcomes: tuple[JobOutcome, ...]
    """In the order of the workload."""
    accelerator_s: FloatArray
    """(types,) accelerator-seconds in use."""
    ended_s: float
    """When the last job ended (or the run was given up)."""
    started_s: float
    rounds: int
    moves: int
    decisions: int
    solves: int
    solve_s: float
    """Seconds in the decisions that asked the policy; 0 without a timer."""
    leases: tuple[LeaseRecord, ...]
    given_up: bool
    messages: tuple[str, ...] = field(default=())
    """What the policies said (each once)."""


def run_cluster(
    workload: Workload,
    table: ThroughputTable,
    types: tuple[AcceleratorType, ...],
    policy: Policy,
    settings: ClusterRunSettings,
    *,
    timer: Callable[[], float] | None = None,
) -> ClusterRun:
    """Run every job of a workload to its end under one policy; deterministic.

    ``timer`` (seconds) is read around decisions that ask the policy only. Jobs that no type can run
    are not waited for: their ``finished_s`` is ``None``.
    """
    return _Run(workload, table, types, policy, settings, timer).to_the_end()


@dataclass(kw_only=True)
class _Open:
    """A lease that runs: when it began and what its jobs had left then."""

    from_s: float
    steps_left: tuple[float, ...]


class _Run:
    """Mutable accounts of a run; arrays have one entry for each active job (m)."""

    def __init__(
        self,
        workload: Workload,
        table: ThroughputTable,
        types: tuple[AcceleratorType, ...],
        policy: Policy,
        settings: ClusterRunSettings,
        timer: Callable[[], float] | None,
    ) -> None:
        if not workload.jobs:
            raise UsageError(f"the workload {workload.name} has no jobs")
        if settings.round_s <= 0:
            raise UsageError(f"a round lasts longer than {settings.round_s:g} s")
        self.workload, self.policy, self.settings = workload, policy, settings
        self.timer = timer
        preempts = settings.preempts_within_round
        self.preempts = settings.change_over_s == 0 if preempts is None else preempts
        self.cluster = fixed_cluster(types, workload.gang_sizes)
        self.kinds, self.kind_of_job, self.kind_rate, self.retained = self._tables(table)
        self.kind_mix = self._mix_rates()
        self.kind_best = self._best_of_types()
        self.beliefs = Beliefs(
            table,
            self.kinds,
            self.cluster,
            workload,
            measured_share=settings.measured_share,
            reports=settings.reports,
            seed=settings.seed,
        )
        self.now_s = workload.jobs[0].arrives_s
        self.started_s = self.now_s
        self.next_arrival = 0
        pools = len(self.cluster.pools)
        self.index: IntArray = np.zeros(0, dtype=np.int64)
        self.jobs: list[ClusterJob] = []
        self.steps_left: FloatArray = np.zeros(0)
        self.rate: FloatArray = np.zeros((0, pools))
        self.credits: FloatArray = np.zeros((0, pools))
        self.attained: FloatArray = np.zeros(0)
        self.isolated_steps: FloatArray = np.zeros(0)
        self.ready_s: FloatArray = np.zeros(0)
        self.speed: FloatArray = np.zeros(0)
        self.failures = Failures(settings.failures_per_hour, settings.seed)
        self.fails_at: FloatArray = np.zeros(0)
        """(m,) accelerator-seconds held at which each job fails next."""
        self.saved_s: FloatArray = np.zeros(0)
        """(m,) since when nothing was saved but by the clock."""
        self.leases = Leases.none(0)
        self.standing: Standing | None = None
        self.busy_of_pool: FloatArray = np.zeros(pools)
        self.pool_s: FloatArray = np.zeros(pools)
        count = len(workload.jobs)
        self.finished: list[float | None] = [None] * count
        self.first_started: list[float | None] = [None] * count
        self.moves = [0] * count
        self.failed = [0] * count
        self.lost_steps = [0.0] * count
        self.ratio: list[float | None] = [None] * count
        self.rounds = self.decisions = self.solves = 0
        self.solve_s = 0.0
        self.isolated_rate: FloatArray = np.zeros(0)
        self.open: dict[int, _Open] = {}
        self.records: list[LeaseRecord] = []
        self.messages: dict[str, None] = {}
        self.given_up = False

    def _tables(
        self, table: ThroughputTable
    ) -> tuple[tuple[JobKind, ...], IntArray, FloatArray, FloatArray | None]:
        kinds = tuple(sorted({(job.kind, job.gang_size) for job in self.workload.jobs}))
        number = {kind: at for at, kind in enumerate(kinds)}
        of_job = np.array(
            [number[job.kind, job.gang_size] for job in self.workload.jobs], dtype=np.int64
        )
        rate = np.array([table.rates(kind, self.cluster) for kind in kinds])
        rate[:, self.cluster.gang > np.array(self.cluster.counts)] = 0.0
        retained = table.retained(kinds, self.cluster) if any(table.beside.values()) else None
        return kinds, of_job, rate, retained

    def _mix_rates(self) -> FloatArray:
        """(K,) steps/s of a gang spread over the type mix: ``sum_r T_jr N_r / sum_r N_r``."""
        total = max(self.cluster.accelerators, 1)
        mixed = np.zeros(len(self.kinds))
        for number, kind in enumerate(self.cluster.types):
            own = self.cluster.type_of_pool == number
            mixed += kind.count / total * self.kind_rate[:, own].max(axis=1, initial=0.0)
        return mixed

    def _best_of_types(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(K, types) each kind's best rate on each type, with that pool's accelerators and gang."""
        shape = (len(self.kinds), len(self.cluster.types))
        best, room, gang = np.zeros(shape), np.zeros(shape), np.ones(shape)
        counts = np.array(self.cluster.counts, dtype=np.float64)
        for number in range(shape[1]):
            own = np.flatnonzero(self.cluster.type_of_pool == number)
            at = own[self.kind_rate[:, own].argmax(axis=1)]
            best[:, number] = self.kind_rate[np.arange(shape[0]), at]
            room[:, number], gang[:, number] = counts[at], self.cluster.gang[at]
        return best, room, gang

    # --- from event to event -------------------------------------------------------------------

    def to_the_end(self) -> ClusterRun:
        idle_rounds = 0
        self._admit()
        while self.jobs or self.next_arrival < len(self.workload.jobs):
            boundary = self._is_boundary()
            self.rounds += boundary
            if boundary and self._learns():
                self.standing = None
            if self.jobs and (boundary or self.standing is None):
                self._decide(boundary or self.preempts)
            running = bool((self.leases.pool >= 0).any())
            if not running and self.next_arrival >= len(self.workload.jobs):
                idle_rounds += 1
                if idle_rounds > STALLED_ROUNDS:
                    self.given_up = True
                    break
            else:
                idle_rounds = 0
            self._advance(self._next_s())
            self._retire()
            self._fail()
            self._admit()
            self._expire()
        return self._result()

    def _expire(self) -> None:
        """A plan over time holds to the end of its first interval."""
        until_s = None if self.standing is None else self.standing.valid_until_s
        if until_s is not None and until_s <= self.now_s + DONE_S:
            self.standing = None

    def _is_boundary(self) -> bool:
        whole = round(self.now_s / self.settings.round_s)
        return abs(self.now_s - whole * self.settings.round_s) <= DONE_S

    def _next_boundary_s(self) -> float:
        whole = np.floor((self.now_s + DONE_S) / self.settings.round_s) + 1
        return float(whole * self.settings.round_s)

    def _next_s(self) -> float:
        found = np.inf
        if self.next_arrival < len(self.workload.jobs):
            found = self.workload.jobs[self.next_arrival].arrives_s
        if self.jobs:
            found = min(found, float(self._finish_s().min()), self._next_failure_s())
            standing = self.standing
            if standing is not None and standing.valid_until_s is not None:
                found = min(found, standing.valid_until_s)
            waits = bool((self.leases.pool < 0).any() or self.leases.is_extra.any())
            if standing is None or waits or not standing.is_settled:
                found = min(found, self._next_boundary_s())
            else:
                # Nothing changes at the boundaries until then; they still are rounds.
                gone = np.floor((found - DONE_S) / self.settings.round_s)
                gone -= np.floor((self.now_s + DONE_S) / self.settings.round_s)
                self.rounds += max(int(gone), 0)
        return max(found, self.now_s)

    def _finish_s(self) -> FloatArray:
        """(m,) when each job ends if it goes on as now."""
        finish = np.full(self.steps_left.size, np.inf)
        runs = self.speed > 0
        np.divide(self.steps_left, self.speed, out=finish, where=runs)
        return finish + np.maximum(self.ready_s, self.now_s)

    def _next_failure_s(self) -> float:
        if self.failures.per_hour <= 0:
            return np.inf
        held = np.flatnonzero(self.leases.pool >= 0)
        if not held.size:
            return np.inf
        left = (self.fails_at - self.attained)[held] / self.cluster.gang[self.leases.pool[held]]
        return self.now_s + max(float(left.min()), 0.0)

    def _fail(self) -> None:
        """Take from jobs that fail now what they have not saved; they go on in place."""
        if self.failures.per_hour <= 0 or not self.jobs:
            return
        fails = (self.leases.pool >= 0) & (self.fails_at <= self.attained + DONE_S)
        for row in np.flatnonzero(fails).tolist():
            job = int(self.index[row])
            lost_s = unsaved_s(self.now_s - self.saved_s[row], self.settings.save_every_s)
            lost = float(self.speed[row] * lost_s)
            self.steps_left[row] += lost
            self.lost_steps[job] += lost
            self.failed[job] += 1
            self.ready_s[row] = self.saved_s[row] = self.now_s + self.settings.change_over_s
            self.fails_at[row] = self.failures.next(job, float(self.attained[row]))

    def _advance(self, to_s: float) -> None:
        """Let time pass: progress, credits, accelerator-seconds."""
        elapsed_s = to_s - self.now_s
        if elapsed_s > 0 and self.jobs:
            runs_s = np.clip(to_s - np.maximum(self.ready_s, self.now_s), 0.0, None)
            self.steps_left = np.maximum(self.steps_left - self.speed * runs_s, 0.0)
            self.isolated_steps += self.isolated_rate * elapsed_s
            self.pool_s += self.busy_of_pool * elapsed_s
            held = self.leases.pool >= 0
            self.attained[held] += self.cluster.gang[self.leases.pool[held]] * elapsed_s
            if self.standing is not None:
                self.credits = credits_after(
                    self.credits, self.standing, self.leases, elapsed_s / self.settings.round_s
                )
        self.now_s = to_s

    def _retire(self) -> None:
        """Take away what is done."""
        if not self.jobs:
            return
        done = (self._finish_s() <= self.now_s + DONE_S) & (self.leases.pool >= 0)
        if not done.any():
            return
        for row in np.flatnonzero(done).tolist():
            job = int(self.index[row])
            self.finished[job] = self.now_s
            self.steps_left[row] = 0.0
            self.failures.forget(job)
            spec = self.workload.jobs[job]
            self.ratio[job] = float(self.isolated_steps[row]) / spec.total_steps
        if self.settings.keep_leases:
            self._close(
                np.flatnonzero(done | done[self.leases.partner] & (self.leases.partner >= 0))
            )
        self._keep(~done)
        self._changed()

    def _keep(self, kept: BoolArray) -> None:
        rows = np.flatnonzero(kept)
        new_row = np.full(kept.size, -1, dtype=np.int64)
        new_row[rows] = np.arange(rows.size)
        self.open = {int(new_row[row]): lease for row, lease in self.open.items() if kept[row]}
        self.index = self.index[rows]
        self.jobs = [self.jobs[row] for row in rows.tolist()]
        self.steps_left = self.steps_left[rows]
        self.rate = self.rate[rows]
        self.credits = self.credits[rows]
        self.attained = self.attained[rows]
        self.isolated_steps = self.isolated_steps[rows]
        self.ready_s = self.ready_s[rows]
        self.fails_at = self.fails_at[rows]
        self.saved_s = self.saved_s[rows]
        partner = self.leases.partner[rows]
        left_alone = (partner >= 0) & ~kept[partner]
        partner = np.where(partner >= 0, new_row[partner], -1)
        self.leases = Leases(
            pool=self.leases.pool[rows],
            partner=partner,
            accelerators=tuple(self.leases.accelerators[row] for row in rows.tolist()),
            is_extra=self.leases.is_extra[rows],
        )
        self.saved_s[left_alone] = np.maximum(self.saved_s[left_alone], self.now_s)
        if left_alone.any() and self.settings.keep_leases:
            for row in np.flatnonzero(left_alone).tolist():
                self.open[row] = self._opened(row, -1)
        self._set_speed()

    def _admit(self) -> None:
        """Let in what has arrived; jobs that nothing can run stay outside."""
        jobs = self.workload.jobs
        new: list[int] = []
        while (
            self.next_arrival < len(jobs)
            and jobs[self.next_arrival].arrives_s <= self.now_s + DONE_S
        ):
            if self.kind_rate[self.kind_of_job[self.next_arrival]].any():
                new.append(self.next_arrival)
            self.next_arrival += 1
        if not new:
            return
        at = np.array(new, dtype=np.int64)
        count = len(new)
        self.index = np.concatenate([self.index, at])
        self.jobs += [
            ClusterJob(
                name=jobs[each].name,
                gang_size=jobs[each].gang_size,
                arrives_s=jobs[each].arrives_s,
                weight=jobs[each].weight,
                deadline_s=jobs[each].deadline_s,
                entity=jobs[each].entity,
            )
            for each in new
        ]
        steps = np.array([jobs[each].total_steps for each in new])
        self.steps_left = np.concatenate([self.steps_left, steps])
        self.rate = np.concatenate([self.rate, self.kind_rate[self.kind_of_job[at]]])
        self.credits = np.concatenate([self.credits, np.zeros((count, self.rate.shape[1]))])
        self.attained = np.concatenate([self.attained, np.zeros(count)])
        self.isolated_steps = np.concatenate([self.isolated_steps, np.zeros(count)])
        self.ready_s = np.concatenate([self.ready_s, np.full(count, self.now_s)])
        self.fails_at = np.concatenate([self.fails_at, self.failures.first(at)])
        self.saved_s = np.concatenate([self.saved_s, np.full(count, self.now_s)])
        waiting = Leases.none(count)
        self.leases = Leases(
            pool=np.concatenate([self.leases.pool, waiting.pool]),
            partner=np.concatenate([self.leases.partner, waiting.partner]),
            accelerators=self.leases.accelerators + waiting.accelerators,
            is_extra=np.concatenate([self.leases.is_extra, waiting.is_extra]),
        )
        self._set_speed()
        self._changed()

    def _changed(self) -> None:
        """Something happened that the allocation in force does not know."""
        self.standing = None
        self.isolated_rate = self._isolated_rate()

    def _isolated_rate(self) -> FloatArray:
        """(m,) steps/s with 1/n of every type: ``min(1, N_r / (n k_j))``, time at most 1."""
        count = len(self.jobs)
        if not count:
            return np.zeros(0)
        best, room, gang = self.kind_best
        shares = np.where(best > 0, np.minimum(1.0, room / (count * gang)), 0.0)
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
        by_kind: FloatArray = (best * shares).sum(axis=1)
        return by_kind[self.kind_of_job[self.index]]

    # --- decisions -----------------------------------------------------------------------------

    def _decide(self, is_boundary: bool) -> None:
        state = self._state(is_boundary)
        timed = self.timer is not None and self.standing is None
        before = self.timer() if timed and self.timer else 0.0
        decision = decide_leases(state, self.policy, exact_rounds=self.settings.exact_rounds)
        if timed and self.timer:
            self.solve_s += self.timer() - before
        self.decisions += 1
        self.solves += decision.solved
        if decision.solved and decision.standing.message:
            self.messages.setdefault(decision.standing.message)
        self.standing = decision.standing
        self._apply(decision)

    def _learns(self) -> bool:
        """Whether what ran has measured a throughput that policies only guessed."""
        if not self.beliefs.are_estimates:
            return False
        ran = (self.speed > 0) & (self.ready_s < self.now_s)
        return self.beliefs.learn(self.leases, self.kind_of_job[self.index], ran.tolist())

    def _state(self, is_boundary: bool) -> FixedClusterState:
        settings, beliefs = self.settings, self.beliefs
        kind_of_row = self.kind_of_job[self.index]
        sharing = None
        if self.retained is not None:
            retained = self.retained if beliefs.retained is None else beliefs.retained
            sharing = PairSharing(kind_of_job=kind_of_row, retained_share=retained)
        return FixedClusterState(
            now_s=self.now_s,
            cluster=self.cluster,
            jobs=tuple(self.jobs),
            steps_left=beliefs.steps_left(self.index, self.steps_left, self.now_s),
            rate=self.rate if beliefs.rate is None else beliefs.rate[kind_of_row],
            sharing=sharing,
            credits=self.credits,
            leases=self.leases,
            standing=self.standing,
            round_s=settings.round_s,
            is_boundary=is_boundary,
            attained_service=self.attained,
            stay_bonus=max(1e-3, settings.change_over_s / settings.round_s),
        )

    def _apply(self, decision: FixedDecision) -> None:
        """Carry out the leases: who starts anew pays for it."""
        old, new = self.leases, decision.leases
        changed = old.pool != new.pool
        changed |= old.partner != new.partner
        same_seats = [a == b for a, b in zip(old.accelerators, new.accelerators, strict=True)]
        changed |= ~np.array(same_seats, dtype=bool)
        rows = np.flatnonzero(changed)
        if self.settings.keep_leases and rows.size:
            self._close(rows)
        self.leases = new
        for row in rows.tolist():
            if new.pool[row] < 0:
                continue
            job = int(self.index[row])
            stays = old.pool[row] == new.pool[row] and same_seats[row]
            if self.first_started[job] is None:
                self.first_started[job] = self.now_s
                self.ready_s[row] = self.now_s + self.settings.start_s
            elif not stays:
                self.moves[job] += 1
                self.ready_s[row] = self.now_s + self.settings.change_over_s
            self.saved_s[row] = max(self.ready_s[row], self.now_s)
            if self.settings.keep_leases:
                self.open[row] = self._opened(row, int(new.partner[row]))
        self._set_speed()

    def _set_speed(self) -> None:
        """Rates under the leases, and how many gangs are in use by pool."""
        leases = self.leases
        self.speed = np.zeros(len(self.jobs))
        rows = np.flatnonzero(leases.pool >= 0)
        pool = leases.pool[rows]
        speed = self.rate[rows, pool]
        pairs = np.flatnonzero(leases.partner[rows] >= 0)
        counted = np.ones(rows.size)
        if pairs.size and self.retained is not None:
            kind = self.kind_of_job[self.index]
            one, other = rows[pairs], leases.partner[rows[pairs]]
            speed[pairs] *= self.retained[kind[one], kind[other], pool[pairs]]
            counted[pairs] = 0.5
        self.speed[rows] = speed
        busy = np.bincount(pool, weights=counted, minlength=self.rate.shape[1])
        self.busy_of_pool = busy.astype(np.float64)

    # --- records -------------------------------------------------------------------------------

    def _opened(self, row: int, partner: int) -> _Open:
        rows = (row,) if partner < 0 else (row, partner)
        return _Open(
            from_s=self.now_s, steps_left=tuple(float(self.steps_left[each]) for each in rows)
        )

    def _close(self, rows: IntArray) -> None:
        """Write down the leases of these rows as ended now (a pair's once)."""
        leases = self.leases
        for row in rows.tolist():
            opened = self.open.pop(row, None)
            pool = int(leases.pool[row])
            if opened is None or pool < 0:
                continue
            other = int(leases.partner[row])
            members = (row,) if other < 0 else (row, other)
            if other >= 0:
                self.open.pop(other, None)
            if self.now_s <= opened.from_s:
                continue
            spec = self.cluster.pools[pool]
            self.records.append(
                LeaseRecord(
                    from_s=opened.from_s,
                    to_s=self.now_s,
                    jobs=tuple(self.jobs[each].name for each in members),
                    accelerator=spec.accelerator,
                    numbers=leases.accelerators[row],
                    spread=spec.spread,
                    steps=tuple(
                        before - float(self.steps_left[each])
                        for before, each in zip(opened.steps_left, members, strict=True)
                    ),
                )
            )

    def _result(self) -> ClusterRun:
        outcomes = []
        for at, job in enumerate(self.workload.jobs):
            finished = self.finished[at]
            mixed = float(self.kind_mix[self.kind_of_job[at]])
            life_s = None if finished is None else finished - job.arrives_s
            normalised = None
            if life_s is not None and life_s > 0 and mixed > 0:
                normalised = job.total_steps / life_s / mixed
            outcomes.append(
                JobOutcome(
                    name=job.name,
                    arrives_s=job.arrives_s,
                    gang_size=job.gang_size,
                    finished_s=finished,
                    first_started_s=self.first_started[at],
                    deadline_s=job.deadline_s,
                    normalised_throughput=normalised,
                    finish_time_ratio=self.ratio[at],
                    moves=self.moves[at],
                    failures=self.failed[at],
                    lost_steps=self.lost_steps[at],
                )
            )
        accelerator_s = np.bincount(
            self.cluster.type_of_pool,
            weights=self.pool_s * self.cluster.gang,
            minlength=len(self.cluster.types),
        )
        ended = [finished for finished in self.finished if finished is not None]
        return ClusterRun(
            cluster=self.cluster,
            outcomes=tuple(outcomes),
            accelerator_s=accelerator_s.astype(np.float64),
            ended_s=max(ended, default=self.now_s) if not self.given_up else self.now_s,
            started_s=self.started_s,
            rounds=self.rounds,
            moves=sum(self.moves),
            decisions=self.decisions,
            solves=self.solves,
            solve_s=self.solve_s,
            leases=tuple(self.records),
            given_up=self.given_up,
            messages=tuple(self.messages),
        )
