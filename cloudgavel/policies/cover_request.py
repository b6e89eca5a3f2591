"""What the covering stage is asked and what it answers: jobs of one round on whole instances."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, kw_only=True, slots=True)
class CoverCandidate:
    """One way to place a job: a pool, and what being there for the horizon is worth."""

    pool: int
    """Column of the allocation problem."""
    offer_id: str
    gang_size: int
    """Accelerators. More than an instance has: as many whole instances as that takes."""
    value_usd_per_s: float = 0.0
    """Progress there at the job's reservation price; looked at for optional jobs only."""
    change_over_usd: float = 0.0
    """Paid once when the job starts there afresh, amortised by the caller if it likes."""
    rent_beyond_usd: float = 0.0
    """Extra cost of this choice beyond the rent (expected interruptions over the horizon)."""
    vcpus: float = 0.0
    """Host CPUs the gang takes on each of its instances."""
    memory_gib: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class CoverJob:
    """A job to place, or to leave waiting when it need not progress."""

    name: str
    candidates: tuple[CoverCandidate, ...]
    must_progress: bool
    weight: float = 1.0
    """Decides who goes without when not all that must progress can be placed."""
    on_instances: tuple[str, ...] = ()
    """Live instances it occupies now; staying there costs no change-over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CoverOffer:
    """What can be rented: at most ``new_limit`` more instances of it."""

    offer_id: str
    usd_per_hour: float
    accelerators: int
    shareable: bool
    vcpus: float | None = None
    """Of one instance; ``None`` = not known, not limiting."""
    memory_gib: float | None = None
    new_limit: int | None = None
    """``None``: no limit of its own."""
    start_usd: float = 0.0
    """Paid for each new instance beside its rent (boot, minimum charge)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveInstance:
    """An instance whose rent runs already; released if nobody is placed on it."""

    instance_id: str
    offer_id: str
    free_accelerators: int
    """Slots for the jobs of this request: all, less those of jobs that are not in it."""
    free_vcpus: float | None = None
    """``None`` = not known, not limiting."""
    free_memory_gib: float | None = None
    must_keep: bool = False
    """Its rent runs whatever is decided (others are on it, or a minimum charge)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CoverQuota:
    """``sum coefficient * instances <= limit`` over instances kept and new."""

    name: str
    coefficients: tuple[tuple[str, float], ...]
    """(offer id, units that one instance takes)."""
    limit: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CoverRequest:
    """One round's question."""

    jobs: tuple[CoverJob, ...]
    offers: tuple[CoverOffer, ...]
    horizon_s: float
    """Over which rent counts against change-overs: the expected stay."""
    live: tuple[LiveInstance, ...] = ()
    quotas: tuple[CoverQuota, ...] = ()
    max_instances: int | None = None
    max_usd_per_hour: float | None = None


class CoverStatus(StrEnum):
    """What the answer claims."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    """Best found within the node limit."""
    GREEDY = "greedy"
    """The integer program failed or did not pack; a greedy answer stands in."""
    EMPTY = "empty"


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Where one job goes: on live instances, on new ones, or (large gangs) on some of both."""

    job: str
    pool: int
    offer_id: str
    gang_size: int
    instance_ids: tuple[str, ...] = ()
    """Live instances."""
    new_numbers: tuple[int, ...] = ()
    """Numbers, from 0, among the new instances of its offer."""
    stays: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CoverAnswer:
    """The cheapest covering; every job is in ``placements`` or in ``waiting``."""

    status: CoverStatus
    placements: tuple[Placement, ...]
    new_instances: tuple[tuple[str, int], ...]
    """(offer id, how many), sorted."""
    kept: tuple[str, ...]
    """Live instances still used or kept, sorted."""
    released: tuple[str, ...]
    waiting: tuple[tuple[str, str], ...]
    """(job, reason), in the request's order."""
    objective_usd: float
    """Rent over the horizon + starts + change-overs - value of the optional jobs placed."""
    message: str = ""

    def placement_of(self, job: str) -> Placement | None:
        """Placement of one job, ``None`` if it waits."""
        return next((place for place in self.placements if place.job == job), None)
