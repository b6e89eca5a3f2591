"""Spot under a deadline: who waits, who goes to spot, who goes on demand, by cost to the end.

The planning LP settles what jobs share (quotas, the spend rate, whole instances) and prices it.
With these prices on top each job with a deadline is weighed alone by the spot decision process
(``policies.spot.rounds``): it knows what was seen of each offer, what a change-over costs and how
much time there is to wait. Its verdict replaces the job's shares of the first interval. The guards
come after it and may overrule it.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from cloudgavel.jobs.lifecycle import JobPhase
from cloudgavel.mechanism.build_problem import PlannedDeadline
from cloudgavel.mechanism.change_over import restore_s, save_s, stop_s
from cloudgavel.mechanism.columns import Column, build_columns, rate_steps_per_s
from cloudgavel.mechanism.fleet import Instance, InstanceState
from cloudgavel.mechanism.guards.churn import may_be_moved
from cloudgavel.mechanism.guards.safety_net import (
    latest_on_demand_start_at_s,
    limits_of,
    machines_intended,
    on_demand_columns,
    stepping_s,
    units_of,
)
from cloudgavel.mechanism.reconcile import LEAST_UNSAVED_S
from cloudgavel.mechanism.situation import Situation, usd
from cloudgavel.mechanism.state import JobView
from cloudgavel.mechanism.wants import Want
from cloudgavel.policies.allocation import Allocation
from cloudgavel.policies.problem import FloatArray
from cloudgavel.policies.spot.rounds import OnDemandOffer, RoundJob, SpotOffer, decide_round
from cloudgavel.policies.spot.safety import RiskCap
from cloudgavel.policies.spot.tables import TableShelf
from cloudgavel.policies.spot.verdict import SpotVerdict
from cloudgavel.pricing.sightings import NOTHING_SEEN

CAP = RiskCap()
ALIKE_FACTOR = 1.05
"""Offers whose price for the same work is at most this many times the chosen one's are alike: the
place is chosen among them (room, seats that are free)."""
WORTH_SHARE = 0.95
"""Spot that costs more than this share of the cheapest on-demand for the same work is not worth
its risk."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Weighing:
    """What the spot decision process says in this round."""

    verdicts: Mapping[str, SpotVerdict] = field(default_factory=dict)
    wants: Mapping[str, Want] = field(default_factory=dict)
    """In place of the plan's, for the jobs it weighed."""
    leave: Mapping[str, int] = field(default_factory=dict)
    """Jobs that the cap on risk takes off spot, with the on-demand column they go to."""
    save_ahead: frozenset[str] = frozenset()
    """Jobs whose unsaved work the cap on risk cannot afford to lose."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A zone of a column, as the decision process names it."""

    name: str
    usd_per_hour: float
    column: int | None
    """``None`` = refused for the moment."""


def weigh_spot(
    situation: Situation,
    planned: Mapping[str, PlannedDeadline],
    wants: Mapping[str, Want],
    allocation: Allocation,
    shelf: TableShelf,
) -> Weighing:
    """Weigh every job that has a deadline, may go on now, and can use spot as well as on-demand.

    What the plan starts later for want of quota is left to the plan. Nobody is weighed where the
    policy gave no prices (``Allocation.extra_usd_per_hour``), or due times of its own, which are
    not about cost.
    """
    extra = allocation.extra_usd_per_hour
    if extra is None or allocation.due_s is not None:
        return Weighing()
    rows = [row for row, job in enumerate(situation.jobs) if _is_weighed(situation, job, planned)]
    rows = [
        row
        for row in rows
        if wants[situation.jobs[row].spec.name].columns
        or not wants[situation.jobs[row].spec.name].later
        or situation.jobs[row].instance_ids
    ]
    if rows:
        # Places have one price for all: what checkpoints cost on their way is that of the mean job.
        extra = extra + situation.traffic_usd_per_hour[rows].mean(axis=0)
    spot = _SpotPlaces(situation)
    fixed = _on_demand_places(situation)
    jobs = [
        job
        for row in rows
        if (job := _round_job(situation, row, spot, fixed)) is not None
        and any(name in job.steps_per_s for name in spot.by_name)
    ]
    if not jobs:
        return Weighing()
    used = {name for job in jobs for name in job.steps_per_s}
    verdicts = decide_round(
        jobs,
        [offer for offer in spot.offers(extra) if offer.offer_id in used],
        [
            OnDemandOffer(
                offer_id=place.name,
                usd_per_hour=place.usd_per_hour,
                extra_usd_per_hour=float(extra[place.column]),
            )
            for place in fixed.values()
            if place.column is not None and place.name in used
        ],
        now_s=situation.state.now_s,
        round_s=situation.state.round_s,
        shelf=shelf,
        cap=CAP,
    )
    asked = {job.name: job for job in jobs}
    weighing = _carried_out(situation, planned, spot, fixed, asked, verdicts)
    if _on_demand_for_all(situation, planned, fixed):
        return weighing
    # Machines on demand are scarce: who takes one, and when, is the plan's to say, or somebody
    # without haste would sit where another must be soon. Spot is still chosen job by job.
    return replace(
        weighing,
        wants={
            name: replace(want, waits_until_at_s=None, instead=wants[name].columns)
            for name, want in weighing.wants.items()
            if verdicts[name].hold == "spot"
        },
    )


