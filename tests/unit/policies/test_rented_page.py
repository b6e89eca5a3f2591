"""The example of docs/concepts/policies.md on a rented fleet is what the policies answer."""

import re
from pathlib import Path

import pytest

from cloudgavel.policies.base import Policy
from cloudgavel.policies.min_makespan import MinMakespan
from cloudgavel.policies.rented_fairness import RentedFinishTimeFairness, RentedMaxMinFairness
from tests.unit.policies.problems import HOUR_S, a_job, a_pool, a_problem

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "policies.md"
ROW = re.compile(r"\| `(\w+)` \| ([\d.]+) h, ([\d.]+) h \| ([\d.]+)( h)? \| ([\d.]+)( h)? \|")


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("makespan", MinMakespan()),
        ("max_min_fairness", RentedMaxMinFairness()),
        ("finish_time_fairness", RentedFinishTimeFairness()),
    ],
)
def test_the_worked_example_is_recomputed(name: str, policy: Policy) -> None:
    example = PAGE.read_text().split("### Example")[1].split("### The frontier")[0]
    rows = {row[0]: row[1:] for row in ROW.findall(example)}
    a, b, objective, hours, worth, _ = rows[name]
    unit = HOUR_S if hours else 1.0
    problem = a_problem(
        [a_job("a"), a_job("b", weight=2.0)],
        [a_pool("slow"), a_pool("fast", price_usd_per_hour=4.0)],
        [[1.0, 2.0]] * 2,
        budget_left_usd=28.0,
    )
    answer = policy.allocate(problem)
    assert answer.due_s is not None and answer.objective_value is not None
    assert answer.due_s / HOUR_S == pytest.approx([float(a), float(b)], abs=0.05)
    assert answer.objective_value / unit == pytest.approx(float(objective), abs=0.0005)
    (price,) = answer.limit_prices
    assert price.constraint == "budget" and price.per_unit_up is not None
    assert price.per_unit_up / unit == pytest.approx(float(worth), abs=0.0005)
    assert answer.cost_usd == pytest.approx(28.0, rel=1e-5)
