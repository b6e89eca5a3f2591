"""A simulated cloud with its agents, moved together: provider, channel and pace in one value."""

from collections.abc import Mapping, Sequence
from typing import Any

from cloudgavel.pricing.market import Market
from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.base import Quota
from cloudgavel.providers.simulated.agents import VirtualAgents
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.providers.simulated.habits import CloudHabits


class SimulatedWorld:
    """Implements ``Paced``; ``provider`` and ``channel`` are what a controller talks to."""

    def __init__(self, cloud: SimulatedCloud, agents: VirtualAgents | None = None) -> None:
        self.provider = cloud
        self.channel = agents or VirtualAgents(cloud)

    def now_s(self) -> float:
        """Return the world's present instant."""
        return self.provider.now_s()

    def next_event_at_s(self) -> float | None:
        """Next thing that a controller could see, strictly after now.

        A machine is ready, got its notice, is gone or confirmed ended; a live machine's price
        changes; a job finishes or is done with an ordered save or stop. ``None`` = never.
        """
        ahead = (self.provider.next_event_at_s(), self.channel.next_event_at_s())
        return min((at_s for at_s in ahead if at_s is not None), default=None)

    def advance_to(self, at_s: float) -> None:
        """Let everything happen up to ``at_s``, in order; ``ValueError`` for going back."""
        self.provider.advance_to(at_s)
        self.channel.catch_up()

    def copy(self) -> "SimulatedWorld":
        """Return a world in the same state that goes its own way."""
        cloud = self.provider.copy()
        return SimulatedWorld(cloud, self.channel.copy(cloud))

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values; offers, market, quotas and habits are not in it."""
        return {"cloud": self.provider.to_json(), "agents": self.channel.to_json()}

    @classmethod
    def from_json(
        cls,
        saved: Mapping[str, Any],
        *,
        offers: Sequence[Offer],
        market: Market,
        name: str = "simulated",
        quotas: Sequence[Quota] = (),
        habits: CloudHabits | None = None,
    ) -> "SimulatedWorld":
        """Resume a saved world under the same market; its future is the one it had."""
        cloud = SimulatedCloud.from_json(
            saved["cloud"], offers=offers, market=market, name=name, quotas=quotas, habits=habits
        )
        return cls(cloud, VirtualAgents.from_json(saved["agents"], cloud))
