"""The log, the controller's lease and the person's requests in one SQL database.

SQLite in WAL mode by default: readers (``status``, ``watch``) never wait for the one writer, and a
transaction that was acknowledged survives ``kill -9`` and power loss. Any URL of SQLAlchemy works.
"""

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from cloudgavel.errors import BugError, CloudgavelError
from cloudgavel.store.events import Event, from_json, kind_of, to_json
from cloudgavel.units import span

_METADATA = sa.MetaData()

_EVENTS = sa.Table(
    "events",
    _METADATA,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at_s", sa.Float, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sqlite_autoincrement=True,
)

_LEASE = sa.Table(
    "controller_lease",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("heartbeat_at_s", sa.Float, nullable=False),
    sa.Column("process_started", sa.Text, nullable=True),
)

_REQUESTS = sa.Table(
    "requests",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("asked_at_s", sa.Float, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("taken", sa.Boolean, nullable=False, default=False),
    sqlite_autoincrement=True,
)

LEASE_EXPIRES_S = 60.0
"""Real seconds without a heartbeat after which another host may take the lease."""

_LEASE_ID = 1
_BUSY_MS = 10_000
"""How long a transaction waits for another one."""


class ControllerActiveError(CloudgavelError):
    """Another controller of this run is alive; two would rent everything twice."""


class LeaseLostError(CloudgavelError):
    """Another controller took this run over: nothing more is written here."""


class DatabaseUnwritable(CloudgavelError):
    """The database does not take a write now: disk full, locked for long, or read-only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRow:
    """Who controls the run."""

    holder: str
    pid: int
    host: str
    heartbeat_at_s: float
    """Real UNIX seconds."""
    process_started: str | None = None
    """``process_started`` of its process: the same pid with another one is another process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestRow:
    """What a person asks of a running controller."""

    request_id: int
    asked_at_s: float
    kind: str
    body: Mapping[str, Any]


def process_started(pid: int) -> str | None:
    """Return what tells this process from a later one of the same number: boot and start time.

    ``None`` when there is no such process, or no ``/proc`` (then the number has to do).
    """
    try:
        ticks = _stat_fields(pid)[19]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, IndexError):
        return None
    return f"{boot}/{ticks}"


def process_is_alive(pid: int, started: str | None = None) -> bool:
    """True while a process of this number exists on this machine (zombies count as gone).

    With ``started`` (of ``process_started``) it must also be the one that began then: after a
    reboot or a long time the number may be another process's.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        state = _stat_fields(pid)[0]
    except (OSError, IndexError):
        return True
    now = process_started(pid) if started is not None else None
    return state != "Z" and (now is None or now == started)


def _stat_fields(pid: int) -> list[str]:
    """Fields of ``/proc/PID/stat`` from the third on; the second may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


