"""A problem seen as shares of a cluster: masks resolved, limits gathered, normalisers derived."""

from dataclasses import dataclass, replace

import numpy as np

from cloudgavel.policies.problem import AllocationProblem, BoolArray, FloatArray, IntArray

SMALLEST_STEPS = 1e-6
"""A job with fewer steps left than this, but some, counts as having so many."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """``sum_jr coefficient_r X_jr <= size``: accelerators of a type, a quota, a spend rate."""

    name: str
    unit: str
    coefficients: FloatArray
    """(R,)."""
    size: float


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """m jobs, R pools. ``rate`` is 0 where a job cannot run; ``able`` jobs can run somewhere."""

    problem: AllocationProblem
    usable: BoolArray
    """(m, R): measured, feasible, and one gang fits every limit."""
    rate: FloatArray
    """(m, R) steps/s, T_jr."""
    gang: FloatArray
    """(R,) accelerators, k_r."""
    limits: tuple[Limit, ...]
    type_of_pool: IntArray
    """(R,) index of the accelerator type (the offer) of each pool."""
    mix_share: FloatArray
    """(types,) part of the cluster's accelerators that are of the type; they add to 1."""
    weight: FloatArray
    """(m,), w_j."""
    steps: FloatArray
    """(m,), S_j."""
    able: BoolArray
    """(m,): has work, a positive weight and a usable pool."""

    @property
    def best_rate(self) -> FloatArray:
        """(m,) steps/s on the fastest usable pool; 0 for jobs that can run nowhere."""
        return np.asarray(self.rate.max(axis=1, initial=0.0), dtype=np.float64)

    @property
    def equal_rate(self) -> FloatArray:
        """(m,) n_j / k_j: steps/s per accelerator-second spread over the cluster's type mix.

        ``sum_r (T_jr / k_r) N_r / sum_r N_r``; of several pools of a type the one that makes most
        of an accelerator counts. With one gang size per job, ``thr_j / (n_j / k_j)`` is the
        paper's ``k_j thr_j / n_j``.
        """
        per_accelerator = self.rate / self.gang[None, :] if self.gang.size else self.rate
        total = np.zeros(self.rate.shape[0])
        for number, part in enumerate(self.mix_share):
            columns = self.type_of_pool == number
            total += part * per_accelerator[:, columns].max(axis=1, initial=0.0)
        return total

    @property
    def smallest_gang(self) -> FloatArray:
        """(m,) accelerators of the smallest usable gang; 0 for jobs that can run nowhere."""
        gangs = np.where(self.usable, self.gang[None, :], np.inf)
        least = gangs.min(axis=1, initial=np.inf)
        return np.where(np.isfinite(least), least, 0.0)

    @property
    def limit_matrix(self) -> FloatArray:
        """(limits, R)."""
        if not self.limits:
            return np.zeros((0, self.gang.size))
        return np.array([limit.coefficients for limit in self.limits], dtype=np.float64)

    @property
    def limit_sizes(self) -> FloatArray:
        """(limits,)."""
        return np.array([limit.size for limit in self.limits], dtype=np.float64)

    def isolated_shares(self) -> FloatArray:
        """(m, R) shares when n able jobs each own 1/n of every limit: always within the limits.

        ``min(1, N_r / (n k_r))`` of each type, on the job's fastest pool of the type; a row that
        adds to more than 1 is scaled down to 1.
        """
        shares = np.zeros(self.rate.shape)
        count = int(self.able.sum())
        if not count:
            return shares
        own = np.full(self.gang.size, 1.0)
        for limit in self.limits:
            counted = limit.coefficients > 0
            own[counted] = np.minimum(
                own[counted], limit.size / (count * limit.coefficients[counted])
            )
        for number in range(self.mix_share.size):
            columns = np.flatnonzero(self.type_of_pool == number)
            if not columns.size:
                continue
            fastest = columns[self.rate[:, columns].argmax(axis=1)]
            rows = np.flatnonzero(self.able & (self.rate[np.arange(fastest.size), fastest] > 0))
            shares[rows, fastest[rows]] = own[fastest[rows]]
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1.0)
        for limit in self.limits:
            used = shares @ limit.coefficients
            if limit.size > 0:
                shares /= np.maximum(used * count / limit.size, 1.0)[:, None]
            else:
                shares[used > 0] = 0.0
        return shares

    def without_pools(self, gone: BoolArray) -> "Cluster":
        """Return the cluster without some pools (R,) mask; nothing runs there."""
        usable = self.usable & ~gone[None, :]
        return replace(
            self,
            usable=usable,
            rate=np.where(usable, self.rate, 0.0),
            able=np.asarray(usable.any(axis=1), dtype=bool),
        )

    def without_types(self) -> "Cluster":
        """Return the cluster as a type-blind policy sees it: the agnostic twin's input.

        T_jr becomes the job's mean rate over the types it can use, weighted by the mix, gang size
        by gang size; with one gang size, shares are the same as with T replaced by ones, and
        durations keep their scale.
        """
        weights = self.mix_share[self.type_of_pool] if self.gang.size else self.gang
        blind = np.zeros(self.rate.shape)
        for size in np.unique(self.gang):
            columns = np.flatnonzero(self.gang == size)
            part = np.where(self.usable[:, columns], weights[columns][None, :], 0.0)
            total = part.sum(axis=1)
            mean = (part * self.rate[:, columns]).sum(axis=1) / np.where(total > 0, total, 1.0)
            blind[:, columns] = np.where(self.usable[:, columns], mean[:, None], 0.0)
        return replace(self, rate=blind)


