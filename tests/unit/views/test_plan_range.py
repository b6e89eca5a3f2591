"""The cost range says "90%" only of as many markets as can tell."""

from dataclasses import replace

import pytest

from cloudgavel.views.plan import plan_text
from tests.golden.documents import a_plan


@pytest.mark.parametrize(
    ("markets", "said"),
    [(4, "$7.00-$9.00 in 4 simulated markets"), (19, "$7.00-$9.00 in 90% of 19 simulated markets")],
)
def test_the_range_is_told_with_the_number_of_markets(markets, said):
    plan = a_plan(feasible=True)
    ranged = replace(plan, markets=markets, cost=replace(plan.cost, p05_usd=7.0, p95_usd=9.0))
    text = plan_text(ranged, width=140, next_steps=False, file="jobs.yaml")
    assert f", {said};" in " ".join(text.split())
