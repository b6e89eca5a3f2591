"""Carries out what is written down: launches by intent, ends, orders; decides nothing.

Calls to a cloud run in a bounded pool; their outcomes are written by the caller's thread alone.
An offer that refused is written down before the next one is asked for, so that after a crash the
same token goes on where it was and never asks for a second machine.
"""

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait

from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.base import AgentChannel, LaunchRequest, ListedInstance, Provider
from cloudgavel.providers.failures import FailureKind, LaunchFailed
from cloudgavel.providers.tags import tags_of
from cloudgavel.runtime.journal import Journal
from cloudgavel.runtime.orders import job_orders, numbered
from cloudgavel.runtime.settings import LoopSettings
from cloudgavel.store import events as ev
from cloudgavel.store.records import IntentRecord, RunState

_REPEATED = (FailureKind.UNREACHABLE, FailureKind.THROTTLED)
"""The same call is made again, with the same token: the intent stays open."""


class DirectExecutor(Executor):
    """Runs every call at once in the caller's thread: virtual time needs no threads."""

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        """Call ``fn`` now and return its finished future."""
        future: Future[object] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class Actuator:
    """The hands of a loop."""

    def __init__(
        self,
        *,
        journal: Journal,
        provider: Provider,
        channel: AgentChannel,
        settings: LoopSettings,
        pool: Executor,
        paced: bool,
        note: Callable[[str], None],
    ) -> None:
        """``note`` takes a plain sentence about a call that went wrong."""
        self._journal = journal
        self._provider = provider
        self._channel = channel
        self._settings = settings
        self._pool = pool
        self._paced = paced
        self._note = note
        self._retry_at_s: dict[str, float] = {}
        self._terminate_at_s: dict[str, float] = {}
        self._sent: dict[str, object] = {}
        self._count = 0

    def next_at_s(self) -> float | None:
        """When a call is to be repeated; ``None`` = none is."""
        state = self._journal.state
        times = [at for token, at in self._retry_at_s.items() if token in state.intents]
        times += [
            at
            for instance_id, at in self._terminate_at_s.items()
            if instance_id in state.orphans
            or (instance_id in state.instances and state.instances[instance_id].alive)
        ]
        return min(times, default=None)

    def finish_intents(self, now_s: float) -> bool:
        """Ask for every open intent that is due, until each is granted, refused or unanswered.

        True when one of them came to nothing.
        """
        before = set(self._journal.state.intents)
        running: dict[Future[ListedInstance], tuple[str, Offer]] = {}
        for token in sorted(self._journal.state.intents):
            if self._retry_at_s.get(token, now_s) <= now_s:
                self._ask(token, now_s, running)
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=lambda each: running[each][0]):
                token, offer = running.pop(future)
                self._retry_at_s.pop(token, None)
                self._outcome(token, offer, future, now_s)
                if token in self._journal.state.intents and token not in self._retry_at_s:
                    self._ask(token, now_s, running)
        state = self._journal.state
        return any(
            token not in state.intents and token not in state.instance_of_token for token in before
        )

    def terminate(self, now_s: float) -> None:
        """Ask for the end of everything that is to end and is not confirmed to have."""
        state = self._journal.state
        due = [
            record.instance_id
            for record in state.live_instances
            if record.terminate_asked_at_s is not None
        ]
        if state.stopping is not None or not state.active_jobs:
            due += sorted(state.orphans)
        futures = {}
        for instance_id in due:
            if self._terminate_at_s.get(instance_id, now_s) <= now_s:
                self._terminate_at_s[instance_id] = now_s + self._settings.terminate_retry_s
                futures[instance_id] = self._pool.submit(self._provider.terminate, instance_id)
        for instance_id, future in futures.items():
            error = future.exception()
            if error is not None:
                self._note(f"{instance_id} is not ended yet, asking again: {error}")

    def send_orders(self) -> None:
        """Send every live instance the orders that follow from the log, where they changed."""
        state = self._journal.state
        reports = None
        for record in state.live_instances:
            if record.ready_at_s is None:
                continue
            jobs = job_orders(state, record.instance_id, self._settings, paced=self._paced)
            if self._sent.get(record.instance_id, ()) == jobs:
                continue
            if reports is None:
                reports = self._channel.reports()
            report = reports.get(record.instance_id)
            self._count += 1
            self._channel.send(
                numbered(
                    state,
                    record.instance_id,
                    jobs,
                    self._settings,
                    count=self._count,
                    seen=report.sequence_seen if report is not None else 0,
                )
            )
            self._sent[record.instance_id] = jobs

    def forget_orders(self) -> None:
        """Send all orders anew at the next ``send_orders`` (after a start)."""
        self._sent = {record.instance_id: None for record in self._journal.state.live_instances}

    def _ask(
        self, token: str, now_s: float, running: dict[Future[ListedInstance], tuple[str, Offer]]
    ) -> None:
        state = self._journal.state
        intent = state.intents[token]
        offer = intent.next_offer
        if offer is None:
            self._close(token, intent, now_s)
            return
        request = LaunchRequest(
            token=token,
            run_id=state.run_id,
            offer=offer,
            tags=tags_of(
                run_id=state.run_id, token=token, offer_id=offer.offer_id, gang=intent.gang
            ),
        )
        running[self._pool.submit(self._provider.launch, request)] = (token, offer)

    def _close(self, token: str, intent: IntentRecord, now_s: float) -> None:
        last = intent.offers[-1]
        self._journal.record(
            ev.LaunchFailed(
                at_s=now_s,
                token=token,
                offer_id=last.offer_id,
                failure="cancelled",
                message="no longer wanted" if intent.terminate_asked else "",
                closes_intent=True,
            )
        )

    def _outcome(
        self, token: str, offer: Offer, future: Future[ListedInstance], now_s: float
    ) -> None:
        error = future.exception()
        if error is None:
            listed = future.result()
            intent = self._journal.state.intents[token]
            granted = next((o for o in intent.offers if o.offer_id == listed.offer_id), offer)
            self._journal.record(
                ev.LaunchSucceeded(
                    at_s=now_s,
                    token=token,
                    instance_id=listed.instance_id,
                    offer=granted,
                    launched_at_s=listed.launched_at_s,
                    price_usd_per_hour=listed.price_usd_per_hour,
                    expected_ready_at_s=listed.expected_ready_at_s,
                )
            )
            return
        if not isinstance(error, LaunchFailed):
            if not isinstance(error, Exception):
                raise error
            error = LaunchFailed(FailureKind.UNREACHABLE, str(error), offer_id=offer.offer_id)
        if error.kind in _REPEATED:
            slow = error.kind is FailureKind.UNREACHABLE
            wait_s = (
                self._settings.unreachable_retry_s if slow else self._settings.throttled_retry_s
            )
            self._retry_at_s[token] = now_s + wait_s
            self._note(f"{offer.offer_id}: {error.message}; the same request is repeated")
            return
        intent = self._journal.state.intents[token]
        others = [o for o in intent.offers if o.offer_id not in (*intent.tried, offer.offer_id)]
        self._journal.record(
            ev.LaunchFailed(
                at_s=now_s,
                token=token,
                offer_id=offer.offer_id,
                failure=error.kind,
                message=error.message,
                closes_intent=intent.terminate_asked or not others,
                blocked_until_s=now_s + self._block_s(error.kind, offer, self._journal.state),
            )
        )

    def _block_s(self, kind: FailureKind, offer: Offer, state: RunState) -> float:
        settings = self._settings
        if kind is FailureKind.QUOTA:
            return settings.quota_block_s
        if kind is FailureKind.INVALID:
            return settings.invalid_block_s
        if kind is FailureKind.CREDENTIALS:
            return settings.credentials_block_s
        before = state.blocked.get(offer.offer_id)
        refusals = before.refusals if before is not None else 0
        return float(
            min(settings.capacity_block_cap_s, settings.capacity_block_s * 2.0 ** min(refusals, 20))
        )
