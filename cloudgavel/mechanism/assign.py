"""From wants to places: who is where in this round, and what is launched for it.

Places are sticky; machines that boot are kept for the jobs they were launched for; free
accelerators of what is rented come before anything new; gangs are placed whole or not at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cloudgavel.mechanism import reasons
from cloudgavel.mechanism.change_over import restore_s, stop_s, useful_minimum_s
from cloudgavel.mechanism.columns import Column
from cloudgavel.mechanism.guards.promises import (
    Promises,
    cost_to_end_usd,
    least_cost_to_end_usd,
)
from cloudgavel.mechanism.guards.safety_net import (
    kept_on_demand,
    latest_on_demand_start_at_s,
    machines_intended,
    stepping_s,
)
from cloudgavel.mechanism.packing import (
    Kind,
    Machine,
    Room,
    fits_on,
    kind_of,
    machines_of,
    zone_groups,
)
from cloudgavel.mechanism.purse import Purse
from cloudgavel.mechanism.situation import Situation, usd
from cloudgavel.mechanism.spot_wait import waits_for_spot_until_s
from cloudgavel.mechanism.state import JobView
from cloudgavel.mechanism.wants import Want
from cloudgavel.pricing.offer import Offer

SLOWEST_SHARE = 0.5
"""A free place may be at most this much slower than the wanted one."""
DEARER_SHARE = 0.05
"""Beyond this, a column that the plan did not choose replaces one that nobody shares."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Where one job is to be."""

    job: str
    column: int
    machine_ids: tuple[str, ...]
    indices: tuple[int, ...]
    """Accelerators on each of the machines."""
    stays: bool
    """Its process is there already."""
    reason: str


@dataclass(kw_only=True)
class Assignment:
    """The places of a round."""

    machines: dict[str, Machine]
    placements: dict[str, Placement] = field(default_factory=dict)
    launches: list[Machine] = field(default_factory=list)
    stops: dict[str, str] = field(default_factory=dict)
    """Jobs to save and stop without a new place yet, and why."""
    waits: dict[str, str] = field(default_factory=dict)
    """Jobs that get nothing, and why."""
    short_of_money: set[str] = field(default_factory=set)
    waits_until_s: list[float] = field(default_factory=list)
    """When jobs that wait for spot stop waiting."""


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
    return _Assigner(situation, wants, promises, moves, on_demand_now, purse).run()


