"""Messages to the addresses under ``notify``: what is due, and their delivery beside the loop."""

import hashlib
import json
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from cloudgavel.documents.encode import as_json, iso_utc
from cloudgavel.documents.notification import NotificationDocument
from cloudgavel.store import events as ev
from cloudgavel.store.records import RunState
from cloudgavel.units import span, usd

BUDGET_SHARE = 0.8
END_OVERDUE_S = 600.0
"""A machine whose end was asked for so long ago, and not confirmed, may cost money unseen."""
ANSWER_S = 10.0
PAUSES_S = (1.0, 5.0, 25.0, 60.0)
"""Between tries; after the last one it is given up."""
LAST_WAIT_S = 20.0
"""How long the end of a run, or of its controller, waits for deliveries."""
_AGAIN = frozenset({408, 425, 429})


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One thing to tell; of equal keys only the first is told."""

    key: str
    kind: str
    text: str
    job: str | None = None


def due(state: RunState) -> tuple[Message, ...]:
    """Everything that a person should have been told by now, whether or not it was."""
    spec, budget = state.spec, state.budget_usd
    if spec is None:
        return ()
    found = []
    if budget is not None and state.spent_usd >= BUDGET_SHARE * budget:
        found.append(
            Message(
                key=f"budget:{budget:g}",
                kind="budget",
                text=f"{spec.name}: ${state.spent_usd:,.2f} of the budget of ${budget:,.2f} "
                "is spent",
            )
        )
    for promise in state.released:
        found.append(
            Message(
                key=f"promise:{promise.job}:{promise.promise}",
                kind="promise_released",
                job=promise.job,
                text=f"{spec.name}: the {promise.promise} of {promise.job} is no longer "
                f"promised: {promise.reason}",
            )
        )
    for instance_id, offer_id in state.orphans.items():
        found.append(
            Message(
                key=f"orphan:{instance_id}",
                kind="money_may_run",
                text=f"{spec.name}: {instance_id} ({offer_id}) carries this run's tag and is not "
                "known to it; it may cost money: `cloudgavel down` or `cloudgavel reap` ends it",
            )
        )
    for record in state.live_instances:
        asked_at_s = record.terminate_asked_at_s
        if asked_at_s is not None and state.at_s - asked_at_s >= END_OVERDUE_S:
            found.append(
                Message(
                    key=f"unended:{record.instance_id}",
                    kind="money_may_run",
                    text=f"{spec.name}: the end of {record.instance_id} was asked for "
                    f"{span(state.at_s - asked_at_s)} ago and is not confirmed; it may "
                    "cost money: `cloudgavel reap` looks again",
                )
            )
    if state.ended is not None:
        found.append(
            Message(
                key=f"ended:{state.ended_at_s}",
                kind="ended",
                text=f"{spec.name}: {state.ended.replace('_', ' ')}, "
                f"${state.spent_usd:,.2f} spent; no machine is left",
            )
        )
    return tuple(found)


def left_alone(state: RunState, why: str) -> Message | None:
    """What to tell when the controller goes and machines stay; ``None`` when none is left."""
    machines = state.live_instances
    if state.spec is None or not machines:
        return None
    return Message(
        key=f"left:{state.controllers}",
        kind="money_may_run",
        text=f"{state.spec.name}: the controller has left ({why}); machines that stay: "
        f"{len(machines)}, ${_usd_per_hour(state):,.2f}/h in all; "
        "the same `cloudgavel run` goes on, "
        "`cloudgavel down` ends them",
    )


def document_of(message: Message, state: RunState) -> NotificationDocument:
    """The message with the run's figures of now."""
    assert state.spec is not None
    return NotificationDocument(
        id=f"{state.run_id}/{message.key}",
        kind=message.kind,
        text=message.text,
        at=iso_utc(state.at_s),
        run_id=state.run_id,
        name=state.spec.name,
        rehearsal=state.rehearsal,
        state=state.ended or ("stopping" if state.stopping is not None else "running"),
        job=message.job,
        spent_usd=usd(state.spent_micro_usd),
        budget_usd=state.budget_usd,
        usd_per_hour=_usd_per_hour(state),
    )


