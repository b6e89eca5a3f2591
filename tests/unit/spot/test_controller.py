"""The controllers: what they answer and what they say about it."""

import doctest

import numpy as np
import pytest

import cloudgavel.policies.spot.controller as controller_module
from cloudgavel.policies.spot.controller import SpotController, SpotUnderDeadline
from cloudgavel.policies.spot.regimes import RegimeFamily
from cloudgavel.policies.spot.tables import TableKey, TableShelf
from cloudgavel.policies.spot.view import ON_DEMAND, SpotTerms, SpotView
from cloudgavel.simulator.spot.replay import replay
from cloudgavel.simulator.spot.table_files import TableFiles
from tests.unit.spot.builders import bits, market, markov_market, terms, view

FAMILY = RegimeFamily(
    stay_scales_s=(600.0, 6000.0), away_scales_s=(600.0, 6000.0), age_edges_s=(3000.0,)
)
SHELF = TableShelf()


def policy(given: SpotTerms) -> SpotUnderDeadline:
    return SpotUnderDeadline(given, family=FAMILY, shelf=SHELF)


def test_the_documented_example_holds() -> None:
    assert doctest.testmod(controller_module).failed == 0


def test_one_job_alone_answers_as_in_a_batch() -> None:
    given = terms(work_ticks=20, deadline_ticks=30, tick_s=600.0, jobs=1)
    there = markov_market(
        np.random.default_rng(5), jobs=1, ticks=40, stay_chance=0.8, away_chance=0.8
    )
    batch = replay(policy(given), given, there, keep_choices=True)
    alone = SpotController(
        work_s=12_000, deadline_s=18_000, tick_s=600, changeover_s=600, family=FAMILY, shelf=SHELF
    )

    class OneByOne:
        def decide(self, now: SpotView) -> np.ndarray:
            answer = alone.step(
                elapsed_s=now.elapsed_s,
                work_left_s=float(now.work_left_s[0]),
                available=now.available[0].tolist(),
                spot_usd_per_hour=now.spot_usd_per_hour[0].tolist(),
                on_demand_usd_per_hour=1.0,
            )
            return np.array([{"wait": -2, "on_demand": -1}.get(answer.hold, answer.offer)])

    outcome = replay(OneByOne(), given, there, keep_choices=True)
    assert outcome.choices is not None
    assert batch.choices is not None
    assert outcome.choices.tolist() == batch.choices.tolist()
    assert outcome.cost_usd[0] == pytest.approx(batch.cost_usd[0])


def test_spot_dearer_than_on_demand_is_not_rented() -> None:
    given = terms(work_ticks=20, deadline_ticks=60, tick_s=600.0)
    there = market(bits("1" * 60), spot_usd=1.2)
    outcome = replay(policy(given), given, there)
    assert outcome.spot_s[0] == 0


def test_lasting_spot_is_all_that_is_rented() -> None:
    given = terms(work_ticks=20, deadline_ticks=40, tick_s=600.0)
    outcome = replay(policy(given), given, market(bits("1" * 40)))
    assert outcome.on_demand_s[0] == 0
    assert outcome.changeovers[0] == 1


def test_a_shadow_price_turns_the_choice_and_is_not_paid() -> None:
    given = terms(work_ticks=20, deadline_ticks=60, tick_s=600.0)
    plain = view(work_left_s=[12_000], available=[[True]], held=[-2])
    dear = SpotView(
        **{name: getattr(plain, name) for name in SpotView.__slots__ if "extra" not in name},
        extra_spot_usd_per_hour=np.array([[0.9]]),
    )
    assert policy(given).decide(plain).tolist() == [0]
    assert policy(given).decide(dear).tolist() != [0]


def test_the_cheaper_of_two_like_offers_is_taken_and_a_price_dip_moves_nobody_for_nothing() -> None:
    given = terms(work_ticks=40, deadline_ticks=80, tick_s=600.0, rates=[1.0, 1.0])
    fresh = view(work_left_s=[24_000], available=[[True, True]], held=[-2])
    fresh.spot_usd_per_hour[0] = [0.31, 0.3]
    assert policy(given).decide(fresh).tolist() == [1]
    held = view(work_left_s=[24_000], available=[[True, True]], held=[0])
    held.spot_usd_per_hour[0] = [0.31, 0.3]
    assert policy(given).decide(held).tolist() == [0]


