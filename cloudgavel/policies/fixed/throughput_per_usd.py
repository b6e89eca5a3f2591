"""Most throughput for the money, with a floor for everybody."""

from dataclasses import replace

import numpy as np

from cloudgavel.policies.allocation import Allocation, AllocationStatus, LimitPrice
from cloudgavel.policies.fixed.answer import (
    allocation_of,
    isolated_fallback,
    nothing,
    prices_of_limits,
)
from cloudgavel.policies.fixed.cluster import Cluster
from cloudgavel.policies.fixed.promises import keep_promises
from cloudgavel.policies.fixed.share_policy import SharePolicy, per_rate
from cloudgavel.policies.fixed.share_program import Shares, goal, solve_shares
from cloudgavel.policies.problem import FloatArray

SCALE_SHARE = 1e-6
"""How much of the ratio the second stage may trade for scale."""
FLOOR_SHARE = 1 - 1e-9


def usd_per_hour(cluster: Cluster) -> FloatArray:
    """(R,) price of a full share, ``p_r k_r / g_r``; NaN where the price is unknown."""
    pools = cluster.problem.pools
    return np.array(
        [pool.price_usd_per_hour * pool.instances_per_job for pool in pools], dtype=np.float64
    )


class ThroughputPerUsd(SharePolicy):
    """Maximise ``sum_j w_j thr_j(X) / n_j`` over ``sum_jr p_r (k_r / g_r) X_jr``.

    Subject to every job getting at least its isolated throughput: without that floor the ratio
    gives everything to the one job that makes most of a dollar. Among the shares with the best
    ratio the largest are taken. Linear-fractional, solved as one linear program (Charnes and
    Cooper 1962). A pool whose price is unknown is not used; if everything a job needs is free,
    the ratio has no bound and the most throughput from free pools is returned, which is said.
    """

    name = "throughput_per_usd"
    summary = "most normalised throughput per USD, nobody below its isolated share"
    source = "Narayanan et al., OSDI 2020, section 4.2 (cost), with a floor for every job"
    unit = "normalised throughput per USD/h"
    keeps_deadlines = False

    def decide(self, seen: Cluster, cluster: Cluster) -> Allocation:
        """Floors, ratio, then scale."""
        price = usd_per_hour(cluster)
        unknown = ~(np.isfinite(price) & (price >= 0))
        seen, cluster = seen.without_pools(unknown), cluster.without_pools(unknown)
        if not cluster.able.any():
            return nothing(
                cluster, AllocationStatus.EMPTY, "no usable pool has a known price", self.unit
            )
        price = np.where(unknown, 0.0, price)
        least = (seen.isolated_shares() * seen.rate).sum(axis=1) * FLOOR_SHARE
        promises = None
        if self.keeps_deadlines:
            promises = keep_promises(seen, least, space_sharing=self.space_sharing)
        floor = least if promises is None else promises.floor
        gain = per_rate(seen.weight, seen.equal_rate, seen)
        message = note = ""
        shares = self._ratio(seen, floor, price)
        usable_price = price[seen.usable.any(axis=0)]
        if not shares.is_usable and (usable_price == 0).any():
            message = "free throughput has no price: the most that free pools give"
            free = seen.without_pools(price > 0)
            free = replace(free, able=seen.able)
            shares = solve_shares(
                free, goal(gain.size, floor=floor, gain=gain), space_sharing=self.space_sharing
            )
        if not shares.is_usable:
            return isolated_fallback(cluster, shares.status, shares.message, self.unit)
        if promises is not None and promises.share_kept < 1 - 1e-6:
            note = f"isolated shares cut to {promises.share_kept:.0%} so that deadlines are kept"
        final = shares
        if not message:
            final = self._largest(seen, floor, gain, price, shares)
        throughput = self.true_throughput(cluster, final)
        value = None if message else self._value(cluster, final, throughput, price)
        prices: tuple[LimitPrice, ...] = ()
        if value is not None and not self.agnostic:
            prices = self._prices(cluster, shares, floor, price, value, promises is not None)
        return allocation_of(
            cluster,
            final,
            value=value,
            unit=self.unit,
            relaxed=() if promises is None else promises.relaxed(cluster, throughput),
            limit_prices=prices,
            message=message or note,
        )

    def _ratio(self, cluster: Cluster, floor: FloatArray, price: FloatArray) -> Shares:
        gain = per_rate(cluster.weight, cluster.equal_rate, cluster)
        wanted = goal(gain.size, floor=floor, gain=gain, pool_cost=price, ratio=True)
        return solve_shares(
            cluster, replace(wanted, centred=self.agnostic), space_sharing=self.space_sharing
        )

    def _largest(
        self,
        cluster: Cluster,
        floor: FloatArray,
        gain: FloatArray,
        price: FloatArray,
        shares: Shares,
    ) -> Shares:
        """Of the shares with the best ratio, those with most throughput."""
        ratio = self._value(cluster, shares, shares.throughput(), price)
        wanted = goal(
            gain.size, floor=floor, gain=gain * (1 + SCALE_SHARE), pool_cost=price * ratio
        )
        found = solve_shares(
            cluster, replace(wanted, centred=self.agnostic), space_sharing=self.space_sharing
        )
        if not found.is_usable:
            return shares
        reached = self._value(cluster, found, found.throughput(), price)
        return found if reached >= ratio * (1 - 10 * SCALE_SHARE) else shares

    def _value(
        self, cluster: Cluster, shares: Shares, throughput: FloatArray, price: FloatArray
    ) -> float:
        gain = per_rate(cluster.weight, cluster.equal_rate, cluster)
        cost = float(shares.amounts @ price[shares.columns.pool])
        return float(gain @ throughput) / cost if cost > 0 else 0.0

    def _prices(
        self,
        cluster: Cluster,
        shares: Shares,
        floor: FloatArray,
        price: FloatArray,
        value: float,
        deadlines: bool,
    ) -> tuple[LimitPrice, ...]:
        def value_with(moved: Cluster) -> float | None:
            found = self._ratio(moved, floor, price)
            if not found.is_usable:
                return None
            return self._value(moved, found, found.throughput(), price)

        base = self._value(cluster, shares, shares.throughput(), price)
        prices = prices_of_limits(cluster, shares.limit_duals, base, value_with)
        if not deadlines or shares.level_duals is None:
            return prices
        return (*prices, *_deadline_prices(cluster, shares, floor, value))


