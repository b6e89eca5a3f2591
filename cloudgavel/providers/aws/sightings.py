"""What this process saw of its instances: starts by our clock, ends that Amazon forgets."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cloudgavel.providers.aws.translate import Ec2Instance
from cloudgavel.providers.base import EndReason, LaunchRequest, ListedInstance, MachineState

ENDED_LISTED_S = 6 * 3600.0
REPLAY_AGE_S = 150.0
"""A machine this much older than the call that returned it was started by an earlier call.

More than two minutes: so far apart two clocks may be."""


@dataclass(slots=True)
class Sighting:
    """One instance, as it was at the last look."""

    listed: ListedInstance
    region: str
    launched_here_at_s: float | None = None
    """Our clock at the launch; ``None`` = launched by an earlier process."""
    asked_to_end_at_s: float | None = None


class Sightings:
    """Turns descriptions into lines of a list; safe between threads.

    Instants are our clock's where this process was there, Amazon's otherwise. An instance that was
    seen to have ended does not change any more, and stays listed for ``ENDED_LISTED_S``.
    """

    def __init__(
        self,
        *,
        now_s: Callable[[], float],
        grace_s: float,
        price_of: Callable[[str, float | None, float | None], float],
        boot_s_of: Callable[[str], float],
    ) -> None:
        """``price_of(offer_id, otherwise, at_s)``: USD per hour; ``boot_s_of(offer_id)``."""
        self._now_s = now_s
        self._grace_s = grace_s
        self._price_of = price_of
        self._boot_s_of = boot_s_of
        self._known: dict[str, Sighting] = {}
        self._notices: dict[str, float] = {}
        self._lock = threading.Lock()

    def get(self, instance_id: str) -> Sighting | None:
        """Return what is known of an instance."""
        with self._lock:
            return self._known.get(instance_id)

    def launched(
        self, found: Ec2Instance, request: LaunchRequest, *, called_at_s: float | None
    ) -> ListedInstance:
        """Take note of a launch's answer; ``called_at_s`` ``None`` = found, not launched."""
        with self._lock:
            if found.instance_id in self._known:
                return self._seen(found, self._now_s())
            at_s = self._launch_instant(found, called_at_s)
            offer = request.offer
            listed = ListedInstance(
                instance_id=found.instance_id,
                token=request.token,
                run_id=request.run_id,
                offer_id=offer.offer_id,
                state=found.state,
                launched_at_s=at_s,
                price_usd_per_hour=self._price_of(offer.offer_id, offer.price_usd_per_hour, None),
                expected_ready_at_s=at_s + self._boot_s_of(offer.offer_id),
                ended_at_s=found.ended_at_s,
                end_reason=found.end_reason,
            )
            self._known[found.instance_id] = Sighting(
                listed=listed, region=found.region, launched_here_at_s=called_at_s
            )
            return listed

    def listing(self, found: Sequence[Ec2Instance], run_id: str) -> list[ListedInstance]:
        """Bring everything up to date; return the run's lines by id, recently ended ones too."""
        now_s = self._now_s()
        with self._lock:
            listed = {each.instance_id: self._seen(each, now_s) for each in found}
            for instance_id, known in self._known.items():
                if instance_id in listed or known.listed.run_id != run_id:
                    continue
                ended_at_s = known.listed.ended_at_s
                # Amazon forgets an ended instance within the hour; we are to keep it longer.
                if ended_at_s is not None and now_s - ended_at_s <= ENDED_LISTED_S:
                    listed[instance_id] = known.listed
        return [listed[instance_id] for instance_id in sorted(listed)]

    def noticed(self, ends_at_s_by_id: Iterable[tuple[str, float]]) -> None:
        """Take note of interruptions to come; the first word on an instance counts."""
        with self._lock:
            for instance_id, ends_at_s in ends_at_s_by_id:
                self._notices.setdefault(instance_id, ends_at_s)

    def asked_to_end(self, instance_id: str) -> None:
        """Take note that the end of an instance was asked for; the first time counts."""
        with self._lock:
            known = self._known.get(instance_id)
            if known is not None and known.asked_to_end_at_s is None:
                known.asked_to_end_at_s = self._now_s()

    def is_young(self, known: Sighting) -> bool:
        """True while EC2 may not know an instance that was launched here."""
        launched_at_s = known.launched_here_at_s
        return launched_at_s is not None and self._now_s() - launched_at_s <= self._grace_s

    def _seen(self, found: Ec2Instance, now_s: float) -> ListedInstance:
        known = self._known.get(found.instance_id)
        before = known.listed if known is not None else None
        if before is not None and before.state is MachineState.TERMINATED:
            return before
        launched_at_s = (
            before.launched_at_s if before is not None else self._launch_instant(found, None)
        )
        asked_at_s = known.asked_to_end_at_s if known is not None else None
        ended_at_s = None
        reason = found.end_reason
        if found.state is MachineState.TERMINATED:
            said_s = found.ended_at_s
            earliest_s = launched_at_s if asked_at_s is None else max(launched_at_s, asked_at_s)
            if said_s is not None and earliest_s <= said_s <= now_s:
                ended_at_s = said_s
            elif before is not None:
                # We saw it alive at the last look: it ended since.
                ended_at_s = now_s
            if reason is None and asked_at_s is not None:
                reason = EndReason.REQUESTED
        listed = ListedInstance(
            instance_id=found.instance_id,
            token=found.token,
            run_id=found.run_id,
            offer_id=found.offer_id,
            state=found.state,
            launched_at_s=launched_at_s,
            price_usd_per_hour=self._price_of(
                found.offer_id,
                found.price_usd_per_hour if before is None else before.price_usd_per_hour,
                ended_at_s,
            ),
            expected_ready_at_s=launched_at_s + self._boot_s_of(found.offer_id),
            ended_at_s=ended_at_s,
            end_reason=reason if found.state is MachineState.TERMINATED else None,
            notice_ends_at_s=self._notices.get(found.instance_id),
        )
        if known is None:
            self._known[found.instance_id] = Sighting(listed=listed, region=found.region)
        else:
            known.listed = listed
        return listed

    def _launch_instant(self, found: Ec2Instance, called_at_s: float | None) -> float:
        """Our clock at the call, unless the call only found what an earlier one had started."""
        said_s = found.launched_at_s
        if called_at_s is not None and (said_s is None or said_s > called_at_s - REPLAY_AGE_S):
            return called_at_s
        now_s = self._now_s()
        return now_s if said_s is None else min(said_s, now_s)
