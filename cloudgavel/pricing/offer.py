"""One thing a cloud rents, at a price, in a place."""

from dataclasses import dataclass
from enum import StrEnum

RATE_IS_ASSUMED = "; interruption rate: assumption"
"""End of an offer's ``source`` whose rate nobody measured."""


class CapacityType(StrEnum):
    """How an instance is rented."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    RESERVED = "reserved"


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """One instance type in one zone under one capacity type.

    A price never seen is ``None``, not 0; likewise an interruption rate. An n1 host with GPUs
    attached is one offer whose ``instance_type`` names both (``n1-standard-8+1xV100``).
    """

    provider: str
    region: str
    zone: str
    instance_type: str
    accelerator: str
    """Canonical name of ``jobs.accelerators``."""
    accelerators_per_instance: int
    shareable: bool
    """False for a TPU slice: one indivisible unit, ``accelerators_per_instance`` = 1."""
    vcpus: float | None
    memory_gib: float | None
    """Host memory."""
    capacity_type: CapacityType
    price_usd_per_hour: float | None
    interruption_rate_per_hour: float | None
    observed_at_s: float | None
    source: str
    disk_usd_per_hour: float = 0.0
    """Part of the price: the boot disk, estimated (``pricing.disks``); 0 = not counted in."""
    flags: tuple[str, ...] = ()
    """What the source says about the row: ``suspect``, ``derived``, ``local_zone``, ``historic``
    (see ``pricing/data/SOURCES.md``)."""

    @property
    def is_historic(self) -> bool:
        """True for hardware that is no longer rented: for simulation only."""
        return "historic" in self.flags

    @property
    def offer_id(self) -> str:
        """Stable label, unique in a catalogue: ``aws/use1-az1/p3.2xlarge/spot``."""
        return f"{self.provider}/{self.zone}/{self.instance_type}/{self.capacity_type}"

    @property
    def usd_per_accelerator_hour(self) -> float | None:
        """Price of one accelerator for one hour when the instance is full."""
        if self.price_usd_per_hour is None:
            return None
        return self.price_usd_per_hour / self.accelerators_per_instance
