"""``cloudgavel/spot-simulation``: what ``cloudgavel simulate spot`` answers."""

from dataclasses import dataclass
from typing import Any

from cloudgavel.documents.encode import as_json


@dataclass(frozen=True, kw_only=True, slots=True)
class SpotPolicyResult:
    """One policy over all runs. A cost ratio is cost over on-demand only, the latter without its
    own change-over.
    """

    policy: str
    mean_cost_ratio: float
    p90_cost_ratio: float
    max_cost_ratio: float
    mean_regret: float
    """Mean over the runs of the ratio less the clairvoyant's in the same run."""
    deadline_misses: int
    changeovers: int
    """Starts of a machine, all runs together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpotTraceResult:
    """The same policy on one trace alone (``--together``: on all of them, named by ``+``)."""

    trace: str
    policy: str
    runs: int
    mean_cost_ratio: float
    mean_regret: float
    deadline_misses: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SpotSimulationDocument:
    """Replays of spot availability traces under several policies, from the same random starts."""

    schema: str = "cloudgavel/spot-simulation"
    schema_version: int = 1
    traces: tuple[str, ...]
    together: bool
    """One job that may use any of the traces' zones."""
    job_hours: float
    deadline_ratio: float
    changeover_s: float
    on_demand_ratio: float
    tick_s: tuple[float, ...]
    """One for each trace."""
    merge: str
    runs_per_trace: int
    seed: int
    results: tuple[SpotPolicyResult, ...]
    by_trace: tuple[SpotTraceResult, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the document as plain JSON values, fields under their own names."""
        encoded = as_json(self)
        assert isinstance(encoded, dict)
        return encoded
