"""Accounting of the replay, told by scripted policies."""

import numpy as np
import pytest

from cloudgavel.errors import BugError
from cloudgavel.policies.baselines.on_demand_only import OnDemandOnly
from cloudgavel.policies.spot.view import ON_DEMAND, WAIT, SpotView
from cloudgavel.simulator.spot.replay import on_demand_only_usd, replay
from tests.unit.spot.builders import bits, market, terms


class Script:
    """Answers in order, then on-demand."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.views: list[SpotView] = []

    def decide(self, view: SpotView) -> np.ndarray:
        self.views.append(view)
        return np.array([self.answers.pop(0) if self.answers else ON_DEMAND])


def test_on_demand_pays_its_changeover_and_work_by_the_second() -> None:
    given = terms(work_ticks=3.5, deadline_ticks=9, changeover_ticks=0.25)
    there = market(bits("000000000"))
    outcome = replay(OnDemandOnly(given), given, there)
    assert outcome.cost_usd[0] == pytest.approx(3.75 * 100 / 3600)
    assert outcome.finished_s[0] == pytest.approx(375)
    assert outcome.changeovers[0] == 1
    assert on_demand_only_usd(given, there)[0] == pytest.approx(350 / 3600)


def test_a_lost_spot_machine_pays_a_new_changeover() -> None:
    given = terms(work_ticks=3, deadline_ticks=20, changeover_ticks=0.5)
    there = market(bits("11011111"))
    # 0.5 + 1 done, lost, waited, 0.5 + 1 done.
    outcome = replay(Script(0, 0, WAIT, 0, 0), given, there)
    assert outcome.cost_usd[0] == pytest.approx(4 * 100 * 0.3 / 3600)
    assert outcome.finished_s[0] == pytest.approx(500)
    assert outcome.changeovers[0] == 2


def test_a_start_during_a_pending_changeover_replaces_it() -> None:
    given = terms(work_ticks=1, deadline_ticks=30, changeover_ticks=2.5)
    script = Script(0, ON_DEMAND)
    outcome = replay(script, given, market(bits("1000000")))
    # One tick of spot for nothing, then 2.5 ticks of change-over and one of work.
    assert outcome.finished_s[0] == pytest.approx(450)
    assert outcome.cost_usd[0] == pytest.approx((100 * 0.3 + 350) / 3600)
    assert [float(view.pending_s[0]) for view in script.views[2:4]] == [150.0, 50.0]


def test_a_machine_left_and_taken_again_starts_anew() -> None:
    given = terms(work_ticks=2, deadline_ticks=30, changeover_ticks=1)
    outcome = replay(Script(0, 0, WAIT, 0, 0), given, market(bits("1111111")))
    assert outcome.changeovers[0] == 2
    assert outcome.finished_s[0] == pytest.approx(500)


def test_faster_offers_do_more_work() -> None:
    given = terms(work_ticks=4, deadline_ticks=30, changeover_ticks=0, rates=[2.0])
    outcome = replay(Script(0, 0), given, market(bits("11")))
    assert outcome.finished_s[0] == pytest.approx(200)


def test_a_late_job_is_a_miss() -> None:
    given = terms(work_ticks=4, deadline_ticks=6, changeover_ticks=1)
    outcome = replay(Script(WAIT, WAIT), given, market(bits("0000000")))
    assert outcome.missed.tolist() == [True]
    assert outcome.finished_s[0] == pytest.approx(700)


def test_an_offer_that_is_not_there_is_the_policy_s_bug() -> None:
    given = terms()
    with pytest.raises(BugError, match="not available"):
        replay(Script(0), given, market(bits("0000")))


def test_a_policy_that_never_ends_is_a_bug() -> None:
    class Idle:
        def decide(self, view: SpotView) -> np.ndarray:
            return np.array([WAIT])

    with pytest.raises(BugError, match="never finished"):
        replay(Idle(), terms(), market(bits("0000")))
