"""Money adds up to the micro-dollar, whatever is asked of it and in whatever slices."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudgavel.runtime.journal import Journal
from cloudgavel.store import events as ev
from cloudgavel.store.ledger import (
    bill_micro_usd,
    disk_micro_usd,
    imbalance_micro_usd,
    split,
)
from cloudgavel.store.log import MemoryLog
from tests.unit.runtime.scripted import START_S, a_job, a_run, an_offer


def a_journal(
    *,
    price: float = 3.6,
    accelerators: int = 1,
    spot: bool = False,
    provider: str = "aws",
    disk: float = 0.0,
    log: MemoryLog | None = None,
) -> Journal:
    journal = Journal(log or MemoryLog())
    offer = replace(
        an_offer(price=price, accelerators=accelerators, spot=spot),
        provider=provider,
        disk_usd_per_hour=disk,
    )
    journal.record(
        ev.RunCreated(
            at_s=START_S, run_id="r", spec=a_run(a_job("a"), a_job("b")), budget_usd=None
        ),
        ev.LaunchIntended(
            at_s=START_S, token="t", offers=(offer,), for_jobs=("a",), reason="r", round_number=1
        ),
    )
    return journal


def rent(journal: Journal) -> None:
    offer = journal.state.intents["t"].offers[0]
    assert offer.price_usd_per_hour is not None
    journal.record(
        ev.LaunchSucceeded(
            at_s=START_S, token="t", instance_id="i", offer=offer, launched_at_s=START_S,
            price_usd_per_hour=offer.price_usd_per_hour,
        ),
        ev.InstanceReady(at_s=START_S + 90, instance_id="i"),
    )  # fmt: skip


def start(journal: Journal, job: str, at_s: float, indices: tuple[int, ...] = (0,)) -> None:
    journal.record(
        ev.AttemptStarted(
            at_s=START_S + at_s, job=job, attempt=1, instance_ids=("i",), request_label="V100",
            accelerator_indices=indices, save_every_s=60.0, reason="r",
        )
    )  # fmt: skip


def end(
    journal: Journal,
    at_s: float,
    *,
    seen_at_s: float | None = None,
    reason: str = "requested",
    estimated: bool = False,
) -> None:
    journal.record(
        ev.InstanceEnded(
            at_s=START_S + (seen_at_s if seen_at_s is not None else at_s),
            instance_id="i", ended_at_s=START_S + at_s, reason=reason, estimated=estimated,
        )
    )  # fmt: skip


def test_boot_and_idle_are_nobodys_and_the_rest_is_the_jobs() -> None:
    journal = a_journal()
    rent(journal)
    start(journal, "a", 100)
    journal.record(ev.JobFinished(at_s=START_S + 400, job="a", step=1000))
    end(journal, 500)
    state = journal.state
    assert state.jobs["a"].spent_micro_usd == 300_000
    assert state.unattributed_micro_usd == 200_000
    assert state.spent_micro_usd == 500_000
    assert imbalance_micro_usd(state) == 0


def test_a_shared_instance_is_split_by_accelerators_held() -> None:
    journal = a_journal(accelerators=4)
    rent(journal)
    start(journal, "a", 100, (0, 1, 2))
    start(journal, "b", 100, (3,))
    journal.accrue_all(START_S + 500)
    assert journal.state.jobs["a"].spent_micro_usd == 300_000
    assert journal.state.jobs["b"].spent_micro_usd == 100_000


def test_a_failed_launch_costs_nothing() -> None:
    journal = a_journal()
    journal.record(
        ev.LaunchFailed(
            at_s=START_S + 5, token="t", offer_id="o", failure="capacity", message="",
            closes_intent=True,
        )
    )  # fmt: skip
    journal.accrue_all(START_S + 1000)
    assert journal.state.spent_micro_usd == 0
    assert not journal.state.instances


def test_a_minute_is_billed_at_least() -> None:
    journal = a_journal()
    rent(journal)
    end(journal, 7)
    assert journal.state.spent_micro_usd == 60_000


def test_what_was_written_too_far_is_taken_back_when_the_end_turns_out_earlier() -> None:
    journal = a_journal()
    rent(journal)
    start(journal, "a", 100)
    journal.accrue_all(START_S + 700)
    end(journal, 400, seen_at_s=710)
    assert journal.state.jobs["a"].spent_micro_usd == 300_000
    assert journal.state.spent_micro_usd == 400_000
    assert imbalance_micro_usd(journal.state) == 0


def test_each_second_costs_the_price_of_its_time_also_when_it_is_known_late() -> None:
    in_time, late = a_journal(), a_journal()
    change = ev.PriceChanged(at_s=START_S + 300, instance_id="i", price_usd_per_hour=7.2)
    for journal in (in_time, late):
        rent(journal)
        start(journal, "a", 100)
    in_time.record(change)
    in_time.accrue_all(START_S + 600)
    late.accrue_all(START_S + 600)
    late.record(change)
    assert in_time.state.spent_micro_usd == late.state.spent_micro_usd == 900_000
    assert late.state.jobs["a"].spent_micro_usd == 800_000
    end(late, 600)
    assert late.state.spent_micro_usd == 900_000


@settings(max_examples=60, deadline=None)
@given(
    price=st.floats(0.01, 99, allow_nan=False),
    looks=st.lists(st.floats(0, 4000), max_size=8),
    started_s=st.floats(90, 2000),
    ended_s=st.floats(2000, 4000),
)
def test_slices_do_not_change_the_bill(
    price: float, looks: list[float], started_s: float, ended_s: float
) -> None:
    journal = a_journal(price=price)
    rent(journal)
    started = False
    for look_s in sorted(looks):
        if look_s >= started_s and not started:
            start(journal, "a", started_s)
            started = True
        if look_s < ended_s:
            journal.accrue_all(START_S + look_s)
            assert imbalance_micro_usd(journal.state) == 0
    end(journal, ended_s)
    state = journal.state
    assert imbalance_micro_usd(state) == 0
    assert state.spent_micro_usd == bill_micro_usd(state.instances["i"], START_S + ended_s)
    exact = max(60, math.ceil(round(ended_s, 3))) * round(price * 1e6) / 3600
    assert abs(state.spent_micro_usd - exact) <= 2_000_000 * price / 3600 + 1


@settings(max_examples=100, deadline=None)
@given(
    amount=st.integers(-(10**12), 10**12),
    weights=st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 64), max_size=6),
)
def test_a_split_adds_up_and_is_fair_to_the_micro_dollar(
    amount: int, weights: dict[str, int]
) -> None:
    parts = split(amount, weights)
    assert set(parts) == set(weights)
    assert sum(parts.values()) == (amount if weights else 0)
    total = sum(weights.values())
    for name, part in parts.items():
        assert abs(part - amount * weights[name] / total) < 1 + 1e-3


def test_a_spot_machine_that_aws_takes_in_its_first_hour_is_waived_for_all_who_were_on_it() -> None:
    log = MemoryLog()
    journal = a_journal(accelerators=4, spot=True, log=log)
    rent(journal)
    start(journal, "a", 100, (0, 1, 2))
    start(journal, "b", 100, (3,))
    journal.accrue_all(START_S + 501)
    end(journal, 3599.5, seen_at_s=3650, reason="interrupted")
    state = journal.state
    assert state.spent_micro_usd == state.unattributed_micro_usd == 0
    assert [job.spent_micro_usd for job in state.jobs.values()] == [0, 0]
    assert state.instances["i"].accrued_micro_usd == 0
    assert state.instances["i"].waived_micro_usd == 3_600_000
    assert imbalance_micro_usd(state) == 0
    assert Journal(log).state == state


@pytest.mark.parametrize(
    ("at_s", "change", "ending"),
    [
        (3600, {}, {}),
        (1000, {}, {"reason": "requested"}),
        (1000, {}, {"reason": "vanished", "estimated": True}),
        (1000, {"spot": False}, {}),
        (1000, {"provider": "gcp"}, {}),
    ],
    ids=["after the hour", "ended by us", "nobody knows", "on demand", "Google"],
)
def test_nothing_else_is_waived(at_s: float, change: dict, ending: dict) -> None:
    journal = a_journal(**({"spot": True} | change))
    rent(journal)
    end(journal, at_s, **({"reason": "interrupted"} | ending))
    state = journal.state
    assert state.spent_micro_usd == round(at_s * 1000)
    assert state.instances["i"].waived_micro_usd == 0


def test_the_disk_of_a_waived_machine_is_charged_and_shared_as_the_machine_was() -> None:
    journal = a_journal(price=3.6, disk=0.36, accelerators=4, spot=True)
    rent(journal)
    start(journal, "a", 100, (0, 1, 2))
    start(journal, "b", 100, (3,))
    end(journal, 1100, reason="interrupted")
    state = journal.state
    assert state.instances["i"].accrued_micro_usd == 110_000
    assert state.instances["i"].waived_micro_usd == 990_000
    assert state.jobs["a"].spent_micro_usd == 75_000
    assert state.jobs["b"].spent_micro_usd == 25_000
    assert state.unattributed_micro_usd == 10_000
    assert disk_micro_usd(state.instances["i"], START_S + 1100) == 110_000
    assert imbalance_micro_usd(state) == 0


@given(
    price=st.integers(1, 50_000_000), disk=st.integers(0, 50_000),
    changes=st.lists(st.integers(1, 3599), max_size=4, unique=True), lived=st.integers(1, 3599),
)  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_a_waiver_leaves_exactly_the_disk(
    price: int, disk: int, changes: list[int], lived: int
) -> None:
    journal = a_journal(price=(price + disk) / 1e6, disk=disk / 1e6, accelerators=4, spot=True)
    rent(journal)
    start(journal, "a", 100, (0, 1, 2))
    start(journal, "b", 120, (3,))
    for at_s in sorted(each for each in changes if 120 < each < lived):
        journal.accrue_all(START_S + at_s)
    end(journal, max(lived, 121), reason="interrupted")
    state = journal.state
    record = state.instances["i"]
    assert record.accrued_micro_usd == disk_micro_usd(record, START_S + max(lived, 121))
    assert imbalance_micro_usd(state) == 0
    assert min(job.spent_micro_usd for job in state.jobs.values()) >= -1
