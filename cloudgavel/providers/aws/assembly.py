"""From a run as it was asked for to its provider on AWS."""

from collections.abc import Callable, Collection, Mapping

from cloudgavel.errors import UsageError
from cloudgavel.jobs.spec import CloudSpec
from cloudgavel.objects.store import ObjectStore
from cloudgavel.pricing.catalog import Catalog
from cloudgavel.providers.aws.clients import AwsClients
from cloudgavel.providers.aws.provider import AwsProvider
from cloudgavel.providers.aws.settings import AwsSettings
from cloudgavel.providers.bundle import AgentSource, upload_agent
from cloudgavel.providers.store_access import is_elsewhere, store_url_on_aws
from cloudgavel.units import DAY_S

INSTANCE_PROFILE_VARIABLE = "CLOUDGAVEL_AWS_INSTANCE_PROFILE"
IMAGE_VARIABLE = "CLOUDGAVEL_AWS_IMAGE"
DISK_VARIABLE = "CLOUDGAVEL_AWS_DISK_GIB"
SPOT_CAP_VARIABLE = "CLOUDGAVEL_AWS_SPOT_CAP_USD_PER_HOUR"
LIFETIME_S = 7 * DAY_S


def aws_settings(
    cloud: CloudSpec,
    *,
    catalog: Catalog,
    store_url: str,
    agent: AgentSource,
    environment: Mapping[str, str],
) -> AwsSettings:
    """Return the settings of a run's machines.

    Without regions: every region in which the catalogue has offers of AWS. A machine reads the
    agent and writes checkpoints itself, through S3, or through Cloud Storage by its role
    (``providers.store_access``); a store that it cannot reach raises ``UsageError``.
    """
    store_url = store_url_on_aws(store_url, environment)
    profile = environment.get(INSTANCE_PROFILE_VARIABLE) or None
    if profile is None and is_elsewhere(store_url):
        raise UsageError(
            f"{INSTANCE_PROFILE_VARIABLE} is not set: machines on AWS cannot reach this store",
            facts=[("store", store_url)],
            hints=["the role of their profile is who they are: docs/how-to/aws.md, section 2"],
        )
    regions = cloud.regions or tuple(
        sorted({offer.region for offer in catalog.search(providers={"aws"})})
    )
    return AwsSettings(
        regions=regions,
        store_url=store_url,
        agent=agent,
        instance_profile=profile,
        image=environment.get(IMAGE_VARIABLE) or None,
        disk_gib=int(_number(environment, DISK_VARIABLE) or 200),
        lifetime_s=LIFETIME_S,
        spot_price_cap_usd_per_hour=_number(environment, SPOT_CAP_VARIABLE),
        max_instances=cloud.max_instances,
        interruption_queues=cloud.interruption_queues,
    )


def aws_provider(
    cloud: CloudSpec,
    *,
    catalog: Catalog,
    accelerators: Collection[str],
    store: ObjectStore,
    environment: Mapping[str, str],
    now_s: Callable[[], float],
    clients: AwsClients | None = None,
    read_spot_prices: bool = True,
) -> AwsProvider:
    """Put the agent into the store and return the provider; nothing is asked of EC2 yet.

    ``clients`` bound to a mocked account make a dry run of it. Only offers with an accelerator of
    ``accelerators`` are considered.
    """
    settings = aws_settings(
        cloud,
        catalog=catalog,
        store_url=store.url,
        agent=upload_agent(store),
        environment=environment,
    )
    return AwsProvider(
        settings=settings,
        catalogue=catalog.search(
            providers={"aws"}, regions=settings.regions, accelerators=accelerators
        ),
        now_s=now_s,
        clients=clients,
        read_spot_prices=read_spot_prices,
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
