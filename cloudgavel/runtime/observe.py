"""What the clouds' lists and the agents' reports say that the log does not know yet.

Everything is by difference with the fold, so looking twice, or again after a crash, tells nothing
new. Silence is recorded, not guessed: a machine that is missing from a list counts (and bills)
until its grace period is over and a second look does not find it either.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.messages.report import JobReport, ProcessState, Report
from cloudgavel.providers.base import EndReason, ListedInstance, MachineState
from cloudgavel.runtime.settings import LoopSettings
from cloudgavel.store import events as ev
from cloudgavel.store.records import AttemptRecord, InstanceRecord, JobRecord, RunState

_MEMORY_WORDS = ("out of memory", "out-of-memory", "resource_exhausted", "outofmemoryerror")
_ALIVE_PHASE = {
    ProcessState.RUNNING: JobPhase.RUNNING,
    ProcessState.PAUSED: JobPhase.RUNNING,
    ProcessState.SAVING: JobPhase.SAVING,
}


@dataclass(slots=True)
class Sightings:
    """What the looks of this controller saw; lost with it, and safe to lose."""

    last_seen_at_s: dict[str, float] = field(default_factory=dict)
    missing_since_s: dict[str, float] = field(default_factory=dict)
    progress_at_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """One look at everything outside."""

    now_s: float
    listing: Mapping[str, ListedInstance] | None
    """By instance id; ``None`` = the cloud did not answer: nothing is known to have changed."""
    price_changes: Mapping[str, Sequence[tuple[float, float]]]
    """``(at_s, usd_per_hour)`` since the last known one, by instance id."""
    reports: Mapping[str, Report]
    with_progress: bool
    """Write every job's progress down now (a decision is due)."""


def known_ends(
    state: RunState, world: World, sightings: Sightings, settings: LoopSettings
) -> dict[str, ev.InstanceEnded]:
    """Return the ends of instances that the log does not know yet, by instance id."""
    ends: dict[str, ev.InstanceEnded] = {}
    if world.listing is None:
        return ends
    for record in state.live_instances:
        listed = world.listing.get(record.instance_id)
        if listed is None:
            if _is_lost(record, world.now_s, sightings, settings):
                ends[record.instance_id] = _vanished(record, world.now_s, sightings)
            continue
        sightings.missing_since_s.pop(record.instance_id, None)
        if listed.state is MachineState.TERMINATED:
            ends[record.instance_id] = _ended(record, listed, world.now_s, sightings)
        else:
            sightings.last_seen_at_s[record.instance_id] = world.now_s
    return ends


def new_events(
    state: RunState, world: World, sightings: Sightings, settings: LoopSettings
) -> list[ev.Event]:
    """Return what is new, in an order that can be recorded as it is."""
    ends = known_ends(state, world, sightings, settings)
    found: list[ev.Event] = []
    adopted = list(_adoptions(state, world))
    found.extend(adopted)
    found.extend(_orphans(state, world, {event.instance_id for event in adopted}))
    for record in state.live_instances:
        found.extend(_prices(record, world, ends))
        found.extend(_instance_news(record, world, ends))
    noticed = {e.instance_id for e in found if isinstance(e, ev.InterruptionNoticed)} | {
        record.instance_id for record in state.live_instances if record.noticed
    }
    over: dict[str, float] = {}
    for name, job in state.jobs.items():
        if job.current is None:
            continue
        at_s = min(
            [world.now_s] + [ends[i].ended_at_s for i in job.current.instance_ids if i in ends]
        )
        at_s = max(at_s, job.current.started_at_s)
        news = list(
            _attempt_news(name, job, job.current, world, noticed, at_s, sightings, settings)
        )
        found.extend(news)
        if any(isinstance(event, _ENDS_OF_ATTEMPTS) for event in news):
            over[name] = at_s
    for instance_id, end in ends.items():
        found.append(end)
        for name in state.jobs_on(instance_id):
            if name not in over:
                over[name] = end.ended_at_s
                found.append(_lost(name, state.jobs[name], end, world))
    found.extend(_overdue(state, world.now_s, over))
    return found


