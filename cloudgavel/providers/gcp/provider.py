"""Google Cloud as a provider: launch, list, end; every promise of ``providers.base``."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NoReturn

from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.base import (
    EndReason,
    LaunchRequest,
    ListedInstance,
    MachineState,
    Quota,
)
from cloudgavel.providers.failures import FailureKind, LaunchFailed
from cloudgavel.providers.gcp import validate
from cloudgavel.providers.gcp.clients import GcpClients
from cloudgavel.providers.gcp.compute import (
    NOTICE_S,
    Created,
    Listing,
    Machines,
    Stories,
    preempted_at_s,
)
from cloudgavel.providers.gcp.facts import Facts, ImageNotFound
from cloudgavel.providers.gcp.failures import (
    OperationFailed,
    call_failed,
    explain,
    is_switched_off,
)
from cloudgavel.providers.gcp.prices import BillingPrices
from cloudgavel.providers.gcp.quotas import (
    Limit,
    limits_of,
    quotas_of,
    read_project_limits,
    read_region_limits,
)
from cloudgavel.providers.gcp.settings import GcpSettings
from cloudgavel.providers.gcp.startup import start_script
from cloudgavel.providers.gcp.tpu import Slices
from cloudgavel.providers.gcp.translate import (
    TPU_PREFIX,
    GcpMachine,
    host_and_gpus,
    instance_body,
    instance_name,
    is_ours,
    is_tpu_offer,
    node_body,
    request_id,
)

log = logging.getLogger("cloudgavel.gcp")

ENDED_LISTED_S = 6 * 3600.0
REPLAY_AGE_S = 60.0
"""A machine this much older than the call that returned it was started by an earlier call."""
BOOT_S = 120.0
BIG_BOOT_S = 240.0
"""a2 and a3 machines of eight GPUs and more."""
TPU_BOOT_S = 240.0
MOST_LOOK_UPS = 16
_MACHINES = "machines"
_SLICES = "TPU slices"


@dataclass(slots=True)
class _Known:
    """What this process saw of one machine."""

    listed: ListedInstance
    zone: str
    is_tpu: bool
    launched_here_at_s: float | None = None
    """Our clock at the launch; ``None`` = launched by an earlier process."""
    asked_to_end_at_s: float | None = None
    deletion: str | None = None
    """The operation that deletes it."""
    open_insertion: str | None = None
    """The operation that makes it, while it is undecided."""
    never_was: bool = False
    """That operation failed after all: nothing was rented."""


class GcpProvider:
    """Implements ``Provider`` on Compute Engine and Cloud TPU; safe between threads.

    Instants are those of ``now_s`` where this process was there, Google's otherwise. Offers come
    from the catalogue that is handed in; prices are read over it. Nothing is asked of Google before
    the first verb is used.

    A failed insertion is failed for good: Google answers a repeat of the same token and offer with
    the same failure for an hour, so what is tried again needs a new token.
    """

    name = "gcp"

    def __init__(
        self,
        *,
        settings: GcpSettings,
        catalogue: Sequence[Offer],
        now_s: Callable[[], float],
        clients: GcpClients | None = None,
        pause: Callable[[float], None] = time.sleep,
        read_prices: bool = True,
    ) -> None:
        """``read_prices=False`` leaves the catalogue's prices; ``pause`` waits between looks."""
        mine = [offer for offer in catalogue if offer.provider == "gcp"]
        self._settings = settings
        self._now_s = now_s
        self._clients = clients or GcpClients()
        self._offers: Mapping[str, Offer] = {
            offer.offer_id: offer
            for offer in mine
            if offer.region in settings.regions and validate.unrentable(offer) is None
        }
        machines = [offer for offer in self._offers.values() if not is_tpu_offer(offer)]
        slices = [offer for offer in self._offers.values() if is_tpu_offer(offer)]
        self._facts = Facts(
            self._clients,
            settings=settings,
            machine_types={host_and_gpus(offer.instance_type)[0] for offer in machines},
            tpu_zones={offer.zone for offer in slices},
            now_s=now_s,
        )
        self._machines = Machines(self._clients, settings=settings, pause=pause)
        self._slices = Slices(self._clients, settings=settings, pause=pause)
        self._kinds: dict[str, Callable[[str], Listing]] = {}
        if machines:
            self._kinds[_MACHINES] = self._machines.of_run
        if slices:
            self._kinds[_SLICES] = self._slices.of_run
        self._prices = BillingPrices(
            self._clients,
            catalogue=tuple(self._offers.values()),
            now_s=now_s,
            age_s=settings.prices_age_s,
        )
        self._read_prices = read_prices
        self._limits: dict[str, tuple[float, list[Limit]]] = {}
        self._known: dict[str, _Known] = {}
        self._last_lists: dict[tuple[str, str], Listing] = {}
        self._lock = threading.Lock()
        self._limits_lock = threading.Lock()

    # -- Provider ---------------------------------------------------------------------------

    def offers(self) -> Sequence[Offer]:
        """Return the catalogue's offers that this project's zones sell, at today's prices.

        ``CallFailed`` when Google has never answered; later silence leaves what was known.
        """
        try:
            zones = self._facts.zones()
        except Exception as error:
            raise call_failed(error, f"look up what is offered in {self._project}") from error
        sold = [
            offer
            for offer in self._offers.values()
            if offer.zone in zones and validate.not_sold(offer, zones[offer.zone]) is None
        ]
        if not self._read_prices:
            return tuple(sold)
        self._prices.renew()
        return self._prices.offers_now(sold)

    def boot_s(self, offer: Offer) -> float:
        """Seconds from the call to an agent that takes orders, by experience of the kind."""
        if is_tpu_offer(offer):
            return TPU_BOOT_S
        return BIG_BOOT_S if offer.accelerators_per_instance >= 8 else BOOT_S

    def quotas(self) -> Sequence[Quota]:
        """Return the project's limits on GPUs and cores over the offers.

        Limits that may not be read, of newer GPUs and of TPUs are unknown, and unknown is not zero.
        """
        quotas = quotas_of(self._all_limits(), self._offers.values())
        if self._settings.max_instances is None:
            return quotas
        own = Quota(
            name="gcp max_instances",
            limit=float(self._settings.max_instances),
            units_per_instance=dict.fromkeys(self._offers, 1.0),
        )
        return (own, *quotas)

    def launch(self, request: LaunchRequest) -> ListedInstance:
        """Rent one machine, or return the one that this very request already rented.

        The request is judged first (``gcp.validate``); one that breaks a rule, or a limit that
        allows none, fails without a call that could create anything.
        """
        offer = request.offer
        try:
            zones = self._facts.zones()
        except Exception as error:
            self._refuse_for(error, offer)
        self._refuse(
            validate.offer_problems(
                offer, zones.get(offer.zone), in_catalogue=offer.offer_id in self._offers
            ),
            offer,
        )
        self._refuse_without_quota(offer)
        asked_at_s = self._now_s()
        try:
            if is_tpu_offer(offer):
                created = self._launch_slice(request)
            else:
                created = self._launch_machine(request)
        except LaunchFailed:
            raise
        except Exception as error:
            self._refuse_for(error, offer)
        return self._launched(created, request, asked_at_s)

    def list_instances(self, run_id: str) -> Sequence[ListedInstance]:
        """Return the run's machines and slices in all zones, by id.

        A machine seen before that the list leaves out is looked up by name: Google's lists may lag,
        its look-ups do not. A kind or zone that gives no answer is as it was last; ``CallFailed``
        when a kind never answered, or when none does. What is dead but still there (stopped
        machines cost their disk, preempted slices their name) is deleted on the way.
        """
        found, silent_zones, silent_kinds = self._list_all(run_id)
        now_s = self._now_s()
        stories = Stories()
        seen: dict[str, ListedInstance] = {}
        with self._lock:
            before = {
                instance_id: known
                for instance_id, known in self._known.items()
                if known.listed.run_id == run_id
            }
        for machine in found:
            seen[machine.instance_id] = self._seen(machine, now_s, stories)
        missing = [
            (instance_id, known)
            for instance_id, known in before.items()
            if instance_id not in seen
            and known.listed.state is not MachineState.TERMINATED
            and known.zone not in silent_zones
            and (_SLICES if known.is_tpu else _MACHINES) not in silent_kinds
        ]
        with ThreadPoolExecutor(max_workers=max(1, min(len(missing), MOST_LOOK_UPS))) as pool:
            looked_up = list(pool.map(self._look_up, missing))
        for (instance_id, known), (answered, one) in zip(missing, looked_up, strict=True):
            if not answered:
                seen[instance_id] = known.listed
            elif one is not None:
                seen[instance_id] = self._seen(one, now_s, stories)
            else:
                seen[instance_id] = self._gone(instance_id, known, now_s, stories)
        for instance_id, known in before.items():
            if instance_id in seen:
                continue
            ended_at_s = known.listed.ended_at_s
            if ended_at_s is None or now_s - ended_at_s <= ENDED_LISTED_S:
                seen[instance_id] = known.listed
        self._clear_away(found)
        return [seen[instance_id] for instance_id in sorted(seen)]

    def price_changes(self, instance_id: str, since_s: float) -> Sequence[tuple[float, float]]:
        """Return the changes of a machine's price while it lives.

        A machine that this process never listed has none.
        """
        with self._lock:
            known = self._known.get(instance_id)
        offer = self._offers.get(known.listed.offer_id) if known else None
        if known is None or offer is None:
            return []
        over_at_s = known.listed.ended_at_s
        if over_at_s is None:
            over_at_s = known.asked_to_end_at_s
        if self._read_prices:
            self._prices.renew()
        return [
            change
            for change in self._prices.changes(offer, since_s)
            if over_at_s is None or change[0] <= over_at_s
        ]

    def terminate(self, instance_id: str) -> None:
        """Ask for the end of a machine; one that is gone is fine.

        A machine of an earlier process is looked for in all zones; a name that this program does
        not give is none of its machines.
        """
        if not is_ours(instance_id):
            return
        with self._lock:
            known = self._known.get(instance_id)
        try:
            if known is None:
                for machine in self._anywhere(instance_id):
                    self._delete(machine.zone, instance_id, is_tpu=machine.is_tpu)
                return
            if known.listed.state is MachineState.TERMINATED:
                return
            deletion = self._delete(known.zone, instance_id, is_tpu=known.is_tpu)
        except Exception as error:
            raise call_failed(error, f"end {instance_id}") from error
        with self._lock:
            if known.asked_to_end_at_s is None:
                known.asked_to_end_at_s = self._now_s()
            known.deletion = known.deletion or deletion

    # -- launching --------------------------------------------------------------------------

    @property
    def _project(self) -> str:
        return f"project {self._settings.project}"

    def _launch_machine(self, request: LaunchRequest) -> Created:
        offer = request.offer
        try:
            image = self._facts.image()
        except ImageNotFound as error:
            raise LaunchFailed(
                FailureKind.INVALID,
                f"{offer.offer_id}: {error}",
                offer_id=offer.offer_id,
                code="ImageNotFound",
            ) from error
        body = instance_body(
            request,
            settings=self._settings,
            image=image.link,
            image_gib=image.disk_gib,
            start_script=self._script(request),
        )
        token = request_id(request)
        self._refuse(
            validate.instance_problems(body, request_id=token, offer=offer, image=image), offer
        )
        return self._machines.create(body, zone=offer.zone, request_id=token)

    def _launch_slice(self, request: LaunchRequest) -> Created:
        offer, name = request.offer, instance_name(request)
        body = node_body(request, settings=self._settings, start_script=self._script(request))
        self._refuse(validate.node_problems(body, name=name, offer=offer), offer)
        with self._lock:
            known = self._known.get(name)
        if known is not None:
            # Its token was used: whatever became of it, it is not rented a second time.
            return Created(machine=self._slices.get(offer.zone, name), existed=True)
        # Preempted slices still hold their names, and their part of the quota.
        for machine in self._slices.of_run(request.run_id, {offer.zone}).machines:
            if machine.state is MachineState.TERMINATED and machine.instance_id != name:
                self._seen(machine, self._now_s(), Stories())
                self._slices.delete(machine.zone, machine.instance_id)
        return self._slices.create(body, zone=offer.zone, name=name)

    def _script(self, request: LaunchRequest) -> str:
        return start_script(
            self._settings,
            run_id=request.run_id,
            instance_id=instance_name(request),
            zone=request.offer.zone,
            is_tpu=is_tpu_offer(request.offer),
            endpoint=self._clients.endpoint,
        )

    def _refuse(self, problems: Sequence[validate.Problem], offer: Offer) -> None:
        """Raise the first problem, all of them in its words."""
        if problems:
            raise LaunchFailed(
                problems[0].kind,
                f"{offer.offer_id}: " + "; ".join(problem.message for problem in problems),
                offer_id=offer.offer_id,
                code=problems[0].code,
            )

    def _refuse_without_quota(self, offer: Offer) -> None:
        """A limit below one machine of this type needs no call to be known."""
        for limit, units in limits_of(self._all_limits((offer.region,)), offer):
            if limit.most < units:
                raise LaunchFailed(
                    FailureKind.QUOTA,
                    f"{offer.offer_id}: needs {units:g}, the quota {limit.metric} of "
                    f"{limit.region or 'all regions'} is {limit.most:g} in {self._project}",
                    offer_id=offer.offer_id,
                    code="QUOTA_EXCEEDED",
                )

    def _refuse_for(self, error: BaseException, offer: Offer) -> NoReturn:
        explained = explain(error)
        code = f"{explained.code}: " if explained.code else ""
        raise LaunchFailed(
            explained.kind,
            f"{offer.offer_id}: {code}{explained.message}",
            offer_id=offer.offer_id,
            code=explained.code,
        ) from error

    def _launched(
        self, created: Created, request: LaunchRequest, asked_at_s: float
    ) -> ListedInstance:
        """Write down what a launch gave; one of a token used before may be long over."""
        name, offer = instance_name(request), request.offer
        machine = created.machine
        if machine is not None and (machine.run_id, machine.token) != (
            request.run_id,
            request.token,
        ):
            raise LaunchFailed(
                FailureKind.INVALID,
                f"{offer.offer_id}: the name {name} is taken by something else in {self._project}",
                offer_id=offer.offer_id,
                code="NameTaken",
            )
        now_s = self._now_s()
        with self._lock:
            known = self._known.get(name)
            if known is None:
                said_s = machine.created_at_s if machine is not None else None
                here = said_s is None or said_s > asked_at_s - REPLAY_AGE_S
                launched_at_s = asked_at_s if here or said_s is None else min(said_s, now_s)
                known = self._known[name] = _Known(
                    listed=ListedInstance(
                        instance_id=name,
                        token=request.token,
                        run_id=request.run_id,
                        offer_id=offer.offer_id,
                        state=MachineState.PENDING,
                        launched_at_s=launched_at_s,
                        price_usd_per_hour=self._price(offer, None) or 0.0,
                        expected_ready_at_s=launched_at_s + self.boot_s(offer),
                    ),
                    zone=offer.zone,
                    is_tpu=is_tpu_offer(offer),
                    launched_here_at_s=asked_at_s if here else None,
                )
            known.open_insertion = created.open_operation
        if machine is not None:
            return self._seen(machine, now_s, Stories())
        if created.existed and known.listed.state is not MachineState.TERMINATED:
            return self._gone(name, known, now_s, Stories())
        return known.listed

    # -- listing ----------------------------------------------------------------------------

    def _list_all(self, run_id: str) -> tuple[list[GcpMachine], set[str], set[str]]:
        """Return what was found, the zones and the kinds that gave no answer."""
        futures: dict[str, Future[Listing]] = {}
        with ThreadPoolExecutor(max_workers=max(1, len(self._kinds))) as pool:
            for kind, list_kind in self._kinds.items():
                futures[kind] = pool.submit(list_kind, run_id)
        found: list[GcpMachine] = []
        silent_zones: set[str] = set()
        silent_kinds: set[str] = set()
        for kind, future in futures.items():
            error = future.exception()
            if error is None:
                listing = future.result()
                self._last_lists[kind, run_id] = listing
                silent_zones.update(listing.silent_zones)
                found += listing.machines
                continue
            if kind == _SLICES and is_switched_off(error):
                continue
            failure = call_failed(error, f"list the {kind} of {self._project}")
            silent_kinds.add(kind)
            if (kind, run_id) not in self._last_lists or len(silent_kinds) == len(futures):
                raise failure from error
            log.warning("%s", failure.message)
        for zone in sorted(silent_zones):
            log.warning("zone %s gave no answer: its machines are as they were last seen", zone)
        return found, silent_zones, silent_kinds

    def _look_up(self, missing: tuple[str, _Known]) -> tuple[bool, GcpMachine | None]:
        """Ask for one machine that the list left out: ``(Google answered, the machine)``."""
        instance_id, known = missing
        try:
            if known.is_tpu:
                return True, self._slices.get(known.zone, instance_id)
            one = self._machines.get(known.zone, instance_id)
            if one is None and known.open_insertion is not None:
                # Taken by Google, not there yet, and not failed either.
                try:
                    if not self._machines.is_settled(known.zone, known.open_insertion):
                        return False, None
                except OperationFailed as error:
                    log.warning("%s was not made after all: %s", instance_id, error)
                    known.never_was = True
            return True, one
        except Exception as error:
            log.warning("%s", call_failed(error, f"look up {instance_id}").message)
            return False, None

    def _seen(self, machine: GcpMachine, now_s: float, stories: Stories) -> ListedInstance:
        """Bring what is known of one machine up to date with its description."""
        with self._lock:
            known = self._known.get(machine.instance_id)
        if known is None:
            known = self._met(machine, now_s)
        before = known.listed
        if before.state is MachineState.TERMINATED:
            return before
        state, notice_ends_at_s, reason, ended_at_s = machine.state, None, None, None
        if state is MachineState.TERMINATED:
            reason, traced_at_s = self._why(machine.instance_id, known, now_s, stories, machine)
            ended_at_s = machine.ended_at_s if machine.ended_at_s is not None else traced_at_s
            ended_at_s = _between(before.launched_at_s, ended_at_s, now_s)
        elif (
            state is MachineState.TERMINATING
            and known.asked_to_end_at_s is None
            and not machine.is_tpu
        ):
            taken_at_s = preempted_at_s(self._endings(machine.zone, machine.instance_id, stories))
            if taken_at_s is not None:
                # It still runs, and may save, for as long as the cloud's notice lasts.
                state, notice_ends_at_s = MachineState.RUNNING, taken_at_s + NOTICE_S
        return self._write_down(
            known,
            state=state,
            ended_at_s=ended_at_s,
            reason=reason,
            notice_ends_at_s=notice_ends_at_s,
        )

    def _gone(
        self, instance_id: str, known: _Known, now_s: float, stories: Stories
    ) -> ListedInstance:
        """A machine that Google no longer knows has ended; find out how, and when."""
        reason, at_s = self._why(instance_id, known, now_s, stories, None)
        if known.never_was:
            at_s = known.listed.launched_at_s
        return self._write_down(
            known,
            state=MachineState.TERMINATED,
            ended_at_s=_between(known.listed.launched_at_s, at_s, now_s),
            reason=reason,
            notice_ends_at_s=known.listed.notice_ends_at_s,
        )

    def _why(
        self,
        instance_id: str,
        known: _Known,
        now_s: float,
        stories: Stories,
        machine: GcpMachine | None,
    ) -> tuple[EndReason, float | None]:
        """Return why a machine ended and, if it is told, when."""
        if known.is_tpu:
            if machine is not None and machine.status in ("PREEMPTED", "SUSPENDING", "SUSPENDED"):
                return EndReason.INTERRUPTED, None
            if known.asked_to_end_at_s is not None:
                return EndReason.REQUESTED, self._deleted_at_s(known)
            return EndReason.VANISHED, None
        endings = self._endings(known.zone, instance_id, stories)
        taken_at_s = preempted_at_s(endings)
        asked_at_s = known.asked_to_end_at_s
        if asked_at_s is not None and (taken_at_s is None or asked_at_s < taken_at_s):
            return EndReason.REQUESTED, self._deleted_at_s(known)
        if taken_at_s is not None:
            return EndReason.INTERRUPTED, taken_at_s + NOTICE_S
        if now_s - known.listed.launched_at_s >= self._settings.lifetime_s:
            return EndReason.EXPIRED, endings[-1].at_s if endings else None
        if endings:
            return endings[-1].reason, endings[-1].at_s
        return EndReason.VANISHED, None

    def _endings(self, zone: str, instance_id: str, stories: Stories) -> list[Any]:
        try:
            return self._machines.endings(zone, instance_id, stories)
        except Exception as error:
            log.warning("%s", call_failed(error, f"read the operations of {zone}").message)
            return []

    def _deleted_at_s(self, known: _Known) -> float | None:
        if known.deletion is None:
            return None
        try:
            if known.is_tpu:
                return self._slices.done_at_s(known.deletion)
            return self._machines.done_at_s(known.zone, known.deletion)
        except Exception as error:
            log.warning("%s", call_failed(error, f"look at {known.deletion}").message)
            return None

    def _met(self, machine: GcpMachine, now_s: float) -> _Known:
        """Begin to know a machine of an earlier process."""
        said_s = machine.created_at_s
        launched_at_s = now_s if said_s is None else min(said_s, now_s)
        offer = self._offers.get(machine.offer_id)
        listed = ListedInstance(
            instance_id=machine.instance_id,
            token=machine.token,
            run_id=machine.run_id,
            offer_id=machine.offer_id,
            state=MachineState.PENDING,
            launched_at_s=launched_at_s,
            price_usd_per_hour=(self._price(offer, None) if offer else None) or 0.0,
            expected_ready_at_s=launched_at_s + (self.boot_s(offer) if offer else BOOT_S),
        )
        with self._lock:
            return self._known.setdefault(
                machine.instance_id,
                _Known(listed=listed, zone=machine.zone, is_tpu=machine.is_tpu),
            )

    def _write_down(
        self,
        known: _Known,
        *,
        state: MachineState,
        ended_at_s: float | None,
        reason: EndReason | None,
        notice_ends_at_s: float | None,
    ) -> ListedInstance:
        before = known.listed
        offer = self._offers.get(before.offer_id)
        price = self._price(offer, ended_at_s) if offer is not None else None
        known.listed = ListedInstance(
            instance_id=before.instance_id,
            token=before.token,
            run_id=before.run_id,
            offer_id=before.offer_id,
            state=state,
            launched_at_s=before.launched_at_s,
            price_usd_per_hour=before.price_usd_per_hour if price is None else price,
            expected_ready_at_s=before.expected_ready_at_s,
            ended_at_s=ended_at_s,
            end_reason=reason,
            notice_ends_at_s=notice_ends_at_s or before.notice_ends_at_s,
        )
        return known.listed

    # -- ending -----------------------------------------------------------------------------

    def _delete(self, zone: str, instance_id: str, *, is_tpu: bool) -> str | None:
        if is_tpu:
            return self._slices.delete(zone, instance_id)
        return self._machines.delete(zone, instance_id)

    def _anywhere(self, instance_id: str) -> list[GcpMachine]:
        """Find a machine of an earlier process by its name, in all zones."""
        is_tpu = instance_id.startswith(TPU_PREFIX)
        listing = self._slices.of_run(None) if is_tpu else self._machines.of_run(None)
        return [each for each in listing.machines if each.instance_id == instance_id]

    def _clear_away(self, found: Sequence[GcpMachine]) -> None:
        """Delete what is dead but there; a failure is for the next listing."""
        for machine in found:
            if machine.state is not MachineState.TERMINATED:
                continue
            try:
                self._delete(machine.zone, machine.instance_id, is_tpu=machine.is_tpu)
            except Exception as error:
                log.warning("%s", call_failed(error, f"clear away {machine.instance_id}").message)

    # -- facts ------------------------------------------------------------------------------

    def _price(self, offer: Offer, at_s: float | None) -> float | None:
        return self._prices.price(offer, at_s)

    def _all_limits(self, regions: Sequence[str] | None = None) -> list[Limit]:
        """Return the limits of the regions and of the project; unreadable ones are left out."""
        if not any(not is_tpu_offer(offer) for offer in self._offers.values()):
            return []
        wanted = ("", *(self._settings.regions if regions is None else regions))
        return [limit for region in wanted for limit in self._limits_in(region)]

    def _limits_in(self, region: str) -> list[Limit]:
        with self._limits_lock:
            now_s = self._now_s()
            at_s, limits = self._limits.get(region, (float("-inf"), []))
            if now_s - at_s >= self._settings.quotas_age_s:
                try:
                    limits = (
                        read_region_limits(self._clients, self._settings.project, region)
                        if region
                        else read_project_limits(self._clients, self._settings.project)
                    )
                except Exception as error:
                    where = region or self._project
                    log.warning("%s", call_failed(error, f"read the quotas of {where}").message)
                self._limits[region] = (now_s, limits)
            return limits


def _between(low_s: float, at_s: float | None, high_s: float) -> float:
    """An instant that is told, kept within what we know; untold: now, when it was missed."""
    return high_s if at_s is None else max(low_s, min(at_s, high_s))
