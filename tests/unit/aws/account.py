"""A mocked AWS account with defaults for all but what a test is about."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cloudgavel.clock import VirtualClock
from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.aws.clients import AwsClients, CallRecord
from cloudgavel.providers.aws.mocked.inside import mocked_aws
from cloudgavel.providers.aws.mocked.layer import Faults, Habits, MotoLayer
from cloudgavel.providers.aws.provider import AwsProvider
from cloudgavel.providers.aws.quotas import VcpuLimit
from cloudgavel.providers.aws.settings import AwsSettings
from cloudgavel.providers.base import LaunchRequest
from cloudgavel.providers.bundle import AgentSource

START_AT_S = 1_790_000_000.0
RUN_ID = "quickstart-7f3a"
AGENT = AgentSource(url="s3://runs/quickstart/agent/abc.tar.gz", sha256="ab" * 32)


def an_offer(**changes: Any) -> Offer:
    """A g5.xlarge in use1-az1, on demand at $1.006/h unless changed."""
    fields: dict[str, Any] = {
        "provider": "aws",
        "region": "us-east-1",
        "zone": "use1-az1",
        "instance_type": "g5.xlarge",
        "accelerator": "A10G",
        "accelerators_per_instance": 1,
        "shareable": True,
        "vcpus": 4.0,
        "memory_gib": 16.0,
        "capacity_type": CapacityType.ON_DEMAND,
        "price_usd_per_hour": 1.006,
        "interruption_rate_per_hour": 0.0,
        "observed_at_s": 1_789_000_000.0,
        "source": "test",
    }
    return Offer(**(fields | changes))


def a_spot_offer(**changes: Any) -> Offer:
    """The same machine as spot at $0.45/h."""
    defaults: dict[str, Any] = {
        "capacity_type": CapacityType.SPOT,
        "price_usd_per_hour": 0.45,
        "interruption_rate_per_hour": 0.05,
    }
    return an_offer(**(defaults | changes))


def a_limit(**changes: Any) -> VcpuLimit:
    """64 vCPUs of on-demand G and VT in us-east-1."""
    fields: dict[str, Any] = {
        "region": "us-east-1",
        "capacity_type": CapacityType.ON_DEMAND,
        "families": ("g", "vt"),
        "vcpus": 64.0,
        "title": "Running On-Demand G and VT instances",
        "code": "L-DB2E81BA",
    }
    return VcpuLimit(**(fields | changes))


def settings(**changes: Any) -> AwsSettings:
    fields: dict[str, Any] = {
        "regions": ("us-east-1",),
        "store_url": "s3://runs/quickstart",
        "agent": AGENT,
        "instance_profile": "cloudgavel-agent",
    }
    return AwsSettings(**(fields | changes))


def a_request(offer: Offer, token: str = "quickstart-r1-0", **changes: Any) -> LaunchRequest:
    return LaunchRequest(**({"token": token, "run_id": RUN_ID, "offer": offer} | changes))


@dataclass
class Account:
    """One mocked account, the provider on it, and its clock."""

    provider: AwsProvider
    layer: MotoLayer
    clock: VirtualClock
    clients: AwsClients
    offers: Sequence[Offer]
    settings: AwsSettings
    calls: list[CallRecord] = field(default_factory=list)

    @property
    def faults(self) -> Faults:
        return self.layer.faults

    def advance_s(self, seconds: float) -> None:
        self.clock.advance_to(self.clock.now_s() + seconds)

    def another_process(self, **changes: Any) -> AwsProvider:
        """A provider that remembers nothing: the controller after a crash."""
        return AwsProvider(
            **{
                "settings": self.settings,
                "catalogue": self.offers,
                "now_s": self.clock.now_s,
                "clients": self.clients,
                **changes,
            }
        )

    def sent(self, operation: str) -> list[CallRecord]:
        return [call for call in self.calls if call.operation == operation]


@contextlib.contextmanager
def an_account(
    *offers: Offer,
    limits: Sequence[VcpuLimit] = (),
    habits: Habits | None = None,
    given: AwsSettings | None = None,
    read_spot_prices: bool = True,
    **options: Any,
) -> Iterator[Account]:
    clock = VirtualClock(START_AT_S)
    sold = offers or (an_offer(), a_spot_offer())
    layer = MotoLayer(now_s=clock.now_s, offers=sold, limits=limits, habits=habits, **options)
    calls: list[CallRecord] = []
    chosen = given or settings()
    with mocked_aws(layer, on_call=calls.append) as clients:
        provider = AwsProvider(
            settings=chosen,
            catalogue=sold,
            now_s=clock.now_s,
            clients=clients,
            read_spot_prices=read_spot_prices,
        )
        yield Account(provider, layer, clock, clients, sold, chosen, calls)
