"""A fake project of Google Cloud with defaults for all but what a test is about."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cloudgavel.clock import VirtualClock
from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.base import LaunchRequest
from cloudgavel.providers.bundle import AgentSource
from cloudgavel.providers.gcp.clients import CallRecord, GcpClients
from cloudgavel.providers.gcp.mocked.cloud import PROJECT, FakeGcp, Faults, Habits
from cloudgavel.providers.gcp.mocked.server import serve_cloud
from cloudgavel.providers.gcp.prices import COMPUTE_SERVICE
from cloudgavel.providers.gcp.provider import GcpProvider
from cloudgavel.providers.gcp.settings import GcpSettings

START_AT_S = 1_790_000_000.0
RUN_ID = "quickstart-7f3a"
AGENT = AgentSource(url="gs://runs/quickstart/agent/abc.tar.gz", sha256="ab" * 32)
ACCOUNT = "agent@fake-project.iam.gserviceaccount.com"


def an_offer(**changes: Any) -> Offer:
    """An n1 machine with one V100 in us-central1-a, spot at $1.2/h unless changed."""
    fields: dict[str, Any] = {
        "provider": "gcp",
        "region": "us-central1",
        "zone": "us-central1-a",
        "instance_type": "n1-standard-8+1xV100",
        "accelerator": "V100",
        "accelerators_per_instance": 1,
        "shareable": True,
        "vcpus": 8.0,
        "memory_gib": 30.0,
        "capacity_type": CapacityType.SPOT,
        "price_usd_per_hour": 1.2,
        "interruption_rate_per_hour": 0.05,
        "observed_at_s": 1_789_000_000.0,
        "source": "test",
    }
    return Offer(**(fields | changes))


def an_a100(**changes: Any) -> Offer:
    """One A100 on demand: a type that has its GPU built in."""
    defaults: dict[str, Any] = {
        "instance_type": "a2-highgpu-1g",
        "accelerator": "A100",
        "vcpus": 12.0,
        "memory_gib": 85.0,
        "capacity_type": CapacityType.ON_DEMAND,
        "price_usd_per_hour": 3.67,
        "interruption_rate_per_hour": None,
    }
    return an_offer(**(defaults | changes))


def a_slice(**changes: Any) -> Offer:
    """A slice of eight v5e chips on one host, spot."""
    defaults: dict[str, Any] = {
        "instance_type": "tpu-v5litepod-8",
        "accelerator": "tpu-v5litepod-8",
        "shareable": False,
        "vcpus": None,
        "memory_gib": None,
        "price_usd_per_hour": 3.56,
    }
    return an_offer(**(defaults | changes))


def settings(**changes: Any) -> GcpSettings:
    fields: dict[str, Any] = {
        "project": PROJECT,
        "regions": ("us-central1",),
        "store_url": "gs://runs/quickstart",
        "agent": AGENT,
        "service_account": ACCOUNT,
    }
    return GcpSettings(**(fields | changes))


def a_request(offer: Offer, token: str = "quickstart-r1-0", **changes: Any) -> LaunchRequest:
    return LaunchRequest(**({"token": token, "run_id": RUN_ID, "offer": offer} | changes))


def a_sku(
    description: str,
    usd_per_hour: float,
    *,
    since: str = "2026-09-01T00:00:00Z",
    usage_type: str = "OnDemand",
    regions: Sequence[str] = ("us-central1",),
) -> dict[str, Any]:
    """One SKU of the billing catalogue, in the form of its interface."""
    units, nanos = divmod(round(usd_per_hour * 1e9), 10**9)
    price = {"currencyCode": "USD", "units": str(units), "nanos": nanos}
    return {
        "name": f"{COMPUTE_SERVICE}/skus/0000-0000-0000",
        "description": description,
        "category": {"resourceFamily": "Compute", "usageType": usage_type},
        "serviceRegions": list(regions),
        "pricingInfo": [
            {
                "effectiveTime": since,
                "pricingExpression": {
                    "usageUnit": "h",
                    "tieredRates": [{"startUsageAmount": 0, "unitPrice": price}],
                },
            }
        ],
    }


@dataclass
class Project:
    """One fake project, the provider on it, and its clock."""

    provider: GcpProvider
    cloud: FakeGcp
    clock: VirtualClock
    clients: GcpClients
    endpoint: str
    offers: Sequence[Offer]
    settings: GcpSettings
    calls: list[CallRecord] = field(default_factory=list)
    pauses_s: list[float] = field(default_factory=list)

    @property
    def faults(self) -> Faults:
        return self.cloud.faults

    def advance_s(self, seconds: float) -> None:
        self.clock.advance_to(self.clock.now_s() + seconds)

    def pause(self, seconds: float) -> None:
        """What the provider waits with: the cloud's clock moves, the test does not wait."""
        self.pauses_s.append(seconds)
        self.advance_s(seconds)

    def another_process(self, **changes: Any) -> GcpProvider:
        """A provider that remembers nothing: the controller after a crash."""
        return GcpProvider(
            **{
                "settings": self.settings,
                "catalogue": self.offers,
                "now_s": self.clock.now_s,
                "clients": self.clients,
                "pause": self.pause,
                "read_prices": False,
                **changes,
            }
        )


@contextlib.contextmanager
def a_project(
    *offers: Offer,
    habits: Habits | None = None,
    given: GcpSettings | None = None,
    read_prices: bool = False,
    **options: Any,
) -> Iterator[Project]:
    clock = VirtualClock(options.pop("start_at_s", START_AT_S))
    sold = offers or (an_offer(), an_a100())
    cloud = FakeGcp(now_s=clock.now_s, offers=sold, habits=habits, **options)
    cloud.buckets.add("runs")
    chosen = given or settings()
    calls: list[CallRecord] = []
    with serve_cloud(cloud) as endpoint:
        clients = GcpClients(endpoint=endpoint, on_call=calls.append, repeat_reads_s=0.0)
        project = Project(
            provider=None,  # type: ignore[arg-type]
            cloud=cloud,
            clock=clock,
            clients=clients,
            endpoint=endpoint,
            offers=sold,
            settings=chosen,
            calls=calls,
        )
        project.provider = project.another_process(read_prices=read_prices)
        yield project
