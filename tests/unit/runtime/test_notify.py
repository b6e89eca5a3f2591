"""Messages under ``notify``: when, once, with retries, beside the loop, without their addresses."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudgavel.jobs.spec import RunSpec
from cloudgavel.runtime.begin import begin_run, differences
from cloudgavel.runtime.controller import run_controller
from cloudgavel.runtime.notify import Notifier, due, left_alone, unreachable
from cloudgavel.store import events as ev
from cloudgavel.store.fold import fold
from cloudgavel.store.records import RunState
from tests.fakes.webhook import FakeWebhook, serve_webhook
from tests.unit.runtime.scripted import START_S, Stage, a_job, a_run, an_offer

SECRET = "/services/T0/B0/dont-tell"
QUICK = (0.0, 0.0)


@pytest.fixture
def webhook() -> Iterator[tuple[FakeWebhook, str]]:
    fake = FakeWebhook()
    with serve_webhook(fake) as root:
        yield fake, root + SECRET


def a_state(*events: ev.Event, budget_usd: float | None = 10.0, **run: object) -> RunState:
    created = ev.RunCreated(at_s=START_S, run_id="r-1", spec=a_run(**run), budget_usd=budget_usd)
    return fold([created, *events])


def a_machine(at_s: float = START_S) -> list[ev.Event]:
    offer = an_offer()
    return [
        ev.LaunchIntended(
            at_s=at_s, token="t", offers=(offer,), for_jobs=("a",), reason="r", round_number=1
        ),
        ev.LaunchSucceeded(
            at_s=at_s, token="t", instance_id="i-1", offer=offer, launched_at_s=at_s,
            price_usd_per_hour=3.6,
        ),
    ]  # fmt: skip


def spent(usd: float) -> ev.Accrued:
    line = ev.AccruedLine(
        instance_id="i-1", until_s=START_S + 60, micro_usd=round(usd * 1e6),
        unattributed_micro_usd=round(usd * 1e6),
    )  # fmt: skip
    return ev.Accrued(at_s=START_S + 60, lines=(line,))


RELEASED = ev.PromiseReleased(
    at_s=START_S + 5, job="a", promise="deadline", by_s=60.0, by_usd=None, reason="no money"
)
ORPHAN = ev.OrphanSeen(at_s=START_S + 5, instance_id="i-9", offer_id="o", price_usd_per_hour=1.0)
ASKED = ev.TerminateAsked(at_s=START_S + 60, instance_id="i-1", reason="idle")


def kinds(state: RunState) -> list[str]:
    return [message.kind for message in due(state)]


# ---- what is due


def test_eighty_per_cent_of_the_budget_is_told_and_again_for_another_budget() -> None:
    assert kinds(a_state(*a_machine(), spent(7.99))) == []
    reached = a_state(*a_machine(), spent(8.0))
    assert kinds(reached) == ["budget"]
    assert "$8.00 of the budget of $10.00" in due(reached)[0].text
    raised = fold([ev.BudgetSet(at_s=START_S + 70, budget_usd=9.0)], reached)
    assert due(raised)[0].key != due(reached)[0].key
    assert kinds(a_state(*a_machine(), spent(8.0), budget_usd=None)) == []


def test_promises_orphans_late_ends_and_the_end_are_told() -> None:
    assert kinds(a_state(RELEASED)) == ["promise_released"]
    assert kinds(a_state(ORPHAN)) == ["money_may_run"]
    assert kinds(a_state(*a_machine(), ASKED)) == []
    late = ev.OrphanEnded(at_s=START_S + 661, instance_id="i-9")
    assert kinds(a_state(*a_machine(), ORPHAN, ASKED, late)) == ["money_may_run"]
    ended = ev.RunEnded(at_s=START_S + 700, state="budget_exhausted")
    assert [m.text for m in due(a_state(ended))] == [
        "test: budget exhausted, $0.00 spent; no machine is left"
    ]


def test_a_controller_that_leaves_machines_says_so() -> None:
    assert left_alone(a_state(), "it was told to") is None
    left = left_alone(a_state(*a_machine()), "it was told to")
    assert left is not None
    assert "machines that stay: 1, $3.60/h in all" in left.text


# ---- delivery


def a_notifier(url: str, notes: list[str] | None = None) -> Notifier:
    return Notifier([url], note=(notes if notes is not None else []).append, pauses_s=QUICK)


def test_a_message_is_a_document_and_is_not_repeated(webhook: tuple[FakeWebhook, str]) -> None:
    fake, url = webhook
    state = a_state(RELEASED, notify=(url,))
    notifier = a_notifier(url)
    for _ in range(3):
        notifier.tell(state)
    notifier.close()
    (got,) = fake.got
    assert fake.tries == [f"POST {SECRET}"]
    assert got["schema"] == "cloudgavel/notification"
    assert (got["kind"], got["job"], got["id"]) == (
        "promise_released", "a", "r-1/promise:a:deadline",
    )  # fmt: skip
    assert (got["spent_usd"], got["budget_usd"], got["state"]) == (0.0, 10.0, "running")
    after = fold(notifier.delivered(START_S + 6), state)
    later = a_notifier(url)
    later.tell(after)
    later.close()
    assert len(fake.got) == 1


@pytest.mark.parametrize(
    ("answers", "tries", "worked"),
    [
        ([503, 429], 3, True),
        ([500, 500, 500, 500], 3, False),
        ([404], 1, False),
        ([302], 1, False),
    ],
)
def test_what_may_pass_is_tried_again_up_to_a_cap(
    webhook: tuple[FakeWebhook, str], answers: list[int], tries: int, worked: bool
) -> None:
    fake, url = webhook
    fake.answers = answers
    notes: list[str] = []
    notifier = a_notifier(url, notes)
    notifier.tell(a_state(RELEASED))
    notifier.close()
    (event,) = notifier.delivered(START_S + 6)
    assert isinstance(event, ev.Notified)
    assert (len(fake.tries), event.delivered) == (tries, worked)
    assert bool(notes) is not worked
    assert SECRET not in "".join(notes) + ev.to_json(event)


def test_nobody_waits_for_an_address_that_does_not_answer(
    webhook: tuple[FakeWebhook, str],
) -> None:
    fake, url = webhook
    fake.hold = threading.Event()
    notes: list[str] = []
    notifier = a_notifier(url, notes)
    notifier.tell(a_state(RELEASED))
    assert notifier.delivered(START_S) == []
    notifier.close(wait_s=0.05)
    fake.hold.set()
    assert notes == ["notify: not every message could be delivered before the end"]


def test_an_address_that_cannot_be_reached_is_named_without_its_path() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert unreachable([f"http://127.0.0.1:{port}{SECRET}"]) == []
    assert unreachable([f"http://127.0.0.1:{port}{SECRET}"]) == ["http://127.0.0.1"]
    notes: list[str] = []
    notifier = a_notifier(f"http://127.0.0.1:{port}{SECRET}", notes)
    notifier.tell(a_state(RELEASED))
    notifier.close()
    assert notes == [
        "notify: `promise_released` was not delivered to http://127.0.0.1: "
        "no answer (ConnectionRefusedError)"
    ]


def test_a_changed_address_is_not_shown() -> None:
    before, after = a_run(notify=("https://x.org" + SECRET,)), a_run()
    assert differences(before, after) == ["notify: 1 addresses -> 0 addresses"]


# ---- a whole run


def a_rehearsal(tmp_path: Path, url: str) -> RunSpec:
    code = tmp_path / "code"
    code.mkdir()
    job = a_job(
        steps=20, commands={"any": "i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo step $i; done"},
        progress_pattern=r"step (\d+)", workdir=str(code),
    )  # fmt: skip
    return a_run(job, notify=(url,))


def test_a_run_tells_its_end_once(
    webhook: tuple[FakeWebhook, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fake, url = webhook
    begun = begin_run(tmp_path / "state", a_rehearsal(tmp_path, url), budget_usd=50.0, now_s=1e9)
    state = run_controller(begun.directory)
    assert state.ended == "finished"
    assert [got["kind"] for got in fake.got] == ["ended"]
    assert fake.got[0]["spent_usd"] == pytest.approx(state.spent_usd)
    run_controller(begun.directory)
    assert len(fake.got) == 1
    assert SECRET not in "".join(capfd.readouterr())


def test_the_state_of_a_stage_is_told_while_it_runs(webhook: tuple[FakeWebhook, str]) -> None:
    fake, url = webhook
    stage = Stage(a_run(a_job(steps=3000), budget_usd=2.0, notify=(url,)), [an_offer()])
    notifier = a_notifier(url)
    while stage.driver.advance():
        stage.loop.record(*notifier.delivered(stage.loop.state.at_s))
        notifier.tell(stage.loop.state)
    notifier.tell(stage.loop.state)
    notifier.close()
    assert [got["kind"] for got in fake.got] == ["budget", "ended"]
    assert fake.got[0]["usd_per_hour"] == 3.6
