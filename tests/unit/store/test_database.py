"""The log on disk: whole or not at all, one controller at a time."""

import multiprocessing
import os
import sqlite3
from pathlib import Path

import pytest

from cloudgavel.errors import CloudgavelError
from cloudgavel.store import events as ev
from cloudgavel.store.database import (
    LEASE_EXPIRES_S,
    ControllerActiveError,
    Database,
    LeaseLostError,
    process_is_alive,
    process_started,
)


def finished(job: str) -> ev.JobFinished:
    return ev.JobFinished(at_s=1.0, job=job, step=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


def take(database: Database, holder: str, *, pid: int = 1, host: str = "here", now_s: float = 0.0,
         alive: bool = True) -> None:  # fmt: skip
    database.take_lease(holder=holder, pid=pid, host=host, now_s=now_s, alive=lambda *_: alive)


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


def test_a_number_that_another_process_has_now_is_a_dead_controller(path: Path) -> None:
    pid = os.getpid()
    started = process_started(pid)
    if started is None:
        pytest.skip("this system does not tell when a process began")
    assert process_is_alive(pid, started)
    assert process_is_alive(pid)
    assert not process_is_alive(pid, started + "0")
    first, second = Database.at(path), Database.at(path)
    first.take_lease(holder="one", pid=pid, host="here", now_s=0.0)
    with pytest.raises(ControllerActiveError):
        second.take_lease(holder="two", pid=pid, host="here", now_s=1.0)
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE controller_lease SET process_started = 'an earlier boot/17'")
    second.take_lease(holder="two", pid=pid, host="here", now_s=1.0)
    with pytest.raises(LeaseLostError):
        first.renew_lease(2.0)


def test_a_database_from_before_the_start_time_was_kept_still_opens(path: Path) -> None:
    Database.at(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute("ALTER TABLE controller_lease DROP COLUMN process_started")
    database = Database.at(path)
    take(database, "one")
    lease = database.lease()
    assert lease is not None and lease.holder == "one"


def test_a_damaged_file_is_told_in_words(path: Path) -> None:
    path.write_text("garbage, and more of it than a header\n" * 40)
    with pytest.raises(CloudgavelError) as told:
        Database.at(path)
    assert any("not a database" in value for _, value in told.value.facts)


def _open_and_close(path: Path) -> None:
    Database.at(path).close()


def test_many_may_open_a_new_database_at_the_same_moment(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.db" for number in range(8) for _ in range(3)]
    with multiprocessing.get_context("fork").Pool(3) as pool:
        pool.map(_open_and_close, paths, chunksize=1)
