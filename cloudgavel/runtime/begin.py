"""``run`` of a name: a new run, the rest of an unfinished one, or a refusal that says why."""

import dataclasses
import hashlib
import math
import uuid
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cloudgavel.errors import UsageError
from cloudgavel.jobs.spec import JobSpec, RunSpec
from cloudgavel.runtime.directory import RunDirectory
from cloudgavel.runtime.requests import ask_best_effort, ask_budget
from cloudgavel.store import events as ev
from cloudgavel.store.database import LEASE_EXPIRES_S, Database, process_is_alive
from cloudgavel.store.fold import fold
from cloudgavel.store.records import RunState

_UNTOLD = frozenset({"line", "source", "jobs", "budget_usd"})
"""Fields whose change changes nothing, or is told in another way."""
_SECRET = frozenset({"notify"})
"""Fields whose value is shown to nobody: the path of a webhook is its key."""


class BeginKind(StrEnum):
    """What beginning a run meant."""

    NEW = "new"
    RESUMED = "resumed"
    """An unfinished run goes on; its controller is to be started."""
    ATTACHED = "attached"
    """Its controller is alive: there is nothing to start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Begun:
    """A run that is ready for its controller."""

    directory: RunDirectory
    run_id: str
    kind: BeginKind
    put_aside: Path | None = None
    """Where an earlier, finished run of this name is now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanFacts:
    """What the plan said, kept in the run's account to compare with."""

    on_demand_only_usd: float | None = None
    lower_bound_usd: float | None = None
    prices_as_of: str = ""


def begin_run(
    state_directory: Path,
    run: RunSpec,
    *,
    budget_usd: float | None,
    now_s: float,
    best_effort: bool = False,
    update: bool = False,
    facts: PlanFacts | None = None,
) -> Begun:
    """Write down that ``run`` begins or goes on; nothing is rented and no process started.

    ``now_s`` is real time; a rehearsal's virtual time begins at its whole second. A finished run of
    the name is put aside. Of an unfinished one a changed specification is a ``UsageError`` that
    lists the differences, unless ``update``; a changed budget is taken as it is. A living
    controller is asked for ``best_effort``; leaving it out later takes it back when the run is
    resumed, not while a controller lives. Two that begin at once: the second one goes on with what
    the first one began.
    """
    directory = RunDirectory(state_directory, run.name)
    with directory.beginning():
        put_aside = None
        if directory.exists:
            database = directory.open_database()
            try:
                state = fold(event for _, event in database.read())
                if state.spec is not None and state.ended not in ("finished", "failed"):
                    return _go_on(
                        directory, database, state, run,
                        budget_usd=budget_usd, now_s=now_s, best_effort=best_effort, update=update,
                    )  # fmt: skip
            finally:
                database.close()
            if state.spec is not None:
                # A database without a run in it was opened and no more: it is taken as it is.
                put_aside = directory.put_aside(state.run_id)
        created = _created(run, budget_usd, now_s, best_effort, facts or PlanFacts())
        database = directory.open_database()
        try:
            database.append([created])
        finally:
            database.close()
    return Begun(
        directory=directory, run_id=created.run_id, kind=BeginKind.NEW, put_aside=put_aside
    )


def _created(
    run: RunSpec, budget_usd: float | None, now_s: float, best_effort: bool, facts: PlanFacts
) -> ev.RunCreated:
    return ev.RunCreated(
        at_s=float(int(now_s)),
        run_id=new_run_id(run),
        spec=run,
        budget_usd=budget_usd,
        rehearsal=not run.clouds,
        best_effort=best_effort,
        on_demand_only_usd=facts.on_demand_only_usd,
        lower_bound_usd=facts.lower_bound_usd,
        prices_as_of=facts.prices_as_of,
    )


def new_run_id(run: RunSpec) -> str:
    """Return the name on every machine of the run: unique on a cloud.

    A rehearsal's follows from the specification, so that twice the same seed is twice the same.
    """
    if run.clouds:
        return f"{run.name}-{uuid.uuid4().hex[:8]}"
    told = repr(dataclasses.replace(run, source=None))
    return f"{run.name}-{hashlib.sha256(told.encode()).hexdigest()[:8]}"


