"""Listening, beside the agent's loop, for the word that the machine will be taken."""

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from cloudgavel.messages.report import Notice

log = logging.getLogger("cloudgavel.agent")

INTERRUPTION = "interruption"
"""The machine will be taken, within seconds or minutes."""
MAINTENANCE = "maintenance"
"""The machine will be stopped for work on its host, usually within the hour."""
REBALANCE = "rebalance"
"""The cloud thinks that the machine may be taken soon."""
_GRAVITY = {REBALANCE: 1, MAINTENANCE: 2, INTERRUPTION: 3}


class NoticesSilent(Exception):
    """What tells of interruptions does not answer; said again at the next look."""


class NoticeSource(Protocol):
    """One cloud's way to tell its machines."""

    pause_s: float
    """Between two looks."""

    def look(self) -> Notice | None:
        """Return what the cloud says now; may wait for news. Raises ``NoticesSilent``."""
        ...


class NoticeWatch:
    """Looks again and again in a thread of its own; the gravest word so far is ``notice``.

    A notice is never taken back. After one of an interruption there is nothing left to hear. That
    a source is silent is logged once, not at each look.
    """

    def __init__(self, source: NoticeSource, wake: Callable[[], None]) -> None:
        self._source = source
        self._wake = wake
        self._over = threading.Event()
        self._silent = False
        self.notice: Notice | None = None
        threading.Thread(target=self._watch, name="notices", daemon=True).start()

    def stop(self) -> None:
        """Look no more; a look that is under way is not waited for."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.is_set():
            self._look()
            if self.notice is not None and self.notice.kind == INTERRUPTION:
                return
            self._over.wait(self._source.pause_s)

    def _look(self) -> None:
        try:
            found = self._source.look()
        except NoticesSilent as error:
            if not self._silent:
                log.warning("interruption notices cannot be heard: %s", error)
            self._silent = True
            return
        self._silent = False
        if found is not None and _gravity(found) > _gravity(self.notice):
            self.notice = found
            self._wake()


def _gravity(notice: Notice | None) -> int:
    return 0 if notice is None else _GRAVITY[notice.kind]
