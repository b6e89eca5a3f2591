"""Google Cloud as a provider: launch, list, end; every promise of ``providers.base``."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NoReturn

from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.base import (
    LaunchRequest,
    ListedInstance,
    MachineState,
    Quota,
)
from cloudgavel.providers.failures import FailureKind, LaunchFailed
from cloudgavel.providers.gcp import validate
from cloudgavel.providers.gcp.clients import GcpClients
from cloudgavel.providers.gcp.compute import (
    Created,
    Listing,
    Machines,
    Stories,
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
from cloudgavel.providers.gcp.sightings import Sighting, Sightings
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
BOOT_S = 120.0
BIG_BOOT_S = 240.0
"""a2 and a3 machines of eight GPUs and more."""
TPU_BOOT_S = 240.0
MOST_LOOK_UPS = 16
_MACHINES = "machines"
_SLICES = "TPU slices"


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
        self._sightings = Sightings(
            now_s=now_s,
            lifetime_s=settings.lifetime_s,
            machines=self._machines,
            slices=self._slices,
            price_of=self._price_of,
            boot_s_of=self._boot_s_of,
        )
        self._last_lists: dict[tuple[str, str], Listing] = {}
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
        self._refuse_if_taken(created, request)
        return self._sightings.launched(created, request, asked_at_s)

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
        before = self._sightings.of_run(run_id)
        for machine in found:
            seen[machine.instance_id] = self._sightings.seen(machine, stories)
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
                seen[instance_id] = self._sightings.seen(one, stories)
            else:
                seen[instance_id] = self._sightings.gone(instance_id, known, stories)
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
        known = self._sightings.get(instance_id)
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
        known = self._sightings.get(instance_id)
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
        self._sightings.asked_to_end(known, deletion)

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
        if self._sightings.get(name) is not None:
            # Its token was used: whatever became of it, it is not rented a second time.
            return Created(machine=self._slices.get(offer.zone, name), existed=True)
        # Preempted slices still hold their names, and their part of the quota.
        for machine in self._slices.of_run(request.run_id, {offer.zone}).machines:
            if machine.state is MachineState.TERMINATED and machine.instance_id != name:
                self._sightings.seen(machine, Stories())
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

    def _refuse_if_taken(self, created: Created, request: LaunchRequest) -> None:
        """A name follows from its request: another's machine of that name is no answer to it."""
        machine, offer = created.machine, request.offer
        if machine is None or (machine.run_id, machine.token) == (request.run_id, request.token):
            return
        raise LaunchFailed(
            FailureKind.INVALID,
            f"{offer.offer_id}: the name {machine.instance_id} is taken by something else in "
            f"{self._project}",
            offer_id=offer.offer_id,
            code="NameTaken",
        )

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

    def _look_up(self, missing: tuple[str, Sighting]) -> tuple[bool, GcpMachine | None]:
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

    def _price_of(self, offer_id: str, at_s: float | None) -> float | None:
        """USD per hour then, or now; ``None`` for an offer that left the catalogue."""
        offer = self._offers.get(offer_id)
        return None if offer is None else self._prices.price(offer, at_s)

    def _boot_s_of(self, offer_id: str) -> float:
        offer = self._offers.get(offer_id)
        return BOOT_S if offer is None else self.boot_s(offer)

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
