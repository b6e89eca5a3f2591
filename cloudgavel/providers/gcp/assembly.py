"""From a run as it was asked for to its provider on Google Cloud."""

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from cloudgavel.errors import UsageError
from cloudgavel.jobs.spec import CloudSpec
from cloudgavel.objects.store import ObjectStore
from cloudgavel.pricing.catalog import Catalog
from cloudgavel.providers.bundle import AgentSource, upload_agent
from cloudgavel.providers.gcp.clients import GcpClients
from cloudgavel.providers.gcp.provider import GcpProvider
from cloudgavel.providers.gcp.settings import IMAGE_FAMILY, IMAGE_PROJECT, GcpSettings
from cloudgavel.providers.store_access import ACCOUNT_VARIABLE, store_url_on_google

IMAGE_VARIABLE = "CLOUDGAVEL_GCP_IMAGE_FAMILY"
"""``family``, or ``project/family``."""
DISK_VARIABLE = "CLOUDGAVEL_GCP_DISK_GIB"
NETWORK_VARIABLE = "CLOUDGAVEL_GCP_NETWORK"
EXTERNAL_IP_VARIABLE = "CLOUDGAVEL_GCP_EXTERNAL_IP"
"""``no`` where a NAT gives the way out."""
QUEUE_VARIABLE = "CLOUDGAVEL_GCP_TPU_QUEUE_WAIT_S"


def gcp_settings(
    cloud: CloudSpec,
    *,
    catalog: Catalog,
    store_url: str,
    agent: AgentSource,
    environment: Mapping[str, str],
) -> GcpSettings:
    """Return the settings of a run's machines.

    Without regions: every region in which the catalogue has offers of Google Cloud. A machine reads
    the agent and writes checkpoints itself, through Cloud Storage, or through S3 by its service
    account (``providers.store_access``): a store that it cannot reach raises ``UsageError``, and so
    do a missing project and a region that the catalogue does not know.
    """
    store_url = store_url_on_google(store_url, environment)
    if not cloud.project:
        raise UsageError(
            "no project of Google Cloud is given",
            hints=["set `project: MY-PROJECT` beside `provider: gcp`"],
        )
    regions = cloud.regions or tuple(
        sorted({offer.region for offer in catalog.search(providers={"gcp"})})
    )
    check_regions(regions, catalog)
    image_project, _, image_family = environment.get(IMAGE_VARIABLE, "").rpartition("/")
    return GcpSettings(
        project=cloud.project,
        regions=regions,
        store_url=store_url,
        agent=agent,
        service_account=environment.get(ACCOUNT_VARIABLE) or None,
        image_project=image_project or IMAGE_PROJECT,
        image_family=image_family or IMAGE_FAMILY,
        disk_gib=int(_number(environment, DISK_VARIABLE) or 200),
        network=environment.get(NETWORK_VARIABLE) or "global/networks/default",
        external_ip=environment.get(EXTERNAL_IP_VARIABLE, "yes").lower()
        not in ("no", "false", "0"),
        tpu_queue_wait_s=_number(environment, QUEUE_VARIABLE),
        max_instances=cloud.max_instances,
    )


def gcp_provider(
    cloud: CloudSpec,
    *,
    catalog: Catalog,
    accelerators: Collection[str],
    store: ObjectStore,
    environment: Mapping[str, str],
    now_s: Callable[[], float],
    clients: GcpClients | None = None,
    read_prices: bool = True,
    pause: Callable[[float], None] | None = None,
) -> GcpProvider:
    """Put the agent into the store and return the provider; nothing is asked of Google yet.

    ``clients`` bound to a fake cloud (``mocked.server``) make a dry run of it, ``pause`` then waits
    in its time. Only offers with an accelerator of ``accelerators`` are considered.
    """
    # What cannot work is told before anything is written.
    settings = gcp_settings(
        cloud,
        catalog=catalog,
        store_url=store.url,
        agent=AgentSource(url="", sha256=""),
        environment=environment,
    )
    settings = replace(settings, agent=upload_agent(store))
    offers = catalog.search(providers={"gcp"}, regions=settings.regions, accelerators=accelerators)
    if pause is None:
        return GcpProvider(
            settings=settings,
            catalogue=offers,
            now_s=now_s,
            clients=clients,
            read_prices=read_prices,
        )
    return GcpProvider(
        settings=settings,
        catalogue=offers,
        now_s=now_s,
        clients=clients,
        pause=pause,
        read_prices=read_prices,
    )


def check_regions(regions: Collection[str], catalog: Catalog) -> None:
    """Raise ``UsageError`` for a region without any offer, with the nearest that has some."""
    known = sorted({offer.region for offer in catalog.offers if offer.provider == "gcp"})
    for region in regions:
        if region not in known:
            near = difflib.get_close_matches(region, known, n=1)
            raise UsageError(
                f"Google Cloud has no region `{region}` with accelerators that are known here",
                hints=[f"did you mean `{near[0]}`?" if near else "see `cloudgavel prices`"],
            )


def _number(environment: Mapping[str, str], name: str) -> float | None:
    text = environment.get(name, "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise UsageError(f"{name} is not a positive number: {text!r}")
    return value
