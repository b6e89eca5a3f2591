"""The baselines' rules, one by one."""

import numpy as np

from cloudgavel.policies.baselines.greedy_spot import GreedySpot
from cloudgavel.policies.baselines.region_failover import RegionFailover
from cloudgavel.policies.baselines.uniform_progress import UniformProgress
from cloudgavel.policies.spot.view import ON_DEMAND, WAIT
from cloudgavel.simulator.spot.replay import replay
from tests.unit.spot.builders import bits, market, terms, view


def test_greedy_waits_until_the_net_and_then_stays_on_on_demand() -> None:
    given = terms(work_ticks=4, deadline_ticks=8, changeover_ticks=1)
    outcome = replay(GreedySpot(given), given, market(bits("00001111")), keep_choices=True)
    assert outcome.choices is not None
    assert outcome.choices[0].tolist() == [WAIT] * 3 + [ON_DEMAND] * 5
    assert not outcome.missed[0]


def test_greedy_takes_the_cheapest_and_keeps_what_it_holds() -> None:
    given = terms(rates=[1.0, 1.0], work_ticks=10, deadline_ticks=30)
    now = view(work_left_s=[1000], available=[[True, True]], held=[0])
    now.spot_usd_per_hour[0] = [0.4, 0.2]
    assert GreedySpot(given).decide(now).tolist() == [0]
    idle = view(work_left_s=[1000], available=[[True, True]], held=[WAIT])
    idle.spot_usd_per_hour[0] = [0.4, 0.2]
    assert GreedySpot(given).decide(idle).tolist() == [1]


def test_uniform_progress_rents_on_demand_only_behind_the_line() -> None:
    given = terms(work_ticks=10, deadline_ticks=20, changeover_ticks=1)
    on_line = view(work_left_s=[500], available=[[False]], held=[WAIT], elapsed_s=1000)
    behind = view(work_left_s=[600], available=[[False]], held=[WAIT], elapsed_s=1000)
    assert UniformProgress(given).decide(on_line).tolist() == [WAIT]
    assert UniformProgress(given).decide(behind).tolist() == [ON_DEMAND]


def test_hysteresis_keeps_on_demand_until_two_changeovers_ahead() -> None:
    given = terms(work_ticks=10, deadline_ticks=20, changeover_ticks=1)
    little = view(work_left_s=[450], available=[[True]], held=[ON_DEMAND], elapsed_s=1000)
    enough = view(work_left_s=[390], available=[[True]], held=[ON_DEMAND], elapsed_s=1000)
    assert UniformProgress(given).decide(little).tolist() == [ON_DEMAND]
    assert UniformProgress(given).decide(enough).tolist() == [0]
    assert UniformProgress(given, hysteresis=False).decide(little).tolist() == [0]


def test_uniform_progress_keeps_a_running_spot_machine_in_the_net() -> None:
    given = terms(work_ticks=10, deadline_ticks=20, changeover_ticks=1)
    held = view(work_left_s=[850], available=[[True]], held=[0], elapsed_s=1000)
    idle = view(work_left_s=[850], available=[[True]], held=[WAIT], elapsed_s=1000)
    assert UniformProgress(given).decide(held).tolist() == [0]
    assert UniformProgress(given).decide(idle).tolist() == [ON_DEMAND]


def test_failover_walks_the_list_from_where_it_was() -> None:
    given = terms(work_ticks=10, deadline_ticks=40, changeover_ticks=1, rates=[1.0] * 3)
    policy = RegionFailover(given)
    answers = []
    held = WAIT
    for there in ([0, 1, 1], [0, 1, 1], [1, 0, 1], [1, 1, 0], [0, 0, 0]):
        now = view(work_left_s=[1000], available=[[bool(x) for x in there]], held=[held])
        held = int(policy.decide(now)[0])
        answers.append(held)
    assert answers == [1, 1, 2, 0, WAIT]


def test_all_keep_the_deadline_without_any_spot() -> None:
    for ticks in (4.0, 4.3):
        given = terms(work_ticks=ticks, deadline_ticks=8.6, changeover_ticks=1.4)
        for policy in (GreedySpot(given), UniformProgress(given), RegionFailover(given)):
            assert not np.any(replay(policy, given, market(bits("000000000"))).missed)
