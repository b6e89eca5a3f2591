"""Looking at a run from another process: its log, folded as it grows."""

import socket
from collections import deque
from collections.abc import Sequence

from cloudgavel.clock import Clock
from cloudgavel.documents.run import RunDocument
from cloudgavel.documents.status import StatusDocument
from cloudgavel.runtime.account import run_document
from cloudgavel.runtime.begin import controller_is_alive
from cloudgavel.runtime.directory import RunDirectory
from cloudgavel.runtime.now import status_document
from cloudgavel.store.database import LeaseRow
from cloudgavel.store.events import Event
from cloudgavel.store.fold import apply
from cloudgavel.store.records import RunState

KEPT_EVENTS = 400


class RunReader:
    """Follows a run; writes nothing."""

    def __init__(self, directory: RunDirectory, clock: Clock) -> None:
        """``clock`` is real time (ages of heartbeats, the present of a cloud run)."""
        self._database = directory.open_database()
        self._clock = clock
        self._state = RunState()
        self._sequence = 0
        self._events: deque[Event] = deque(maxlen=KEPT_EVENTS)

    @property
    def state(self) -> RunState:
        """What the last ``poll`` knew."""
        return self._state

    def poll(self) -> Sequence[Event]:
        """Read and fold what is new; return it."""
        new = self._database.read(self._sequence)
        for sequence, event in new:
            self._state = apply(self._state, event)
            self._sequence = sequence
            self._events.append(event)
        return [event for _, event in new]

    def controller_alive(self) -> bool:
        """True while a controller of this run lives."""
        return controller_is_alive(self._database, socket.gethostname(), self._clock.now_s())

    def lease(self) -> LeaseRow | None:
        """Return who controls the run, dead or alive."""
        return self._database.lease()

    def unheard_s(self, request_id: int) -> float | None:
        """Real seconds for which a request has been waiting without a beat of the controller.

        ``None`` when it was taken. A controller that beats is busy: it counts as 0.
        """
        now_s = self._clock.now_s()
        for request in self._database.open_requests():
            if request.request_id == request_id:
                lease = self._database.lease()
                silent_s = now_s - lease.heartbeat_at_s if lease is not None else 0.0
                return max(0.0, min(now_s - request.asked_at_s, silent_s))
        return None

    def status(self) -> StatusDocument:
        """Return the run as the last ``poll`` knew it."""
        lease = self._database.lease()
        seen = None if lease is None else max(0.0, self._clock.now_s() - lease.heartbeat_at_s)
        state = self._state
        virtual = state.rehearsal or state.ended is not None
        return status_document(
            state,
            now_s=state.at_s if virtual else max(state.at_s, self._clock.now_s()),
            events=list(self._events),
            controller_alive=self.controller_alive(),
            controller_seen_s_ago=seen,
        )

    def account(self) -> RunDocument:
        """Return the run's account as the last ``poll`` knew it."""
        return run_document(self._state)

    def close(self) -> None:
        """Close the database."""
        self._database.close()
