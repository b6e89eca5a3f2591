"""A cloud whose prices include the boot disks that its machines are rented with."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cloudgavel.pricing.disks import DEFAULT_GIB, disk_usd_per_hour, with_disk
from cloudgavel.pricing.offer import Offer
from cloudgavel.providers.base import LaunchRequest, ListedInstance, Provider, Quota


class WithDisks:
    """Implements ``Provider``: everything is the inner one's, prices are higher by the disk.

    ``known`` are all offers that the run may ever see, so that machines of an earlier process are
    priced alike. A machine of any other offer costs what the cloud says.
    """

    def __init__(
        self, inner: Provider, *, known: Sequence[Offer], gib_by_provider: Mapping[str, float]
    ) -> None:
        self.name = inner.name
        self._inner = inner
        self._gib = gib_by_provider
        self._usd_per_hour = {
            offer.offer_id: disk_usd_per_hour(offer, self._size(offer)) for offer in known
        }
        self._offer_of: dict[str, str] = {}
        """Instance id -> offer id, of all that was launched or listed."""

    def offers(self) -> Sequence[Offer]:
        """Return the inner offers, disks included."""
        return tuple(with_disk(offer, self._size(offer)) for offer in self._inner.offers())

    def boot_s(self, offer: Offer) -> float:
        """Return what the cloud expects."""
        return self._inner.boot_s(offer)

    def quotas(self) -> Sequence[Quota]:
        """Return the account's limits."""
        return self._inner.quotas()

    def launch(self, request: LaunchRequest) -> ListedInstance:
        """Rent; the cloud is asked with its own price."""
        offer, disk = request.offer, request.offer.disk_usd_per_hour
        if disk and offer.price_usd_per_hour is not None:
            plain = round(offer.price_usd_per_hour - disk, 6)
            offer = replace(offer, price_usd_per_hour=plain, disk_usd_per_hour=0.0)
        return self._dearer(self._inner.launch(replace(request, offer=offer)))

    def list_instances(self, run_id: str) -> Sequence[ListedInstance]:
        """Return the run's instances, disks included."""
        return [self._dearer(each) for each in self._inner.list_instances(run_id)]

    def price_changes(self, instance_id: str, since_s: float) -> Sequence[tuple[float, float]]:
        """Return the changes of the machine's price; its disk's stays."""
        disk = self._disk(self._offer_of.get(instance_id, ""))
        return [
            (at_s, round(price + disk, 6))
            for at_s, price in self._inner.price_changes(instance_id, since_s)
        ]

    def terminate(self, instance_id: str) -> None:
        """Ask for an end."""
        self._inner.terminate(instance_id)

    def _dearer(self, listed: ListedInstance) -> ListedInstance:
        self._offer_of[listed.instance_id] = listed.offer_id
        price = round(listed.price_usd_per_hour + self._disk(listed.offer_id), 6)
        return replace(listed, price_usd_per_hour=price)

    def _disk(self, offer_id: str) -> float:
        return self._usd_per_hour.get(offer_id, 0.0)

    def _size(self, offer: Offer) -> float:
        return self._gib.get(offer.provider, DEFAULT_GIB)