def _on_demand_for_all(
    situation: Situation, planned: Mapping[str, PlannedDeadline], fixed: Mapping[int, _Place]
) -> bool:
    """Whether quotas and the spend rate let every job with a deadline go on demand at once, each
    on the column that takes most, beside all that lives.
    """
    state = situation.state
    limits = limits_of(state)
    if not limits:
        return True
    used = dict.fromkeys(limits, 0.0)
    for machine in state.instances:
        for name, units in units_of(
            state, machine.offer.offer_id, machine.price_usd_per_hour
        ).items():
            used[name] += units
    for job in situation.jobs:
        if job.spec.name not in planned:
            continue
        most: dict[str, float] = {}
        for index in situation.options(situation.row(job.spec.name)):
            if index in fixed:
                column = situation.columns[index]
                rent = column.pool.price_usd_per_hour
                for name, units in units_of(state, column.pool.offer_id, rent).items():
                    most[name] = max(most.get(name, 0.0), units * column.instance_count)
        for name, units in most.items():
            used[name] += units
    return all(used[name] <= limits[name] for name in limits)


def _is_weighed(situation: Situation, job: JobView, planned: Mapping[str, PlannedDeadline]) -> bool:
    name = job.spec.name
    return (
        name in planned
        and job.release_at_s <= situation.state.now_s
        and not job.waits_for
        and not job.spec.spot_only
        and not job.stopping
        and bool(on_demand_columns(situation, situation.row(name)))
    )


class _SpotPlaces:
    """Spot offers with a gang each: those of the columns, and those refused for the moment."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self.by_name: dict[str, tuple[_Place, Column, str]] = {}
        """Place, its column, and the catalogue's offer id, by name."""
        for index, column in enumerate(situation.columns):
            if column.spot:
                for offer in column.offers or (column.sample,):
                    rent = offer.price_usd_per_hour or column.pool.price_usd_per_hour
                    self._add(column, offer.offer_id, rent, situation.usd_per_hour(index), index)
        state = situation.state
        blocked = {
            each.offer_id
            for each in state.blocked
            if each.until_s > state.now_s and each.for_capacity
        }
        if not blocked:
            return
        asked = replace(
            state, blocked=tuple(each for each in state.blocked if not each.for_capacity)
        )
        for column in build_columns(asked, situation.jobs):
            for offer in column.offers if column.spot else ():
                if offer.offer_id in blocked:
                    fitting = sum(
                        rate_steps_per_s(job, column) is not None for job in situation.jobs
                    )
                    shared = column.alone_usd_per_hour / max(1, min(column.seats, fitting))
                    rent = offer.price_usd_per_hour or column.pool.price_usd_per_hour
                    self._add(column, offer.offer_id, rent, shared, None)

    def _add(
        self, column: Column, offer_id: str, rent: float, shared: float, index: int | None
    ) -> None:
        name = place_name(offer_id, column.pool.gang_size)
        if name not in self.by_name and _ever_has_room(self._situation, column, offer_id):
            price = shared * rent / max(column.pool.price_usd_per_hour, 1e-9)
            self.by_name[name] = (_Place(name, price, index), column, offer_id)

    def rates(self, row: int) -> Iterator[tuple[str, float]]:
        """Names and steps/s of the places that a job can use."""
        job = self._situation.jobs[row]
        held = self._situation.held.get(job.spec.name)
        for name, (place, column, _) in self.by_name.items():
            if not column.offers and place.column != held:
                # Only what runs there already has it.
                continue
            if place.column is not None:
                rate = float(self._situation.rates[row, place.column])
            else:
                known = rate_steps_per_s(job, column)
                rate = math.nan if known is None else known
            if math.isfinite(rate):
                yield name, rate

    def offers(self, extra: FloatArray) -> Iterator[SpotOffer]:
        """As the decision process knows them."""
        seen = self._situation.state.spot_seen
        for name, (place, column, offer_id) in self.by_name.items():
            sample = column.sample
            yield SpotOffer(
                offer_id=name,
                usd_per_hour=place.usd_per_hour,
                available=place.column is not None,
                sightings=seen.get(offer_id, NOTHING_SEEN).seen,
                extra_usd_per_hour=0.0 if place.column is None else float(extra[place.column]),
                interruption_rate_per_hour=sample.interruption_rate_per_hour,
                siblings=f"{sample.provider}/{sample.region}/{sample.instance_type}",
            )


