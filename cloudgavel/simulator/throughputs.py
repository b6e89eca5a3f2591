"""How fast jobs run on each type of accelerator, alone and beside another: the measured table."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cloudgavel.mechanism.fixed_cluster.cluster import FixedCluster
from cloudgavel.policies.problem import FloatArray

JobKind = tuple[str, int]
"""What is run, and on how many accelerators."""


@dataclass(frozen=True, kw_only=True)
class ThroughputTable:
    """Steps/s by accelerator type (``spread`` apart). What is missing was never measured."""

    alone: Mapping[tuple[str, bool], Mapping[JobKind, float]]
    """(type, spread) -> kind -> steps/s of the whole gang."""
    beside: Mapping[str, Mapping[tuple[JobKind, JobKind], float]]
    """Type -> (kind, the other kind) -> steps/s of the first on shared accelerators."""

    @property
    def accelerators(self) -> tuple[str, ...]:
        """The types there are figures for, sorted."""
        return tuple(sorted({name for name, _ in self.alone}))

    def rate(self, kind: JobKind, accelerator: str, *, spread: bool = False) -> float | None:
        """Steps/s, or ``None`` if not measured or measured as not running."""
        found = self.alone.get((accelerator, spread), {}).get(kind)
        return found if found is not None and found > 0 else None

    def rates(self, kind: JobKind, cluster: FixedCluster) -> FloatArray:
        """(R,) steps/s in every pool of a cluster that has the job's gang size; else 0."""
        found = np.zeros(len(cluster.pools))
        for number, pool in enumerate(cluster.pools):
            if pool.gang_size == kind[1]:
                value = self.rate(kind, pool.accelerator, spread=pool.spread)
                found[number] = 0.0 if value is None else value
        return found

    def retained(self, kinds: tuple[JobKind, ...], cluster: FixedCluster) -> FloatArray:
        """(K, K, R) share of its own rate that each kind keeps beside another; NaN = no pair.

        Only kinds of one gang size share accelerators, and only where both make progress.
        """
        found = np.full((len(kinds), len(kinds), len(cluster.pools)), np.nan)
        for number, pool in enumerate(cluster.pools):
            table = self.beside.get(pool.accelerator, {})
            own = [at for at, kind in enumerate(kinds) if kind[1] == pool.gang_size]
            for a in own:
                rate = self.rate(kinds[a], pool.accelerator, spread=pool.spread)
                for b in own:
                    mine = table.get((kinds[a], kinds[b]), 0.0)
                    theirs = table.get((kinds[b], kinds[a]), 0.0)
                    if rate is not None and mine > 0 and theirs > 0:
                        found[a, b, number] = min(mine / rate, 1.0)
        return found


def reference_of(table: ThroughputTable) -> str:
    """The table's spelling of the type on which durations are meant: the V100.

    Without one the name as published, which no row has: whoever asks for its rates says so.
    """
    return next((name for name in table.accelerators if name.lower() == "v100"), "v100")
