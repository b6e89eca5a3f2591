"""From a run on clouds to its provider, its channel and its code in the store."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cloudgavel.errors import UsageError
from cloudgavel.jobs.spec import RunSpec
from cloudgavel.messages.orders import Orders
from cloudgavel.messages.report import Report
from cloudgavel.objects.pack import put_directory
from cloudgavel.objects.store import ObjectMissing, ObjectStore
from cloudgavel.pricing.catalog import Catalog
from cloudgavel.providers.base import AgentChannel, Provider
from cloudgavel.providers.bundle import AgentSource
from cloudgavel.providers.dispatch import DispatchingProvider
from cloudgavel.providers.store_channel import StoreChannel

POOL_SIZE = 50
"""Launches and ends at one time."""
WORKDIRS_KEY = "code/workdirs.json"


@dataclass(frozen=True, kw_only=True)
class CloudWorld:
    """What a controller talks to; nothing was rented by making it."""

    provider: Provider
    channel: AgentChannel
    secrets: Mapping[str, str]


def check_clouds(run: RunSpec, *, catalog: Catalog, environment: Mapping[str, str]) -> None:
    """Refuse with ``UsageError`` a run whose machines could not work as it is written.

    Each cloud's machines must reach the run's store, by the settings of ``environment`` where it is
    in the other cloud; Google's need a project, regions must be known. Nothing is asked of a cloud.
    """
    for cloud in run.clouds:
        store_url = run.store or "none"
        if cloud.provider == "aws":
            from cloudgavel.providers.aws.assembly import aws_settings

            aws_settings(
                cloud,
                catalog=catalog,
                store_url=store_url,
                agent=AgentSource(url="", sha256=""),
                environment=environment,
            )
        elif cloud.provider == "gcp":
            from cloudgavel.providers.gcp.assembly import gcp_settings

            gcp_settings(
                cloud,
                catalog=catalog,
                store_url=store_url,
                agent=AgentSource(url="", sha256=""),
                environment=environment,
            )
        else:
            raise UsageError(f"`{cloud.provider}` cannot be rented from")


class PackedWorkdirs:
    """Implements ``AgentChannel``: orders name the packed code instead of this machine's paths."""

    def __init__(self, channel: AgentChannel, key_by_workdir: Mapping[str, str]) -> None:
        self._channel = channel
        self._key_by_workdir = key_by_workdir

    def send(self, orders: Orders) -> None:
        """Replace an instance's orders; higher sequence wins."""
        jobs = tuple(
            replace(job, workdir=self._key_by_workdir.get(job.workdir, job.workdir))
            for job in orders.jobs
        )
        self._channel.send(replace(orders, jobs=jobs))

    def reports(self) -> Mapping[str, Report]:
        """Return the newest report of every instance that ever reported."""
        return self._channel.reports()

    def heard_since_s(self) -> float:
        """Since when reports arrive without a break; ``inf`` = not now."""
        return self._channel.heard_since_s()


def open_clouds(
    run: RunSpec,
    *,
    store: ObjectStore,
    catalog: Catalog,
    environment: Mapping[str, str],
    now_s: Callable[[], float],
    clients: Mapping[str, Any] | None = None,
) -> CloudWorld:
    """Put agent and code into the store and return the world of a run on clouds.

    ``clients`` by cloud (``AwsClients``, ``GcpClients``) replace those of the environment.
    ``UsageError`` for a cloud whose machines cannot reach the store, before anything is rented.
    """
    accelerators = {each.accelerator for job in run.jobs for each in job.accelerators}
    given = clients or {}
    clouds: dict[str, Provider] = {}
    for cloud in run.clouds:
        if cloud.provider == "aws":
            from cloudgavel.providers.aws.assembly import aws_provider

            clouds["aws"] = aws_provider(
                cloud,
                catalog=catalog,
                accelerators=accelerators,
                store=store,
                environment=environment,
                now_s=now_s,
                clients=given.get("aws"),
            )
        elif cloud.provider == "gcp":
            from cloudgavel.providers.gcp.assembly import gcp_provider

            clouds["gcp"] = gcp_provider(
                cloud,
                catalog=catalog,
                accelerators=accelerators,
                store=store,
                environment=environment,
                now_s=now_s,
                clients=given.get("gcp"),
            )
        else:
            raise UsageError(f"`{cloud.provider}` cannot be rented from")
    channel = StoreChannel(store, now_s=now_s)
    return CloudWorld(
        provider=DispatchingProvider(clouds),
        channel=PackedWorkdirs(channel, packed_workdirs(run, store)),
        secrets={
            name: environment[name]
            for job in run.jobs
            for name in job.secrets
            if name in environment
        },
    )


def packed_workdirs(run: RunSpec, store: ObjectStore) -> Mapping[str, str]:
    """Return the archive of each job's directory by its path here, packed once in a run.

    A controller that takes over uses the archives of the first one, whatever changed in the
    directories since: all attempts of a job run the same code. A directory that is new is packed.
    """
    try:
        known = store.get_versioned(WORKDIRS_KEY)
        version: str | None = known.version
        packed: dict[str, str] = json.loads(known.data)
    except ObjectMissing:
        version, packed = None, {}
    before = dict(packed)
    for job in run.jobs:
        if job.workdir not in packed:
            beside = {each.checkpoint.path for each in run.jobs if each.workdir == job.workdir}
            packed[job.workdir] = put_directory(store, Path(job.workdir), left_out=beside)
    if packed != before:
        body = json.dumps(packed, sort_keys=True).encode()
        if not store.put_if_version(WORKDIRS_KEY, body, version):
            return packed_workdirs(run, store)
    return packed
