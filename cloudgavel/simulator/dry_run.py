"""The clouds of a dry run: mocked accounts behind the real provider code, following virtual time.

Every launch and every end of a virtual run passes through the provider that a real run would use,
with all that it validates, and ends in moto (AWS) or in the fake Google Cloud. Meanwhile no
connection to another machine can be opened. Credentials are neither needed nor looked for.
"""

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from cloudgavel.documents.plan import PlannedCall
from cloudgavel.jobs.spec import CloudSpec, RunSpec
from cloudgavel.pricing.catalog import Catalog
from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.base import LaunchRequest, ListedInstance, Provider, Quota
from cloudgavel.providers.mirrored import MirroredProvider, follow_ends
from cloudgavel.providers.offline import loopback_only
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.providers.store_access import PROVIDER_VARIABLE, ROLE_VARIABLE

MADE_UP_BUCKET = "cloudgavel-dry-run"
MADE_UP_PROFILE = "cloudgavel-agent"
LONGEST_TEXT = 200
"""Longer values of a shown call are told by their size (start-up scripts, archives)."""
_SCHEMES = {"aws": "s3", "gcp": "gs"}
_WAYS_ACROSS = {"aws": (PROVIDER_VARIABLE, "gs"), "gcp": (ROLE_VARIABLE, "s3")}
"""By cloud: the setting by which its machines reach the other's kind of store, and that kind."""
_LEFT_OUT = ("CLOUDGAVEL_AWS_IMAGE", "CLOUDGAVEL_GCP_IMAGE_FAMILY")
"""Settings that a mocked account cannot know."""


@dataclass(kw_only=True)
class DryRun:
    """Mocked clouds and the calls that were made of them."""

    start_at_s: float
    clouds: dict[str, Provider] = field(default_factory=dict)
    take: dict[str, Callable[[str], None]] = field(default_factory=dict)
    """By cloud: lets it lose a machine without a call."""
    calls: list[PlannedCall] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Plain sentences about what the dry run could not do as a run would."""
    world: SimulatedCloud | None = None

    def now_s(self) -> float:
        """Return the instant of the virtual run that is going on."""
        return self.start_at_s if self.world is None else self.world.now_s()

    def sold(self, offers: Sequence[Offer]) -> tuple[Offer, ...]:
        """Return the offers that their cloud would rent, by its provider's own judgement."""
        known = {
            name: {offer.offer_id for offer in cloud.offers()}
            for name, cloud in self.clouds.items()
        }
        return tuple(
            offer
            for offer in offers
            if offer.provider not in known or offer.offer_id in known[offer.provider]
        )

    def quotas(self) -> tuple[Quota, ...]:
        """Return every cloud's limits (``max_instances`` of the file among them)."""
        return tuple(quota for cloud in self.clouds.values() for quota in cloud.quotas())

    def mirror(self, world: SimulatedCloud) -> Provider:
        """Return a provider over ``world`` whose launches and ends are calls, too."""
        self.world = world
        # The world has been given the limits: they are not to count twice.
        provider = MirroredProvider(world, {n: Unlimited(c) for n, c in self.clouds.items()})
        follow_ends(world, provider, self.take)
        return provider

    def heard(
        self, provider: str, service: str, region: str | None, operation: str, parameters: Any
    ) -> None:
        """Take down one call."""
        self.calls.append(
            PlannedCall(
                at_s=self.now_s() - self.start_at_s,
                provider=provider,
                service=service,
                region=region,
                operation=operation,
                parameters=plain(parameters),
            )
        )


class Unlimited:
    """A mocked cloud's provider that is asked once what it sells, and never for its limits."""

    def __init__(self, provider: Provider) -> None:
        self.name = provider.name
        self._provider = provider
        self._offers: Sequence[Offer] | None = None

    def offers(self) -> Sequence[Offer]:
        """Return the first answer: mocked accounts do not change."""
        if self._offers is None:
            self._offers = self._provider.offers()
        return self._offers

    def boot_s(self, offer: Offer) -> float:
        """Return the provider's expectation."""
        return self._provider.boot_s(offer)

    def quotas(self) -> Sequence[Quota]:
        """Return none."""
        return ()

    def launch(self, request: LaunchRequest) -> ListedInstance:
        """Rent one instance."""
        return self._provider.launch(request)

    def list_instances(self, run_id: str) -> Sequence[ListedInstance]:
        """Return the run's instances."""
        return self._provider.list_instances(run_id)

    def price_changes(self, instance_id: str, since_s: float) -> Sequence[tuple[float, float]]:
        """Return the provider's changes."""
        return self._provider.price_changes(instance_id, since_s)

    def terminate(self, instance_id: str) -> None:
        """Ask for an end."""
        self._provider.terminate(instance_id)


@contextlib.contextmanager
def mocked_clouds(
    run: RunSpec,
    *,
    catalog: Catalog,
    environment: Mapping[str, str],
    start_at_s: float,
) -> Iterator[DryRun]:
    """Open a mocked account of every cloud of ``run`` that can be mocked here.

    What can not is told in ``notes``, and its launches are simulated alone. ``environment`` gives
    the settings of a real run (``CLOUDGAVEL_AWS_...``).
    """
    given = {
        name: value
        for name, value in environment.items()
        if name.startswith("CLOUDGAVEL_") and name not in _LEFT_OUT
    }
    accelerators = {each.accelerator for job in run.jobs for each in job.accelerators}
    dry = DryRun(start_at_s=start_at_s)
    openers = {"aws": _open_aws, "gcp": _open_gcp}
    with contextlib.ExitStack() as stack:
        stack.enter_context(loopback_only())
        for cloud in run.clouds:
            if cloud.provider in openers:
                bucket, prefix = _store_of(run, cloud.provider, dry, given)
                openers[cloud.provider](
                    stack, dry, cloud, catalog, accelerators, given, bucket, prefix
                )
        dry.calls.clear()
        yield dry


