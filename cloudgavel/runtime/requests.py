"""What a person asks of a run whose controller is another process: a small table in its database.

A request is acted on and then marked taken; a crash in between repeats it, so each is idempotent.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cloudgavel.store import events as ev
from cloudgavel.store.database import Database
from cloudgavel.store.records import RunState

DOWN = "down"
CANCEL = "cancel"
SET_BUDGET = "set_budget"
BEST_EFFORT = "best_effort"


def ask_down(database: Database, *, reason: str, asked_at_s: float) -> int:
    """Ask for everything to be saved and every machine to be ended; return the request's number."""
    return database.add_request(DOWN, {"reason": reason}, asked_at_s=asked_at_s)


def ask_cancel(database: Database, jobs: Sequence[str], *, asked_at_s: float) -> None:
    """Ask for jobs to be given up."""
    database.add_request(CANCEL, {"jobs": list(jobs)}, asked_at_s=asked_at_s)


def ask_budget(database: Database, budget_usd: float | None, *, asked_at_s: float) -> None:
    """Ask for another budget of the whole run."""
    database.add_request(SET_BUDGET, {"budget_usd": budget_usd}, asked_at_s=asked_at_s)


def ask_best_effort(database: Database, *, asked_at_s: float) -> None:
    """Ask for the run to go on although not every deadline fits the budget."""
    database.add_request(BEST_EFFORT, {}, asked_at_s=asked_at_s)


def events_of_request(
    kind: str, body: Mapping[str, Any], state: RunState, now_s: float
) -> list[ev.Event]:
    """Return what a request means for the log; unknown kinds and repetitions mean nothing."""
    if kind == DOWN and state.stopping is None:
        return [ev.StopRequested(at_s=now_s, reason=str(body.get("reason") or "down"))]
    if kind == SET_BUDGET and body["budget_usd"] != state.budget_usd:
        budget = body["budget_usd"]
        return [ev.BudgetSet(at_s=now_s, budget_usd=None if budget is None else float(budget))]
    if kind == BEST_EFFORT and not state.best_effort and state.stopping is None:
        return [ev.RunResumed(at_s=now_s, best_effort=True)]
    if kind == CANCEL:
        return [
            ev.JobCancelled(at_s=now_s, job=name, reason="asked for")
            for name in body["jobs"]
            if name in state.jobs and state.jobs[name].active
        ]
    return []
