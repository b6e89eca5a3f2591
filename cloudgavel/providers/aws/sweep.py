"""Finding every machine of a run by its tag, in every region, without the database; ending them."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cloudgavel.pricing.offer import CapacityType
from cloudgavel.providers.aws.clients import PRICE_LIST_REGION, AwsClients
from cloudgavel.providers.aws.failures import NOT_FOUND, call_failed, code_of
from cloudgavel.providers.aws.provider import PAGE_SIZE
from cloudgavel.providers.aws.translate import instances_of
from cloudgavel.providers.base import MachineState
from cloudgavel.providers.tags import RUN_TAG, label_value

LIVE_STATES = ("pending", "running", "shutting-down", "stopping", "stopped")
"""Everything but ``terminated``: a stopped machine still costs its disk."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggedInstance:
    """One machine that carries our tag and is not terminated."""

    instance_id: str
    region: str
    zone_name: str
    instance_type: str
    capacity_type: CapacityType
    run_id: str
    token: str
    offer_id: str
    state: MachineState
    launched_at_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionSilent:
    """A region that could not be searched, and why: it may hold machines."""

    region: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What a search found, and where it could not look."""

    instances: tuple[TaggedInstance, ...]
    silent: tuple[RegionSilent, ...]


def enabled_regions(clients: AwsClients, *, ask: str = PRICE_LIST_REGION) -> tuple[str, ...]:
    """Return the regions that the account may use; ``CallFailed`` when that is not to be had."""
    try:
        answer = clients.client("ec2", ask).describe_regions(AllRegions=False)
    except Exception as error:
        raise call_failed(error, "list the account's regions") from error
    return tuple(
        sorted(
            str(region["RegionName"])
            for region in answer["Regions"]
            if region.get("OptInStatus", "opt-in-not-required") != "not-opted-in"
        )
    )


def find_tagged(
    clients: AwsClients, regions: Sequence[str] | None = None, run_id: str | None = None
) -> Found:
    """Return every machine with our tag that is not terminated, by region and id.

    ``regions`` ``None`` = every enabled one, searched at the same time; ``run_id`` ``None`` = of
    every run. A region that does not answer is told, never left out in silence.
    """
    searched = enabled_regions(clients) if regions is None else tuple(regions)
    if run_id is None:
        tag = {"Name": "tag-key", "Values": [RUN_TAG]}
    else:
        tag = {"Name": f"tag:{RUN_TAG}", "Values": [label_value(run_id)]}
    filters = [tag, {"Name": "instance-state-name", "Values": list(LIVE_STATES)}]

    def search(region: str) -> list[TaggedInstance]:
        pages = (
            clients.client("ec2", region)
            .get_paginator("describe_instances")
            .paginate(Filters=filters, PaginationConfig={"PageSize": PAGE_SIZE})
        )
        return [
            TaggedInstance(
                instance_id=each.instance_id,
                region=region,
                zone_name=each.zone_name,
                instance_type=each.instance_type,
                capacity_type=each.capacity_type,
                run_id=each.run_id,
                token=each.token,
                offer_id=each.offer_id,
                state=each.state,
                launched_at_s=each.launched_at_s,
            )
            for each in instances_of(pages, region=region)
        ]

    with ThreadPoolExecutor(max_workers=max(1, min(len(searched), 20))) as pool:
        futures = {region: pool.submit(search, region) for region in searched}
    found: list[TaggedInstance] = []
    silent: list[RegionSilent] = []
    for region in sorted(futures):
        error = futures[region].exception()
        if error is None:
            found += sorted(futures[region].result(), key=lambda each: each.instance_id)
        else:
            message = call_failed(error, f"list the instances in {region}").message
            silent.append(RegionSilent(region=region, message=message))
    return Found(instances=tuple(found), silent=tuple(silent))


def end_tagged(clients: AwsClients, instances: Iterable[TaggedInstance]) -> dict[str, str]:
    """``end_instances`` of what ``find_tagged`` found."""
    return end_instances(clients, [(each.region, each.instance_id) for each in instances])


def end_instances(clients: AwsClients, instances: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Ask for the end of each ``(region, id)``; return what could not be asked: id -> reason.

    Instances already gone are fine. One at a time: one unknown id fails a whole call, and would
    leave the others running. Only a later ``find_tagged`` without them confirms the end.
    """
    failed: dict[str, str] = {}

    def end(each: tuple[str, str]) -> None:
        region, instance_id = each
        try:
            clients.client("ec2", region).terminate_instances(InstanceIds=[instance_id])
        except Exception as error:
            if code_of(error) not in NOT_FOUND:
                failed[instance_id] = call_failed(error, f"end {instance_id} in {region}").message

    doomed = list(instances)
    with ThreadPoolExecutor(max_workers=max(1, min(len(doomed), 20))) as pool:
        list(pool.map(end, doomed))
    return dict(sorted(failed.items()))