def _store_of(
    run: RunSpec, provider: str, dry: DryRun, given: Mapping[str, str]
) -> tuple[str, str]:
    """Return bucket and prefix in the cloud's own kind of store."""
    scheme = _SCHEMES[provider]
    parts = urlsplit(run.store or "")
    if parts.scheme == scheme and parts.netloc:
        return parts.netloc, parts.path.strip("/")
    said = f"`store: {run.store}`" if run.store else "no `store`"
    variable, other = _WAYS_ACROSS[provider]
    if parts.scheme != other:
        dry.notes.append(
            f"{provider}: machines there reach {scheme}:// and {other}:// only and the file has "
            f"{said}; the dry run uses a made-up bucket, a real run does not start"
        )
    elif not given.get(variable):
        dry.notes.append(
            f"{provider}: machines there reach {said} only with {variable} set "
            "(docs/how-to/two-clouds.md); the dry run uses a made-up bucket, a real run does not "
            "start"
        )
    else:
        dry.notes.append(
            f"{provider}: machines there reach {said} by {variable}; the dry run uses a made-up "
            "bucket of their own cloud"
        )
    return MADE_UP_BUCKET, f"runs/{run.name}"


def _open_aws(
    stack: contextlib.ExitStack,
    dry: DryRun,
    cloud: CloudSpec,
    catalog: Catalog,
    accelerators: set[str],
    given: Mapping[str, str],
    bucket: str,
    prefix: str,
) -> None:
    from cloudgavel.objects.s3 import S3Store
    from cloudgavel.providers.aws.assembly import INSTANCE_PROFILE_VARIABLE, aws_provider
    from cloudgavel.providers.aws.clients import CallRecord
    from cloudgavel.providers.aws.mocked.inside import mocked_aws
    from cloudgavel.providers.aws.mocked.layer import MotoLayer

    if importlib.util.find_spec("moto") is None:
        dry.notes.append(
            "aws: the calls were not made, for moto is not installed "
            "(pip install 'cloudgavel[dry-run]')"
        )
        return

    def on_call(call: CallRecord) -> None:
        dry.heard("aws", call.service, call.region, call.operation, call.parameters)

    layer = MotoLayer(now_s=dry.now_s, offers=catalog.search(providers={"aws"}))
    clients = stack.enter_context(mocked_aws(layer, on_call=on_call))
    client = clients.client("s3", "us-east-1")
    client.create_bucket(Bucket=bucket)
    provider = aws_provider(
        replace(cloud, interruption_queues=()),
        catalog=catalog,
        accelerators=accelerators,
        store=S3Store(bucket, prefix, client=client),
        environment={INSTANCE_PROFILE_VARIABLE: MADE_UP_PROFILE, **given},
        now_s=dry.now_s,
        clients=clients,
        read_spot_prices=False,
    )
    dry.clouds["aws"] = provider
    dry.take["aws"] = layer.interrupt


def _open_gcp(
    stack: contextlib.ExitStack,
    dry: DryRun,
    cloud: CloudSpec,
    catalog: Catalog,
    accelerators: set[str],
    given: Mapping[str, str],
    bucket: str,
    prefix: str,
) -> None:
    from cloudgavel.objects.gcs import GcsStore
    from cloudgavel.providers.gcp.assembly import gcp_provider
    from cloudgavel.providers.gcp.clients import CallRecord
    from cloudgavel.providers.gcp.mocked.cloud import PROJECT, FakeGcp
    from cloudgavel.providers.gcp.mocked.inside import mocked_gcp
    from cloudgavel.providers.store_access import ACCOUNT_VARIABLE

    if cloud.project is None:
        dry.notes.append(
            "gcp: no `clouds.gcp.project` is given; the dry run uses a made-up one, a real run "
            "does not start"
        )
    project = cloud.project or PROJECT
    fake = FakeGcp(now_s=dry.now_s, offers=catalog.search(providers={"gcp"}), project=project)
    fake.buckets.add(bucket)

    def on_call(call: CallRecord) -> None:
        zone = call.parameters.get("zone") or call.parameters.get("region")
        dry.heard("gcp", call.service, zone, call.operation, call.parameters)

    clients = stack.enter_context(mocked_gcp(fake, on_call=on_call))
    account = f"{MADE_UP_PROFILE}@{project}.iam.gserviceaccount.com"
    provider = gcp_provider(
        replace(cloud, project=project),
        catalog=catalog,
        accelerators=accelerators,
        store=GcsStore(bucket, prefix, endpoint=clients.endpoint),
        environment={ACCOUNT_VARIABLE: account, **given},
        now_s=dry.now_s,
        clients=clients,
        read_prices=False,
        # The fake's operations are done at once, and virtual time does not pass in a wait.
        pause=lambda seconds: None,
    )
    dry.clouds["gcp"] = provider
    dry.take["gcp"] = fake.vanish


def plain(value: Any) -> Any:
    """Return a call's parameter as JSON values; what is long is told by its size."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, bytes | bytearray):
        return f"<{len(value)} bytes>"
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else f"<{len(value)} characters>"
    if value is None or isinstance(value, bool | int | float):
        return value
    return f"<{type(value).__name__}>"
