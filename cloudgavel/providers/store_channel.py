"""Orders and reports through the run's object store: the channel to machines on any cloud."""

import contextlib
import logging
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from cloudgavel.messages import layout
from cloudgavel.messages.codec import MalformedMessage, decode_orders, decode_report, encode_orders
from cloudgavel.messages.orders import Orders
from cloudgavel.messages.report import Report
from cloudgavel.objects.store import ObjectMissing, ObjectStore, StoreUnreachable

log = logging.getLogger("cloudgavel.channel")

QUIET_SHARE = 0.1
LONGEST_QUIET_S = 60.0
"""A mailbox without news for t seconds is opened again after a tenth of t, at most this."""
READERS = 16


class StoreChannel:
    """Implements ``AgentChannel`` over an ``ObjectStore``.

    A store that cannot be reached delays mail and loses none: orders are kept and sent at the next
    opportunity, reports stay the last ones known. Of two orders for an instance the higher sequence
    stays, whoever wrote it.
    """

    def __init__(self, store: ObjectStore, *, now_s: Callable[[], float]) -> None:
        self._store = store
        self._now_s = now_s
        self._unsent: dict[str, Orders] = {}
        self._reports: dict[str, Report] = {}
        self._news_at_s: dict[str, float] = {}
        self._read_at_s: dict[str, float] = {}
        self._heard_since_s = -math.inf

    def heard_since_s(self) -> float:
        """Since when the store has answered every time; ``inf`` = the last try failed."""
        return self._heard_since_s

    def send(self, orders: Orders) -> None:
        """Replace an instance's orders; higher sequence wins."""
        waiting = self._unsent.get(orders.instance_id)
        if waiting is None or orders.sequence > waiting.sequence:
            self._unsent[orders.instance_id] = orders
        self._deliver()

    def reports(self) -> Mapping[str, Report]:
        """Return the newest report of every instance that ever reported, as far as known."""
        self._deliver()
        now_s = self._now_s()
        try:
            instance_ids = self._mailboxes()
        except StoreUnreachable as error:
            self._unreachable(error)
            return dict(self._reports)
        due = [each for each in instance_ids if self._is_due(each, now_s)]
        if due:
            with ThreadPoolExecutor(max_workers=min(READERS, len(due))) as pool:
                found = dict(zip(due, pool.map(self._read, due), strict=True))
            for instance_id, report in found.items():
                self._read_at_s[instance_id] = now_s
                if report is not None and report != self._reports.get(instance_id):
                    self._reports[instance_id] = report
                    self._news_at_s[instance_id] = now_s
        return dict(self._reports)

    def _deliver(self) -> None:
        for instance_id, orders in sorted(self._unsent.items()):
            try:
                self._put(orders)
            except StoreUnreachable as error:
                self._unreachable(error)
                return
            self._answered()
            del self._unsent[instance_id]

    def _put(self, orders: Orders) -> None:
        key = layout.orders_key(orders.instance_id)
        while True:
            version = None
            with contextlib.suppress(ObjectMissing):
                seen = self._store.get_versioned(key)
                version = seen.version
                with contextlib.suppress(MalformedMessage):
                    if decode_orders(seen.data).sequence >= orders.sequence:
                        return
            if self._store.put_if_version(key, encode_orders(orders), version):
                return

    def _mailboxes(self) -> list[str]:
        keys = {info.key for info in self._store.list("instances/")}
        self._answered()
        ids = [key.split("/")[1] for key in keys if key.count("/") == 2]
        return sorted({each for each in ids if layout.report_key(each) in keys})

    def _is_due(self, instance_id: str, now_s: float) -> bool:
        read_at_s = self._read_at_s.get(instance_id)
        if read_at_s is None:
            return True
        quiet_s = now_s - self._news_at_s.get(instance_id, read_at_s)
        return now_s - read_at_s >= min(LONGEST_QUIET_S, QUIET_SHARE * quiet_s)

    def _read(self, instance_id: str) -> Report | None:
        try:
            return decode_report(self._store.get(layout.report_key(instance_id)))
        except (ObjectMissing, StoreUnreachable):
            return None
        except MalformedMessage as error:
            log.warning("%s", error.message)
            return None

    def _answered(self) -> None:
        if self._heard_since_s == math.inf:
            log.warning("the store answers again")
            self._heard_since_s = self._now_s()

    def _unreachable(self, error: StoreUnreachable) -> None:
        if self._heard_since_s < math.inf:
            log.warning("%s; asking again", error.message)
        self._heard_since_s = math.inf
