"""The one input of every policy: jobs x pools, labelled, with unknown as a mask."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cloudgavel.policies.sharing import PairSharing
from cloudgavel.pricing.offer import CapacityType

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRow:
    """One job still to be done. Instants ending in ``_s`` count from the problem's ``now``."""

    name: str
    steps_left: float
    release_s: float = 0.0
    """Earliest start (arrival, or the expected end of what it comes after)."""
    deadline_s: float | None = None
    """Seconds from now, margin already taken off; negative = passed, still a (late) promise."""
    weight: float = 1.0
    max_cost_left_usd: float | None = None
    entity: str | None = None
    spot_only: bool = False
    held_pool: int | None = None
    """Column it runs on now."""
    elapsed_s: float = 0.0
    """Since its arrival (finish-time fairness)."""
    after: tuple[str, ...] = ()
    """Jobs of the problem that must be finished first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """One column: an offer (or a type of a fixed cluster) with a gang size and a placement."""

    label: str
    """Unique: offer id, plus ``*k`` for the gang size."""
    offer_id: str
    """The offer it rents; of a fixed cluster: the accelerator type."""
    accelerator: str
    capacity_type: CapacityType
    gang_size: int
    """Accelerators one job takes in this column (``k``)."""
    accelerators_per_instance: int
    """``g``; a gang of k takes k/g of an instance, or k/g instances."""
    shareable: bool
    price_usd_per_hour: float
    """Of one instance."""
    interruption_rate_per_hour: float = 0.0
    availability_share: float = 1.0
    """Expected share of time in which it can be had (spot)."""
    spread: bool = False
    """The gang is placed over several instances (fixed cluster: unconsolidated)."""

    @property
    def instances_per_job(self) -> float:
        """``k / g``: what part of an instance, or how many, one job takes."""
        return self.gang_size / self.accelerators_per_instance


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaGroup:
    """``sum_r coefficient_r * instances_r <= limit`` (quotas span pools)."""

    name: str
    coefficients: tuple[float, ...]
    """One per pool (``a_qr``), 0 where the quota does not count it."""
    limit: float


@dataclass(frozen=True, kw_only=True)
class AllocationProblem:
    """Everything a policy may look at.

    Shapes: m jobs, R pools. ``throughput_steps_per_s`` (m, R) is the rate of the whole gang (T_jr),
    meaningful only where ``feasible`` (m, R); elsewhere NaN. ``change_over_s`` (m, R): seconds
    paid without progress when the job starts there afresh. Arrays are made read-only.
    """

    jobs: tuple[JobRow, ...]
    pools: tuple[Pool, ...]
    throughput_steps_per_s: FloatArray
    feasible: BoolArray
    change_over_s: FloatArray
    quotas: tuple[QuotaGroup, ...] = ()
    budget_left_usd: float | None = None
    max_usd_per_hour: float | None = None
    cluster_accelerators: tuple[int, ...] | None = None
    """Fixed cluster only: N_r by pool (columns of one type repeat it)."""
    standing_usd: float = 0.0
    """Committed already for what runs (minimum charges, saves): not available."""
    extra: dict[str, FloatArray] = field(default_factory=dict)
    """Optional labelled inputs of single policies."""
    sharing: PairSharing | None = None
    """What jobs keep of their rate beside another one; ``None`` = accelerators are not shared."""

    wants_prices: bool = True
    """Whether what binds is to be priced too (more solves); a simulation asks for shares only."""

    def __post_init__(self) -> None:
        """Check shapes once and freeze the arrays (``ValueError`` names the mismatch)."""
        shape = (len(self.jobs), len(self.pools))
        for name in ("throughput_steps_per_s", "feasible", "change_over_s"):
            array = getattr(self, name)
            if array.shape != shape:
                raise ValueError(f"{name} has shape {array.shape}, expected {shape} (jobs, pools)")
            array.setflags(write=False)
        if self.cluster_accelerators is not None and len(self.cluster_accelerators) != shape[1]:
            raise ValueError(f"cluster_accelerators names {len(self.cluster_accelerators)} pools")
        if self.sharing is not None and (
            self.sharing.kind_of_job.size != shape[0]
            or self.sharing.retained_share.shape[2] != shape[1]
        ):
            raise ValueError(f"sharing does not fit {shape} (jobs, pools)")
        known = self.throughput_steps_per_s[self.feasible]
        if not (np.isfinite(known).all() and (known > 0).all()):
            raise ValueError("throughput must be finite and positive wherever feasible")
        for quota in self.quotas:
            if len(quota.coefficients) != len(self.pools):
                raise ValueError(f"quota {quota.name} has {len(quota.coefficients)} coefficients")
