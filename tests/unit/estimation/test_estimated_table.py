import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.estimation.estimated_table import EstimatedTable, estimated_table

Alone = dict[tuple[str, bool], dict[tuple[str, int], float]]
Beside = dict[str, dict[tuple[tuple[str, int], tuple[str, int]], float]]
TYPES = ("v100", "p100", "k80")


def a_truth(seed: int = 0, *, kinds: int = 8, orders: float = 0.0) -> tuple[Alone, Beside]:
    """Rates of a few hidden causes, gangs of 1 and 2; some do not run on the K80."""
    dice = np.random.default_rng(seed)
    alone: Alone = {(kind, spread): {} for kind in TYPES for spread in (False, True)}
    beside: Beside = {kind: {} for kind in TYPES}
    for number in range(kinds):
        unit, appetite = 10.0 ** dice.uniform(-orders, orders), dice.uniform(0.3, 0.7)
        for accelerator, speed in zip(TYPES, (90.0, 30.0, 8.0), strict=True):
            for gang in (1, 2):
                rate = unit * speed**appetite * gang**0.85 * math.exp(dice.normal(0, 0.05))
                if accelerator == "k80" and number == 0:
                    rate = 0.0
                alone[accelerator, False][f"kind {number}", gang] = rate
                alone[accelerator, True][f"kind {number}", gang] = rate * (
                    1.0 if gang == 1 else 0.8
                )
    need = dice.uniform(0.2, 0.6, kinds)
    for accelerator in TYPES:
        own = alone[accelerator, False]
        for a in range(kinds):
            for b in range(kinds):
                one, other = (f"kind {a}", 1), (f"kind {b}", 1)
                both = own[one] > 0 and own[other] > 0
                share = math.exp(-need[a] - need[b]) if both else 0.0
                beside[accelerator][one, other] = own[one] * share
    return alone, beside


def hidden(
    seed: int, share: float, truth: tuple[Alone, Beside] | None = None
) -> tuple[EstimatedTable, Alone, Beside]:
    alone, beside = truth or a_truth(seed)
    dice = np.random.default_rng(seed)
    return estimated_table(alone, beside, measured_share=share, dice=dice), alone, beside


def entries(table: Mapping[tuple[str, bool], Mapping[tuple[str, int], float]]):
    return {(where, kind): rate for where, cells in table.items() for kind, rate in cells.items()}


def errors(table: EstimatedTable, alone: Alone) -> list[float]:
    seen = entries(table.alone)
    return [abs(math.log(seen[key] / rate)) for key, rate in entries(alone).items() if rate > 0]


def measured_share(table: EstimatedTable) -> float:
    return table.rates.known.sum() / np.isfinite(table.rates.truth).sum()


def test_everything_measured_is_the_truth():
    table, alone, beside = hidden(0, 1.0)
    assert table.alone == alone
    assert measured_share(table) == 1
    for accelerator, cells in beside.items():
        assert table.beside[accelerator] == pytest.approx(cells, rel=1e-12)
    assert (table.rates.sd[np.isfinite(table.rates.truth)] == 0).all()


def test_keys_are_those_of_the_truth_and_what_does_not_run_stays_zero():
    table, alone, beside = hidden(1, 0.2)
    assert entries(table.alone).keys() == entries(alone).keys()
    assert {key for key, rate in entries(table.alone).items() if rate == 0} == {
        key for key, rate in entries(alone).items() if rate == 0
    }
    for accelerator, cells in beside.items():
        assert table.beside[accelerator].keys() == cells.keys()
        assert {pair for pair, rate in table.beside[accelerator].items() if rate == 0} == {
            pair for pair, rate in cells.items() if rate == 0
        }


def test_one_entry_of_each_kind_is_measured_at_the_least():
    table, alone, _ = hidden(2, 0.0)
    truth = entries(alone)
    exact = {key for key, rate in entries(table.alone).items() if rate == truth[key] > 0}
    assert {kind for _, (kind, _) in exact} == {f"kind {number}" for number in range(8)}
    assert 0 < measured_share(table) < 0.25


