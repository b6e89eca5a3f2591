"""What the contract suite needs of a provider under test, and how two of them give it.

Another provider joins by implementing ``Harness`` over its own fake cloud and a line in
``conftest.py``.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.base import LaunchRequest, ListedInstance, Paced, Provider, Quota
from cloudgavel.providers.local.world import RehearsalWorld
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.providers.simulated.habits import CloudFaults, CloudHabits
from cloudgavel.providers.simulated.world import SimulatedWorld

RUN_ID = "run-of-the-contract"
START_AT_S = 1_700_000_000.0
AGENT = (sys.executable, "-m", "cloudgavel.agent")


def an_offer(
    *,
    zone: str = "use1-az1",
    provider: str = "aws",
    accelerator: str = "V100",
    instance_type: str = "p3.2xlarge",
    capacity_type: CapacityType = CapacityType.SPOT,
    price: float | None = 1.0,
) -> Offer:
    return Offer(
        provider=provider,
        region="us-east-1",
        zone=zone,
        instance_type=instance_type,
        accelerator=accelerator,
        accelerators_per_instance=1,
        shareable=not accelerator.startswith("tpu"),
        vcpus=8,
        memory_gib=61,
        capacity_type=capacity_type,
        price_usd_per_hour=price,
        interruption_rate_per_hour=0.1 if capacity_type is CapacityType.SPOT else None,
        observed_at_s=None,
        source="test",
    )


@dataclass(kw_only=True)
class ScriptedMarket:
    """A market that does what it is told; lives are in seconds after the launch."""

    lives_s: dict[tuple[str, int], float] = field(default_factory=dict)
    prices: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Changes by offer, oldest first; before the first the offer's own price holds."""
    closed: set[str] = field(default_factory=set)
    boot_delay_s: float = 60.0
    boots_s: dict[tuple[str, int], float] = field(default_factory=dict)

    def price_usd_per_hour(self, offer: Offer, at_s: float) -> float | None:
        price = offer.price_usd_per_hour
        for change_at_s, new_price in self.prices.get(offer.offer_id, []):
            if change_at_s <= at_s:
                price = new_price
        return price

    def next_price_change_s(self, offer: Offer, after_s: float) -> float | None:
        changes = [at_s for at_s, _ in self.prices.get(offer.offer_id, []) if at_s > after_s]
        return min(changes, default=None)

    def capacity_available(self, offer: Offer, at_s: float) -> bool:
        return offer.offer_id not in self.closed

    def next_capacity_change_s(self, offer: Offer, after_s: float) -> float | None:
        return None

    def interruption_at_s(
        self, offer: Offer, instance_ordinal: int, launched_at_s: float
    ) -> float | None:
        life_s = self.lives_s.get((offer.offer_id, instance_ordinal))
        return None if life_s is None else launched_at_s + life_s

    def boot_s(self, offer: Offer, instance_ordinal: int) -> float:
        return self.boots_s.get((offer.offer_id, instance_ordinal), self.boot_delay_s)


class RealClock:
    def now_s(self) -> float:
        return time.time()


class Harness(Protocol):
    """One provider under test on a fake cloud of its own."""

    provider: Provider

    def advance_s(self, seconds: float) -> None:
        """Let the cloud's time pass."""

    def next_launch_lives_s(self, offer: Offer, seconds: float) -> None:
        """Have the cloud take the next instance of the offer after so long."""

    def close_zone(self, offer: Offer) -> None:
        """No capacity for the offer from now on."""

    def lose_next_answer(self) -> None:
        """The next launch works, but its answer gets lost."""

    def throttle_next_launch(self) -> None:
        """The next launch is refused for too many calls."""

    def fail_next_terminate(self) -> None:
        """The next end asked for gets no answer."""

    def create_calls(self) -> int:
        """How often the cloud was asked to create something."""


@dataclass
class VirtualHarness:
    """For the providers whose time is virtual: simulated and local."""

    provider: Provider
    pace: Paced
    market: ScriptedMarket
    faults: CloudFaults
    counted: SimulatedCloud | RehearsalWorld
    launched: dict[str, int] = field(default_factory=dict)

    def advance_s(self, seconds: float) -> None:
        self.pace.advance_to(self.pace.now_s() + seconds)

    def next_launch_lives_s(self, offer: Offer, seconds: float) -> None:
        for ordinal in range(100):
            self.market.lives_s.setdefault((offer.offer_id, ordinal), seconds)

    def close_zone(self, offer: Offer) -> None:
        self.market.closed.add(offer.offer_id)

    def lose_next_answer(self) -> None:
        self.faults.unanswered_launches = 1

    def throttle_next_launch(self) -> None:
        self.faults.throttled_launches = 1

    def fail_next_terminate(self) -> None:
        self.faults.failing_terminates = 1

    def create_calls(self) -> int:
        return self.counted.launch_calls


def simulated(
    _directory: Path,
    offers: Sequence[Offer],
    quotas: Sequence[Quota] = (),
    habits: CloudHabits | None = None,
) -> VirtualHarness:
    market = ScriptedMarket()
    cloud = SimulatedCloud(
        offers=offers, market=market, now_s=START_AT_S, quotas=quotas, habits=habits
    )
    return VirtualHarness(cloud, SimulatedWorld(cloud), market, cloud.faults, cloud)


def local(
    directory: Path,
    offers: Sequence[Offer],
    quotas: Sequence[Quota] = (),
    habits: CloudHabits | None = None,
) -> VirtualHarness:
    market = ScriptedMarket()
    world = RehearsalWorld.open(
        directory / "rehearsal",
        run_id=RUN_ID,
        store_url=(directory / "store").as_uri(),
        offers=offers,
        market=market,
        start_at_s=START_AT_S,
        agent_command=AGENT,
        clock=RealClock(),
        quotas=quotas,
        habits=habits,
    )
    return VirtualHarness(world, world, market, world.faults, world)


def a_request(offer: Offer, token: str = "token-1", run_id: str = RUN_ID) -> LaunchRequest:
    return LaunchRequest(token=token, run_id=run_id, offer=offer)


def by_id(listing: Sequence[ListedInstance]) -> Mapping[str, ListedInstance]:
    return {listed.instance_id: listed for listed in listing}