class _Assigner:
    def __init__(
        self,
        situation: Situation,
        wants: Mapping[str, Want],
        promises: Promises,
        moves: Mapping[str, int],
        on_demand_now: Mapping[str, int],
        purse: Purse,
    ) -> None:
        self._situation = situation
        self._wants = wants
        self._promises = promises
        self._promised = frozenset(promises.held)
        self._moves = moves
        self._on_demand_now = on_demand_now
        self._purse = purse
        self._room = Room(situation.state)
        self._machines = machines_of(situation)
        self._by_kind: dict[Kind, list[Machine]] = {}
        for machine in self._machines.values():
            self._by_kind.setdefault(kind_of(machine.offer), []).append(machine)
        self._answer = Assignment(machines=self._machines)
        self._ordinal = 0
        self._unplaced: dict[str, None] = {}

    def run(self) -> Assignment:
        """Stays first, then what is on its way, then free places and launches by rank."""
        names = sorted(self._situation.rows, key=self._rank)
        going = []
        for name in names:
            job = self._situation.job(name)
            if job.stopping and job.instance_ids:
                if not self._take_intended(job):
                    self._answer.waits[name] = "it saves and stops where it is"
            elif self._stays(job):
                self._stay(job)
            else:
                going.append(name)
        self._pay_for_stays()
        going = [name for name in going if not self._take_intended(self._situation.job(name))]
        self._unplaced = dict.fromkeys(going)
        for name in going:
            self._go(name)
        if not self._answer.placements:
            # A plan that starts everything later while nothing runs would wait for ever.
            for name in going:
                if self._answer.waits.get(name) == reasons.HELD_BACK:
                    del self._answer.waits[name]
                    self._go(name, at_any_rate=True)
        for name, reason in self._situation.refused.items():
            self._answer.waits[name] = reason
        return self._answer

    # --- order -------------------------------------------------------------------------------

    def _rank(self, name: str) -> tuple[int, float, float, str]:
        """On-demand rescues by slack, then promises by slack, then the others by weight."""
        job = self._situation.job(name)
        latest = latest_on_demand_start_at_s(self._situation, name)
        slack = latest if latest is not None else self._situation.deadlines[name] or 0.0
        if name in self._on_demand_now:
            return (0, slack, 0.0, name)
        if not self._wants[name].columns and name not in self._situation.held:
            return (3, -job.spec.weight, slack, name)
        if name in self._promised:
            return (1, -job.spec.weight, slack, name)
        return (2, -job.spec.weight, slack, name)

    # --- staying -----------------------------------------------------------------------------

    def _stays(self, job: JobView) -> bool:
        name = job.spec.name
        here = self._situation.held.get(name)
        if here is None or not self._situation.usable_place(job):
            return False
        if job.save_error is not None:
            return True
        if self._on_demand_now.get(name, here) != here:
            return False
        return not self._has_intended(job) and name not in self._moves

    def _stay(self, job: JobView) -> None:
        self._answer.placements[job.spec.name] = stay_of(self._situation, self._machines, job)

    def _pay_for_stays(self) -> None:
        """Machines whose jobs are neither promised nor paid for to the end are let go.

        The one job that may use up the rest of the money keeps its machine as long as the rest
        pays for this round and for the end after it.
        """
        paid = self._promised | self._promises.funded
        for name in self._answer.placements:
            if name in self._promises.funded:
                self._purse.free_usd -= least_cost_to_end_usd(self._situation, name)
        for machine in list(self._machines.values()):
            here = [name for name in machine.seats if name in self._answer.placements]
            if not here or any(name in paid for name in here):
                continue
            if any(self._rest_pays(name, [machine]) for name in here):
                continue
            for name in here:
                self._answer.placements.pop(name)
                self._answer.stops[name] = reasons.MONEY_FOR_OTHERS
                self._answer.short_of_money.add(name)

    def _rest_pays(self, name: str, machines: list[Machine]) -> bool:
        """Whether the rest of the money pays for one more round of its one job, and the end."""
        if name != self._promises.partial:
            return False
        state = self._situation.state
        longest_s = state.round_s + state.rules.terminate_confirm_s + state.rules.wake_lag_s
        longest_s += stop_s(self._situation.job(name), state.rules)
        rent = sum(each.usd_per_hour for each in machines)
        return usd(rent, longest_s) <= self._promises.partial_usd

    def _is_paid(self, name: str) -> bool:
        """Promised, paid for to the end, or the one that may use up the rest."""
        return (
            name in self._promised
            or name in self._promises.funded
            or name == self._promises.partial
        )

    def _pays(self, name: str, column: int, machines: list[Machine], useful_s: float) -> bool:
        """Whether the money allows this launch; puts aside what a job without a promise takes.

        Promised jobs are bound by the hard rule only. Jobs paid for to the end must be so in this
        very column, out of what the promises leave; the one that uses up the rest needs a useful
        stay; others get nothing.
        """
        job = self._situation.job(name)
        limit_usd: float | None = 0.0
        total_usd = 0.0
        if name in self._promised:
            limit_usd = None
        elif name in self._promises.funded:
            limit_usd = self._purse.free_usd
            total_usd = cost_to_end_usd(self._situation, name, column)
        elif name == self._promises.partial:
            limit_usd = self._promises.partial_usd
        if total_usd > self._purse.free_usd:
            return False
        if not self._purse.affords(machines, job, useful_s, limit_usd):
            return False
        self._purse.free_usd -= total_usd
        self._purse.launch(machines, job)
        return True

    # --- going -------------------------------------------------------------------------------

    def _intended(self, job: JobView) -> list[Machine]:
        return [
            self._machines[each.instance_id] for each in machines_intended(self._situation, job)
        ]

    def _has_intended(self, job: JobView) -> bool:
        return bool(self._intended(job))

    def _take_intended(self, job: JobView) -> bool:
        """Keep what was launched for a job (or what it is on its way to) for it."""
        name = job.spec.name
        mine = self._intended(job)
        if not mine or not self._is_paid(name):
            return False
        if name == self._promises.partial and not self._rest_pays(name, mine):
            return False
        for column in self._columns_of_intended(name, mine):
            each = self._situation.columns[column]
            if name in self._on_demand_now and each.spot:
                continue
            fitting = [item for item in mine if fits_on(each, item)]
            fitting = [item for item in fitting if item.free(each.accelerators_used) is not None]
            zones = sorted({item.offer.zone for item in fitting})
            for zone in zones:
                group = [item for item in fitting if item.offer.zone == zone]
                if len(group) >= each.instance_count:
                    group.sort(key=lambda item: (not item.ready, item.machine_id))
                    self._put(job, column, group[: each.instance_count], "it was rented for it")
                    return True
        return False

    def _columns_of_intended(self, name: str, mine: list[Machine]) -> list[int]:
        """Columns in the order in which a job takes the machines that were rented for it.

        The rent is paid: the fastest that leaves everybody they were rented for an even part comes
        first, then what the plan wants.
        """
        row = self._situation.row(name)
        rates = self._situation.rates[row]
        parties = max(
            len([each for each in item.intended | set(item.seats) if each in self._wants])
            for item in mine
        )
        size = min(item.size for item in mine)
        even = [
            each
            for each in self._situation.options(row)
            if self._situation.columns[each].accelerators_used * max(1, parties) <= size
        ]
        even.sort(key=lambda each: (-rates[each], each))
        order = [*even, *self._wants[name].columns, *self._situation.options(row)]
        return list(dict.fromkeys(order))

    def _go(self, name: str, *, at_any_rate: bool = False) -> None:
        """Find a place for a job that has none, or whose place it must or should leave."""
        job = self._situation.job(name)
        state = self._situation.state
        want = self._wants[name]
        if job.release_at_s > state.now_s:
            self._answer.waits[name] = reasons.NOT_ARRIVED
            return
        if job.waits_for:
            self._answer.waits[name] = reasons.comes_after(job.waits_for)
            return
        leaves = self._situation.usable_place(job) and name in self._situation.held
        forced = self._on_demand_now.get(name)
        if forced is not None:
            columns = [forced, *self._on_demand_in_time(job, forced)]
            reason = "the deadline is kept on demand from now on"
        elif name in self._moves:
            columns = [self._moves[name]]
            reason = "the move saves more than it costs, or keeps the deadline"
        else:
            columns = list(want.columns)
            reason = "cheapest place now"
            if not columns and (at_any_rate or not want.later):
                # The plan has no money or no time for all of it: as far as it goes.
                columns = self._cheapest_first(name)
                reason = "as far as the money and the quotas left go"
            if job.instance_ids:
                columns = columns or self._cheapest_first(name)
                reason = "its machine is being taken"
        if not columns:
            self._answer.waits[name] = reasons.HELD_BACK
            return
        if self._take_free_place(job, columns, reason, forced is not None, leaves):
            return
        refusal = self._launch(job, columns, reason, widen=forced is None and not leaves)
        if refusal is None:
            return
        if leaves:
            if forced is not None and refusal == reasons.NO_QUOTA and not job.save_error:
                self._make_room(job, columns)
            if name not in self._answer.stops:
                self._stay(job)
            return
        if refusal == reasons.NO_QUOTA and (forced is not None or name in self._promised):
            self._make_room(job, columns)
        self._answer.waits[name] = refusal

    def _cheapest_first(self, name: str) -> list[int]:
        row = self._situation.row(name)
        rates = self._situation.rates[row]
        return sorted(
            (each for each in self._situation.options(row) if self._situation.columns[each].offers),
            key=lambda each: (self._situation.columns[each].alone_usd_per_hour / rates[each], each),
        )

    def _on_demand_in_time(self, job: JobView, first: int) -> list[int]:
        """Other on-demand columns in which a rescue is still in time, cheapest first."""
        row = self._situation.row(job.spec.name)
        deadline_at_s = self._situation.deadlines[job.spec.name]
        found = []
        for column in self._situation.options(row):
            each = self._situation.columns[column]
            if each.spot or column == first or not each.offers:
                continue
            finish_at_s = self._finish_at_s(job, column, boots=True)
            if deadline_at_s is None or finish_at_s <= deadline_at_s:
                found.append((each.alone_usd_per_hour / self._situation.rates[row, column], column))
        return [column for _, column in sorted(found)]

    def _finish_at_s(self, job: JobView, column: int, *, boots: bool) -> float:
        row = self._situation.row(job.spec.name)
        start_s = restore_s(job) + (self._situation.columns[column].boot_s if boots else 0.0)
        rate = float(self._situation.rates[row, column])
        return (
            self._situation.state.now_s + start_s + stepping_s(job, rate, job.steps_left_if_moved)
        )

    def _take_free_place(
        self, job: JobView, wanted: list[int], reason: str, forced: bool, leaves: bool
    ) -> bool:
        """Free accelerators of machines that are rented anyway, this plan's launches included.

        On a machine that works for others they cost nothing more; an idle machine costs its rent
        and must be of a wanted kind. The place may be neither too slow nor too late.
        """
        row = self._situation.row(job.spec.name)
        rates = self._situation.rates[row]
        wanted_rate = max(float(rates[each]) for each in wanted)
        deadline_at_s = self._situation.deadlines[job.spec.name]
        options = [*wanted, *(each for each in self._situation.options(row) if each not in wanted)]
        best: tuple[tuple[float, float, str], int, list[Machine]] | None = None
        for column in options:
            each = self._situation.columns[column]
            if (forced or leaves) and column not in wanted:
                continue
            if column not in wanted:
                if float(rates[column]) < SLOWEST_SHARE * wanted_rate:
                    continue
                if (
                    deadline_at_s is not None
                    and self._finish_at_s(job, column, boots=False) > deadline_at_s
                ):
                    continue
            for group in self._groups(each, job):
                paid = all(not item.idle for item in group)
                if not paid and (column not in wanted or not self._is_paid(job.spec.name)):
                    continue
                rent = 0.0 if paid else each.alone_usd_per_hour / float(rates[column])
                waiting = 0.0 if all(item.ready for item in group) else 1.0
                key = (rent, waiting, group[0].machine_id)
                if best is None or key < best[0]:
                    best = (key, column, group)
        if best is None:
            return False
        self._put(job, best[1], best[2], reason)
        return True

    def _groups(self, column: Column, job: JobView) -> list[list[Machine]]:
        """Machines or sets of machines where the gang fits now, not where it already is."""
        elsewhere = [
            each
            for each in self._by_kind.get(kind_of(column.sample), ())
            if each.usable
            and each.machine_id not in job.instance_ids
            and each.free(column.accelerators_used) is not None
            and not self._reserved_for_others(each, job)
        ]
        if column.instance_count > 1:
            groups = zone_groups(elsewhere, column)
            return [group[: column.instance_count] for group in groups]
        if not column.pool.shareable:
            return [[each] for each in elsewhere if each.idle]
        return [[each] for each in elsewhere]

    def _reserved_for_others(self, machine: Machine, job: JobView) -> bool:
        """Launched for jobs of which one has yet to come and would lose its accelerators."""
        if machine.new:
            return False
        others = [
            each
            for each in machine.intended
            if each != job.spec.name and each not in machine.seats and each in self._unplaced
        ]
        return bool(others)

    # --- launching ---------------------------------------------------------------------------

    def _launch(self, job: JobView, columns: list[int], reason: str, *, widen: bool) -> str | None:
        """Rent the first column that has room and can be paid; the refusal's reason otherwise."""
        name = job.spec.name
        refusal = reasons.NO_QUOTA
        order = self._by_real_rent(job, columns) if widen else columns
        # Only tried when the money does not pay for the better ones.
        smaller = [each for each in self._cheapest_first(name) if each not in order]
        for column in [*order, *(smaller if widen else ())]:
            if column in smaller and refusal == reasons.NO_QUOTA:
                break
            each = self._situation.columns[column]
            offers = [
                offer
                for offer in each.offers
                if self._room.has(
                    offer.offer_id, offer.price_usd_per_hour or 0.0, each.instance_count
                )
            ]
            if not offers:
                continue
            if each.instance_count > 1:
                # A gang sits in one zone: no fall-back, or its halves would end up apart.
                offers = offers[:1]
            machines = [
                self._new_machine(column, tuple(offers)) for _ in range(each.instance_count)
            ]
            useful_s = min(
                useful_minimum_s(self._situation.state, each.sample, job),
                self._finish_at_s(job, column, boots=True) - self._situation.state.now_s,
            )
            if widen:
                until_s = waits_for_spot_until_s(self._situation, job, column)
                if until_s is not None:
                    self._answer.waits_until_s.append(until_s)
                    return reasons.waits_for_spot(until_s - self._situation.state.now_s)
            if not self._pays(name, column, machines, useful_s):
                unpaid = name not in self._promised | self._promises.funded
                refusal = reasons.MONEY_FOR_OTHERS if unpaid else reasons.OUT_OF_MONEY
                self._answer.short_of_money.add(name)
                continue
            for machine in machines:
                self._machines[machine.machine_id] = machine
                self._by_kind.setdefault(kind_of(machine.offer), []).append(machine)
                self._answer.launches.append(machine)
                self._room.take(machine.offer.offer_id, machine.usd_per_hour, 1)
            self._put(job, column, machines, reason)
            self._answer.short_of_money.discard(name)
            return None
        return refusal

    def _new_machine(self, column: int, offers: tuple[Offer, ...]) -> Machine:
        state = self._situation.state
        token = f"{state.run_id}-r{state.round_number}-{self._ordinal}"
        self._ordinal += 1
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

    def _by_real_rent(self, job: JobView, wanted: list[int]) -> list[int]:
        """Wanted columns by what the job would really pay, and cheaper ones if nobody shares.

        The plan counts a part of an instance at its part of the rent. A new instance is only worth
        its rent when the jobs still without a place fill it; otherwise the cheapest column that
        hosts the job alone in time (its reservation price) comes first. (Chang and
        Venkataraman, Eva, EuroSys 2025, section 4.)
        """
        row = self._situation.row(job.spec.name)
        deadline_at_s = self._situation.deadlines[job.spec.name]

        def usd_per_step(column: int) -> float:
            each = self._situation.columns[column]
            rate = float(self._situation.rates[row, column])
            return each.alone_usd_per_hour / self._companions(job, column) / rate

        def in_time(column: int) -> bool:
            if deadline_at_s is None:
                return True
            return self._finish_at_s(job, column, boots=True) <= deadline_at_s

        best = min(wanted, key=lambda each: (usd_per_step(each), each))
        limit = usd_per_step(best) * (1 - DEARER_SHARE)
        others = [
            each
            for each in self._situation.options(row)
            if each not in wanted
            and self._situation.columns[each].offers
            and usd_per_step(each) < limit
            and in_time(each)
        ]
        return [
            *sorted(others, key=lambda each: (usd_per_step(each), each)),
            *sorted(wanted, key=lambda each: (usd_per_step(each), each)),
        ]

    def _companions(self, job: JobView, column: int) -> int:
        """Jobs that would share a new instance of this column: this one and others unplaced."""
        each = self._situation.columns[column]
        if each.seats == 1:
            return 1
        others = sum(
            name != job.spec.name
            and name not in self._answer.placements
            and name not in self._answer.waits
            and (name in self._promised or name in self._promises.funded)
            and column in self._wants[name].columns
            for name in self._unplaced
        )
        return max(1, min(each.seats, 1 + others))

    # --- making room -------------------------------------------------------------------------

    def _make_room(self, job: JobView, columns: list[int]) -> None:
        """Save and stop as few less important jobs as free a quota for a promise.

        Candidates: jobs without a promise, jobs that the plan gives nothing now, and the job
        itself where its own machine is in the way of its rescue.
        """
        rank = self._rank(job.spec.name)
        victims = [
            name
            for name, placement in self._answer.placements.items()
            if placement.stays
            and self._rank(name) > rank
            and (name not in self._promised or not self._wants[name].columns)
            and self._situation.job(name).save_error is None
        ]
        victims.sort(key=self._rank, reverse=True)
        if self._situation.usable_place(job) and not job.save_error:
            victims.append(job.spec.name)
        for column in columns:
            each = self._situation.columns[column]
            for count in range(1, len(victims) + 1):
                freed = self._freed(victims[:count])
                for machine in freed:
                    self._room.take(machine.offer.offer_id, machine.usd_per_hour, -1)
                enough = any(
                    self._room.has(
                        offer.offer_id, offer.price_usd_per_hour or 0.0, each.instance_count
                    )
                    for offer in each.offers
                )
                for machine in freed:
                    self._room.take(machine.offer.offer_id, machine.usd_per_hour, 1)
                if enough:
                    for name in victims[:count]:
                        self._answer.placements.pop(name, None)
                        self._answer.stops[name] = f"it makes room for {job.spec.name}"
                    return

    def _freed(self, names: list[str]) -> list[Machine]:
        """Machines on which only these jobs sit."""
        leaving = set(names)
        return [
            each
            for each in self._machines.values()
            if not each.new and each.seats and set(each.seats) <= leaving
        ]

    # --- placing -----------------------------------------------------------------------------

    def _put(self, job: JobView, column: int, machines: list[Machine], reason: str) -> None:
        name = job.spec.name
        used = self._situation.columns[column].accelerators_used
        indices = machines[0].free(used) or ()
        for machine in machines:
            machine.seats[name] = indices
            machine.intended.add(name)
        self._answer.placements[name] = Placement(
            job=name,
            column=column,
            machine_ids=tuple(sorted(each.machine_id for each in machines)),
            indices=indices,
            stays=False,
            reason=reason,
        )


def stay_of(situation: Situation, machines: Mapping[str, Machine], job: JobView) -> Placement:
    """The placement of a job that stays on the usable machines it is on."""
    name = job.spec.name
    return Placement(
        job=name,
        column=situation.held[name],
        machine_ids=job.instance_ids,
        indices=machines[job.instance_ids[0]].seats.get(name, ()),
        stays=True,
        reason="it stays where it is",
    )


def stays_on_demand(situation: Situation, moves: Mapping[str, int]) -> dict[str, int]:
    """Jobs that stay on demand, or whose on-demand machine is on its way, with the column."""
    kept = {}
    for job in situation.jobs:
        if job.spec.name in moves:
            continue
        column = kept_on_demand(situation, job)
        if column is not None:
            kept[job.spec.name] = column
    return kept
