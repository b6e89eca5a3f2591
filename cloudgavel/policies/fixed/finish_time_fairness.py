"""Finish-time fairness: nobody ends much later than with 1/n of the cluster to itself."""

from dataclasses import replace

import numpy as np
import scipy.sparse as sparse

from cloudgavel.policies.allocation import Allocation, LimitPrice
from cloudgavel.policies.fixed.answer import allocation_of, isolated_fallback, prices_of_limits
from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.share_policy import SharePolicy
from cloudgavel.policies.fixed.share_program import (
    Goal,
    Shares,
    goal,
    groups_of,
    read_back,
    share_program,
    solve_shares,
)
from cloudgavel.policies.problem import FloatArray
from cloudgavel.policies.solve import LinearAnswer, LinearProgram, SolveStatus
from cloudgavel.policies.solve_interior import solve_interior

STEP_LIMIT = 40
CLOSE_SHARE = 1e-9


class FinishTimeFairness(SharePolicy):
    """Minimise ``rho = max_j (elapsed_j + S_j / thr_j(X)) / iso_j``.

    iso_j is the time job j would take in all with its isolated share: what its work so far would
    have taken (``problem.extra["isolated_so_far_s"]`` (m,); ``elapsed_s`` if not given) plus
    ``S_j / isolated rate``. One conic program: with ``q_j = rho iso_j - elapsed_j``,
    ``thr_j q_j >= S_j`` is a second-order cone. With space sharing, and where the conic solver
    fails, a sequence of linear programs (for a fixed rho the demands are ``S_j / q_j``) falls to
    the same rho from above.
    """

    name = "finish_time_fairness"
    summary = "no job ends much later than with 1/n of the cluster to itself"
    source = "Mahajan et al., Themis, NSDI 2020; Narayanan et al., OSDI 2020, section 4.2"
    unit = "worst finish time over isolated finish time"
    with_steps = True

    def decide(self, seen: Cluster, cluster: Cluster) -> Allocation:
        """Find rho, then one linear program at rho for a polished answer and its prices."""
        times = _Times(seen)
        start = None
        if not self.space_sharing or seen.problem.sharing is None:
            start = _by_cones(seen, times)
        shares, rho = self._fall(seen, times, start)
        if shares is None or rho is None:
            return isolated_fallback(cluster, SolveStatus.FAILED, "no level found", self.unit)
        value = _Times(cluster).rho(self.true_throughput(cluster, shares))
        prices: tuple[LimitPrice, ...] = ()
        if not self.agnostic and shares.limit_duals is not None and np.isfinite(value):
            slope = times.slope(rho, shares)
            prices = prices_of_limits(
                cluster,
                shares.limit_duals / slope if slope > 0 else None,
                value,
                lambda moved: self._value_with(moved, times, value),
                larger_is_better=False,
            )
        return allocation_of(
            cluster,
            shares,
            value=value if np.isfinite(value) else None,
            unit=self.unit,
            limit_prices=prices,
        )

    def _fall(
        self, cluster: Cluster, times: "_Times", start: Shares | None
    ) -> tuple[Shares | None, float | None]:
        """Lower rho until the linear program at rho can do no better.

        The shares that are best at rho attain some smaller rho or prove that there is none
        (Dinkelbach's method for the maximum of ratios).
        """
        best = start
        if start is not None:
            rho = times.rho(start.throughput())
        else:
            alone = (cluster.isolated_shares() * cluster.rate).sum(axis=1)
            rho = times.rho(alone)
        if not np.isfinite(rho):
            return None, None
        for _ in range(STEP_LIMIT):
            found = solve_shares(
                cluster,
                replace(times.goal(rho), centred=self.agnostic),
                space_sharing=self.space_sharing,
            )
            if not found.is_usable:
                return best, rho
            reached = times.rho(found.throughput())
            if best is None or reached <= rho * (1 + CLOSE_SHARE):
                best = found
            if not reached < rho * (1 - CLOSE_SHARE):
                return best, rho
            close = start is not None and reached >= rho * (1 - 1e-6)
            rho = reached
            if close:
                return best, rho
        return best, rho

    def _value_with(self, cluster: Cluster, times: "_Times", near: float) -> float | None:
        shares, _ = self._fall(cluster, times, None)
        return None if shares is None else times.rho(shares.throughput())


