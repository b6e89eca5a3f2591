"""Who stays where it is, and who takes what was rented for it."""

from cloudgavel.mechanism import reasons
from cloudgavel.mechanism.draft import Draft
from cloudgavel.mechanism.guards.promises import least_cost_to_end_usd
from cloudgavel.mechanism.guards.safety_net import machines_intended
from cloudgavel.mechanism.packing import Machine, fits_on
from cloudgavel.mechanism.placement import stay_of
from cloudgavel.mechanism.state import JobView


def stays(draft: Draft, job: JobView) -> bool:
    """Whether a job stays where its process is: nothing takes, calls or sends it away."""
    name = job.spec.name
    here = draft.situation.held.get(name)
    if here is None or not draft.situation.usable_place(job):
        return False
    if job.save_error is not None:
        return True
    if draft.on_demand_now.get(name, here) != here:
        return False
    return not _intended(draft, job) and name not in draft.moves


def stay(draft: Draft, job: JobView) -> None:
    """Leave a job where it is."""
    draft.answer.placements[job.spec.name] = stay_of(draft.situation, draft.machines, job)


def pay_for_stays(draft: Draft) -> None:
    """Machines whose jobs are neither promised nor paid for to the end are let go.

    The one job that may use up the rest of the money keeps its machine as long as the rest
    pays for this round and for the end after it.
    """
    paid = draft.promised | draft.promises.funded
    for name in draft.answer.placements:
        if name in draft.promises.funded:
            draft.purse.free_usd -= least_cost_to_end_usd(draft.situation, name)
            draft.paid_for.add(name)
    for machine in list(draft.machines.values()):
        here = [name for name in machine.seats if name in draft.answer.placements]
        if not here or any(name in paid for name in here):
            continue
        if any(draft.rest_pays(name, [machine]) for name in here):
            continue
        for name in here:
            draft.answer.placements.pop(name)
            draft.answer.stops[name] = reasons.MONEY_FOR_OTHERS
            draft.answer.short_of_money.add(name)


def take_intended(draft: Draft, job: JobView) -> bool:
    """Keep what was launched for a job (or what it is on its way to) for it."""
    name = job.spec.name
    mine = _intended(draft, job)
    if not mine or not draft.is_paid(name):
        return False
    if name == draft.promises.partial and not draft.rest_pays(name, mine):
        return False
    for column in _columns_of_intended(draft, name, mine):
        each = draft.situation.columns[column]
        if name in draft.on_demand_now and each.spot:
            continue
        fitting = [item for item in mine if fits_on(each, item)]
        fitting = [item for item in fitting if item.free(each.accelerators_used) is not None]
        zones = sorted({item.offer.zone for item in fitting})
        for zone in zones:
            group = [item for item in fitting if item.offer.zone == zone]
            if len(group) >= each.instance_count:
                group.sort(key=lambda item: (not item.ready, item.machine_id))
                draft.put(job, column, group[: each.instance_count], reasons.RENTED_FOR_IT)
                return True
    return False


def _intended(draft: Draft, job: JobView) -> list[Machine]:
    return [draft.machines[each.instance_id] for each in machines_intended(draft.situation, job)]


def _columns_of_intended(draft: Draft, name: str, mine: list[Machine]) -> list[int]:
    """Columns in the order in which a job takes the machines that were rented for it.

    The rent is paid: the fastest that leaves everybody they were rented for an even part comes
    first, then what the plan wants.
    """
    row = draft.situation.row(name)
    rates = draft.situation.rates[row]
    parties = max(
        len([each for each in item.intended | set(item.seats) if each in draft.wants])
        for item in mine
    )
    size = min(item.size for item in mine)
    even = [
        each
        for each in draft.situation.options(row)
        if draft.situation.columns[each].accelerators_used * max(1, parties) <= size
    ]
    even.sort(key=lambda each: (-rates[each], each))
    order = [*even, *draft.wants[name].columns, *draft.situation.options(row)]
    return list(dict.fromkeys(order))