def place_of(url: str) -> str:
    """What may be told of an address: its path often is the secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}"


def address_of(url: str) -> str:
    """A name for an address in the log, from which it cannot be read."""
    return hashlib.sha256(url.encode()).hexdigest()[:12]


class NotDelivered(Exception):
    """A try failed; ``again`` tells whether another one makes sense."""

    def __init__(self, why: str, *, again: bool) -> None:
        """``why`` names no address."""
        super().__init__(why)
        self.again = again


Post = Callable[[str, bytes], None]
"""Sends a body to an address; raises ``NotDelivered``."""


class Notifier:
    """Delivers in a thread of its own; never blocks the loop, never ends it.

    ``tell`` is called with the state after each step. ``delivered`` gives the events to write down:
    what they name is not told again, not even by the next controller. The end of a run is not
    written down: nobody comes after it who could repeat it.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        note: Callable[[str], None],
        post: "Post | None" = None,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        """``note`` takes a plain sentence about what could not be delivered."""
        self._urls = tuple(dict.fromkeys(urls))
        self._note = note
        self._post = post or post_json
        self._pauses_s = tuple(pauses_s)
        self._begun: set[tuple[str, str]] = set()
        self._jobs: queue.SimpleQueue[tuple[str, Message, bytes] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[str, Message, bool]] = queue.SimpleQueue()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def tell(self, state: RunState) -> None:
        """Begin to deliver what is due and was not told before."""
        if self._urls and state.spec is not None:
            for message in due(state):
                self.send(message, state, told=state.notified)

    def send(
        self, message: Message, state: RunState, *, told: Collection[tuple[str, str]] = ()
    ) -> None:
        """Begin to deliver one message to every address that it was not delivered to."""
        for url in self._urls:
            name = (message.key, address_of(url))
            if name in told or name in self._begun:
                continue
            self._begun.add(name)
            body = json.dumps(as_json(document_of(message, state))).encode()
            self._jobs.put((url, message, body))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
                self._thread.start()

    def delivered(self, at_s: float) -> list[ev.Event]:
        """Return what was delivered, or given up, since the last call."""
        events: list[ev.Event] = []
        while not self._results.empty():
            url, message, worked = self._results.get()
            events.append(
                ev.Notified(at_s=at_s, key=message.key, address=address_of(url), delivered=worked)
            )
        return events

    def close(self, wait_s: float = LAST_WAIT_S) -> None:
        """Wait for what is under way, at most ``wait_s`` seconds; what is left is lost."""
        if self._thread is None:
            return
        self._jobs.put(None)
        self._thread.join(wait_s)
        if self._thread.is_alive():
            self._note("notify: not every message could be delivered before the end")
        self._over.set()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            url, message, body = job
            self._results.put((url, message, self._deliver(url, message, body)))

    def _deliver(self, url: str, message: Message, body: bytes) -> bool:
        why = ""
        for pause_s in (*self._pauses_s, None):
            try:
                self._post(url, body)
                return True
            except NotDelivered as error:
                why = str(error)
                if not error.again or pause_s is None or self._over.wait(pause_s):
                    break
        self._note(f"notify: `{message.kind}` was not delivered to {place_of(url)}: {why}")
        return False


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET without its body."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def post_json(url: str, body: bytes, *, answer_s: float = ANSWER_S) -> None:
    """POST a JSON body; any 2xx is success. Raises ``NotDelivered``."""
    request = urllib.request.Request(
        url,
        data=body,
        method="POST",
        headers={"Content-Type": "application/json", "User-Agent": "cloudgavel"},
    )
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=answer_s) as answer:
            answer.read(1024)
    except urllib.error.HTTPError as error:
        again = error.code in _AGAIN or error.code >= 500
        raise NotDelivered(f"HTTP {error.code}", again=again) from None
    except Exception as error:
        # Whatever an address does must not end the controller.
        reason = getattr(error, "reason", error)
        raise NotDelivered(f"no answer ({type(reason).__name__})", again=True) from None


def unreachable(urls: Sequence[str], *, answer_s: float = 3.0) -> list[str]:
    """Return the places (without path) that cannot be connected to; nothing is sent."""
    import socket

    found = []
    for url in urls:
        parts = urlsplit(url)
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            socket.create_connection((parts.hostname or "", port), timeout=answer_s).close()
        except (OSError, ValueError):
            found.append(place_of(url))
    return found


def _usd_per_hour(state: RunState) -> float:
    return sum(record.price_usd_per_hour for record in state.live_instances)