def test_more_measured_is_the_same_and_more_and_errs_less():
    worst = []
    for share in (0.0, 0.3, 0.6, 0.9):
        mean = [float(np.mean(errors(*hidden(seed, share)[:2]))) for seed in range(6)]
        worst.append(float(np.mean(mean)))
    assert worst == sorted(worst, reverse=True)
    few, _, _ = hidden(3, 0.3)
    many, _, _ = hidden(3, 0.6)
    assert (few.rates.known <= many.rates.known).all()


def test_running_measures_and_the_others_learn():
    table, alone, _ = hidden(4, 0.0)
    row, column = np.argwhere(~table.rates.known & np.isfinite(table.rates.truth))[0].tolist()
    spot = table.columns[column]
    kind = (table.names[row], spot.count)
    after = table.after_running([(spot.accelerator, spot.spread, kind)])
    assert (
        after.alone[spot.accelerator, spot.spread][kind]
        == (alone[spot.accelerator, spot.spread][kind])
    )
    assert (after.rates.sd <= table.rates.sd + 1e-9).all()
    assert (after.rates.mean[row] != table.rates.mean[row]).sum() > 1
    assert table.rates.known.sum() + 1 == after.rates.known.sum()


def test_running_everything_ends_in_the_truth():
    table, alone, beside = hidden(5, 0.1)
    for (accelerator, spread), cells in alone.items():
        for kind in cells:
            table = table.after_running([(accelerator, spread, kind)])
    pairs = [(name, one, other) for name, cells in beside.items() for one, other in cells]
    table = table.after_running(pairs=pairs)
    assert table.alone == alone
    for accelerator, cells in beside.items():
        assert table.beside[accelerator] == pytest.approx(cells, rel=1e-12)


def test_nothing_new_is_the_same_table():
    table, _, _ = hidden(6, 1.0)
    assert table.after_running([("v100", False, ("kind 1", 1))]) is table
    assert table.after_running([("abacus", False, ("kind 1", 1))]) is table
    assert table.after_running([("k80", False, ("kind 0", 1))]) is table
    assert table.after_running(pairs=[("v100", ("kind 1", 1), ("kind 2", 1))]) is table
    assert table.after_running(pairs=[("v100", ("kind 1", 1), ("nobody", 2))]) is table


def test_a_pair_is_measured_for_both_of_its_jobs():
    table, _, beside = hidden(7, 0.0)
    one, other = ("kind 2", 1), ("kind 3", 1)
    after = table.after_running(pairs=[("p100", one, other)])
    for mine, theirs in ((one, other), (other, one)):
        seen = after.beside["p100"][mine, theirs] / after.alone["p100", False][mine]
        truth = beside["p100"][mine, theirs] / hidden(7, 1.0)[0].alone["p100", False][mine]
        assert seen == pytest.approx(truth)


def test_pairs_retain_at_most_their_rate_alone():
    table, _, _ = hidden(8, 0.1)
    for accelerator, cells in table.beside.items():
        for (kind, _), rate in cells.items():
            assert rate <= table.alone[accelerator, False].get(kind, 0.0)


def test_a_share_outside_its_range_is_refused():
    alone, beside = a_truth()
    for share in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="measured share"):
            estimated_table(alone, beside, measured_share=share, dice=np.random.default_rng(0))


def test_an_empty_table_stays_empty():
    table = estimated_table({}, {}, measured_share=0.3, dice=np.random.default_rng(0))
    assert table.alone == {} and table.beside == {}


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.floats(0, 1))
def test_nine_orders_of_magnitude_give_finite_positive_rates(seed, share):
    alone, beside = a_truth(seed, kinds=5, orders=4.5)
    table, _, _ = hidden(seed, share, (alone, beside))
    for key, rate in entries(alone).items():
        seen = entries(table.alone)[key]
        assert math.isfinite(seen)
        assert (seen > 0) == (rate > 0)
    for cells in table.beside.values():
        assert all(math.isfinite(rate) and rate >= 0 for rate in cells.values())
