"""What the report of a simulation draws beside its figures: one seed of each policy, in detail."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseBar:
    """One accelerator held by a job from one instant to another."""

    accelerator: int
    """Row of the drawing: types one after the other, numbers (rented: machines) within."""
    from_s: float
    to_s: float
    job: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyDetail:
    """One policy on one workload. Instants from the first arrival."""

    policy: str
    job_times_s: tuple[float, ...]
    """Arrival to end, sorted."""
    busy: tuple[tuple[float, int], ...]
    """Instants at which the number of accelerators in use changes, and to what."""
    bars: tuple[LeaseBar, ...]
    rows: tuple[tuple[str, int], ...]
    """Rows of the drawing by type of accelerator, from top to bottom."""
