"""``explain``: what a plan says of one job, and its text."""

import pytest

from cloudgavel.documents.explain import ExplainDocument
from cloudgavel.runtime.explain import explain_document
from cloudgavel.simulator.explain import explain_plan
from cloudgavel.store.events import JobCancelled
from cloudgavel.store.fold import apply
from cloudgavel.views.explain import explain_text
from tests.unit.runtime.scripted import START_S, Stage, a_job, a_run, an_offer

OFFERS = (an_offer(price=3.0), an_offer(spot=True, price=1.0, rate_per_hour=0.1))


def explained(**changes: object) -> ExplainDocument:
    run = a_run(a_job("a", steps=7200, **changes))
    return explain_plan(run, "a", offers=OFFERS, budget_usd=None, now_s=START_S)


def test_a_job_with_a_deadline_is_weighed() -> None:
    found = explained(deadline_s=4 * 3600.0)
    assert [each.hold for each in found.choices] == ["wait", "spot", "on_demand"]
    assert [each.hold for each in found.choices if each.chosen] == ["spot"]
    wait, _, on_demand = (each.expected_cost_usd for each in found.choices)
    assert wait is not None and on_demand is not None and wait < on_demand
    assert found.promise == "covered" and found.reserve_usd is not None
    assert found.latest_on_demand_s is not None and 0 < found.latest_on_demand_s < 4 * 3600
    assert found.loss_rate_per_hour == pytest.approx(0.1, rel=0.1)
    assert found.save_every_s is not None and found.save_every_s < 1800


def test_a_job_without_a_deadline_is_not() -> None:
    found = explained()
    assert (found.choices, found.promise, found.latest_on_demand_s) == ((), "none", None)
    assert found.on == "aws p3.2xlarge spot"


def test_a_job_that_is_over_says_how_it_ended_and_where_it_was_last() -> None:
    stage = Stage(a_run(a_job("a", deadline_s=4 * 3600.0)), OFFERS[:1])
    stage.run_to_end()
    found = explain_document(stage.loop.state, "a")
    assert (found.state, found.promise, found.on, found.reason) == ("FINISHED", "kept", None, None)
    assert (found.last_on, found.last_reason) == ("aws p3.2xlarge on-demand", "script")
    assert found.ended_s is not None and found.ended_s == found.expected_finish_s
    assert (found.save_every_s, found.choices) == (100.0, ())
    text = explain_text(found, width=80)
    assert text.startswith("a: finished ") and "until a place is chosen" not in text


def test_a_job_that_never_ran_is_explained_when_it_is_over() -> None:
    state = apply(
        Stage(a_run(), OFFERS[:1]).loop.state,
        JobCancelled(at_s=START_S + 60.0, job="a", reason="told to"),
    )
    found = explain_document(state, "a")
    assert (found.state, found.reason, found.last_on) == ("CANCELLED", "told to", None)
    text = explain_text(found, width=80)
    assert text.splitlines()[0] == "a: cancelled 1m after the start"
    assert "told to" in text and "saves" not in text


@pytest.mark.parametrize("width", [100, 80])
def test_the_text_says_what_matters_within_the_width(width: int) -> None:
    text = explain_text(explained(deadline_s=4 * 3600.0), width=width)
    for words in ("planned", "COST TO THE END", "safety net", "cap on risk", "kept for on-demand"):
        assert words in text
    assert max(map(len, text.splitlines())) <= width
