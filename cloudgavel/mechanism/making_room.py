"""Whose machines give way to a promise that has no quota left."""

from cloudgavel.mechanism.draft import Draft
from cloudgavel.mechanism.packing import Machine
from cloudgavel.mechanism.state import JobView


def make_room(draft: Draft, job: JobView, columns: list[int]) -> None:
    """Save and stop as few less important jobs as free a quota for a promise.

    Candidates: jobs without a promise, jobs that the plan gives nothing now, and the job
    itself where its own machine is in the way of its rescue.
    """
    rank = draft.rank(job.spec.name)
    victims = [
        name
        for name, placement in draft.answer.placements.items()
        if placement.stays
        and draft.rank(name) > rank
        and (name not in draft.promised or not draft.wants[name].columns)
        and draft.situation.job(name).save_error is None
    ]
    victims.sort(key=draft.rank, reverse=True)
    if draft.situation.usable_place(job) and not job.save_error:
        victims.append(job.spec.name)
    for column in columns:
        each = draft.situation.columns[column]
        for count in range(1, len(victims) + 1):
            freed = _freed(draft, victims[:count])
            for machine in freed:
                draft.room.take(machine.offer.offer_id, machine.usd_per_hour, -1)
            enough = any(
                draft.room.has(offer.offer_id, offer.price_usd_per_hour or 0.0, each.instance_count)
                for offer in each.offers
            )
            for machine in freed:
                draft.room.take(machine.offer.offer_id, machine.usd_per_hour, 1)
            if enough:
                for name in victims[:count]:
                    draft.answer.placements.pop(name, None)
                    draft.answer.stops[name] = f"it makes room for {job.spec.name}"
                return


def _freed(draft: Draft, names: list[str]) -> list[Machine]:
    """Machines on which only these jobs sit."""
    leaving = set(names)
    return [
        each
        for each in draft.machines.values()
        if not each.new and each.seats and set(each.seats) <= leaving
    ]