def _ever_has_room(situation: Situation, column: Column, offer_id: str) -> bool:
    """Whether the limits would allow one job there if nothing else were rented."""
    state = situation.state
    limits = limits_of(state)
    needs = units_of(state, offer_id, column.pool.price_usd_per_hour)
    return all(
        units * column.instance_count <= limits[name] * (1 + 1e-9) for name, units in needs.items()
    )


def place_name(offer_id: str, gang_size: int) -> str:
    """Name of an offer with a gang: as a pool's label."""
    return f"{offer_id}*{gang_size}"


def _on_demand_places(situation: Situation) -> dict[int, _Place]:
    """On-demand columns that can be asked for, by index."""
    return {
        index: _Place(column.pool.label, situation.usd_per_hour(index), index)
        for index, column in enumerate(situation.columns)
        if not column.spot and column.offers
    }


def _round_job(
    situation: Situation, row: int, spot: _SpotPlaces, fixed: Mapping[int, _Place]
) -> RoundJob | None:
    job = situation.jobs[row]
    name = job.spec.name
    state = situation.state
    deadline_at_s = situation.deadlines[name]
    if deadline_at_s is None:
        return None
    held_column = situation.held.get(name, -1)
    rates: dict[str, float] = {}
    starts = []
    least = math.inf
    for index, place in fixed.items():
        if math.isfinite(situation.rates[row, index]):
            rates[place.name] = float(situation.rates[row, index])
            starts.append(situation.columns[index].boot_s)
            least = min(least, place.usd_per_hour / rates[place.name])
    for each, rate in spot.rates(row):
        place, column, _ = spot.by_name[each]
        if place.usd_per_hour / rate <= WORTH_SHARE * least or place.column == held_column:
            rates[each] = rate
            starts.append(column.boot_s)
    held, pending_s = _held(situation, job, spot)
    changeover_s = max(starts) + restore_s(job)
    steps = float(job.steps_left if name in situation.held else job.steps_left_if_moved)
    # Saves in between take time wherever it runs.
    steps *= stepping_s(job, 1.0, 1.0)
    rules = state.rules
    slow_s = (rules.change_over_quantile - 1) * changeover_s + 2 * rules.wake_lag_s
    slow_s += stop_s(job, rules) if job.instance_ids else 0.0
    return RoundJob(
        name=name,
        steps_left=steps,
        steps_total=float(job.spec.steps_total) * stepping_s(job, 1.0, 1.0),
        steps_per_s=rates,
        deadline_left_s=deadline_at_s - state.now_s - slow_s,
        changeover_s=changeover_s,
        spent_usd=job.spent_usd + job.idle_usd,
        held=held,
        pending_s=pending_s,
        lost_work_s=state.round_s,
    )


