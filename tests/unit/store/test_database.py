"""The log on disk: whole or not at all, one controller at a time."""

import sqlite3
from pathlib import Path

import pytest

from cloudgavel.store import events as ev
from cloudgavel.store.database import (
    LEASE_EXPIRES_S,
    ControllerActiveError,
    Database,
    LeaseLostError,
)


def finished(job: str) -> ev.JobFinished:
    return ev.JobFinished(at_s=1.0, job=job, step=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


def take(database: Database, holder: str, *, pid: int = 1, host: str = "here", now_s: float = 0.0,
         alive: bool = True) -> None:  # fmt: skip
    database.take_lease(holder=holder, pid=pid, host=host, now_s=now_s, alive=lambda _: alive)


def test_what_was_appended_is_read_in_order_by_another_connection(path: Path) -> None:
    writer, reader = Database.at(path), Database.at(path)
    writer.append([finished("a"), finished("b")])
    writer.append([])
    writer.append([finished("c")])
    assert [(seq, e.job) for seq, e in reader.read()] == [(1, "a"), (2, "b"), (3, "c")]  # type: ignore[union-attr]
    assert [seq for seq, _ in reader.read(after=2)] == [3]


def test_events_of_one_call_are_written_together_or_not_at_all(path: Path) -> None:
    database = Database.at(path)
    bad = ev.JobFinished(at_s=float("nan"), job="x", step=1)
    with pytest.raises(ValueError):
        database.append([finished("a"), bad])
    assert database.read() == []


def test_the_log_is_in_wal_mode(path: Path) -> None:
    Database.at(path)
    assert sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_second_living_controller_is_refused_and_told_who_is_there(path: Path) -> None:
    first, second = Database.at(path), Database.at(path)
    take(first, "one", pid=41)
    with pytest.raises(ControllerActiveError) as refused:
        take(second, "two", now_s=LEASE_EXPIRES_S * 10)
    assert ("controller", "process 41 on here") in refused.value.facts


def test_a_dead_process_of_this_host_is_taken_over_at_once_and_can_write_no_more(
    path: Path,
) -> None:
    first, second = Database.at(path), Database.at(path)
    take(first, "one")
    first.append([finished("a")])
    take(second, "two", alive=False)
    with pytest.raises(LeaseLostError):
        first.append([finished("b")])
    with pytest.raises(LeaseLostError):
        first.renew_lease(1.0)
    second.append([finished("c")])
    assert [e.job for _, e in second.read()] == ["a", "c"]  # type: ignore[union-attr]


def test_another_host_is_taken_over_only_after_silence(path: Path) -> None:
    first, second = Database.at(path), Database.at(path)
    take(first, "one", host="there")
    first.renew_lease(100.0)
    with pytest.raises(ControllerActiveError):
        take(second, "two", now_s=100.0 + LEASE_EXPIRES_S, alive=False)
    take(second, "two", now_s=100.5 + LEASE_EXPIRES_S)


def test_a_released_lease_is_free_and_only_ones_own_is_released(path: Path) -> None:
    first, second = Database.at(path), Database.at(path)
    take(first, "one")
    second.release_lease()
    assert first.lease() is not None
    first.release_lease()
    assert second.lease() is None
    take(second, "two")


def test_requests_wait_until_they_are_taken(path: Path) -> None:
    person, controller = Database.at(path), Database.at(path)
    number = person.add_request("down", {"reason": "enough"}, asked_at_s=5.0)
    (request,) = controller.open_requests()
    assert (request.request_id, request.kind, dict(request.body)) == (
        number, "down", {"reason": "enough"},
    )  # fmt: skip
    controller.mark_taken(number)
    assert controller.open_requests() == []
