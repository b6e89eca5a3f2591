"""Free accelerators of machines that are rented anyway."""

from cloudgavel.mechanism.columns import Column
from cloudgavel.mechanism.draft import Draft
from cloudgavel.mechanism.packing import Machine, kind_of, zone_groups
from cloudgavel.mechanism.state import JobView

SLOWEST_SHARE = 0.5
"""A free place may be at most this much slower than the wanted one."""


def take_free_place(
    draft: Draft,
    job: JobView,
    wanted: list[int],
    reason: str,
    forced: bool,
    leaves: bool,
    *,
    paid_only: bool = False,
) -> bool:
    """Free accelerators of machines that are rented anyway, this plan's launches included.

    On a machine that works for others they cost what the job's checkpoints do on their way, at most
    as much as a wanted place; an idle machine costs its rent and must be of a wanted kind (with
    ``paid_only`` it is left alone). The place may be neither too slow nor too late.
    """
    row = draft.situation.row(job.spec.name)
    rates = draft.situation.rates[row]
    traffics = draft.situation.traffic_usd_per_hour[row]
    wanted_rate = max(float(rates[each]) for each in wanted)
    wanted_usd_per_step = min(
        draft.situation.alone_usd_per_hour(row, each) / float(rates[each]) for each in wanted
    )
    aim_at_s = draft.aim_at_s(job.spec.name)
    options = [*wanted, *(each for each in draft.situation.options(row) if each not in wanted)]
    best: tuple[tuple[float, float, str], int, list[Machine]] | None = None
    for column in options:
        each = draft.situation.columns[column]
        if (forced or leaves) and column not in wanted:
            continue
        if column not in wanted:
            if float(rates[column]) < SLOWEST_SHARE * wanted_rate:
                continue
            if aim_at_s is not None and draft.finish_at_s(job, column, boots=False) > aim_at_s:
                continue
        traffic = float(traffics[column]) / float(rates[column])
        if column not in wanted and traffic > wanted_usd_per_step:
            continue
        for group in _groups(draft, each, job):
            paid = all(not item.idle for item in group)
            if not paid and (paid_only or column not in wanted or not draft.is_paid(job.spec.name)):
                continue
            rent = traffic + (0.0 if paid else each.alone_usd_per_hour / float(rates[column]))
            waiting = 0.0 if all(item.ready for item in group) else 1.0
            key = (rent, waiting, group[0].machine_id)
            if best is None or key < best[0]:
                best = (key, column, group)
    if best is None:
        return False
    draft.put(job, best[1], best[2], reason)
    return True


def _groups(draft: Draft, column: Column, job: JobView) -> list[list[Machine]]:
    """Machines or sets of machines where the gang fits now, not where it already is."""
    elsewhere = [
        each
        for each in draft.by_kind.get(kind_of(column.sample), ())
        if each.usable
        and each.machine_id not in job.instance_ids
        and each.free(column.accelerators_used) is not None
        and not _reserved_for_others(draft, each, job)
    ]
    if column.instance_count > 1:
        groups = zone_groups(elsewhere, column)
        return [group[: column.instance_count] for group in groups]
    if not column.pool.shareable:
        return [[each] for each in elsewhere if each.idle]
    return [[each] for each in elsewhere]


def _reserved_for_others(draft: Draft, machine: Machine, job: JobView) -> bool:
    """Launched for jobs of which one has yet to come and would lose its accelerators."""
    if machine.new:
        return False
    others = [
        each
        for each in machine.intended
        if each != job.spec.name and each not in machine.seats and each in draft.unplaced
    ]
    return bool(others)
