"""What the clouds' lists and the agents' reports say that the log does not know yet.

Everything is by difference with the fold, so looking twice, or again after a crash, tells nothing
new. Silence is recorded, not guessed: a machine that is missing from a list counts (and bills)
until its grace period is over and a second look does not find it either.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from cloudgavel.providers.base import EndReason, ListedInstance, MachineState
from cloudgavel.runtime.looks import Sightings, World
from cloudgavel.runtime.observe_jobs import (
    ENDS_OF_ATTEMPTS,
    attempt_news,
    lost_attempt,
    overdue_jobs,
    stop_has_failed_at_s,
)
from cloudgavel.runtime.settings import LoopSettings
from cloudgavel.store import events as ev
from cloudgavel.store.records import InstanceRecord, RunState

NOTICES_OF_AN_END = ("interruption", "maintenance")
"""Kinds after which nothing is placed on a machine any more."""


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
        found.extend(_silence(record, world, ends, settings))
    noticed = {e.instance_id for e in found if isinstance(e, ev.InterruptionNoticed)} | {
        record.instance_id for record in state.live_instances if record.noticed
    }
    going = {*ends} | {
        record.instance_id
        for record in state.live_instances
        if record.terminate_asked_at_s is not None
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
            attempt_news(
                name, state, job, job.current, world, noticed, going, at_s, sightings, settings
            )
        )
        found.extend(news)
        if any(isinstance(event, ENDS_OF_ATTEMPTS) for event in news):
            over[name] = at_s
    for instance_id, end in ends.items():
        found.append(end)
        for name in state.jobs_on(instance_id):
            if name not in over:
                over[name] = end.ended_at_s
                found.append(lost_attempt(name, state.jobs[name], end, world))
    found.extend(overdue_jobs(state, world.now_s, over))
    return found


def next_look_at_s(
    state: RunState, now_s: float, sightings: Sightings, settings: LoopSettings
) -> float | None:
    """Return when something follows from time alone: a second look, a job's maximum duration."""
    times = [
        sightings.missing_since_s[record.instance_id] + settings.look_again_s
        for record in state.live_instances
        if record.instance_id in sightings.missing_since_s
    ]
    for job in state.active_jobs:
        limit = job.spec.max_duration_s
        if limit is not None and job.started_at_s is not None:
            times.append(job.started_at_s + limit)
        if job.save_error is not None and job.current is not None and job.stop_asked:
            times.append(stop_has_failed_at_s(job))
    times += [
        _boot_ends_at_s(record, -math.inf, settings)
        for record in state.live_instances
        if record.ready_at_s is None and record.terminate_asked_at_s is None
    ]
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
        yield ev.InstanceReady(at_s=world.now_s, instance_id=instance_id, address=report.address)
    if record.noticed or instance_id in ends:
        return
    listed = (world.listing or {}).get(instance_id)
    notice = None if report is None else report.notice
    if notice is not None and notice.kind in NOTICES_OF_AN_END:
        yield ev.InterruptionNoticed(
            at_s=world.now_s, instance_id=instance_id, ends_at_s=notice.ends_at_s
        )
    elif listed is not None and listed.notice_ends_at_s is not None:
        yield ev.InterruptionNoticed(
            at_s=world.now_s, instance_id=instance_id, ends_at_s=listed.notice_ends_at_s
        )


def _silence(
    record: InstanceRecord,
    world: World,
    ends: Mapping[str, ev.InstanceEnded],
    settings: LoopSettings,
) -> Iterator[ev.Event]:
    """Yield the end of a machine that bills and does nothing: its agent does not answer."""
    if record.instance_id in ends or record.terminate_asked_at_s is not None:
        return
    report = world.reports.get(record.instance_id)
    if report is None and record.ready_at_s is None:
        if world.now_s >= _boot_ends_at_s(record, world.heard_since_s, settings):
            waited_s = world.now_s - record.launched_at_s
            reason = f"it took no orders within {waited_s:.0f} s of its launch"
            yield ev.TerminateAsked(at_s=world.now_s, instance_id=record.instance_id, reason=reason)
        return
    limit_s = settings.agent_silence_s
    if report is None or limit_s is None or record.ready_at_s is None:
        return
    # While the store does not answer, every agent is silent; it is heard anew afterwards.
    silent_s = world.now_s - max(report.heartbeat_at_s, record.ready_at_s, world.heard_since_s)
    if silent_s >= limit_s:
        reason = f"its agent has been silent for {silent_s:.0f} s"
        yield ev.TerminateAsked(at_s=world.now_s, instance_id=record.instance_id, reason=reason)


def _boot_ends_at_s(record: InstanceRecord, heard_since_s: float, settings: LoopSettings) -> float:
    expected_s = (record.expected_ready_at_s or record.launched_at_s) - record.launched_at_s
    begins_s = max(record.launched_at_s, heard_since_s)
    return begins_s + max(settings.boot_limit_s, 5 * expected_s)


def without_ended(listing: Sequence[ListedInstance]) -> dict[str, ListedInstance]:
    """Return a cloud's list by id; of doubles the one that still lives is kept."""
    by_id: dict[str, ListedInstance] = {}
    for line in listing:
        before = by_id.get(line.instance_id)
        if before is None or before.state is MachineState.TERMINATED:
            by_id[line.instance_id] = replace(line)
    return by_id
