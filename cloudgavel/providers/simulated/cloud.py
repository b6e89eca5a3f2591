"""A cloud that exists as one value in virtual time."""

import copy
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cloudgavel.messages.codec import from_plain, to_plain
from cloudgavel.pricing.market import Market
from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.base import (
    EndReason,
    LaunchRequest,
    ListedInstance,
    MachineState,
    Quota,
)
from cloudgavel.providers.failures import CallFailed, FailureKind, LaunchFailed
from cloudgavel.providers.simulated.habits import CloudFaults, CloudHabits
from cloudgavel.providers.simulated.plain import PlainForms
from cloudgavel.providers.simulated.rented import ChangeKind, MachineChange, Rented


class SimulatedCloud:
    """Implements ``Provider`` over a market, with lag, quotas, faults and interruptions.

    An instance is PENDING until its machine works, then RUNNING, until it is interrupted, vanishes
    or is asked to end (TERMINATING, confirmed after ``habits.terminate_confirm_s``). A spot
    instance gets a notice before its interruption as its cloud gives one. Ids follow from the run's
    id and the order of launches; the same launches in the same market live the same lives.

    Several clouds' offers can be rented from one object. Instants are virtual UNIX seconds; time
    moves by ``advance_to`` alone. Not for several threads at once.
    """

    def __init__(
        self,
        *,
        offers: Sequence[Offer],
        market: Market,
        now_s: float,
        name: str = "simulated",
        quotas: Sequence[Quota] = (),
        habits: CloudHabits | None = None,
        faults: CloudFaults | None = None,
    ) -> None:
        self.name = name
        self.faults = faults or CloudFaults()
        self.launch_calls = 0
        """Launches that passed our own checks: what a real cloud would have been asked."""
        self._habits = habits or CloudHabits()
        self._offers: Mapping[str, Offer] = {offer.offer_id: offer for offer in offers}
        self._market = market
        self._quotas = tuple(quotas)
        self._now_s = now_s
        self._rented: dict[str, Rented] = {}
        self._id_by_token: dict[str, str] = {}
        self._active: dict[str, Rented] = {}
        """Those not TERMINATED; the rest never changes."""
        self._changes: dict[str, tuple[float, ChangeKind, EndReason | None]] = {}
        self._launched_of_offer: dict[str, int] = {}
        self._launched_of_run: dict[str, int] = {}
        self._listeners: list[Callable[[MachineChange], None]] = []
        self._plain = PlainForms()
        self._priced_offers: tuple[Offer, ...] = ()
        self._priced_until_s: float | None = None
        self._priced = False

    # -- Provider ---------------------------------------------------------------------------

    def offers(self) -> Sequence[Offer]:
        """Every offer at the market's price now; without a price = not to be had."""
        if not self._priced or (
            self._priced_until_s is not None and self._now_s >= self._priced_until_s
        ):
            changes = [
                change_at_s
                for offer in self._offers.values()
                if (change_at_s := self._market.next_price_change_s(offer, self._now_s)) is not None
            ]
            self._priced_offers = tuple(self._at_price_now(o) for o in self._offers.values())
            self._priced_until_s = min(changes, default=None)
            self._priced = True
        return self._priced_offers

    def boot_s(self, offer: Offer) -> float:
        """Seconds that a machine of this kind is expected to take; the real one may differ."""
        return self._market.boot_s(self._offers.get(offer.offer_id, offer), 0)

    def quotas(self) -> Sequence[Quota]:
        """Return the account's limits, as given."""
        return self._quotas

    def launch(self, request: LaunchRequest) -> ListedInstance:
        """Rent one instance, or return the one that this token already rented."""
        known = self._id_by_token.get(request.token)
        if known is not None:
            return self._listed(self._rented[known])
        offer = self._offers.get(request.offer.offer_id)
        if offer is None:
            raise self._refusal(FailureKind.INVALID, "is not offered here", request, "NoSuchOffer")
        self._check_quota(offer, request)
        self.launch_calls += 1
        self._fail_if_asked(request)
        price = self._market.price_usd_per_hour(offer, self._now_s)
        if price is None:
            raise self._refusal(FailureKind.INVALID, "has no price", request, "NoPrice")
        if offer.zone in self.faults.refused_zones or not self._market.capacity_available(
            offer, self._now_s
        ):
            raise self._refusal(
                FailureKind.CAPACITY, "is not to be had now", request, "InsufficientCapacity"
            )
        rented = self._rent(offer, request, price)
        self.advance_to(self._now_s)
        if self.faults.unanswered_launches > 0:
            self.faults.unanswered_launches -= 1
            raise self._refusal(FailureKind.UNREACHABLE, "got no answer", request, "Timeout")
        return self._listed(rented)

    def list_instances(self, run_id: str) -> Sequence[ListedInstance]:
        """Return the run's instances by launch; new ones may be missing, ended ones linger."""
        if self.faults.failing_lists > 0:
            self.faults.failing_lists -= 1
            raise CallFailed(FailureKind.UNREACHABLE, "the list of instances got no answer")
        return [
            self._listed(rented)
            for rented in self._rented.values()
            if rented.run_id == run_id
            and self._now_s >= rented.launched_at_s + self._habits.list_lag_s
            and (
                rented.ended_at_s is None
                or self._now_s <= rented.ended_at_s + self._habits.ended_listed_s
            )
        ]

    def price_changes(self, instance_id: str, since_s: float) -> Sequence[tuple[float, float]]:
        """Changes in ``(since_s, now]`` while the instance bills; none for one not known."""
        rented = self._rented.get(instance_id)
        if rented is None:
            return []
        offer = self._offers[rented.offer_id]
        until_s = self._now_s if rented.ended_at_s is None else rented.ended_at_s
        at_s = max(since_s, rented.launched_at_s)
        price = self._market.price_usd_per_hour(offer, at_s)
        changes: list[tuple[float, float]] = []
        while True:
            change_at_s = self._market.next_price_change_s(offer, at_s)
            if change_at_s is None or change_at_s > until_s:
                return changes
            at_s = change_at_s
            new_price = self._market.price_usd_per_hour(offer, at_s)
            if new_price is not None and new_price != price:
                changes.append((at_s, new_price))
                price = new_price

    def terminate(self, instance_id: str) -> None:
        """Ask for an end; fine for one that is ending, ended or unknown."""
        if self.faults.failing_terminates > 0:
            self.faults.failing_terminates -= 1
            raise CallFailed(FailureKind.UNREACHABLE, f"the end of {instance_id} got no answer")
        rented = self._rented.get(instance_id)
        if rented is None or not rented.live:
            return
        self._tell(MachineChange(at_s=self._now_s, kind=ChangeKind.ENDING, instance_id=instance_id))
        rented.state = MachineState.TERMINATING
        rented.end_confirmed_at_s = self._now_s + self._habits.terminate_confirm_s
        self._changes.pop(instance_id, None)
        self.advance_to(self._now_s)

    # -- time -------------------------------------------------------------------------------

    def now_s(self) -> float:
        """Return the cloud's present instant."""
        return self._now_s

    def next_event_at_s(self) -> float | None:
        """Next change of a machine, or of the price of a live one, strictly after now."""
        ahead = [self._change_of(rented)[0] for rented in self._active.values()]
        for offer_id in {rented.offer_id for rented in self._active.values()}:
            price_at_s = self._market.next_price_change_s(self._offers[offer_id], self._now_s)
            if price_at_s is not None:
                ahead.append(price_at_s)
        return min((at_s for at_s in ahead if self._now_s < at_s < math.inf), default=None)

    def advance_to(self, at_s: float) -> None:
        """Move to ``at_s``, changes in order of time; ``ValueError`` for going back."""
        if at_s < self._now_s:
            raise ValueError(f"time went back from {self._now_s} to {at_s}")
        while True:
            rented = min(
                self._active.values(), key=lambda item: self._change_of(item)[0], default=None
            )
            if rented is None or self._change_of(rented)[0] > at_s:
                break
            self._now_s = max(self._now_s, self._change_of(rented)[0])
            self._apply(rented)
        self._now_s = at_s

    # -- what lives on the machines ---------------------------------------------------------

    def subscribe(self, listener: Callable[[MachineChange], None]) -> None:
        """Call ``listener`` at each change: after a machine is ready, before it is gone."""
        self._listeners.append(listener)

    def machine_state(self, instance_id: str) -> MachineState | None:
        """Return a machine's state without the lists' lag; ``None`` = never rented."""
        rented = self._rented.get(instance_id)
        return None if rented is None else rented.state

    def offer_of(self, instance_id: str) -> Offer:
        """Return the catalogue's offer of a rented instance (``KeyError`` if there is none)."""
        return self._offers[self._rented[instance_id].offer_id]

    def end_reason(self, instance_id: str) -> EndReason | None:
        """Return why an instance ended; ``None`` = it has not, or never was."""
        rented = self._rented.get(instance_id)
        return None if rented is None else rented.end_reason

    def instance_ids(self) -> Sequence[str]:
        """Return every instance ever rented, by launch."""
        return list(self._rented)

    def end(self, instance_id: str, reason: EndReason, at_s: float) -> None:
        """Record the end of a live machine by itself at ``at_s`` (now, or a moment ago)."""
        rented = self._rented[instance_id]
        if rented.live:
            self._finish(rented, at_s, reason)

    def vanish_at(self, instance_id: str, at_s: float) -> None:
        """Let a live machine vanish without a word at ``at_s`` (now or later)."""
        rented = self._rented[instance_id]
        if rented.live:
            rented.vanishes_at_s = max(at_s, self._now_s)
            self._changes.pop(instance_id, None)

    # -- persistence ------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Everything but offers, market, quotas and habits, as JSON values."""
        return {
            "now_s": self._now_s,
            "launch_calls": self.launch_calls,
            "rented": [
                to_plain(rented)
                if instance_id in self._active
                else self._plain.of(instance_id, rented)
                for instance_id, rented in self._rented.items()
            ],
            "faults": {
                **to_plain(replace(self.faults, refused_zones=set())),
                "refused_zones": sorted(self.faults.refused_zones),
            },
        }

    @classmethod
    def from_json(
        cls,
        saved: Mapping[str, Any],
        *,
        offers: Sequence[Offer],
        market: Market,
        name: str = "simulated",
        quotas: Sequence[Quota] = (),
        habits: CloudHabits | None = None,
    ) -> "SimulatedCloud":
        """Resume a saved cloud under the same market; its future is the one it had."""
        faults = {**saved["faults"], "refused_zones": set(saved["faults"]["refused_zones"])}
        cloud = cls(
            offers=offers,
            market=market,
            now_s=float(saved["now_s"]),
            name=name,
            quotas=quotas,
            habits=habits,
            faults=CloudFaults(**faults),
        )
        cloud.launch_calls = int(saved["launch_calls"])
        for item in saved["rented"]:
            cloud._remember(from_plain("rented instance", Rented, item))
        return cloud

    def copy(self) -> "SimulatedCloud":
        """Return a cloud in the same state that goes its own way; nobody listens to it yet."""
        twin = copy.copy(self)
        twin.faults = replace(self.faults, refused_zones=set(self.faults.refused_zones))
        twin._rented = {
            instance_id: replace(rented) if instance_id in self._active else rented
            for instance_id, rented in self._rented.items()
        }
        twin._active = {instance_id: twin._rented[instance_id] for instance_id in self._active}
        twin._changes = dict(self._changes)
        twin._id_by_token = dict(self._id_by_token)
        twin._launched_of_offer = dict(self._launched_of_offer)
        twin._launched_of_run = dict(self._launched_of_run)
        twin._listeners = []
        return twin

    # -- inside -----------------------------------------------------------------------------

    def _rent(self, offer: Offer, request: LaunchRequest, price: float) -> Rented:
        ordinal_of_offer = self._launched_of_offer.get(offer.offer_id, 0)
        ordinal = self._launched_of_run.get(request.run_id, 0) + 1
        run_digest = hashlib.blake2b(request.run_id.encode(), digest_size=3).hexdigest()
        interrupted_at_s = None
        if offer.capacity_type is CapacityType.SPOT:
            interrupted_at_s = self._market.interruption_at_s(offer, ordinal_of_offer, self._now_s)
        notice_s = self._habits.notice_s(offer)
        notice_at_s = None
        if interrupted_at_s is not None and notice_s > 0:
            notice_at_s = max(self._now_s, interrupted_at_s - notice_s)
        rented = Rented(
            instance_id=f"{offer.provider}-{run_digest}-{ordinal:04d}",
            token=request.token,
            run_id=request.run_id,
            offer_id=offer.offer_id,
            launched_at_s=self._now_s,
            ready_at_s=self._now_s + self._market.boot_s(offer, ordinal_of_offer),
            expected_ready_at_s=self._now_s + self.boot_s(offer),
            launch_price_usd_per_hour=price,
            interrupted_at_s=interrupted_at_s,
            notice_at_s=notice_at_s,
        )
        self._remember(rented)
        return rented

    def _remember(self, rented: Rented) -> None:
        self._rented[rented.instance_id] = rented
        self._id_by_token[rented.token] = rented.instance_id
        if rented.state is not MachineState.TERMINATED:
            self._active[rented.instance_id] = rented
        for counts, key in (
            (self._launched_of_offer, rented.offer_id),
            (self._launched_of_run, rented.run_id),
        ):
            counts[key] = counts.get(key, 0) + 1

    def _change_of(self, rented: Rented) -> tuple[float, ChangeKind, EndReason | None]:
        """Its next change, kept until something about it is altered."""
        known = self._changes.get(rented.instance_id)
        if known is None:
            known = rented.next_change() or (math.inf, ChangeKind.ENDED, None)
            self._changes[rented.instance_id] = known
        return known

    def _apply(self, rented: Rented) -> None:
        at_s, kind, reason = self._change_of(rented)
        self._changes.pop(rented.instance_id)
        if kind is ChangeKind.ENDED:
            assert reason is not None
            self._finish(rented, at_s, reason)
            return
        ends_at_s = None
        if kind is ChangeKind.READY:
            rented.state = MachineState.RUNNING
        else:
            rented.noticed = True
            ends_at_s = rented.interrupted_at_s
        self._tell(
            MachineChange(at_s=at_s, kind=kind, instance_id=rented.instance_id, ends_at_s=ends_at_s)
        )

    def _finish(self, rented: Rented, at_s: float, reason: EndReason) -> None:
        self._tell(
            MachineChange(
                at_s=at_s, kind=ChangeKind.ENDED, instance_id=rented.instance_id, reason=reason
            )
        )
        if rented.state is MachineState.TERMINATED:
            return  # It turned out to have switched itself off a moment before.
        rented.state = MachineState.TERMINATED
        rented.ended_at_s = at_s
        rented.end_reason = reason
        self._active.pop(rented.instance_id, None)
        self._changes.pop(rented.instance_id, None)

    def _tell(self, change: MachineChange) -> None:
        for listener in self._listeners:
            listener(change)

    def _check_quota(self, offer: Offer, request: LaunchRequest) -> None:
        for quota in self._quotas:
            units = quota.units_per_instance.get(offer.offer_id, 0.0)
            if units <= 0:
                continue
            used = sum(
                quota.units_per_instance.get(rented.offer_id, 0.0)
                for rented in self._active.values()
            )
            if used + units > quota.limit + 1e-9:
                raise self._refusal(
                    FailureKind.QUOTA,
                    f"needs {units:g} of quota {quota.name}: {used:g} of {quota.limit:g} are used",
                    request,
                    "QuotaExceeded",
                )

    def _fail_if_asked(self, request: LaunchRequest) -> None:
        if self.faults.lost_launches > 0:
            self.faults.lost_launches -= 1
            raise self._refusal(FailureKind.UNREACHABLE, "got no answer", request, "Timeout")
        if self.faults.throttled_launches > 0:
            self.faults.throttled_launches -= 1
            raise self._refusal(
                FailureKind.THROTTLED, "was asked for too often", request, "RequestLimitExceeded"
            )

    def _refusal(
        self, kind: FailureKind, problem: str, request: LaunchRequest, code: str
    ) -> LaunchFailed:
        offer_id = request.offer.offer_id
        return LaunchFailed(kind, f"{offer_id} {problem}", offer_id=offer_id, code=code)

    def _at_price_now(self, offer: Offer) -> Offer:
        price = self._market.price_usd_per_hour(offer, self._now_s)
        if price == offer.price_usd_per_hour:
            return offer
        return replace(offer, price_usd_per_hour=price)

    def _listed(self, rented: Rented) -> ListedInstance:
        offer = self._offers[rented.offer_id]
        priced_at_s = self._now_s if rented.ended_at_s is None else rented.ended_at_s
        price = self._market.price_usd_per_hour(offer, priced_at_s)
        return ListedInstance(
            instance_id=rented.instance_id,
            token=rented.token,
            run_id=rented.run_id,
            offer_id=rented.offer_id,
            state=rented.state,
            launched_at_s=rented.launched_at_s,
            price_usd_per_hour=rented.launch_price_usd_per_hour if price is None else price,
            expected_ready_at_s=rented.expected_ready_at_s,
            ended_at_s=rented.ended_at_s,
            end_reason=rented.end_reason,
            notice_ends_at_s=rented.interrupted_at_s if rented.noticed else None,
        )