def differences(before: RunSpec, after: RunSpec) -> list[str]:
    """Return what changed, one line each, in the words of the file."""
    lines = [
        f"{field.name}: {_told(field.name, before)} -> {_told(field.name, after)}"
        for field in dataclasses.fields(RunSpec)
        if field.name not in _UNTOLD and getattr(before, field.name) != getattr(after, field.name)
    ]
    old = {job.name: job for job in before.jobs}
    new = {job.name: job for job in after.jobs}
    lines += [f"jobs: {name} is new" for name in new if name not in old]
    lines += [f"jobs: {name} is gone" for name in old if name not in new]
    for name, job in new.items():
        if name in old:
            lines += [
                f"{name}: {field.name}: {getattr(old[name], field.name)!r} -> "
                f"{getattr(job, field.name)!r}"
                for field in dataclasses.fields(JobSpec)
                if field.name not in _UNTOLD
                and getattr(old[name], field.name) != getattr(job, field.name)
            ]
    return lines


def _told(name: str, run: RunSpec) -> str:
    value = getattr(run, name)
    return f"{len(value)} addresses" if name in _SECRET else repr(value)


def controller_is_alive(database: Database, host: str, now_s: float) -> bool:
    """True when the lease's holder is a living process of this host, or beats on another one.

    ``now_s`` is real time.
    """
    lease = database.lease()
    if lease is None:
        return False
    if lease.host != host:
        return now_s - lease.heartbeat_at_s <= LEASE_EXPIRES_S
    return process_is_alive(lease.pid, lease.process_started)


def _refuse_too_little(state: RunState, budget_usd: float | None) -> None:
    """A lower budget must leave the machines the money that saving and ending them takes."""
    if budget_usd is None or (state.budget_usd is not None and budget_usd >= state.budget_usd):
        return
    committed = state.plan.committed_usd if state.plan is not None and state.live_instances else 0.0
    least = state.spent_usd + committed
    if budget_usd < least:
        raise UsageError(
            f"a budget of ${budget_usd:g} is less than this run has spent and committed; "
            "it was not changed",
            facts=[
                ("spent", f"${state.spent_usd:.2f}"),
                ("committed", f"${committed:.2f} to save everything and end the machines"),
                ("budget", "none" if state.budget_usd is None else f"${state.budget_usd:g}"),
            ],
            hints=[
                f"give at least --budget {math.ceil(least * 100) / 100:.2f}",
                "or stop the run: cloudgavel down",
            ],
        )


def _go_on(
    directory: RunDirectory,
    database: Database,
    state: RunState,
    run: RunSpec,
    *,
    budget_usd: float | None,
    now_s: float,
    best_effort: bool,
    update: bool,
) -> Begun:
    import socket

    assert state.spec is not None
    changes = differences(state.spec, run)
    if changes and not update:
        raise UsageError(
            f"an unfinished run `{run.name}` has another specification",
            facts=[("changed", line) for line in changes],
            hints=[
                "go on with the new one: add --update",
                "or end the old one: cloudgavel down",
            ],
        )
    _refuse_too_little(state, budget_usd)
    alive = controller_is_alive(database, socket.gethostname(), now_s)
    if alive:
        if changes:
            raise UsageError(
                f"`{run.name}` is running: its specification cannot be changed now",
                hints=["stop it first: cloudgavel down"],
            )
        if budget_usd != state.budget_usd:
            ask_budget(database, budget_usd, asked_at_s=now_s)
        if best_effort and not state.best_effort:
            ask_best_effort(database, asked_at_s=now_s)
        return Begun(directory=directory, run_id=state.run_id, kind=BeginKind.ATTACHED)
    at_s = state.at_s if state.rehearsal else max(state.at_s, now_s)
    events: list[ev.Event] = []
    if changes:
        events.append(ev.SpecChanged(at_s=at_s, spec=run))
        kept = {job.name for job in run.jobs}
        events += [
            ev.JobCancelled(at_s=at_s, job=name, reason="no longer in the file")
            for name, job in state.jobs.items()
            if name not in kept and job.active and job.current is None
        ]
    if budget_usd != state.budget_usd:
        events.append(ev.BudgetSet(at_s=at_s, budget_usd=budget_usd))
    if state.stopping is not None or state.ended is not None or best_effort != state.best_effort:
        events.append(ev.RunResumed(at_s=at_s, best_effort=best_effort))
    database.append(events)
    return Begun(directory=directory, run_id=state.run_id, kind=BeginKind.RESUMED)
