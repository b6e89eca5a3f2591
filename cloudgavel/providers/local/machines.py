"""One rehearsed machine: its agent's process, its mailbox and its directory."""

import contextlib
import logging
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cloudgavel.messages import layout
from cloudgavel.messages.codec import (
    MalformedMessage,
    decode_orders,
    decode_report,
    encode_orders,
)
from cloudgavel.messages.control import wake
from cloudgavel.messages.orders import JobOrder, Orders
from cloudgavel.messages.report import Report
from cloudgavel.objects.store import ObjectMissing, ObjectStore, StoreUnreachable
from cloudgavel.providers.local import processes

_WAKE_PIPE = "wake-agent"
_LOG_LINES = 20
_STORE_PATIENCE_S = 60.0
_STORE_PAUSE_S = 0.2

log = logging.getLogger("cloudgavel.rehearsal")


class Machine:
    """Starts, addresses, hears and ends the agent of one instance.

    ``adopt`` attaches to an agent that an earlier controller started. Nothing is kept here that
    could not be found again: the newest orders and report lie in the store.
    """

    def __init__(self, instance_id: str, *, run_id: str, store: ObjectStore, scratch: Path) -> None:
        self.instance_id = instance_id
        self.scratch = scratch
        self._run_id = run_id
        self._store = store
        self._child: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._orders: Orders | None = None
        self._orders_known = False
        self._report: Report | None = None
        self._report_stamp: str | None = None

    # -- the process ------------------------------------------------------------------------

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None) -> None:
        """Start the agent unless one serves this machine already."""
        if self.alive() or self.adopt():
            return
        words = [*command, "--store", self._store.url, "--run", self._run_id]
        words += ["--instance", self.instance_id]
        self._child = processes.start_agent(
            words, self.scratch, None if environment is None else dict(environment)
        )
        self._pid = self._child.pid

    def adopt(self) -> bool:
        """Attach to a living agent of this machine; ``False`` = there is none."""
        found = processes.agents_of(self.scratch)
        if not found:
            return False
        if self._pid not in found:
            self._pid, self._child = found[0], None
        return True

    @property
    def was_started(self) -> bool:
        """Whether anybody ever started its agent."""
        return self.scratch.is_dir()

    def alive(self) -> bool:
        """Whether the agent's process lives."""
        if self._child is not None:
            return self._child.poll() is None or self.adopt()
        return self._pid is not None and processes.is_agent_of(self._pid, self.scratch)

    def end(self) -> None:
        """Switch the machine off: agent and jobs are killed, its files removed but for the log."""
        processes.end_processes_of(self.scratch, self._child)
        self._pid = None
        if self.scratch.is_dir():
            for path in self.scratch.iterdir():
                if path.name == "agent.log":
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def last_words(self) -> Sequence[str]:
        """Return the last lines of what the agent itself said."""
        try:
            text = (self.scratch / "agent.log").read_text(errors="replace")
        except OSError:
            return []
        return text.splitlines()[-_LOG_LINES:]

    # -- the mailbox ------------------------------------------------------------------------

    def sent(self) -> Orders | None:
        """Return the newest orders in the mailbox, whoever sent them."""
        if not self._orders_known:
            with contextlib.suppress(ObjectMissing, MalformedMessage):
                self._orders = decode_orders(self._store.get(layout.orders_key(self.instance_id)))
            self._orders_known = True
        return self._orders

    def send(self, jobs: Sequence[JobOrder], *, lease_s: float) -> None:
        """Order ``jobs`` if that differs from what was ordered last, and wake the agent.

        ``StoreUnreachable`` when the store has taken nothing for a minute.
        """
        before = self.sent()
        orders = Orders(
            run_id=self._run_id,
            instance_id=self.instance_id,
            sequence=before.sequence if before is not None else 0,
            lease_s=lease_s,
            jobs=tuple(jobs),
        )
        if orders == before:
            return
        orders = replace(orders, sequence=orders.sequence + 1)
        self._put_persistently(layout.orders_key(self.instance_id), encode_orders(orders))
        self._orders = orders
        wake(self.scratch / _WAKE_PIPE)

    def _put_persistently(self, key: str, data: bytes) -> None:
        """Write; a disk that is full for a moment is waited for, then its error is raised."""
        give_up_at_s = time.monotonic() + _STORE_PATIENCE_S
        told = False
        while True:
            try:
                self._store.put(key, data, durable=False)
                return
            except StoreUnreachable as error:
                if time.monotonic() >= give_up_at_s:
                    raise
                if not told:
                    log.warning("orders cannot be written, trying again: %s", error.message)
                told = True
                time.sleep(_STORE_PAUSE_S)

    def report(self) -> Report | None:
        """Return the agent's newest report; ``None`` before its first."""
        key = layout.report_key(self.instance_id)
        stamp = self._store.stamp(key)
        if stamp is not None and stamp != self._report_stamp:
            with contextlib.suppress(ObjectMissing, MalformedMessage):
                self._report = decode_report(self._store.get(key))
                self._report_stamp = stamp
        return self._report

    def heard(self) -> Report | None:
        """Return the newest report that takes the newest orders into account."""
        report = self.report()
        orders = self.sent()
        if report is None or (orders is not None and report.sequence_seen < orders.sequence):
            return None
        return report
