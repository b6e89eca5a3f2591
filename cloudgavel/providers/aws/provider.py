"""EC2 as a provider: launch, list, end; every promise of ``providers.base``."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.aws import validate
from cloudgavel.providers.aws.clients import AwsClients
from cloudgavel.providers.aws.failures import (
    NOT_FOUND,
    TOKEN_USED_OTHERWISE,
    call_failed,
    code_of,
    explain,
)
from cloudgavel.providers.aws.gangs import Gangs, is_clustered
from cloudgavel.providers.aws.images import ImageNotFound, Images, type_family
from cloudgavel.providers.aws.interruption_queue import NOTICE_S, InterruptionQueues
from cloudgavel.providers.aws.places import Place, Places
from cloudgavel.providers.aws.prices import SpotPrices
from cloudgavel.providers.aws.quotas import VcpuLimit, limit_for, quotas_of, read_limits
from cloudgavel.providers.aws.regions import check_regions
from cloudgavel.providers.aws.settings import AwsSettings
from cloudgavel.providers.aws.sightings import Sightings
from cloudgavel.providers.aws.translate import (
    Ec2Instance,
    client_token,
    instances_of,
    read_instance,
    run_instances_parameters,
)
from cloudgavel.providers.aws.user_data import start_script
from cloudgavel.providers.base import (
    LaunchRequest,
    ListedInstance,
    MachineState,
    Quota,
)
from cloudgavel.providers.failures import CallFailed, FailureKind, LaunchFailed
from cloudgavel.providers.tags import GANG_TAG, RUN_TAG, label_value

log = logging.getLogger("cloudgavel.aws")

PAGE_SIZE = 1000
"""The most that EC2 lists at once: a thousand machines are one call."""
BOOT_S = 150.0
BIG_BOOT_S = 330.0
"""p4d and its successors check eight accelerators and terabytes of memory first."""
_SLOW_FAMILIES = ("p4", "p5", "p6", "trn")


class AwsProvider:
    """Implements ``Provider`` on EC2; safe between threads, so that 50 launches are one wait.

    Instants are those of ``now_s`` where this process was there, Amazon's otherwise. Offers come
    from the catalogue that is handed in; spot prices are read over it. ``UsageError`` for a region
    that does not exist. Nothing is asked of Amazon before the first verb is used.

    Right after a launch EC2 may not know its own instance: it is in no list yet, and asking for its
    end fails until the settings' grace is over.
    """

    name = "aws"

    def __init__(
        self,
        *,
        settings: AwsSettings,
        catalogue: Sequence[Offer],
        now_s: Callable[[], float],
        clients: AwsClients | None = None,
        read_spot_prices: bool = True,
    ) -> None:
        """``read_spot_prices=False`` leaves the catalogue's prices as they are."""
        check_regions(settings.regions)
        self._settings = settings
        self._now_s = now_s
        self._clients = clients or AwsClients()
        self._offers: Mapping[str, Offer] = {
            offer.offer_id: offer
            for offer in catalogue
            if offer.provider == "aws"
            and offer.region in settings.regions
            and not offer.is_historic
        }
        types: dict[str, set[str]] = {region: set() for region in settings.regions}
        for offer in self._offers.values():
            types[offer.region].add(offer.instance_type)
        self._places = Places(
            self._clients, types_by_region=types, now_s=now_s, age_s=settings.facts_age_s
        )
        self._images = Images(self._clients)
        self._gangs = Gangs(self._clients)
        self._queues = InterruptionQueues(self._clients, settings.interruption_queues)
        self._spot_prices = SpotPrices(
            self._clients,
            catalogue=tuple(self._offers.values()),
            now_s=now_s,
            age_s=settings.spot_prices_age_s,
        )
        self._read_spot_prices = read_spot_prices
        self._limits: dict[str, tuple[float, list[VcpuLimit]]] = {}
        self._last_lists: dict[tuple[str, str], list[Ec2Instance]] = {}
        self._sightings = Sightings(
            now_s=now_s,
            grace_s=settings.visible_grace_s,
            price_of=self._price_of,
            boot_s_of=self._boot_s_of,
        )
        self._limits_lock = threading.Lock()

    # -- Provider ---------------------------------------------------------------------------

    def offers(self) -> Sequence[Offer]:
        """Return the catalogue's offers that this account's zones sell, at today's prices.

        ``CallFailed`` when a region has never answered; later silence leaves what was known.
        """
        places = self._all_places("look up what is offered")
        sold = [
            offer
            for offer in self._offers.values()
            if places[offer.region].offers(offer.zone, offer.instance_type)
        ]
        if not self._read_spot_prices:
            return tuple(sold)
        self._renew_spot_prices(tuple(places))
        return self._spot_prices.offers_now(sold)

    def boot_s(self, offer: Offer) -> float:
        """Seconds from the call to an agent that takes orders, by experience of the family."""
        slow = type_family(offer.instance_type).startswith(_SLOW_FAMILIES)
        return BIG_BOOT_S if slow else BOOT_S

    def quotas(self) -> Sequence[Quota]:
        """Return the account's vCPU limits over the offers, and the settings' own limit.

        A region whose limits may not be read has none here: unknown is not zero. ``check`` says so.
        """
        limits = [
            limit for region in self._settings.regions for limit in self._region_limits(region)
        ]
        quotas = quotas_of(limits, self._offers.values())
        if self._settings.max_instances is None:
            return quotas
        own = Quota(
            name="aws max_instances",
            limit=float(self._settings.max_instances),
            units_per_instance=dict.fromkeys(self._offers, 1.0),
        )
        return (own, *quotas)

    def launch(self, request: LaunchRequest) -> ListedInstance:
        """Rent one instance, or return the one that this very request already rented.

        The request is judged first (``aws.validate``); one that breaks a rule, or a limit that
        allows none, fails without a call that could create anything.
        """
        offer = request.offer
        known = self._offers.get(offer.offer_id)
        try:
            place = self._places.place(offer.region)
        except Exception as error:
            raise self._refusal(error, offer) from error
        self._refuse(validate.offer_problems(offer, place, in_catalogue=known is not None), offer)
        self._refuse_without_quota(offer)
        parameters = self._parameters(request, place)
        ec2 = self._clients.client("ec2", offer.region, once=True)
        asked_at_s = self._now_s()
        try:
            answer = ec2.run_instances(**parameters)
        except Exception as error:
            if code_of(error) == TOKEN_USED_OTHERWISE:
                return self._launched_before(request)
            raise self._refusal(error, offer) from error
        instances = answer.get("Instances", ())
        if not instances:
            raise LaunchFailed(
                FailureKind.UNREACHABLE,
                f"{offer.offer_id}: AWS answered without an instance",
                offer_id=offer.offer_id,
            )
        found = read_instance(instances[0], region=offer.region)
        return self._sightings.launched(found, request, called_at_s=asked_at_s)

    def list_instances(self, run_id: str) -> Sequence[ListedInstance]:
        """Return the run's instances in all regions asked for, by id.

        A region that gives no answer now is as it was last; ``CallFailed`` when it never answered,
        or when none does.
        """
        regions = self._settings.regions
        with ThreadPoolExecutor(max_workers=max(1, min(len(regions), 16))) as pool:
            futures = {region: pool.submit(self._list_region, region, run_id) for region in regions}
        found: list[Ec2Instance] = []
        silent: list[str] = []
        for region, future in futures.items():
            error = future.exception()
            if error is None:
                self._last_lists[region, run_id] = future.result()
                found += future.result()
                continue
            silent.append(region)
            last = self._last_lists.get((region, run_id))
            if last is None or len(silent) == len(regions):
                raise call_failed(error, f"list the instances in {region}") from error
            log.warning("%s", call_failed(error, f"list the instances in {region}").message)
            found += last
        self._sightings.noticed(self._queues.hear({each.instance_id for each in found}))
        if not silent and all(each.state is MachineState.TERMINATED for each in found):
            self._gangs.delete_all(run_id)
        return self._sightings.listing(found, run_id)

    def price_changes(self, instance_id: str, since_s: float) -> Sequence[tuple[float, float]]:
        """Return the spot price's changes of an instance's type and zone; none on demand.

        An instance that this process never listed has none.
        """
        known = self._sightings.get(instance_id)
        offer = self._offers.get(known.listed.offer_id) if known else None
        if known is None or offer is None or offer.capacity_type is not CapacityType.SPOT:
            return []
        over_at_s = known.listed.ended_at_s
        if over_at_s is None:
            # A machine on its way out no longer bills.
            over_at_s = known.asked_to_end_at_s
        if self._read_spot_prices:
            self._renew_spot_prices([offer.region], since_s=since_s)
        return [
            change
            for change in self._spot_prices.changes(offer, since_s)
            if over_at_s is None or change[0] <= over_at_s
        ]

    def terminate(self, instance_id: str) -> None:
        """Ask for the end of an instance; one that is gone is fine.

        One launched here a moment ago that EC2 does not know yet is *not* gone: ``CallFailed``, to
        be repeated. An instance of an earlier process is looked for in every region asked for.
        """
        known = self._sightings.get(instance_id)
        regions = [known.region] if known is not None else list(self._settings.regions)
        failure: CallFailed | None = None
        for region in regions:
            try:
                self._clients.client("ec2", region).terminate_instances(InstanceIds=[instance_id])
            except Exception as error:
                if code_of(error) not in NOT_FOUND:
                    failure = call_failed(error, f"end {instance_id} in {region}")
                continue
            self._sightings.asked_to_end(instance_id)
            return
        if failure is not None:
            raise failure
        if known is not None and self._sightings.is_young(known):
            raise CallFailed(
                FailureKind.UNREACHABLE,
                f"cannot end {instance_id} yet: EC2 does not know it so soon after its launch",
            )
        self._sightings.asked_to_end(instance_id)

    # -- launching --------------------------------------------------------------------------

    def _parameters(self, request: LaunchRequest, place: Place) -> dict[str, Any]:
        """Return the judged parameters of ``RunInstances``; ``LaunchFailed`` if they are wrong."""
        offer = request.offer
        zone_name = place.zone_name_by_id[offer.zone]
        try:
            image = self._images.image_for(offer.region, offer.instance_type, self._settings.image)
        except ImageNotFound as error:
            raise LaunchFailed(
                FailureKind.INVALID,
                f"{offer.offer_id}: {error.message}",
                offer_id=offer.offer_id,
                code="ImageNotFound",
            ) from error
        except Exception as error:
            raise self._refusal(error, offer) from error
        group = None
        gang = request.tags.get(GANG_TAG)
        if gang and is_clustered(offer.instance_type):
            try:
                group = self._gangs.group_for(
                    request.run_id, gang, region=offer.region, zone_name=zone_name
                )
            except Exception as error:
                raise self._refusal(error, offer) from error
        parameters = run_instances_parameters(
            request,
            settings=self._settings,
            zone_name=zone_name,
            image=image,
            user_data=start_script(self._settings, run_id=request.run_id),
            placement_group=group,
        )
        self._refuse(
            validate.request_problems(parameters, offer=offer, place=place, image=image), offer
        )
        return parameters

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
        limit = limit_for(
            self._region_limits(offer.region),
            region=offer.region,
            instance_type=offer.instance_type,
            capacity_type=offer.capacity_type,
        )
        if limit is None:
            return
        needed = offer.vcpus or 1.0
        if limit.vcpus < needed:
            raise LaunchFailed(
                FailureKind.QUOTA,
                f"{offer.offer_id}: needs {needed:g} vCPUs, the quota {limit.title} in "
                f"{offer.region} is {limit.vcpus:g} (Service Quotas {limit.code})",
                offer_id=offer.offer_id,
                code="VcpuLimitExceeded",
            )

    def _refusal(self, error: BaseException, offer: Offer) -> LaunchFailed:
        explained = explain(error)
        code = f"{explained.code}: " if explained.code else ""
        return LaunchFailed(
            explained.kind,
            f"{offer.offer_id}: {code}{explained.message}",
            offer_id=offer.offer_id,
            code=explained.code,
        )

    def _launched_before(self, request: LaunchRequest) -> ListedInstance:
        """Find the instance of a token that was used with other parameters.

        A newer version of the program, or a newer image, asks for the same thing in other words;
        the instance of the first call is the one.
        """
        offer = request.offer
        try:
            pages = (
                self._clients.client("ec2", offer.region)
                .get_paginator("describe_instances")
                .paginate(Filters=[{"Name": "tag:cloudgavel:token", "Values": [request.token]}])
            )
            found = [
                each
                for each in instances_of(pages, region=offer.region)
                if each.offer_id == offer.offer_id
            ]
        except Exception as error:
            raise self._refusal(error, offer) from error
        if not found:
            raise LaunchFailed(
                FailureKind.UNREACHABLE,
                f"{offer.offer_id}: launched before with token {client_token(request)}, and not "
                "listed yet",
                offer_id=offer.offer_id,
                code=TOKEN_USED_OTHERWISE,
            )
        first = min(found, key=lambda each: (each.launched_at_s or 0.0, each.instance_id))
        return self._sightings.launched(first, request, called_at_s=None)

    # -- listing ----------------------------------------------------------------------------

    def _list_region(self, region: str, run_id: str) -> list[Ec2Instance]:
        pages = (
            self._clients.client("ec2", region)
            .get_paginator("describe_instances")
            .paginate(
                Filters=[{"Name": f"tag:{RUN_TAG}", "Values": [label_value(run_id)]}],
                PaginationConfig={"PageSize": PAGE_SIZE},
            )
        )
        found = instances_of(pages, region=region)
        spot_alive = any(
            each.capacity_type is CapacityType.SPOT
            and each.state in (MachineState.PENDING, MachineState.RUNNING)
            for each in found
        )
        if spot_alive:
            self._hear_notices(region)
        return found

    def _hear_notices(self, region: str) -> None:
        """Learn which machines are about to be taken; agents hear it too, so silence is fine."""
        try:
            pages = (
                self._clients.client("ec2", region)
                .get_paginator("describe_spot_instance_requests")
                .paginate(Filters=[{"Name": "status-code", "Values": ["marked-for-termination"]}])
            )
            marked = [row for page in pages for row in page["SpotInstanceRequests"]]
        except Exception as error:
            log.warning("%s", call_failed(error, f"read spot notices in {region}").message)
            return
        self._sightings.noticed(
            (str(row["InstanceId"]), row["Status"]["UpdateTime"].timestamp() + NOTICE_S)
            for row in marked
            if row.get("InstanceId") and row.get("Status", {}).get("UpdateTime") is not None
        )

    # -- facts ------------------------------------------------------------------------------

    def _boot_s_of(self, offer_id: str) -> float:
        offer = self._offers.get(offer_id)
        return BOOT_S if offer is None else self.boot_s(offer)

    def _price_of(self, offer_id: str, otherwise: float | None, at_s: float | None) -> float:
        """USD per hour, now or then; an offer that left the catalogue keeps its last price."""
        offer = self._offers.get(offer_id)
        price = None
        if offer is not None:
            price = (
                self._spot_prices.price(offer, at_s)
                if offer.capacity_type is CapacityType.SPOT
                else offer.price_usd_per_hour
            )
        if price is None:
            price = otherwise
        return 0.0 if price is None else price

    def _all_places(self, doing: str) -> dict[str, Place]:
        places = {}
        for region in self._settings.regions:
            try:
                places[region] = self._places.place(region)
            except Exception as error:
                raise call_failed(error, f"{doing} in {region}") from error
        return places

    def _renew_spot_prices(self, regions: Sequence[str], since_s: float | None = None) -> None:
        for region in regions:
            try:
                place = self._places.place(region)
                names = {name: zone_id for zone_id, name in place.zone_name_by_id.items()}
                self._spot_prices.renew(region, names, since_s=since_s)
            except Exception as error:
                log.warning("%s", call_failed(error, f"read spot prices in {region}").message)

    def _region_limits(self, region: str) -> list[VcpuLimit]:
        with self._limits_lock:
            now_s = self._now_s()
            at_s, limits = self._limits.get(region, (float("-inf"), []))
            if now_s - at_s >= self._settings.quotas_age_s:
                try:
                    limits = read_limits(self._clients, region)
                except Exception as error:
                    log.warning("%s", call_failed(error, f"read the quotas of {region}").message)
                self._limits[region] = (now_s, limits)
            return limits
