"""``cloudgavel/notification``: what is posted to the addresses under ``notify``."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class NotificationDocument:
    """One message; ``text`` alone is enough for a person (chat webhooks show it as it is)."""

    schema: str = "cloudgavel/notification"
    schema_version: int = 1
    id: str
    """The same for every try and every address: a receiver may drop what it has seen."""
    kind: str
    """``budget``, ``promise_released``, ``money_may_run`` or ``ended``."""
    text: str
    at: str
    """The run's own time (virtual in a rehearsal)."""
    run_id: str
    name: str
    rehearsal: bool
    state: str
    job: str | None
    """Whose promise it is about."""
    spent_usd: float
    budget_usd: float | None
    usd_per_hour: float
    """Of all machines that are not known to have ended."""
