"""The snapshot of a fixed cluster that one decision looks at, and what the decision says."""

from dataclasses import dataclass

import numpy as np

from cloudgavel.mechanism.fixed_cluster.cluster import FixedCluster
from cloudgavel.policies.allocation import RelaxedPromise
from cloudgavel.policies.problem import FloatArray, IntArray
from cloudgavel.policies.sharing import PairSharing


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterJob:
    """What does not change about a job. Instants count from the same zero as ``now_s``."""

    name: str
    gang_size: int
    arrives_s: float
    weight: float = 1.0
    deadline_s: float | None = None
    entity: str | None = None


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The allocation in force, as units: one job alone or two side by side, in a pool.

    U units; ``second`` is -1 where a job is alone. Rows are those of the jobs of the state it was
    made for, ``time_share`` (m, R) the time each job is to have in each pool.
    """

    first: IntArray
    second: IntArray
    pool: IntArray
    share: FloatArray
    """(U,) part of the time, in (0, 1]."""
    time_share: FloatArray
    fills_idle: bool
    """Accelerators that no share claims go to waiting jobs (not where money is the objective)."""
    blind: bool
    """The policy knows no difference between types."""
    valid_until_s: float | None = None
    """End of the first interval of a plan over time; ``None`` = until something changes."""
    objective_value: float | None = None
    objective_unit: str = ""
    message: str = ""
    relaxed: tuple[RelaxedPromise, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Every share is all or nothing: no turns are taken, so rounds change nothing."""
        return bool((self.share > 1 - 1e-6).all())


@dataclass(frozen=True, kw_only=True)
class Leases:
    """Who holds which accelerators, by row of the jobs (m)."""

    pool: IntArray
    """(m,); -1 = waits."""
    partner: IntArray
    """(m,) row of the job on the same accelerators; -1 = alone."""
    accelerators: tuple[tuple[int, ...], ...]
    """(m,) numbers within the pool's type; empty = waits."""
    is_extra: IntArray
    """(m,) 1 where the job runs on accelerators that no share claimed: not taken off its credit."""

    @staticmethod
    def none(job_count: int) -> "Leases":
        """Nobody holds anything."""
        return Leases(
            pool=np.full(job_count, -1, dtype=np.int64),
            partner=np.full(job_count, -1, dtype=np.int64),
            accelerators=((),) * job_count,
            is_extra=np.zeros(job_count, dtype=np.int64),
        )


@dataclass(frozen=True, kw_only=True)
class FixedClusterState:
    """Everything a decision may look at. m jobs with work left, R pools."""

    now_s: float
    cluster: FixedCluster
    jobs: tuple[ClusterJob, ...]
    steps_left: FloatArray
    """(m,)."""
    rate: FloatArray
    """(m, R) steps/s of the gang alone; 0 = cannot run there, or was never measured."""
    sharing: PairSharing | None
    """Rows as ``jobs``; what a job keeps of its rate beside another one."""
    credits: FloatArray
    """(m, R) rounds a job is owed (negative: had too many) in each pool."""
    leases: Leases
    standing: Standing | None
    """The allocation in force; ``None`` = something changed, solve again."""
    round_s: float
    is_boundary: bool
    """A round begins: leases may be taken away. Else only what is free is given out."""
    attained_service: FloatArray
    """(m,) accelerator-seconds each job has had."""
    deadline_margin_rounds: float = 3.0
    """Taken off every deadline before the policy sees it."""
    stay_bonus: float = 1e-3
    """Rounds of credit that staying in place is worth: the cost of a move, over a round."""


@dataclass(frozen=True, kw_only=True)
class FixedDecision:
    """What is to be done now."""

    leases: Leases
    standing: Standing
    solved: bool
    """The policy was asked."""
