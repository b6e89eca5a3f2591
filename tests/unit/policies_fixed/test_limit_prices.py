"""Prices of limits of policies without one linear program: set against finite differences."""

from dataclasses import replace

import numpy as np
import pytest

from cloudgavel.policies.allocation import Allocation
from cloudgavel.policies.fixed import water_filling
from cloudgavel.policies.fixed.answer import with_limit
from cloudgavel.policies.fixed.cluster import cluster_of
from cloudgavel.policies.fixed.compose import maximise, minimise
from cloudgavel.policies.fixed.constraints import at_least_isolated, spends_at_most
from cloudgavel.policies.fixed.max_min_fairness import MaxMinFairness
from cloudgavel.policies.fixed.terms import (
    least_normalised_throughput,
    makespan_s,
    proportional_fairness,
    total_normalised_throughput,
    usd_per_hour,
)
from cloudgavel.policies.fixed.water_filling import HierarchicalWaterFilling
from cloudgavel.policies.problem import QuotaGroup
from tests.unit.policies_fixed.building import cluster_problem, random_problem

STEP_SHARE = 1e-3
ENTITIES = ["a", "a/x", "b", "b/y"]


def in_entities(m: int, accelerators: list[int], seed: int):
    return random_problem(
        m,
        accelerators,
        seed=seed,
        steps=[2000.0] * m,
        entities=[ENTITIES[row % 4] for row in range(m)],
    )


def moved(problem, number: int, factor: float):
    """The problem with one quota times ``factor``: normalisers do not depend on quotas."""
    quotas = list(problem.quotas)
    quotas[number] = replace(quotas[number], limit=quotas[number].limit * factor)
    return replace(problem, quotas=tuple(quotas))


def with_quotas(problem, limits: list[float]):
    """Quotas on each pool, tighter than the cluster."""
    width = len(problem.pools)
    quotas = tuple(
        QuotaGroup(
            name=f"q{r}",
            coefficients=tuple(float(each == r) for each in range(width)),
            limit=limit,
        )
        for r, limit in enumerate(limits)
    )
    return replace(problem, quotas=quotas)


def both_sides(policy, problem, number: int, *, larger_is_better: bool) -> tuple[float, float]:
    """What less costs and what more brings, by allocating again."""
    plain = replace(problem, wants_prices=False)
    base, less, more = (
        policy.allocate(moved(plain, number, factor)).objective_value
        for factor in (1.0, 1 - STEP_SHARE, 1 + STEP_SHARE)
    )
    step = STEP_SHARE * problem.quotas[number].limit
    sign = 1.0 if larger_is_better else -1.0
    return sign * (base - less) / step, sign * (more - base) / step


def shown(found: Allocation, number: int) -> tuple[float | None, float | None]:
    for each in found.limit_prices:
        if each.constraint == f"quota q{number}":
            return each.per_unit_down, each.per_unit_up
    return 0.0, 0.0


@pytest.mark.parametrize(
    ("policy", "larger_is_better"),
    [
        (HierarchicalWaterFilling(), True),
        (HierarchicalWaterFilling(entity_weights={"b": 3.0}), True),
        (maximise(least_normalised_throughput()), True),
        (maximise(least_normalised_throughput() - 0.02 * usd_per_hour()), True),
        (maximise(total_normalised_throughput(), subject_to=[at_least_isolated(0.5)]), True),
        (maximise(proportional_fairness()), True),
        (minimise(makespan_s()), False),
    ],
    ids=lambda each: getattr(each, "summary", None),
)
def test_prices_are_the_two_finite_differences(policy, larger_is_better):
    problem = with_quotas(in_entities(12, [3, 4, 3], seed=3), [1.3, 2.1, 1.7])
    found = policy.allocate(problem)
    assert found.limit_prices
    for number, quota in enumerate(problem.quotas):
        down, up = both_sides(policy, problem, number, larger_is_better=larger_is_better)
        noise = 2e-3 * abs(found.objective_value) / quota.limit
        told = shown(found, number)
        assert told[0] == pytest.approx(down, rel=0.02, abs=noise)
        assert told[1] == pytest.approx(up, rel=0.02, abs=noise)


def test_with_many_jobs_the_dual_lies_between_the_finite_differences(monkeypatch):
    problem = random_problem(24, [2, 2, 2], seed=3, entities=["a"] * 24)
    policy = HierarchicalWaterFilling()
    exact = policy.allocate(problem).limit_prices
    monkeypatch.setattr(water_filling, "EXACT_PRICES_UP_TO", 0)
    monkeypatch.setattr("cloudgavel.policies.fixed.answer.EXACT_PRICES_UP_TO", 0)
    by_dual = policy.allocate(problem).limit_prices
    assert by_dual and not any(each.exact for each in by_dual)
    by_name = {each.constraint: each for each in exact}
    for each in by_dual:
        sides = by_name[each.constraint]
        assert sides.per_unit_up * 0.99 <= each.per_unit_up <= sides.per_unit_down * 1.01


def test_no_prices_by_dual_where_the_least_served_stops_later(monkeypatch):
    """a stops at its best rate in the first rise; b, of less weight, goes on and stays lower."""
    problem = cluster_problem(
        [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [1, 1], entities=["a", "b", "b"]
    )
    policy = HierarchicalWaterFilling(entity_weights={"a": 10.0})
    found = policy.allocate(problem)
    assert {each.constraint for each in found.limit_prices} == {"accelerators r1"}
    monkeypatch.setattr(water_filling, "EXACT_PRICES_UP_TO", 0)
    assert policy.allocate(problem).limit_prices == ()


def test_one_level_of_water_filling_and_max_min_agree():
    problem = random_problem(10, [2, 1, 2], seed=5)
    cluster = cluster_of(problem)
    policy, fair = HierarchicalWaterFilling(), MaxMinFairness()
    mine = {each.constraint: each for each in policy.allocate(problem).limit_prices}
    others = {each.constraint: each for each in fair.allocate(problem).limit_prices}
    assert mine.keys() == others.keys()
    for name, each in mine.items():
        assert each.per_unit_up == pytest.approx(others[name].per_unit_up, rel=1e-3)
    number = next(n for n, limit in enumerate(cluster.limits) if limit.name in mine)
    larger = with_limit(cluster, number, cluster.limits[number].size * 1.001)
    assert policy.least(larger, policy.fill(larger).shares.throughput()) >= (
        policy.allocate(problem).objective_value * (1 - 1e-7)
    )


def test_an_added_constraint_has_no_price_but_the_limits_have():
    problem = cluster_problem([[1.0], [1.0]], [1], prices=[2.0])
    policy = maximise(total_normalised_throughput(), subject_to=[spends_at_most(usd_per_hour=1.0)])
    names = {each.constraint for each in policy.allocate(problem).limit_prices}
    assert "accelerators r0" not in names
    assert np.isclose(policy.allocate(problem).shares.sum(), 0.5)
    free = replace(problem, wants_prices=False)
    assert policy.allocate(free).limit_prices == ()