def cluster_of(problem: AllocationProblem, *, with_steps: bool = False) -> Cluster:
    """Derive the cluster of a problem.

    Limits: accelerators of each type (fixed cluster), quotas and the spend rate (rented fleet).
    Not usable: pools a gang does not fit into, and every pool of a job whose weight is not a
    positive number or, ``with_steps``, whose steps left are not a finite number.
    """
    jobs, pools = problem.jobs, problem.pools
    steps = np.array([job.steps_left for job in jobs], dtype=np.float64)
    weight = np.array([job.weight for job in jobs], dtype=np.float64)
    gang = np.array([pool.gang_size for pool in pools], dtype=np.float64)
    instances = np.array([pool.instances_per_job for pool in pools], dtype=np.float64)
    price = np.array([pool.price_usd_per_hour for pool in pools], dtype=np.float64)

    names = sorted({pool.offer_id for pool in pools})
    number_of = {name: number for number, name in enumerate(names)}
    type_of_pool = np.array([number_of[pool.offer_id] for pool in pools], dtype=np.int64)
    size_of_type = np.ones(len(names))
    limits: list[Limit] = []
    fits = np.ones(len(pools), dtype=bool)
    if problem.cluster_accelerators is not None:
        accelerators = np.array(problem.cluster_accelerators, dtype=np.float64)
        for number, name in enumerate(names):
            own = type_of_pool == number
            size = float(accelerators[own].max())
            size_of_type[number] = max(size, 0.0)
            limits.append(
                Limit(
                    name=f"accelerators {name}",
                    unit="accelerator",
                    coefficients=np.where(own, gang, 0.0),
                    size=max(size, 0.0),
                )
            )
        fits &= gang <= accelerators
    for quota in problem.quotas:
        each = np.array(quota.coefficients, dtype=np.float64)
        limits.append(
            Limit(
                name=f"quota {quota.name}",
                unit="unit of quota",
                coefficients=each * instances,
                size=max(quota.limit, 0.0),
            )
        )
        fits &= each * np.maximum(np.ceil(instances - 1e-9), 1.0) <= quota.limit * (1 + 1e-9)
    if problem.max_usd_per_hour is not None:
        fits &= np.isfinite(price)
        known = np.where(fits, price, 0.0)
        limits.append(
            Limit(
                name="max_usd_per_hour",
                unit="USD/h",
                coefficients=known * instances,
                size=max(problem.max_usd_per_hour, 0.0),
            )
        )
        whole = known * np.maximum(np.ceil(instances - 1e-9), 1.0)
        fits &= whole <= problem.max_usd_per_hour * (1 + 1e-9)
    steps = np.where(steps > 0, np.maximum(steps, SMALLEST_STEPS), steps)
    usable = problem.feasible & fits[None, :]
    usable &= (steps > 0)[:, None] & (np.isfinite(weight) & (weight > 0))[:, None]
    if with_steps:
        usable &= np.isfinite(steps)[:, None]
    rate = np.where(usable, problem.throughput_steps_per_s, 0.0)
    total = float(size_of_type.sum())
    return Cluster(
        problem=problem,
        usable=usable,
        rate=rate,
        gang=gang,
        limits=tuple(limits),
        type_of_pool=type_of_pool,
        mix_share=size_of_type / total if total > 0 else size_of_type,
        weight=weight,
        steps=steps,
        able=np.asarray(usable.any(axis=1), dtype=bool),
    )