def _held(situation: Situation, job: JobView, spot: _SpotPlaces) -> tuple[str | None, float]:
    """The place where a job is or that is getting ready for it, and the rest of its change-over."""
    state = situation.state
    column = situation.held.get(job.spec.name)
    if column is not None:
        since_s = state.now_s if job.placed_at_s is None else job.placed_at_s
        pending_s = 0.0
        if job.phase is JobPhase.STARTING:
            pending_s = max(0.0, restore_s(job) - (state.now_s - since_s))
        machine = situation.instances[job.instance_ids[0]]
        return _name_of(situation, machine, column, spot), pending_s
    coming = machines_intended(situation, job)
    if not coming or job.instance_ids:
        return None, 0.0
    machine = coming[0]
    for index in situation.options(situation.row(job.spec.name)):
        each = situation.columns[index].sample
        if (
            each.instance_type == machine.offer.instance_type
            and each.provider == machine.offer.provider
            and each.capacity_type is machine.offer.capacity_type
        ):
            return _name_of(situation, machine, index, spot), _boots_s(situation, machine) + (
                restore_s(job)
            )
    return None, 0.0


def _boots_s(situation: Situation, machine: Instance) -> float:
    if machine.state is InstanceState.READY:
        return 0.0
    ready_at_s = machine.expected_ready_at_s
    if ready_at_s is None:
        ready_at_s = machine.launched_at_s + situation.state.boot_s_by_offer.get(
            machine.offer.offer_id, situation.state.rules.boot_s
        )
    return max(0.0, ready_at_s - situation.state.now_s)


def _name_of(situation: Situation, machine: Instance, column: int, spot: _SpotPlaces) -> str:
    pool = situation.columns[column].pool
    name = place_name(machine.offer.offer_id, pool.gang_size)
    return name if name in spot.by_name else pool.label


def _carried_out(
    situation: Situation,
    planned: Mapping[str, PlannedDeadline],
    spot: _SpotPlaces,
    fixed: Mapping[int, _Place],
    jobs: Mapping[str, RoundJob],
    verdicts: Mapping[str, SpotVerdict],
) -> Weighing:
    """Verdicts as wants; a verdict that the margin forbids is replaced by the next best."""
    wants: dict[str, Want] = {}
    leave: dict[str, int] = {}
    save_ahead: set[str] = set()
    found: dict[str, SpotVerdict] = {}
    by_label = {place.name: index for index, place in fixed.items()}
    for name, verdict in verdicts.items():
        job, asked = situation.job(name), jobs[name]
        until_at_s = _waits_until_at_s(situation, planned[name], asked, verdict)
        if verdict.hold == "wait" and until_at_s <= situation.state.now_s:
            verdict = _without_waiting(verdict)
        found[name] = _as_held(asked, verdict, spot)
        held = situation.held.get(name)
        if held is not None and situation.columns[held].spot:
            risk = _risk(situation, job, asked, verdict, by_label)
            if risk is _Risk.SAVE:
                save_ahead.add(name)
            elif risk is _Risk.LEAVE and may_be_moved(job):
                leave[name] = by_label[verdict.on_demand_offer_id]
        wants[name] = _want(situation, job, asked, spot, by_label, verdict, held, until_at_s)
    return Weighing(verdicts=found, wants=wants, leave=leave, save_ahead=frozenset(save_ahead))


def _waits_until_at_s(
    situation: Situation, planned: PlannedDeadline, asked: RoundJob, verdict: SpotVerdict
) -> float:
    """Until when it may hold nothing: the margin that plans keep free is not waited away."""
    state = situation.state
    latest = latest_on_demand_start_at_s(situation, asked.name)
    work_s = asked.steps_left / asked.steps_per_s[verdict.on_demand_offer_id]
    margin_at_s = planned.at_s - asked.changeover_s - work_s
    net_at_s = math.inf if latest is None else latest
    return min(margin_at_s, net_at_s) - state.round_s - state.rules.wake_lag_s


def _as_held(asked: RoundJob, verdict: SpotVerdict, spot: _SpotPlaces) -> SpotVerdict:
    """What is told: waiting is for those who hold nothing; what is held, or comes, goes on."""
    if verdict.hold != "wait" or asked.held is None:
        return verdict
    hold = "spot" if asked.held in spot.by_name else "on_demand"
    return replace(verdict, hold=hold, offer_id=asked.held)


def _without_waiting(verdict: SpotVerdict) -> SpotVerdict:
    best = min(verdict.spot_usd, key=lambda each: (verdict.spot_usd[each], each), default=None)
    if best is not None and verdict.spot_usd[best] <= verdict.on_demand_usd:
        return replace(verdict, hold="spot", offer_id=best, wait_usd=None)
    return replace(verdict, hold="on_demand", offer_id=verdict.on_demand_offer_id, wait_usd=None)