_ENDS_OF_ATTEMPTS = (ev.AttemptStopped, ev.AttemptFailed, ev.JobFinished)


def next_look_at_s(
    state: RunState, now_s: float, sightings: Sightings, settings: LoopSettings
) -> float | None:
    """Return when something follows from time alone: a second look, a job's maximum duration."""
    times = [since + settings.look_again_s for since in sightings.missing_since_s.values()]
    for job in state.active_jobs:
        limit = job.spec.max_duration_s
        if limit is not None and job.started_at_s is not None:
            times.append(job.started_at_s + limit)
        if job.save_error is not None and job.current is not None and job.stop_asked:
            times.append(_stop_has_failed_at_s(job))
    later = [max(at_s, now_s + 0.001) for at_s in times]
    return min(later, default=None)


def _is_lost(
    record: InstanceRecord, now_s: float, sightings: Sightings, settings: LoopSettings
) -> bool:
    if now_s - record.launched_at_s < settings.visible_grace_s:
        return False
    since_s = sightings.missing_since_s.setdefault(record.instance_id, now_s)
    return now_s - since_s >= settings.look_again_s


def _last_seen_at_s(record: InstanceRecord, sightings: Sightings) -> float:
    known_s = max(record.launched_at_s, record.ready_at_s or record.launched_at_s)
    return sightings.last_seen_at_s.get(record.instance_id, max(known_s, record.accrued_until_s))


def _vanished(record: InstanceRecord, now_s: float, sightings: Sightings) -> ev.InstanceEnded:
    asked = record.terminate_asked_at_s is not None
    return ev.InstanceEnded(
        at_s=now_s,
        instance_id=record.instance_id,
        ended_at_s=_last_seen_at_s(record, sightings),
        reason=EndReason.REQUESTED if asked else EndReason.VANISHED,
        estimated=True,
    )


def _ended(
    record: InstanceRecord, listed: ListedInstance, now_s: float, sightings: Sightings
) -> ev.InstanceEnded:
    reason = listed.end_reason
    if reason is None:
        asked = record.terminate_asked_at_s is not None
        reason = EndReason.REQUESTED if asked else EndReason.VANISHED
    ended_at_s = listed.ended_at_s
    return ev.InstanceEnded(
        at_s=now_s,
        instance_id=record.instance_id,
        ended_at_s=max(
            record.launched_at_s,
            _last_seen_at_s(record, sightings) if ended_at_s is None else ended_at_s,
        ),
        reason=reason,
        estimated=ended_at_s is None,
    )


def _adoptions(state: RunState, world: World) -> Iterator[ev.LaunchSucceeded]:
    """Yield machines of open intents that the cloud lists: the call had worked."""
    for instance_id, listed in sorted((world.listing or {}).items()):
        intent = state.intents.get(listed.token)
        if intent is None or instance_id in state.instances:
            continue
        offer = next((o for o in intent.offers if o.offer_id == listed.offer_id), None)
        if offer is not None:
            yield ev.LaunchSucceeded(
                at_s=world.now_s,
                token=listed.token,
                instance_id=instance_id,
                offer=offer,
                launched_at_s=listed.launched_at_s,
                price_usd_per_hour=listed.price_usd_per_hour,
                expected_ready_at_s=listed.expected_ready_at_s,
            )


def _orphans(state: RunState, world: World, adopted: set[str]) -> Iterator[ev.Event]:
    if world.listing is None:
        return
    for instance_id, listed in sorted(world.listing.items()):
        gone = listed.state is MachineState.TERMINATED
        if instance_id in state.orphans:
            if gone:
                yield ev.OrphanEnded(at_s=world.now_s, instance_id=instance_id)
        elif not gone and instance_id not in state.instances and instance_id not in adopted:
            yield ev.OrphanSeen(
                at_s=world.now_s,
                instance_id=instance_id,
                offer_id=listed.offer_id,
                price_usd_per_hour=listed.price_usd_per_hour,
            )
    for instance_id in state.orphans:
        if instance_id not in world.listing:
            yield ev.OrphanEnded(at_s=world.now_s, instance_id=instance_id)