class _Times:
    """The seconds of the formula, fixed once (they depend on the cluster only through iso)."""

    def __init__(self, cluster: Cluster) -> None:
        jobs = cluster.problem.jobs
        self.able = cluster.able
        self.steps = np.where(cluster.able, cluster.steps, 0.0)
        elapsed = np.array([job.elapsed_s for job in jobs], dtype=np.float64)
        self.elapsed = np.where(np.isfinite(elapsed), np.maximum(elapsed, 0.0), 0.0)
        given = cluster.problem.extra.get("isolated_so_far_s")
        so_far = self.elapsed if given is None else np.asarray(given, dtype=np.float64)
        so_far = np.where(np.isfinite(so_far), np.maximum(so_far, 0.0), 0.0)
        self.rate = (cluster.isolated_shares() * cluster.rate).sum(axis=1)
        self.alone = np.zeros(self.steps.size)
        np.divide(self.steps, self.rate, out=self.alone, where=self.rate > 0)
        self.iso = np.where(self.able, so_far + self.alone, 1.0)

    def rho(self, throughput: FloatArray) -> float:
        """The worst ratio; infinite if an able job gets nothing."""
        rate = throughput[self.able]
        if not (rate > 0).all():
            return float("inf")
        finish = self.elapsed[self.able] + self.steps[self.able] / rate
        return float((finish / self.iso[self.able]).max())

    def left(self, rho: float) -> FloatArray:
        """(m,) seconds that job j may still take, q_j; positive above the least rho."""
        return np.maximum(rho * self.iso - self.elapsed, 1e-12 * self.iso)

    def goal(self, rho: float) -> Goal:
        """Demand ``S_j / q_j``."""
        demand = np.where(self.able, self.steps / self.left(rho), 0.0)
        return goal(self.able.size, demand=demand)

    def slope(self, rho: float, shares: Shares) -> float:
        """How fast the level of the linear program grows with rho, from its duals."""
        if shares.level_duals is None:
            return 0.0
        change = self.steps * self.iso / self.left(rho) ** 2
        groups = shares.groups
        return float((shares.level_duals * change[groups.example] * groups.members).sum()) * max(
            shares.level, 0.0
        )


def _by_cones(cluster: Cluster, times: _Times) -> Shares | None:
    """One conic program; ``None`` if the solver gives nothing usable."""
    wanted = goal(times.able.size, demand=times.alone * times.able, gain=times.elapsed / times.iso)
    groups = groups_of(cluster, wanted, space_sharing=False)
    program = share_program(cluster, wanted, groups)
    columns = program.singles
    count, size = columns.count, groups.count
    time = sparse.csr_matrix(
        (np.ones(count), (columns.first, np.arange(count))), shape=(size, count + 1)
    )
    use = sparse.hstack(
        [
            sparse.csr_matrix(program.limit_matrix[:, columns.pool]),
            sparse.csr_matrix((program.limit_sizes.size, 1)),
        ]
    )
    rows = sparse.vstack([time, use], format="csc")
    # In units of the isolated rate and time: thr' q' >= 1, both about 1 when rho is about 1.
    unit_rate, unit_s = times.rate[groups.example], times.alone[groups.example]
    rate = columns.rate_first * program.scale.rate[columns.first] * program.scale.share
    rate = rate / (unit_rate * groups.members)[columns.first]
    per_rho = times.iso[groups.example] / unit_s
    gone = times.elapsed[groups.example] / unit_s
    group = np.arange(size)
    entries = (
        np.concatenate([rate, per_rho, rate, -per_rho]),
        (
            np.concatenate([3 * columns.first, 3 * group, 3 * columns.first + 1, 3 * group + 1]),
            np.concatenate([np.arange(count), np.full(size, count)] * 2),
        ),
    )
    cone = sparse.csc_matrix(entries, shape=(3 * size, count + 1))
    offset = np.zeros(3 * size)
    offset[0::3], offset[1::3], offset[2::3] = -gone, gone, 2.0
    linear = LinearProgram(
        cost=np.append(np.zeros(count), 1.0),
        matrix=rows,
        row_lower=np.full(rows.shape[0], -np.inf),
        row_upper=np.concatenate([program.members, program.limit_sizes]),
        lower=np.zeros(count + 1),
        upper=np.full(count + 1, np.inf),
    )
    answer = solve_interior(linear, cone_matrix=cone, cone_offset=offset)
    if not answer.is_usable or answer.values is None:
        return None
    plain = share_program(cluster, goal(times.able.size), groups)
    _, layout = plain.build(columns)
    values = LinearAnswer(status=answer.status, values=np.append(answer.values[:-1], 0.0))
    return read_back(cluster, plain, columns, values, layout, 1)