class ThroughputPerUsdWithDeadlines(ThroughputPerUsd):
    """The same, subject also to ``thr_j >= S_j / D_j``; what cannot be kept is named.

    Deadlines come before isolated shares: these are cut by one common factor where both do not
    fit, and ``message`` says so.
    """

    name = "throughput_per_usd_deadlines"
    summary = "most normalised throughput per USD with every deadline that fits kept"
    source = "Narayanan et al., OSDI 2020, section 4.2 (cost with SLOs), missed ones by weight"
    with_steps = True
    keeps_deadlines = True


def _deadline_prices(
    cluster: Cluster, shares: Shares, floor: FloatArray, value: float
) -> tuple[LimitPrice, ...]:
    """What an hour more for a binding deadline would bring, by the floor's dual."""
    assert shares.level_duals is not None
    duals = np.append(shares.level_duals, 0.0)[shares.groups.group_of_job]
    found = []
    for row, job in enumerate(cluster.problem.jobs):
        if job.deadline_s is None or job.deadline_s <= 0 or not cluster.able[row]:
            continue
        rate = float(cluster.steps[row]) / job.deadline_s
        if abs(rate - floor[row]) > 1e-6 * rate:
            continue
        per_hour = float(duals[row]) * rate / job.deadline_s * 3600.0
        if per_hour * job.deadline_s / 3600.0 > 1e-7 * abs(value):
            found.append(
                LimitPrice(
                    constraint=f"deadline of {job.name}",
                    unit="h",
                    per_unit_down=per_hour,
                    per_unit_up=per_hour,
                    exact=False,
                )
            )
    return tuple(found)


class ThroughputPerPriceLinear(SharePolicy):
    """Maximise ``sum_jr (T_jr / p_r) X_jr``: the form of the 2020 scheduler, as a baseline.

    Raw steps/s of different jobs are added up, so jobs that count many steps get everything and
    others nothing; ``throughput_per_usd`` is the policy to use.
    """

    name = "throughput_per_price_linear"
    summary = "baseline: the 2020 scheduler's linear cost form; starves jobs"
    source = "the original scheduler's cost policy, as published with OSDI 2020"
    unit = "steps/s per USD/h, summed"

    def decide(self, seen: Cluster, cluster: Cluster) -> Allocation:
        """One linear program over rates divided by prices."""
        price = usd_per_hour(cluster)
        unknown = ~(np.isfinite(price) & (price > 0))
        cheap = seen.without_pools(unknown)
        if not cheap.able.any():
            return nothing(
                cluster, AllocationStatus.EMPTY, "no usable pool has a known price", self.unit
            )
        divided = replace(cheap, rate=cheap.rate / np.where(unknown, 1.0, price)[None, :])
        shares = solve_shares(
            divided,
            replace(
                goal(seen.able.size, gain=np.where(divided.able, 1.0, 0.0)), centred=self.agnostic
            ),
            space_sharing=self.space_sharing,
        )
        if not shares.is_usable:
            return isolated_fallback(cluster, shares.status, shares.message, self.unit)
        known = cluster.without_pools(unknown)
        per_price = replace(known, rate=known.rate / np.where(unknown, 1.0, price)[None, :])
        value = float(self.true_throughput(per_price, shares).sum())
        return allocation_of(cluster, shares, value=value, unit=self.unit)