def _prices(
    record: InstanceRecord, world: World, ends: Mapping[str, ev.InstanceEnded]
) -> Iterator[ev.Event]:
    end = ends.get(record.instance_id)
    known = dict(record.prices)
    price = record.price_usd_per_hour
    for at_s, changed in world.price_changes.get(record.instance_id, ()):
        too_late = end is not None and at_s >= end.ended_at_s
        if at_s in known or too_late or at_s > world.now_s or at_s <= record.launched_at_s:
            continue
        if changed != price:
            yield ev.PriceChanged(
                at_s=at_s, instance_id=record.instance_id, price_usd_per_hour=changed
            )
            price = changed


def _instance_news(
    record: InstanceRecord, world: World, ends: Mapping[str, ev.InstanceEnded]
) -> Iterator[ev.Event]:
    instance_id = record.instance_id
    report = world.reports.get(instance_id)
    if report is not None and record.ready_at_s is None and instance_id not in ends:
        yield ev.InstanceReady(at_s=world.now_s, instance_id=instance_id)
    if record.noticed or instance_id in ends:
        return
    listed = (world.listing or {}).get(instance_id)
    if report is not None and report.notice is not None and report.notice.kind == "interruption":
        yield ev.InterruptionNoticed(
            at_s=world.now_s, instance_id=instance_id, ends_at_s=report.notice.ends_at_s
        )
    elif listed is not None and listed.notice_ends_at_s is not None:
        yield ev.InterruptionNoticed(
            at_s=world.now_s, instance_id=instance_id, ends_at_s=listed.notice_ends_at_s
        )


def _job_reports(name: str, attempt: AttemptRecord, world: World) -> list[JobReport | None]:
    """Return what each instance of the gang says of this attempt, by rank; ``None`` = nothing."""
    answers: list[JobReport | None] = []
    for instance_id in attempt.instance_ids:
        report = world.reports.get(instance_id)
        lines = report.jobs if report is not None else ()
        answers.append(
            next((r for r in lines if r.job == name and r.attempt == attempt.number), None)
        )
    return answers


def _attempt_news(
    name: str,
    job: JobRecord,
    attempt: AttemptRecord,
    world: World,
    noticed: set[str],
    at_s: float,
    sightings: Sightings,
    settings: LoopSettings,
) -> Iterator[ev.Event]:
    answers = _job_reports(name, attempt, world)
    known = [answer for answer in answers if answer is not None]
    if not known or answers[0] is None:
        return
    leader = answers[0]
    number = attempt.number
    saved = max((r.saved_step for r in known if r.saved_step is not None), default=0)
    if saved > job.saved_steps:
        yield ev.CheckpointSaved(at_s=at_s, job=name, attempt=number, step=saved)
    save_error = next((r.save_error for r in known if r.save_error is not None), None)
    if save_error != job.save_error or (
        save_error is not None and at_s >= _stop_has_failed_at_s(job)
    ):
        yield ev.SaveFailed(at_s=at_s, job=name, attempt=number, error=save_error)
    yield from _progress(name, job, leader, world, at_s, sightings, settings)
    bad = next((r for r in known if _ended_badly(r)), None)
    if bad is not None:
        yield from _failure(name, job, attempt, bad, at_s)
    elif len(known) == len(answers) and all(r.state is ProcessState.EXITED for r in known):
        yield ev.JobFinished(at_s=at_s, job=name, step=leader.step)
    elif len(known) == len(answers) and all(
        r.state in (ProcessState.STOPPED, ProcessState.EXITED) for r in known
    ):
        taken = any(i in noticed for i in attempt.instance_ids) or not job.stop_asked
        yield ev.AttemptStopped(
            at_s=at_s, job=name, attempt=number, step=leader.step, interrupted=taken
        )


def _stop_has_failed_at_s(job: JobRecord) -> float:
    """When a stop whose save goes on failing (with the same words) counts as failed."""
    if job.stop_asked_at_s is None:
        return float("inf")
    return job.stop_asked_at_s + 2 * job.spec.checkpoint.save_s + job.spec.grace_s


def _ended_badly(report: JobReport) -> bool:
    if report.state is ProcessState.EXITED:
        return report.exit_code != 0 or report.error is not None
    return report.state is ProcessState.STOPPED and report.error is not None


