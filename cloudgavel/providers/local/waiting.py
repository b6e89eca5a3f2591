"""Waiting for real processes: short pauses first, and an end to patience."""

import time
from collections.abc import Callable
from dataclasses import replace

from cloudgavel.messages.report import ProcessState, Report

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.02
_STARTING_PATIENCE = 5.0
"""Set-up and restore show no progress: they get this many times the patience."""


class Patience:
    """How long machines have not moved, in real time.

    ``pause`` waits a little, and longer the longer nothing has changed. ``monotonic`` and ``sleep``
    are arguments for tests.
    """

    def __init__(
        self,
        watchdog_s: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._watchdog_s = watchdog_s
        self._monotonic = monotonic
        self._sleep = sleep
        self._seen: dict[str, Report | None] = {}
        self._moved_at_s: dict[str, float] = {}
        self._pause_s = _FIRST_PAUSE_S

    def progress(self, instance_id: str, report: Report | None) -> None:
        """Take note of a machine's report; anything but a heartbeat is progress."""
        essence = None if report is None else replace(report, heartbeat_at_s=0.0)
        if instance_id not in self._seen or essence != self._seen[instance_id]:
            self._seen[instance_id] = essence
            self._moved_at_s[instance_id] = self._monotonic()
            self._pause_s = _FIRST_PAUSE_S

    def ran_out(self, instance_id: str, report: Report | None) -> bool:
        """Whether the machine has not moved for too long."""
        self.progress(instance_id, report)
        starting = report is None or any(job.state is ProcessState.STARTING for job in report.jobs)
        limit_s = self._watchdog_s * (_STARTING_PATIENCE if starting else 1.0)
        return self._monotonic() - self._moved_at_s[instance_id] > limit_s

    def pause(self) -> None:
        """Wait a moment."""
        self._sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 1.3, _LONGEST_PAUSE_S)