class Database:
    """One run's database; implements ``store.log.EventLog``.

    With ``holder`` set (by ``take_lease``) every append first checks, in its own transaction, that
    the lease is still ours: a controller that was taken over can write nothing more.
    """

    def __init__(self, url: str) -> None:
        """Open (or make) the database at an SQLAlchemy URL."""
        self._engine = sa.create_engine(url)
        self._sqlite = self._engine.dialect.name == "sqlite"
        if self._sqlite:
            sa.event.listen(self._engine, "connect", _configure_sqlite)
            sa.event.listen(self._engine, "begin", _begin_sqlite)
        self._holder: str | None = None
        self._make_tables(url)

    def _make_tables(self, url: str) -> None:
        """Make what is missing, in one writing transaction: two may open a new run at once."""
        try:
            with self._engine.connect() as connection:
                tables = set(sa.inspect(connection).get_table_names())
                if {table.name for table in _METADATA.sorted_tables} <= tables:
                    columns = sa.inspect(connection).get_columns(_LEASE.name)
                    if any(column["name"] == "process_started" for column in columns):
                        return
            with self._writing() as connection:
                _METADATA.create_all(connection)
                columns = sa.inspect(connection).get_columns(_LEASE.name)
                if all(column["name"] != "process_started" for column in columns):
                    connection.execute(
                        sa.text(f"ALTER TABLE {_LEASE.name} ADD COLUMN process_started TEXT")
                    )
        except sa.exc.DatabaseError as error:
            self._engine.dispose()
            raise CloudgavelError(
                "the database of this run cannot be used",
                facts=[("database", url), ("it said", str(error.orig))],
                hints=[
                    "is the disk full, or the file damaged? what ran goes on being billed: "
                    "look with `cloudgavel reap`",
                    "to begin anew, move the run's directory away",
                ],
            ) from error

    @classmethod
    def at(cls, path: Path) -> "Database":
        """Open (or make) an SQLite file; its directory must exist.

        A new one is its owner's alone (0600; SQLite gives its side files the same mode): the log
        holds what the run was told, a webhook's secret address too.
        """
        with contextlib.suppress(OSError):  # What cannot be made, SQLite refuses with its reason.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return cls(f"sqlite:///{path}")

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def append(self, events: Sequence[Event]) -> None:
        """Write events in one transaction; ``LeaseLostError`` when the lease is another's."""
        if not events:
            return
        rows = [{"at_s": e.at_s, "kind": kind_of(e), "body": to_json(e)} for e in events]
        with self._writing() as connection:
            if self._holder is not None:
                self._check_lease(connection)
            connection.execute(_EVENTS.insert(), rows)

    def read(self, after: int = 0) -> Sequence[tuple[int, Event]]:
        """Return ``(sequence, event)`` of everything after a sequence number, in order."""
        query = sa.select(_EVENTS.c.seq, _EVENTS.c.kind, _EVENTS.c.body)
        query = query.where(_EVENTS.c.seq > after).order_by(_EVENTS.c.seq)
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        return [(row.seq, from_json(row.kind, row.body)) for row in rows]

    def take_lease(
        self,
        *,
        holder: str,
        pid: int,
        host: str,
        now_s: float,
        alive: Callable[[int, str | None], bool] = process_is_alive,
    ) -> None:
        """Become the run's only controller; ``now_s`` is real time.

        A holder on this host whose process is gone is taken over at once, one on another host
        after ``LEASE_EXPIRES_S`` without a heartbeat. Otherwise ``ControllerActiveError``.
        """
        with self._writing() as connection:
            row = connection.execute(sa.select(_LEASE)).one_or_none()
            if row is not None and row.holder != holder:
                silent_s = now_s - row.heartbeat_at_s
                if row.host == host:
                    dead = not alive(row.pid, row.process_started)
                else:
                    dead = silent_s > LEASE_EXPIRES_S
                if not dead:
                    raise ControllerActiveError(
                        "this run already has a controller",
                        facts=[
                            ("controller", f"process {row.pid} on {row.host}"),
                            ("last heartbeat", f"{span(silent_s)} ago"),
                        ],
                        hints=["watch it: cloudgavel watch", "end the run: cloudgavel down"],
                    )
            connection.execute(_LEASE.delete())
            connection.execute(
                _LEASE.insert().values(
                    id=_LEASE_ID,
                    holder=holder,
                    pid=pid,
                    host=host,
                    heartbeat_at_s=now_s,
                    process_started=process_started(pid),
                )
            )
        self._holder = holder

    def renew_lease(self, now_s: float) -> None:
        """Write a heartbeat (real time).

        ``LeaseLostError`` when the lease is another's, ``DatabaseUnwritable`` when it cannot be
        written now.
        """
        try:
            with self._writing() as connection:
                self._check_lease(connection)
                connection.execute(_LEASE.update().values(heartbeat_at_s=now_s))
        except sa.exc.OperationalError as error:
            raise DatabaseUnwritable(f"the run's database: {error.orig}") from error

    def release_lease(self) -> None:
        """Give the lease back; nothing happens when it is another's."""
        with self._writing() as connection:
            connection.execute(_LEASE.delete().where(_LEASE.c.holder == self._holder))
        self._holder = None

    def lease(self) -> LeaseRow | None:
        """Return who holds the lease, dead or alive."""
        with self._engine.connect() as connection:
            row = connection.execute(sa.select(_LEASE)).one_or_none()
        if row is None:
            return None
        return LeaseRow(
            holder=row.holder,
            pid=row.pid,
            host=row.host,
            heartbeat_at_s=row.heartbeat_at_s,
            process_started=row.process_started,
        )

    def add_request(self, kind: str, body: Mapping[str, Any], *, asked_at_s: float) -> int:
        """Leave a request for the controller; returns its number."""
        with self._writing() as connection:
            result = connection.execute(
                _REQUESTS.insert().values(
                    asked_at_s=asked_at_s, kind=kind, body=json.dumps(dict(body)), taken=False
                )
            )
            key = result.inserted_primary_key
        if key is None:
            raise BugError("the database gave no number for a request")
        return int(key[0])

    def open_requests(self) -> Sequence[RequestRow]:
        """Return the requests that were not taken yet, oldest first."""
        query = sa.select(_REQUESTS).where(_REQUESTS.c.taken.is_(False)).order_by(_REQUESTS.c.id)
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        return [
            RequestRow(
                request_id=row.id,
                asked_at_s=row.asked_at_s,
                kind=row.kind,
                body=MappingProxyType(json.loads(row.body)),
            )
            for row in rows
        ]

    def mark_taken(self, request_id: int) -> None:
        """A request was acted on; marked after its events, so that a crash repeats it."""
        with self._writing() as connection:
            if self._holder is not None:
                self._check_lease(connection)
            connection.execute(
                _REQUESTS.update().where(_REQUESTS.c.id == request_id).values(taken=True)
            )

    def _writing(self) -> AbstractContextManager[sa.Connection]:
        return self._engine.execution_options(cloudgavel_write=True).begin()

    def _check_lease(self, connection: sa.Connection) -> None:
        row = connection.execute(sa.select(_LEASE.c.holder, _LEASE.c.pid)).one_or_none()
        if row is None or row.holder != self._holder:
            raise LeaseLostError(
                "another controller took this run over",
                facts=[("controller", "none" if row is None else f"process {row.pid}")],
            )


def _configure_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
    _switch_to_wal(cursor)
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _switch_to_wal(cursor: Any) -> None:
    """The switch needs the file alone for a moment and does not wait for it by itself."""
    give_up_at_s = time.monotonic() + _BUSY_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up_at_s:
                raise
            time.sleep(0.01)
        else:
            return


def _begin_sqlite(connection: sa.Connection) -> None:
    writing = connection.get_execution_options().get("cloudgavel_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")
