"""What a fixed cluster is made of, and the pools in which its jobs can run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cloudgavel.policies.problem import IntArray, Pool
from cloudgavel.pricing.offer import CapacityType


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceleratorType:
    """So many alike accelerators, on machines of ``accelerators_per_instance`` each."""

    accelerator: str
    count: int
    accelerators_per_instance: int | None = None
    """``None``: the machines are not told apart, and every gang counts as consolidated."""
    usd_per_hour: float | None = None
    """Of one accelerator; ``None`` = unknown."""

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing (``ValueError``)."""
        if self.count < 0:
            raise ValueError(f"{self.accelerator}: {self.count} accelerators")
        if self.accelerators_per_instance is not None and self.accelerators_per_instance < 1:
            raise ValueError(f"{self.accelerator}: {self.accelerators_per_instance} per machine")


@dataclass(frozen=True, kw_only=True)
class FixedCluster:
    """Types of accelerators, and one pool for each type, gang size and placement.

    R pools in a fixed order. A gang of more accelerators than a machine has is spread, whatever
    the placement asked for.
    """

    types: tuple[AcceleratorType, ...]
    pools: tuple[Pool, ...]
    type_of_pool: IntArray
    """(R,) position in ``types``."""
    gang: IntArray
    """(R,) accelerators of one job."""

    @property
    def accelerators(self) -> int:
        """All of them."""
        return sum(kind.count for kind in self.types)

    @property
    def counts(self) -> tuple[int, ...]:
        """Accelerators by pool (pools of one type repeat it)."""
        return tuple(self.types[number].count for number in self.type_of_pool.tolist())


def fixed_cluster(types: Sequence[AcceleratorType], gang_sizes: Iterable[int]) -> FixedCluster:
    """Lay out the pools of a cluster for jobs of these gang sizes.

    Raises ``ValueError`` when a type is named twice.
    """
    names = [kind.accelerator for kind in types]
    if len(set(names)) != len(names):
        raise ValueError(f"a type is named twice: {', '.join(names)}")
    pools: list[Pool] = []
    number_of: list[int] = []
    for number, kind in enumerate(types):
        per_instance = kind.accelerators_per_instance
        for size in sorted(set(gang_sizes)):
            placements = [False]
            if per_instance is not None and size > 1:
                placements = [True] if size > per_instance else [False, True]
            for spread in placements:
                price = float("nan") if kind.usd_per_hour is None else kind.usd_per_hour
                pools.append(
                    Pool(
                        label=f"{kind.accelerator}*{size}" + ("/spread" if spread else ""),
                        offer_id=kind.accelerator,
                        accelerator=kind.accelerator,
                        capacity_type=CapacityType.RESERVED,
                        gang_size=size,
                        accelerators_per_instance=1,
                        shareable=True,
                        price_usd_per_hour=price,
                        spread=spread,
                    )
                )
                number_of.append(number)
    gang = np.array([pool.gang_size for pool in pools], dtype=np.int64)
    return FixedCluster(
        types=tuple(types),
        pools=tuple(pools),
        type_of_pool=np.array(number_of, dtype=np.int64),
        gang=gang,
    )
