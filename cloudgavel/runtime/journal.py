"""The single writer: events go to the log and to the fold together, money along with them.

Whenever an event changes who is on an instance, what it costs or whether it exists, the ledger's
line up to that instant is written in front of it, so that each line has one price's bill and one
set of jobs.
"""

from collections.abc import Sequence

from cloudgavel.store import events as ev
from cloudgavel.store.fold import apply, fold
from cloudgavel.store.ledger import accrue, accrue_all, book_storage, waive
from cloudgavel.store.log import EventLog
from cloudgavel.store.records import RunState

_LEAVING = (
    ev.AttemptStopped,
    ev.AttemptLost,
    ev.AttemptFailed,
    ev.JobFinished,
    ev.JobFailed,
    ev.JobCancelled,
)


class Journal:
    """A log and the state that follows from it; ``state`` is always exactly the fold of the log."""

    def __init__(self, log: EventLog) -> None:
        """Fold what the log holds already."""
        self._log = log
        events = [event for _, event in log.read()]
        decisions = [n for n, event in enumerate(events) if isinstance(event, ev.RoundDecided)]
        self._since_decision = tuple(events[decisions[-1] if decisions else 0 :])
        self._state = fold(events)

    @property
    def since_decision(self) -> Sequence[ev.Event]:
        """The newest decision that the log held at the beginning, and what came after it."""
        return self._since_decision

    @property
    def state(self) -> RunState:
        """What is known now."""
        return self._state

    def record(self, *events: ev.Event) -> None:
        """Write events and the ledger lines they call for, in one transaction, then fold them.

        Nothing is folded when the log refuses the write.
        """
        state = self._state
        expanded: list[ev.Event] = []
        for event in events:
            for part in self._with_ledger(state, event):
                state = apply(state, part)
                expanded.append(part)
        if expanded:
            self._log.append(expanded)
            self._state = state

    def accrue_all(self, now_s: float) -> None:
        """Bring the ledger of every live instance up to ``now_s``."""
        self.record(*self.accrual(now_s))

    def accrual(self, now_s: float) -> Sequence[ev.Event]:
        """Return the event that brings every live instance up to ``now_s``, if there is any."""
        due = [
            (record.instance_id, now_s)
            for record in self._state.live_instances
            if record.accrued_until_s < now_s
        ]
        lines = accrue_all(self._state, due)
        found: list[ev.Event] = [ev.Accrued(at_s=now_s, lines=lines)] if lines else []
        kept = book_storage(self._state, now_s)
        return found if kept is None else [*found, kept]

    def _with_ledger(self, state: RunState, event: ev.Event) -> Sequence[ev.Event]:
        if isinstance(event, ev.AttemptStarted):
            return [*_lines_before(state, event.instance_ids, event.at_s), event]
        if isinstance(event, _LEAVING):
            attempt = state.jobs[event.job].current
            instance_ids = attempt.instance_ids if attempt is not None else ()
            return [*_lines_before(state, instance_ids, event.at_s), event]
        if isinstance(event, ev.InstanceEnded):
            line = accrue(state, event.instance_id, event.ended_at_s)
            lines = [ev.Accrued(at_s=event.at_s, lines=(line,))] if line is not None else []
            credit = waive(fold(lines, state), event)
            if credit is not None:
                lines.append(ev.Accrued(at_s=event.at_s, lines=(credit,)))
            return [*lines, event]
        if isinstance(event, ev.RunEnded):
            kept = book_storage(state, event.at_s)
            return [event] if kept is None else [kept, event]
        if isinstance(event, ev.PriceChanged):
            return _price_change(state, event)
        return [event]


def _lines_before(state: RunState, instance_ids: Sequence[str], at_s: float) -> list[ev.Event]:
    due = [
        (instance_id, at_s)
        for instance_id in instance_ids
        if state.instances[instance_id].alive
        and state.instances[instance_id].accrued_until_s < at_s
    ]
    lines = accrue_all(state, due)
    return [ev.Accrued(at_s=at_s, lines=lines)] if lines else []


def _price_change(state: RunState, event: ev.PriceChanged) -> list[ev.Event]:
    """A price known late corrects the lines since; one known in time has none to correct."""
    before = _lines_before(state, (event.instance_id,), event.at_s)
    changed = apply(state, before[0]) if before else state
    changed = apply(changed, event)
    until_s = changed.instances[event.instance_id].accrued_until_s
    line = accrue(changed, event.instance_id, until_s)
    after: list[ev.Event] = []
    if line is not None:
        after.append(ev.Accrued(at_s=max(event.at_s, until_s), lines=(line,)))
    return [*before, event, *after]