def test_opinion_says_what_is_forced_and_until_when_there_is_time() -> None:
    given = terms(work_ticks=10, deadline_ticks=14, tick_s=600.0)
    early = policy(given)
    early.decide(view(work_left_s=[6000], available=[[False]], held=[-2]))
    assert early.opinion is not None
    assert not early.opinion.forced[0]
    # Three ticks may pass, then the fourth must begin on on-demand.
    assert early.opinion.latest_on_demand_start_s[0] == pytest.approx(3 * 600)
    late = policy(given)
    answer = late.decide(view(work_left_s=[6000], available=[[True]], held=[-2], elapsed_s=1800))
    assert answer.tolist() == [ON_DEMAND]
    assert late.opinion is not None
    assert late.opinion.forced[0]
    assert np.isinf(late.opinion.wait_usd[0])


def test_learning_lowers_regret_in_later_jobs_of_a_stationary_market() -> None:
    """The same controller-side belief, fed longer, decides better: one long watch, then the job."""
    dice = np.random.default_rng(9)
    stay, away, watch = 0.6, 0.6, 60
    jobs = 60
    given = terms(work_ticks=30, deadline_ticks=37, tick_s=600.0, jobs=jobs)
    whole = markov_market(dice, jobs=jobs, ticks=watch + 40, stay_chance=stay, away_chance=away)
    rest = market(whole.available[:, watch:, 0])
    family = RegimeFamily()
    shelf = TableShelf()
    cold = SpotUnderDeadline(given, family=family, shelf=shelf)
    warm = SpotUnderDeadline(given, family=family, shelf=shelf)
    for step in range(watch):
        warm.watch(whole.available[:, step])
    assert replay(warm, given, rest).cost_usd.mean() < replay(cold, given, rest).cost_usd.mean()


def test_after_a_regime_change_regret_recovers() -> None:
    """What was learnt in a calm market hurts right after it has turned, and soon no more."""
    dice = np.random.default_rng(4)
    jobs = 60
    given = terms(work_ticks=30, deadline_ticks=40, tick_s=600.0, jobs=jobs)
    calm = markov_market(dice, jobs=jobs, ticks=80, stay_chance=0.995, away_chance=0.3)
    storm = markov_market(dice, jobs=jobs, ticks=140, stay_chance=0.5, away_chance=0.8)
    rest = market(storm.available[:, 90:, 0])
    shelf = TableShelf()

    def mean_usd(calm_ticks: int, storm_ticks: int) -> float:
        learner = SpotUnderDeadline(given, family=RegimeFamily(), shelf=shelf)
        for step in range(80 - calm_ticks, 80):
            learner.watch(calm.available[:, step])
        for step in range(90 - storm_ticks, 90):
            learner.watch(storm.available[:, step])
        return float(replay(learner, given, rest).cost_usd.mean())

    misled, recovered, never_misled = mean_usd(80, 0), mean_usd(80, 90), mean_usd(0, 90)
    assert misled > recovered
    assert recovered == pytest.approx(never_misled, rel=0.005)


def test_a_batch_of_jobs_in_many_zones_answers_as_each_alone() -> None:
    """What one job sees of its zones does not leak into another's decision."""
    given = terms(work_ticks=20, deadline_ticks=28, tick_s=600.0, jobs=3, rates=[1.0] * 3)
    there = markov_market(
        np.random.default_rng(6), jobs=3, ticks=30, stay_chance=0.7, away_chance=0.7, offers=3
    )
    together = replay(policy(given), given, there, keep_choices=True)
    assert together.choices is not None
    for row in range(3):
        one = terms(work_ticks=20, deadline_ticks=28, tick_s=600.0, jobs=1, rates=[1.0] * 3)
        alone = replay(policy(one), one, market(there.available[[row]]), keep_choices=True)
        assert alone.choices is not None
        steps = alone.choices.shape[1]
        assert alone.choices[0].tolist() == together.choices[row, :steps].tolist()


def test_unsaved_work_makes_a_flapping_offer_worth_less() -> None:
    now = view(work_left_s=[12_000], available=[[True]], held=[0])
    answers = []
    for lost_work_s in (0.0, 1200.0):
        given = terms(work_ticks=20, deadline_ticks=60, tick_s=600.0, lost_work_s=lost_work_s)
        told = policy(given)
        told.decide(now)
        assert told.opinion is not None
        answers.append(float(told.opinion.spot_usd[0, 0]))
    assert answers[1] > answers[0] * 1.01


def test_tables_outlive_the_process_on_disk(tmp_path) -> None:
    key = TableKey(
        family=FAMILY, price_ratio=0.3, changeover_steps=1.0, step_s=600.0, steps=9, slack_steps=9.0
    )
    built = TableShelf(store=TableFiles(tmp_path)).table(key)
    read = TableFiles(tmp_path).load(key)
    assert read is not None
    assert np.array_equal(read.values, built.values)
    for path in tmp_path.iterdir():
        path.write_bytes(b"torn")
    assert TableFiles(tmp_path).load(key) is None
