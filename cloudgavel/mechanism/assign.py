"""From wants to places: who is where in this round, and what is launched for it.

Places are sticky; machines that boot are kept for the jobs they were launched for; free
accelerators of what is rented come before anything new; gangs are placed whole or not at all.
"""

from collections.abc import Mapping

from cloudgavel.mechanism import reasons
from cloudgavel.mechanism.draft import Draft
from cloudgavel.mechanism.free_places import take_free_place
from cloudgavel.mechanism.guards.promises import Promises
from cloudgavel.mechanism.launching import launch
from cloudgavel.mechanism.making_room import make_room
from cloudgavel.mechanism.placement import Assignment
from cloudgavel.mechanism.purse import Purse
from cloudgavel.mechanism.situation import Situation
from cloudgavel.mechanism.state import JobView
from cloudgavel.mechanism.staying import pay_for_stays, stay, stays, take_intended
from cloudgavel.mechanism.wants import Want


def assign(
    situation: Situation,
    wants: Mapping[str, Want],
    promises: Promises,
    *,
    moves: Mapping[str, int],
    on_demand_now: Mapping[str, int],
    purse: Purse,
) -> Assignment:
    """Place the jobs of a round; see the module's docstring. Deterministic, never raises."""
    return _place(Draft(situation, wants, promises, moves, on_demand_now, purse))


def _place(draft: Draft) -> Assignment:
    """Stays first, then what is on its way, then free places and launches by rank."""
    names = sorted(draft.situation.rows, key=draft.rank)
    going = []
    for name in names:
        job = draft.situation.job(name)
        if job.stopping and job.instance_ids:
            if not take_intended(draft, job):
                draft.answer.waits[name] = "it saves and stops where it is"
        elif stays(draft, job):
            stay(draft, job)
        else:
            going.append(name)
    pay_for_stays(draft)
    going = [name for name in going if not take_intended(draft, draft.situation.job(name))]
    draft.unplaced = dict.fromkeys(going)
    for name in going:
        _go(draft, name)
    if not draft.answer.placements and not draft.answer.waits_until_at_s:
        # A plan that starts everything later while nothing runs would wait for ever.
        for name in going:
            if draft.answer.waits.get(name) == reasons.HELD_BACK:
                del draft.answer.waits[name]
                _go(draft, name, at_any_rate=True)
    for name, reason in draft.situation.refused.items():
        draft.answer.waits[name] = reason
    return draft.answer


def _go(draft: Draft, name: str, *, at_any_rate: bool = False) -> None:
    """Find a place for a job that has none, or whose place it must or should leave."""
    job = draft.situation.job(name)
    state = draft.situation.state
    want = draft.wants[name]
    if job.release_at_s > state.now_s:
        draft.answer.waits[name] = reasons.NOT_ARRIVED
        return
    if job.waits_for:
        draft.answer.waits[name] = reasons.comes_after(job.waits_for)
        return
    leaves = draft.situation.usable_place(job) and name in draft.situation.held
    forced = draft.on_demand_now.get(name)
    if want.waits_until_at_s is not None and not want.columns and forced is None and not leaves:
        _wait_for_spot(draft, job, want.waits_until_at_s)
        return
    if forced is not None:
        columns = [forced, *_on_demand_in_time(draft, job, forced)]
        reason = reasons.KEPT_ON_DEMAND
    elif name in draft.moves:
        columns = [draft.moves[name]]
        reason = "the move saves more than it costs, or keeps the deadline"
    else:
        columns = list(want.columns)
        reason = "cheapest place now"
        if not columns and (at_any_rate or not want.later):
            # The plan has no money or no time for all of it: as far as it goes.
            columns = draft.cheapest_first(name)
            reason = "as far as the money and the quotas left go"
        if job.instance_ids:
            columns = columns or draft.cheapest_first(name)
            reason = reasons.MACHINE_TAKEN
    if not columns:
        draft.answer.waits[name] = reasons.HELD_BACK
        return
    if take_free_place(draft, job, columns, reason, forced is not None, leaves):
        return
    refusal = launch(draft, job, columns, reason, widen=forced is None and not leaves)
    if refusal == reasons.NO_QUOTA and forced is None and not leaves:
        if want.instead:
            refusal = launch(draft, job, list(want.instead), reason, widen=True)
        elif want.waits_until_at_s is not None:
            _wait_for_spot(draft, job, want.waits_until_at_s)
            return
    if refusal is None:
        return
    if leaves:
        if forced is not None and refusal == reasons.NO_QUOTA and not job.save_error:
            make_room(draft, job, columns)
        if name not in draft.answer.stops:
            stay(draft, job)
        return
    if refusal == reasons.NO_QUOTA and (forced is not None or name in draft.promised):
        make_room(draft, job, columns)
    draft.answer.waits[name] = refusal


def _wait_for_spot(draft: Draft, job: JobView, until_at_s: float) -> None:
    """Rent nothing for a job; seats that are free on machines of others it takes all the same."""
    name = job.spec.name
    columns = draft.cheapest_first(name)
    reason = "a free place beside others, while spot is refused"
    if columns and take_free_place(draft, job, columns, reason, False, False, paid_only=True):
        return
    draft.answer.waits_until_at_s[name] = until_at_s
    draft.answer.waits[name] = reasons.waits_for_spot(until_at_s - draft.situation.state.now_s)


def _on_demand_in_time(draft: Draft, job: JobView, first: int) -> list[int]:
    """Other on-demand columns in which a rescue is still in time, cheapest first."""
    row = draft.situation.row(job.spec.name)
    deadline_at_s = draft.situation.deadlines[job.spec.name]
    found = []
    for column in draft.situation.options(row):
        each = draft.situation.columns[column]
        if each.spot or column == first or not each.offers:
            continue
        finish_at_s = draft.finish_at_s(job, column, boots=True)
        if deadline_at_s is None or finish_at_s <= deadline_at_s:
            usd_per_hour = draft.situation.alone_usd_per_hour(row, column)
            found.append((usd_per_hour / draft.situation.rates[row, column], column))
    return [column for _, column in sorted(found)]