class _Risk(Enum):
    """What the cap on risk asks of a job on spot."""

    NONE = auto()
    SAVE = auto()
    LEAVE = auto()


def _risk(
    situation: Situation,
    job: JobView,
    asked: RoundJob,
    verdict: SpotVerdict,
    by_label: Mapping[str, int],
) -> _Risk:
    """Whether the worst outcome of one more round on spot keeps under the cap.

    At worst the round's rent buys no more than what is beyond one round of on-demand's work,
    unsaved work is lost, and on-demand does the rest: the same rule by which spot was chosen, so
    that nothing is begun in order to be left.
    """
    state = situation.state
    column = by_label[verdict.on_demand_offer_id]
    here = situation.held[job.spec.name]
    price = situation.columns[column].alone_usd_per_hour
    cap_usd = verdict.cap_usd * price / max(situation.usd_per_hour(column), 1e-9)
    pace = asked.steps_per_s[verdict.on_demand_offer_id]
    left_s = asked.steps_left / pace
    ends_s = asked.steps_left / float(situation.rates[situation.row(job.spec.name), here])
    if ends_s <= state.round_s:
        return _Risk.NONE
    unsaved_s = max(0, job.steps_done - job.saved_steps) / pace
    rent_usd = usd(situation.place_usd_per_hour(job), state.round_s + state.rules.wake_lag_s)
    faster_s = state.round_s * max(0.0, left_s / max(ends_s, 1e-9) - 1) - asked.pending_s
    left_s -= max(0.0, faster_s)
    saved_usd = asked.spent_usd + rent_usd + usd(price, left_s + asked.changeover_s)
    if saved_usd > cap_usd and asked.held not in verdict.spot_usd:
        return _Risk.LEAVE
    if saved_usd + usd(price, unsaved_s + state.round_s) <= cap_usd:
        return _Risk.NONE
    return _Risk.SAVE if unsaved_s >= max(LEAST_UNSAVED_S, 2 * save_s(job)) else _Risk.NONE


def _want(
    situation: Situation,
    job: JobView,
    asked: RoundJob,
    spot: _SpotPlaces,
    by_label: Mapping[str, int],
    verdict: SpotVerdict,
    held: int | None,
    until_at_s: float,
) -> Want:
    """The columns that a verdict asks for, best first, and what to do where they have no room."""
    waits = verdict.wait_usd is not None and verdict.wait_usd <= verdict.on_demand_usd
    if verdict.hold == "wait":
        if held is not None:
            # What runs goes on: waiting is for those who have no place.
            return Want(columns=(held,), later=True)
        return Want(columns=(), later=True, waits_until_at_s=until_at_s)
    on_demand = _on_demand_in_time(situation, job, asked, by_label[verdict.on_demand_offer_id])
    if verdict.hold == "on_demand":
        return Want(columns=on_demand, later=True)
    limit = verdict.on_demand_usd
    if verdict.wait_usd is not None:
        limit = min(limit, verdict.wait_usd)
    alike = ALIKE_FACTOR * _usd_per_step(spot, asked, verdict.offer_id or "")
    better = [
        each
        for each, cost in verdict.spot_usd.items()
        if cost <= limit and _usd_per_step(spot, asked, each) <= alike
    ]
    better.sort(key=lambda each: (each != verdict.offer_id, verdict.spot_usd[each], each))
    columns = dict.fromkeys(spot.by_name[each][0].column for each in better)
    return Want(
        columns=tuple(each for each in columns if each is not None),
        later=True,
        waits_until_at_s=until_at_s if waits else None,
        instead=() if waits else on_demand,
    )


def _on_demand_in_time(
    situation: Situation, job: JobView, asked: RoundJob, first: int
) -> tuple[int, ...]:
    """The fall-back, and the other on-demand columns that are in time, cheapest per step first."""
    row = situation.row(job.spec.name)
    others = [
        each
        for each in on_demand_columns(situation, row)
        if each != first
        and asked.steps_left / situation.rates[row, each] + asked.changeover_s
        <= asked.deadline_left_s
    ]
    others.sort(key=lambda each: (situation.usd_per_hour(each) / situation.rates[row, each], each))
    return (first, *others)


def _usd_per_step(spot: _SpotPlaces, asked: RoundJob, name: str) -> float:
    return spot.by_name[name][0].usd_per_hour / asked.steps_per_s[name]
