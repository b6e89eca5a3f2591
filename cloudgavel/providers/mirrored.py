"""The dry run's provider: a simulated cloud whose launches and ends are also real calls, mocked."""

from collections.abc import Callable, Mapping, Sequence

from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.base import EndReason, LaunchRequest, ListedInstance, Provider, Quota
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.providers.simulated.rented import ChangeKind, MachineChange


class MirroredProvider:
    """Implements ``Provider``: time, prices and lives are the world's, calls are the clouds'.

    Each launch goes through the cloud's own provider first, with everything that it validates, and
    on to the world when that cloud grants it. Lists are the world's alone: a mocked cloud takes
    milliseconds for each line, and virtual rounds are many.
    """

    name = "dry-run"

    def __init__(self, world: Provider, clouds: Mapping[str, Provider]) -> None:
        """``clouds`` are bound to mocked accounts, by the name that offers call them."""
        self._world = world
        self._clouds = clouds
        self._mirrored: dict[str, tuple[str, str]] = {}
        """World's id -> cloud's name and id."""

    def offers(self) -> Sequence[Offer]:
        """Return the world's offers that their cloud has."""
        sold = {
            name: {offer.offer_id for offer in cloud.offers()}
            for name, cloud in self._clouds.items()
        }
        return [
            offer
            for offer in self._world.offers()
            if offer.provider not in sold or offer.offer_id in sold[offer.provider]
        ]

    def boot_s(self, offer: Offer) -> float:
        """Return what the world expects."""
        return self._world.boot_s(offer)

    def quotas(self) -> Sequence[Quota]:
        """Return the world's limits and those of every cloud."""
        return [
            *self._world.quotas(),
            *(quota for cloud in self._clouds.values() for quota in cloud.quotas()),
        ]

    def launch(self, request: LaunchRequest) -> ListedInstance:
        """Rent from the cloud, then in the world; either may refuse."""
        cloud = self._clouds.get(request.offer.provider)
        if cloud is None:
            return self._world.launch(request)
        granted = cloud.launch(request)
        try:
            launched = self._world.launch(request)
        except Exception:
            # The cloud must not keep a machine of which the world knows nothing.
            cloud.terminate(granted.instance_id)
            raise
        self._mirrored[launched.instance_id] = (request.offer.provider, granted.instance_id)
        return launched

    def list_instances(self, run_id: str) -> Sequence[ListedInstance]:
        """Return the world's list."""
        return self._world.list_instances(run_id)

    def price_changes(self, instance_id: str, since_s: float) -> Sequence[tuple[float, float]]:
        """Return the world's changes."""
        return self._world.price_changes(instance_id, since_s)

    def terminate(self, instance_id: str) -> None:
        """Ask for an end in the cloud and in the world."""
        mirrored = self._mirrored.get(instance_id)
        if mirrored is not None:
            name, mirrored_id = mirrored
            self._clouds[name].terminate(mirrored_id)
        self._world.terminate(instance_id)

    def mirrored(self, instance_id: str) -> tuple[str, str] | None:
        """Return the cloud and the id there of one of the world's instances."""
        return self._mirrored.get(instance_id)


def follow_ends(
    world: SimulatedCloud,
    provider: MirroredProvider,
    take: Mapping[str, Callable[[str], None]],
) -> None:
    """Let each mocked cloud lose the machines that the world loses, so that its limits are right.

    ``take`` ends a machine by its id in the mocked cloud of that name, without a call.
    """

    def heard(change: MachineChange) -> None:
        mirrored = provider.mirrored(change.instance_id)
        if (
            mirrored is not None
            and change.kind is ChangeKind.ENDED
            and change.reason is not EndReason.REQUESTED
            and mirrored[0] in take
        ):
            take[mirrored[0]](mirrored[1])

    world.subscribe(heard)
