"""The example of docs/concepts/min-cost.md is what the policies answer."""

import re
from pathlib import Path

import pytest

from cloudgavel.policies.min_cost import MinCost
from cloudgavel.policies.on_demand_only import OnDemandOnly
from tests.unit.policies.problems import HOUR_S, a_job, a_pool, a_problem, a_spot_pool

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "min-cost.md"


def test_the_worked_example_is_recomputed() -> None:
    example = PAGE.read_text().split("### Example")[1].split("## ")[0]
    cost, bound, on_demand, per_hour = map(float, re.findall(r"\*\*([\d.]+) USD", example))
    problem = a_problem(
        [a_job(deadline_s=12 * HOUR_S)], [a_pool(), a_spot_pool(availability_share=0.5)]
    )
    answer = MinCost().allocate(problem)
    assert answer.cost_usd == pytest.approx(cost, abs=0.005)
    assert answer.lower_bound_usd == pytest.approx(bound, abs=0.005)
    assert OnDemandOnly().allocate(problem).cost_usd == pytest.approx(on_demand, abs=0.005)
    (price,) = answer.shadow_prices
    assert price.constraint == "deadline of train"
    assert price.usd_per_unit_down == pytest.approx(per_hour, abs=0.005)
    assert price.usd_per_unit_up == pytest.approx(per_hour, abs=0.005)
