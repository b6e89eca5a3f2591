"""``cloudgavel/explain``: why one job is where it is, in one decision."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplainChoice:
    """What the job could hold in this round, and what that is worth."""

    hold: str
    """``wait``, ``spot`` or ``on_demand``."""
    offer_id: str | None
    accelerators: int | None
    """The gang; ``None`` for waiting."""
    expected_cost_usd: float | None
    """From now to the end of the job; ``None`` = not allowed now (refused, too late, the cap)."""
    loss_chance: float | None
    """That the offer is gone by the next round; ``None`` where it cannot be lost."""
    chosen: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ExplainDocument:
    """One job in one decision. Spans count from the run's creation unless said otherwise."""

    schema: str = "cloudgavel/explain"
    schema_version: int = 1
    run: str
    job: str
    planned: bool
    """Of a plan; else of a run."""
    round: int
    at_s: float
    state: str
    on: str | None
    """``aws p3.2xlarge spot``; ``None`` = nowhere."""
    reason: str | None
    """Of its place, or why it waits; once it is over, how it ended."""
    ended_s: float | None = None
    """When it was finished, failed or cancelled; ``None`` = it is not over."""
    last_on: str | None = None
    """Where it was last, once it is over: as ``on``."""
    last_reason: str | None = None
    """Why it was there."""
    steps_done: int
    steps_total: int
    spent_usd: float
    expected_finish_s: float | None
    expected_cost_left_usd: float | None
    deadline_s: float | None
    promise: str
    choices: tuple[ExplainChoice, ...] = ()
    """Empty where spot was not weighed: no deadline, no spot or no on-demand it could use."""
    forced_by: str | None = None
    latest_on_demand_s: float | None = None
    """When the safety net sends it on demand at the latest."""
    reserve_usd: float | None = None
    """Put aside to finish it on demand, whatever spot does."""
    most_usd: float | None = None
    """The cap on risk: most it may ever cost."""
    deadline_usd_per_hour_less: float | None = None
    """What an hour less until the deadline would cost; ``None`` = it does not bind, or unknown."""
    deadline_usd_per_hour_more: float | None = None
    save_every_s: float | None = None
    save_every_given: bool = False
    """Given in jobs.yaml; else chosen from the loss rate and the cost of a save."""
    save_s: float = 0.0
    loss_rate_per_hour: float | None = None
    """Learnt, of the whole gang where it is; 0 on demand; ``None`` = nowhere."""
