"""Events in a person's words, for the live view and the plain log."""

from collections.abc import Sequence

from cloudgavel.mechanism.reasons import MACHINE_TAKEN, RENTED_FOR_IT
from cloudgavel.pricing.offer import Offer
from cloudgavel.store import events as ev
from cloudgavel.store.records import RunState
from cloudgavel.units import span


def tell(event: ev.Event, state: RunState) -> tuple[str, str] | None:
    """Return ``(subject, sentence)``; ``None`` for what a person need not hear (bookkeeping)."""
    if isinstance(event, ev.LaunchSucceeded):
        return event.instance_id, (
            f"rented {place(event.offer)} at ${event.price_usd_per_hour:.2f}/h "
            f"for {', '.join(_intended(event.token, state)) or 'the run'}"
        )
    if isinstance(event, ev.LaunchFailed):
        if event.failure == "cancelled":
            return None
        message = event.message.removeprefix(event.offer_id).strip()
        return event.offer_id, f"not granted ({event.failure}): {message}"
    if isinstance(event, ev.InstanceReady):
        return event.instance_id, f"ready after {span(_age_s(event.instance_id, event, state))}"
    if isinstance(event, ev.InterruptionNoticed):
        when = "soon"
        if event.ends_at_s is not None:
            when = f"in {span(max(0.0, event.ends_at_s - event.at_s))}"
        return event.instance_id, f"the cloud takes it back {when}"
    if isinstance(event, ev.TerminateAsked):
        return event.instance_id, f"given back: {event.reason}"
    if isinstance(event, ev.InstanceEnded):
        return event.instance_id, _end(event)
    if isinstance(event, ev.PriceChanged):
        return event.instance_id, f"now costs ${event.price_usd_per_hour:.2f}/h"
    if isinstance(event, ev.OrphanSeen):
        return event.instance_id, (
            f"carries this run's tag but is not known here: {event.offer_id}, "
            f"${event.price_usd_per_hour:.2f}/h; `cloudgavel down` ends it"
        )
    return _tell_job(event, state)


def place(offer: Offer) -> str:
    """``aws p3.2xlarge spot in use1-az1``."""
    capacity = offer.capacity_type.value.replace("_", "-")
    return f"{offer.provider} {offer.instance_type} {capacity} in {offer.zone}"


def _tell_job(event: ev.Event, state: RunState) -> tuple[str, str] | None:
    if isinstance(event, ev.AttemptStarted):
        offer = state.instances[event.instance_ids[0]].offer
        count = len(event.instance_ids)
        where = place(offer) if count == 1 else f"{count} x {place(offer)}"
        again = "" if event.attempt == 1 else f", attempt {event.attempt}"
        reason = why(event.reason, event.instance_ids, state)
        return event.job, f"started on {where}{again}: {reason}"
    if isinstance(event, ev.StopAsked):
        what = "moves" if event.to_instance_ids else "saves and stops"
        if event.reason == MACHINE_TAKEN:
            what = "saves and goes elsewhere"
        return event.job, f"{what}: {why(event.reason, event.to_instance_ids, state)}"
    if isinstance(event, ev.CheckpointSaved):
        return event.job, f"saved at step {event.step:,}"
    if isinstance(event, ev.SaveFailed):
        if event.error is None:
            return event.job, "checkpoints can be written again"
        return event.job, f"its checkpoint could not be written, it is not moved: {event.error}"
    if isinstance(event, ev.AttemptStopped):
        how = "before its machine is taken" if event.interrupted else "on order"
        return event.job, f"stopped at step {event.step:,} {how}"
    if isinstance(event, ev.AttemptLost):
        return event.job, f"lost its machine at step {event.step:,} ({event.cause})"
    if isinstance(event, ev.AttemptFailed):
        if event.exit_code is not None:
            how = f"exit code {event.exit_code} at step {event.step:,}"
        else:
            last = f": {event.last_lines[-1]}" if event.last_lines else ""
            how = f"given up at step {event.step:,}{last}"
        return event.job, how + (", retried" if event.retry else "")
    if isinstance(event, ev.JobFinished):
        return event.job, f"finished, {event.step:,} steps"
    if isinstance(event, ev.JobFailed):
        return event.job, f"failed: {event.reason}"
    if isinstance(event, ev.JobCancelled):
        return event.job, f"cancelled: {event.reason}"
    if isinstance(event, ev.PromiseReleased):
        return event.job, f"its {event.promise} is no longer promised: {event.reason}"
    return _tell_run(event)


def _tell_run(event: ev.Event) -> tuple[str, str] | None:
    if isinstance(event, ev.RunEnded):
        return "run", event.state.replace("_", " ") + (f": {event.reason}" if event.reason else "")
    if isinstance(event, ev.StopRequested):
        return "run", f"everything is to be saved and stopped: {event.reason}"
    if isinstance(event, ev.Notified):
        if event.delivered:
            return None
        what = event.key.partition(":")[0]
        return "notify", f"the message `{what}` could not be delivered"
    if isinstance(event, ev.BudgetSet):
        amount = "none" if event.budget_usd is None else f"${event.budget_usd:,.2f}"
        return "run", f"the budget is now {amount}"
    if isinstance(event, ev.RunResumed):
        return "run", "goes on"
    if isinstance(event, ev.RoundDecided) and event.plan.notes:
        return "decision", "; ".join(event.plan.notes)
    return None


def _intended(token: str, state: RunState) -> tuple[str, ...]:
    intent = state.intents.get(token)
    if intent is not None:
        return intent.for_jobs
    instance_id = state.instance_of_token.get(token)
    record = state.instances.get(instance_id) if instance_id is not None else None
    return record.launched_for if record is not None else ()


def why(reason: str, instance_ids: Sequence[str], state: RunState) -> str:
    """Return why a job comes to machines; of those rented for it, why they were rented."""
    if reason == RENTED_FOR_IT:
        for instance_id in instance_ids:
            record = state.instances.get(instance_id)
            if record is not None and record.launch_reason:
                return record.launch_reason
    return reason


def _age_s(instance_id: str, event: ev.Event, state: RunState) -> float:
    return max(0.0, event.at_s - state.instances[instance_id].launched_at_s)


def _end(event: ev.InstanceEnded) -> str:
    words = {
        "requested": "ended, no longer billing",
        "interrupted": "taken by the cloud",
        "vanished": "gone without a word",
        "expired": "ended by its own watchdog",
    }.get(event.reason, f"ended ({event.reason})")
    return words + (" (its cost is estimated)" if event.estimated else "")