def _progress(
    name: str,
    job: JobRecord,
    leader: JobReport,
    world: World,
    at_s: float,
    sightings: Sightings,
    settings: LoopSettings,
) -> Iterator[ev.Event]:
    if leader.state is ProcessState.STARTING:
        return
    attempt = job.attempts[-1]
    phase = _ALIVE_PHASE.get(leader.state, job.phase)
    if phase is JobPhase.STARTING:
        phase = JobPhase.RUNNING
    changed = attempt.restored_step is None or (phase is not job.phase and not job.stop_asked)
    due = at_s - sightings.progress_at_s.get(name, float("-inf")) >= settings.progress_every_s
    if changed or (leader.step != job.steps_done and (due or world.with_progress)):
        sightings.progress_at_s[name] = at_s
        yield ev.Progressed(
            at_s=at_s,
            job=name,
            attempt=leader.attempt,
            step=leader.step,
            phase=phase,
            restored_step=leader.restored_step,
            steps_per_s_measured=leader.steps_per_s,
            loss=leader.loss,
        )


def _failure(
    name: str, job: JobRecord, attempt: AttemptRecord, report: JobReport, at_s: float
) -> Iterator[ev.Event]:
    lines = report.last_lines if report.error is None else (*report.last_lines, report.error)
    text = "\n".join(lines).lower()
    accelerator = attempt.request_label.partition(":")[0]
    retry = job.failures < job.spec.retries
    yield ev.AttemptFailed(
        at_s=at_s,
        job=name,
        attempt=attempt.number,
        step=report.step,
        exit_code=report.exit_code,
        last_lines=lines,
        retry=retry,
        out_of_memory_on=accelerator if any(word in text for word in _MEMORY_WORDS) else None,
    )
    if not retry:
        tries = job.failures + 1
        how = "could not start" if report.exit_code is None else f"exit code {report.exit_code}"
        yield ev.JobFailed(
            at_s=at_s,
            job=name,
            reason=f"{how}, attempt {tries} of {tries}",
            last_lines=lines,
        )


def _lost(name: str, job: JobRecord, end: ev.InstanceEnded, world: World) -> ev.AttemptLost:
    attempt = job.attempts[-1]
    answers = [r for r in _job_reports(name, attempt, world) if r is not None]
    cause = {
        EndReason.INTERRUPTED: "interruption",
        EndReason.REQUESTED: "terminated",
    }.get(EndReason(end.reason), "vanished")
    return ev.AttemptLost(
        at_s=max(end.ended_at_s, attempt.started_at_s),
        job=name,
        attempt=attempt.number,
        step=max([job.steps_done, *(r.step for r in answers)]),
        cause=cause,
    )


def _overdue(state: RunState, now_s: float, over: Mapping[str, float]) -> Iterator[ev.Event]:
    """Yield jobs that can no longer finish: too long under way, or what they wait for failed."""
    for name, job in state.jobs.items():
        if not job.active or name in over:
            continue
        limit = job.spec.max_duration_s
        began_s = job.started_at_s
        if limit is not None and began_s is not None and now_s >= began_s + limit:
            reason = f"ran longer than its max_duration of {limit:.0f} s"
            yield ev.JobFailed(at_s=now_s, job=name, reason=reason)
            continue
        dead = [
            other
            for other in job.spec.after
            if other in state.jobs
            and state.jobs[other].phase in (JobPhase.FAILED, JobPhase.CANCELLED)
        ]
        if dead:
            phase = state.jobs[dead[0]].phase.lower()
            yield ev.JobFailed(at_s=now_s, job=name, reason=f"it comes after {dead[0]}: {phase}")


def without_ended(listing: Sequence[ListedInstance]) -> dict[str, ListedInstance]:
    """Return a cloud's list by id; of doubles the one that still lives is kept."""
    by_id: dict[str, ListedInstance] = {}
    for line in listing:
        before = by_id.get(line.instance_id)
        if before is None or before.state is MachineState.TERMINATED:
            by_id[line.instance_id] = replace(line)
    return by_id
