"""Signs of life: what cannot be written for a moment is told once and tried again."""

import sqlite3
from pathlib import Path

import pytest

from cloudgavel.messages.codec import decode_lease, decode_orders
from cloudgavel.messages.layout import lease_key, orders_key
from cloudgavel.objects.files import FileStore
from cloudgavel.objects.store import StoreUnreachable
from cloudgavel.providers.local import machines
from cloudgavel.providers.local.park import MachinePark
from cloudgavel.runtime.heartbeat import Heartbeat
from cloudgavel.store.database import Database, LeaseLostError


class At:
    """A clock that stands until it is set."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s

    def now_s(self) -> float:
        return self.at_s


class FailingStore(FileStore):
    """A directory that is full for as long as ``full`` says."""

    full = True

    def put(self, key: str, data: bytes, *, durable: bool = True) -> None:
        if self.full:
            raise StoreUnreachable("write", key, "No space left on device", self.url)
        super().put(key, data, durable=durable)


def a_database(tmp_path: Path) -> Database:
    database = Database.at(tmp_path / "events.db")
    database.take_lease(holder="one", pid=1, host="here", now_s=0.0)
    return database


def test_a_full_store_is_told_once_and_the_lease_goes_on(tmp_path: Path) -> None:
    database, store, notes = a_database(tmp_path), FailingStore(tmp_path / "store"), []
    clock = At(10.0)
    beat = Heartbeat(clock=clock, database=database, store=store, note=notes.append)
    for clock.at_s in (10.0, 20.0):
        beat()
    assert len(notes) == 1 and "No space left" in notes[0]
    lease = database.lease()
    assert lease is not None and lease.heartbeat_at_s == 20.0
    store.full, clock.at_s = False, 30.0
    beat()
    assert decode_lease(store.get(lease_key())) == 30.0
    assert "again" in notes[-1] and len(notes) == 2


def test_a_database_that_takes_no_write_is_told_and_agents_still_hear(tmp_path: Path) -> None:
    database, store, notes = a_database(tmp_path), FileStore(tmp_path / "store"), []
    with sqlite3.connect(tmp_path / "events.db") as raw:
        raw.execute("CREATE TRIGGER full BEFORE UPDATE ON controller_lease "
                    "BEGIN SELECT no_such_function(); END")  # fmt: skip
    Heartbeat(clock=At(10.0), database=database, store=store, note=notes.append)()
    assert len(notes) == 1 and "database" in notes[0]
    assert decode_lease(store.get(lease_key())) == 10.0


def test_a_run_that_was_taken_over_is_not_tolerated(tmp_path: Path) -> None:
    database, store = a_database(tmp_path), FileStore(tmp_path / "store")
    other = Database.at(tmp_path / "events.db")
    other.take_lease(holder="two", pid=2, host="here", now_s=1.0, alive=lambda *_: False)
    with pytest.raises(LeaseLostError):
        Heartbeat(clock=At(10.0), database=database, store=store, note=[].append)()


def test_a_rehearsal_goes_on_while_its_store_is_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, clock = FailingStore(tmp_path / "store"), At(0.0)
    park = MachinePark(tmp_path / "machines", run_id="r", store=store, agent_command=(),
                       environment=None, clock=clock)  # fmt: skip
    for clock.at_s in (0.0, 2.0, 4.0):
        park.renew_lease()
    assert len(caplog.records) == 1
    store.full, clock.at_s = False, 6.0
    park.renew_lease()
    assert decode_lease(store.get(lease_key())) == 6.0


def test_orders_wait_for_a_store_that_is_full_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FailingStore(tmp_path / "store")
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        store.full = len(waits) < 3

    monkeypatch.setattr(machines.time, "sleep", wait)
    machine = machines.Machine("i-1", run_id="r", store=store, scratch=tmp_path / "i-1")
    machine.send([], lease_s=60.0)
    assert len(waits) == 3
    assert decode_orders(store.get(orders_key("i-1"))).sequence == 1
    store.full = True
    monkeypatch.setattr(machines, "_STORE_PATIENCE_S", 0.0)
    with pytest.raises(StoreUnreachable):
        machine.send([], lease_s=61.0)
