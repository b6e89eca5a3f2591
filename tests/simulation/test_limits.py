"""A job's own ``max_cost`` is as hard as the budget, and a job that used it up is over."""

import pytest

from cloudgavel.policies.registry import policy_named
from cloudgavel.pricing.market import SeededMarket
from cloudgavel.runtime.account import run_document
from cloudgavel.runtime.assemble import bind_policy
from cloudgavel.simulator.virtual_run import virtual_run
from cloudgavel.store import events as ev
from tests.unit.runtime.scripted import START_S, a_job, a_run, an_offer

OFFERS = [
    an_offer("z1", spot=True, price=0.9, rate_per_hour=1.0),
    an_offer("z2", price=3.06),
]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("limit_usd", [0.01, 0.06, 0.2, 0.5, 5.0])
def test_no_job_ever_costs_more_than_its_max_cost_and_the_run_ends(
    limit_usd: float, seed: int
) -> None:
    run = a_run(
        a_job("a", steps=7200, max_cost_usd=limit_usd),
        a_job("b", steps=3600, max_cost_usd=limit_usd, deadline_s=7200.0),
        a_job("free", steps=1800),
    )
    done = virtual_run(
        run,
        offers=OFFERS,
        market=SeededMarket(seed=seed),
        decide=bind_policy(policy_named("min_cost")),
        now_s=START_S,
        budget_usd=100.0,
        best_effort=True,
    )
    document = run_document(done.state)
    by_name = {job.name: job for job in document.jobs}
    assert by_name["a"].spent_usd <= limit_usd and by_name["b"].spent_usd <= limit_usd
    assert by_name["free"].state == "FINISHED"
    assert document.state == ("finished" if limit_usd == 5.0 else "failed")


@pytest.mark.parametrize("seed", [1, 7])
@pytest.mark.parametrize("budget_usd", [0.4, 1.0, 1.7])
def test_the_end_of_the_money_ends_the_run_without_starts_in_vain(
    budget_usd: float, seed: int
) -> None:
    run = a_run(
        a_job("a", steps=7200, deadline_s=10 * 3600.0),
        a_job("b", steps=3600),
        a_job("c", steps=3600, after=("a",)),
    )
    done = virtual_run(
        run,
        offers=OFFERS,
        market=SeededMarket(seed=seed, origin_s=START_S),
        decide=bind_policy(policy_named("min_cost")),
        now_s=START_S,
        budget_usd=budget_usd,
        best_effort=True,
    )
    assert done.state.ended == "budget_exhausted"
    assert done.state.spent_usd <= budget_usd
    # Whoever was stopped for want of money had got somewhere since it was started.
    reached: dict[str, int] = {}
    for event in done.events:
        if isinstance(event, ev.AttemptStopped):
            assert event.interrupted or event.step > reached.get(event.job, 0)
            reached[event.job] = event.step
