"""What is rented anew for a job without a place."""

from cloudgavel.mechanism import reasons
from cloudgavel.mechanism.change_over import useful_minimum_s
from cloudgavel.mechanism.draft import Draft
from cloudgavel.mechanism.packing import Machine, kind_of
from cloudgavel.mechanism.spot_wait import waits_for_spot_until_s
from cloudgavel.mechanism.state import JobView
from cloudgavel.pricing.offer import Offer

DEARER_SHARE = 0.05
"""Beyond this, a column that the plan did not choose replaces one that nobody shares."""

DUE_TOLERANCE_SHARE = 0.02
"""Of the time until a policy's due time: what ends so much later still counts as in time."""


def launch(
    draft: Draft, job: JobView, columns: list[int], reason: str, *, widen: bool
) -> str | None:
    """Rent the first column that has room and can be paid; the refusal's reason otherwise."""
    name = job.spec.name
    refusal = reasons.NO_QUOTA
    order = _by_real_rent(draft, job, columns) if widen else columns
    # Only tried when the money does not pay for the better ones.
    smaller = [each for each in draft.cheapest_first(name) if each not in order]
    for column in [*order, *(smaller if widen else ())]:
        if column in smaller and refusal == reasons.NO_QUOTA:
            break
        each = draft.situation.columns[column]
        offers = [
            offer
            for offer in each.offers
            if draft.room.has(offer.offer_id, offer.price_usd_per_hour or 0.0, each.instance_count)
        ]
        if not offers:
            continue
        if each.instance_count > 1:
            # A gang sits in one zone: no fall-back, or its halves would end up apart.
            offers = offers[:1]
        machines = [_new_machine(draft, column, tuple(offers)) for _ in range(each.instance_count)]
        useful_s = min(
            useful_minimum_s(draft.situation.state, each.sample, job),
            draft.finish_at_s(job, column, boots=True) - draft.situation.state.now_s,
        )
        if widen:
            until_s = waits_for_spot_until_s(draft.situation, job, column)
            if until_s is not None:
                draft.answer.waits_until_at_s[name] = until_s
                return reasons.waits_for_spot(until_s - draft.situation.state.now_s)
        if not draft.pays(name, column, machines, useful_s):
            unpaid = name not in draft.promised | draft.promises.funded
            refusal = reasons.MONEY_FOR_OTHERS if unpaid else reasons.OUT_OF_MONEY
            draft.answer.short_of_money.add(name)
            continue
        for machine in machines:
            draft.machines[machine.machine_id] = machine
            draft.by_kind.setdefault(kind_of(machine.offer), []).append(machine)
            draft.answer.launches.append(machine)
            draft.room.take(machine.offer.offer_id, machine.usd_per_hour, 1)
        draft.put(job, column, machines, reason)
        draft.answer.short_of_money.discard(name)
        return None
    return refusal


def _new_machine(draft: Draft, column: int, offers: tuple[Offer, ...]) -> Machine:
    state = draft.situation.state
    token = f"{state.run_id}-r{state.round_number}-{draft.ordinal}"
    draft.ordinal += 1
    return Machine(
        machine_id=token,
        offer=offers[0],
        usd_per_hour=max(each.price_usd_per_hour or 0.0 for each in offers),
        size=offers[0].accelerators_per_instance,
        ready=False,
        usable=True,
        new=True,
        offers=offers,
        column=column,
    )


def _by_real_rent(draft: Draft, job: JobView, wanted: list[int]) -> list[int]:
    """Wanted columns by what the job would really pay, and cheaper ones if nobody shares.

    Those that end by the policy's due time come first; if none does, the earliest end does.
    The plan counts a part of an instance at its part of the rent. A new instance is only worth
    its rent when the jobs still without a place fill it; otherwise the cheapest column that
    hosts the job alone in time (its reservation price) comes first. (Chang and
    Venkataraman, Eva, EuroSys 2025, section 4.)
    """
    row = draft.situation.row(job.spec.name)
    deadline_at_s = draft.situation.deadlines[job.spec.name]
    due_at_s = draft.wants[job.spec.name].due_at_s
    now_s = draft.situation.state.now_s

    def usd_per_step(column: int) -> float:
        each = draft.situation.columns[column]
        rate = float(draft.situation.rates[row, column])
        traffic = float(draft.situation.traffic_usd_per_hour[row, column])
        return (each.alone_usd_per_hour / _companions(draft, job, column) + traffic) / rate

    def over_due_s(column: int) -> float:
        if due_at_s is None:
            return 0.0
        over_s = draft.finish_at_s(job, column, boots=True) - due_at_s
        return over_s if over_s > DUE_TOLERANCE_SHARE * max(0.0, due_at_s - now_s) else 0.0

    def in_time(column: int) -> bool:
        if over_due_s(column) > over_due_s(best):
            return False
        if deadline_at_s is None:
            return True
        return draft.finish_at_s(job, column, boots=True) <= deadline_at_s

    wanted = sorted(wanted, key=lambda each: (over_due_s(each), usd_per_step(each), each))
    best = wanted[0]
    limit = usd_per_step(best) * (1 - DEARER_SHARE)
    others = [
        each
        for each in draft.situation.options(row)
        if each not in wanted
        and draft.situation.columns[each].offers
        and usd_per_step(each) < limit
        and in_time(each)
    ]
    return [
        *sorted(others, key=lambda each: (usd_per_step(each), each)),
        *wanted,
    ]


def _companions(draft: Draft, job: JobView, column: int) -> int:
    """Jobs that would share a new instance of this column: this one and others unplaced."""
    each = draft.situation.columns[column]
    if each.seats == 1:
        return 1
    others = sum(
        name != job.spec.name
        and name not in draft.answer.placements
        and name not in draft.answer.waits
        and (name in draft.promised or name in draft.promises.funded)
        and column in draft.wants[name].columns
        for name in draft.unplaced
    )
    return max(1, min(each.seats, 1 + others))
