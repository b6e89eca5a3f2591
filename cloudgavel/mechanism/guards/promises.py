"""Which deadlines are promised, which of them are paid for in the worst case, which must go.

Held promises need at least their *expected* cost (cheapest way expected to be in time). In order
of weight they also get their *worst-case* cost (``claims``) as far as the money goes: these are
covered, and stay so. A promise is released, least weight first, only when not even the expected
costs fit in the money left, or when no machine at all could be in time any more.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cloudgavel.mechanism.change_over import boot_s, restore_s, stop_s
from cloudgavel.mechanism.checkpoint_costs import (
    expected_usd_per_hour,
    interval_s,
    traffic_to_come,
)
from cloudgavel.mechanism.guards.claims import claim_in, is_safe, restart_claim, safe_span_s
from cloudgavel.mechanism.guards.safety_net import on_demand_columns, stepping_s
from cloudgavel.mechanism.situation import Situation, usd
from cloudgavel.mechanism.state import ClusterState, JobView
from cloudgavel.policies.allocation import RelaxedPromise
from cloudgavel.pricing.interruption import expected_lost_work_s
from cloudgavel.units import HOUR_S

DOUBT_SHARE = 0.1
"""A job without a promise starts only when the money exceeds its expected cost by this share, and
goes on as long as it does not fall short: small changes stop and start nothing."""
NEAR_S = 1.0
"""Lateness below this is rounding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """One job in one column from now to its end."""

    column: int
    seconds: float
    usd: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Promises:
    """The standing of every deadline at this decision."""

    held: tuple[str, ...]
    """By falling weight."""
    covered: frozenset[str]
    covered_before: frozenset[str]
    """Those that the last decision covered, and what they come after."""
    released: Mapping[str, RelaxedPromise]
    """Released by this decision."""
    wished: frozenset[str]
    """Released now or earlier, but aimed at because money is left for them."""
    funded: frozenset[str]
    """Jobs without a promise that the money left pays for to the end."""
    partial: str | None
    """The one job beyond these that may go as far as ``partial_usd`` goes."""
    partial_usd: float
    expected_usd: Mapping[str, float]
    """Of every job: cheapest way expected to be in time (of those without a deadline: of all)."""
    worst_usd: Mapping[str, float]
    """Of held promises: what they claim at worst to be finished on demand."""
    measured: frozenset[str]
    """Held promises that rest on measured or given throughputs."""
    top_up_left_usd: float
    """Money left when the expected cost of everything held and the top-ups are put aside."""

    @property
    def needs_usd(self) -> float:
        """What is put aside for the held promises."""
        return math.fsum(
            max(self.worst_usd.get(name, 0.0), self.expected_usd[name])
            if name in self.covered
            else self.expected_usd[name]
            for name in self.held
        )

    @property
    def reserve_usd(self) -> float:
        """On-demand money of the covered promises."""
        return math.fsum(self.worst_usd[name] for name in self.held if name in self.covered)


def expected_way(situation: Situation, row: int, column: int) -> Way:
    """Expected time and cost of a job in one column until its end, interruptions included."""
    known = situation.memo.get((row, column))
    if known is not None:
        assert isinstance(known, Way)
        return known
    job = situation.jobs[row]
    each = situation.columns[column]
    held = situation.held.get(job.spec.name) == column
    steps = job.steps_left if held else job.steps_left_if_moved
    start_s = 0.0 if held else each.boot_s + restore_s(job)
    work_s = stepping_s(job, float(situation.rates[row, column]), steps)
    hazard = each.pool.interruption_rate_per_hour
    if hazard > 0:
        between_s = interval_s(situation.state, job, each)
        lost_s = each.boot_s + restore_s(job) + expected_lost_work_s(hazard, between_s)
        work_s *= 1 + hazard * lost_s / HOUR_S
    rent = situation.place_usd_per_hour(job) if held else situation.usd_per_hour(column)
    rent += expected_usd_per_hour(situation.state, job, each)
    way = Way(column=column, seconds=start_s + work_s, usd=usd(rent, start_s + work_s))
    situation.memo[row, column] = way
    return way


def expected_cost(situation: Situation, row: int, deadline_at_s: float | None) -> float:
    """Expected cost of the cheapest way to the end that is expected to be in time.

    A mix of spot first and on demand later counts where spot alone is too slow. Where nothing is
    in time: the cost of the fastest way.
    """
    ways = [expected_way(situation, row, each) for each in situation.options(row)]
    if deadline_at_s is None:
        return min(way.usd for way in ways)
    left_s = deadline_at_s - situation.state.now_s
    in_time = [way for way in ways if way.seconds <= left_s]
    if not in_time:
        return min(ways, key=lambda way: (way.seconds, way.column)).usd
    best = min(way.usd for way in in_time)
    steady = min(in_time, key=lambda way: (way.usd, way.column))
    for slow in ways:
        if slow.seconds > left_s and slow.usd < best:
            # The part of the work that leaves just enough time for the rest in the other column.
            share = (left_s - steady.seconds) / (slow.seconds - steady.seconds)
            best = min(best, share * slow.usd + (1 - share) * steady.usd)
    return best


def worst_cost(situation: Situation, row: int) -> float | None:
    """What the job claims at worst to be finished on demand; ``None`` where nothing can be had so.

    What runs on demand goes on; else a fresh start from the last checkpoint after the next
    decision (see ``claims``).
    """
    job = situation.jobs[row]
    state = situation.state
    if is_safe(situation, job):
        held = situation.held[job.spec.name]
        here = situation.columns[held]
        saves = traffic_to_come(state, job, here, machines=0)
        per_hour = here.alone_usd_per_hour + saves.usd_per_hour
        return usd(per_hour, safe_span_s(situation, job, held)) + saves.once_usd
    claim = restart_claim(situation, row, next_decision_at_s(state))
    return None if claim is None else claim.usd


def next_decision_at_s(state: ClusterState) -> float:
    """When the next decision comes at the latest."""
    return state.now_s + state.round_s + state.rules.wake_lag_s


def _at_stake_usd(situation: Situation, row: int) -> float:
    """Rent that may bring no progress before a spot machine has earned its first checkpoint.

    Only who has this on top of its claim is newly covered, or the first setback would already
    send it on demand.
    """
    job = situation.jobs[row]
    if is_safe(situation, job):
        return 0.0
    rules = situation.state.rules
    lost_s = situation.state.round_s + rules.wake_lag_s + rules.terminate_confirm_s
    lost_s += stop_s(job, rules) + restore_s(job) + job.save_every_s
    if job.instance_ids:
        rent = sum(
            situation.instances[each].price_usd_per_hour
            for each in job.instance_ids
            if each in situation.instances
        )
    else:
        rent = min(situation.columns[each].alone_usd_per_hour for each in situation.options(row))
        lost_s += situation.state.rules.boot_s
    return usd(rent * (1 + rules.price_rise_share), lost_s)


def least_boots_s(state: ClusterState) -> dict[str, float]:
    """By accelerator: the shortest expected boot of an offer with a price, blocked ones too."""
    least: dict[str, float] = {}
    for offer in state.offers:
        if offer.price_usd_per_hour is not None:
            span_s = boot_s(state, offer)
            least[offer.accelerator] = min(span_s, least.get(offer.accelerator, math.inf))
    return least


def hopeless_by_s(situation: Situation, row: int, boots_s: Mapping[str, float]) -> float:
    """How late the job is at least, on whatever machine; 0 or less = it can still be in time.

    Expected change-overs, no interruption, quotas ignored, offers that are blocked now included.
    ``boots_s``: ``least_boots_s`` of the state.
    """
    job = situation.jobs[row]
    deadline_at_s = situation.deadlines[job.spec.name]
    if deadline_at_s is None:
        return -math.inf
    begin_at_s = max(situation.state.now_s, job.release_at_s)
    held = situation.held.get(job.spec.name)
    finishes = []
    if held is not None:
        rate = job.throughput_steps_per_s[situation.columns[held].request.label]
        finishes.append(situation.state.now_s + job.steps_left / rate)
    for request in job.spec.accelerators:
        rate_known = job.throughput_steps_per_s.get(request.label)
        boot = boots_s.get(request.accelerator)
        if rate_known is None or boot is None or request.accelerator in job.excluded:
            continue
        start_s = boot + restore_s(job)
        finishes.append(begin_at_s + start_s + job.steps_left_if_moved / rate_known)
    return min(finishes, default=math.inf) - deadline_at_s


def weigh_promises(situation: Situation, money_usd: float | None) -> Promises:
    """Decide which promises are held, covered, released; ``money_usd`` ``None`` = no budget."""
    deadlines = situation.deadlines
    expected = {
        job.spec.name: expected_cost(situation, row, deadlines[job.spec.name])
        for row, job in enumerate(situation.jobs)
    }
    released: dict[str, RelaxedPromise] = {}
    held: list[str] = []
    asked = [job for job in situation.jobs if job.deadline_at_s is not None]
    boots_s = least_boots_s(situation.state)
    for job in asked:
        if job.promise_released:
            continue
        late_s = hopeless_by_s(situation, situation.row(job.spec.name), boots_s)
        if late_s > NEAR_S:
            released[job.spec.name] = RelaxedPromise(
                job=job.spec.name,
                promise="deadline",
                by_s=late_s if math.isfinite(late_s) else None,
                reason="no machine it may use can finish it in time",
            )
        else:
            held.append(job.spec.name)
    # An order that does not change as costs do, so that what is covered stays ahead.
    held.sort(key=lambda name: (-situation.job(name).spec.weight, deadlines[name] or 0.0, name))
    money = math.inf if money_usd is None else max(0.0, money_usd)
    carried = _with_predecessors(situation, held)
    total = math.fsum(expected[name] for name in carried)
    kept = {name for name in held if situation.job(name).covered}
    kept = set(_with_predecessors(situation, [each for each in held if each in kept]))
    while total > money + 1e-9:
        # What is covered has its money put aside: others go first, and it is not released here.
        name = next((each for each in reversed(held) if each not in kept), None)
        if name is None:
            break
        held.remove(name)
        missing = total - money
        carried = _with_predecessors(situation, held)
        total = math.fsum(expected[each] for each in carried)
        released[name] = RelaxedPromise(
            job=name,
            promise="deadline",
            by_usd=missing,
            reason=(
                f"the expected cost of what is promised exceeds the money left by ${missing:.2f}; "
                "it has the least weight"
            ),
        )
    worst: dict[str, float] = {}
    covered: set[str] = set()
    measured: set[str] = set()
    # Stops, ends and slow boots bring no progress: what is covered must survive them too.
    idle_usd = math.fsum(
        least_cost_to_end_usd(situation, job.spec.name) - _least_usd(situation, job.spec.name)
        for job in situation.jobs
        if job.spec.name in carried or job.instance_ids
    )
    left = money - total - idle_usd
    short = False
    # Who is covered already comes first: its money is not given to others any more.
    for name in sorted(carried, key=lambda each: each not in kept):
        if deadlines[name] is None:
            continue
        row = situation.row(name)
        job = situation.job(name)
        if not _rests_on_estimates(situation, row, job):
            measured.add(name)
        cost = worst_cost(situation, row)
        if cost is None or job.spec.spot_only:
            short = short or (math.isfinite(money) and name not in kept)
            continue
        worst[name] = cost
        top_up = max(0.0, cost - expected[name])
        if name in kept:
            left -= top_up
            covered.add(name)
            continue
        before = {each for each in job.waits_for if each in situation.rows}
        stake = _at_stake_usd(situation, row) if math.isfinite(money) else 0.0
        # In order of weight without gaps: when spot vanishes, promises are released from the end.
        if (
            not short
            and before <= covered
            and name in measured
            and top_up + stake <= left + 1e-9
            and _limits_allow(situation, job, cost + stake)
        ):
            left -= top_up
            covered.add(name)
        else:
            short = short or math.isfinite(money)
    funded, partial, partial_usd = _fund(situation, carried, expected, max(0.0, left))
    wished = frozenset(job.spec.name for job in asked if job.spec.name in funded)
    return Promises(
        held=tuple(carried),
        covered=frozenset(covered),
        covered_before=frozenset(kept & covered),
        released=released,
        wished=wished,
        funded=frozenset(funded),
        partial=partial,
        partial_usd=partial_usd,
        expected_usd=expected,
        worst_usd=worst,
        measured=frozenset(measured),
        top_up_left_usd=left,
    )


def _fund(
    situation: Situation,
    held: Collection[str],
    expected: Mapping[str, float],
    money_usd: float,
) -> tuple[set[str], str | None, float]:
    """Jobs without a promise that the money left pays for to the end, in order of weight.

    Running jobs before waiting ones and cheap before dear ones of the same weight, so that what
    money there is finishes jobs rather than starting all of them. Also the first that is not paid
    for, which may go as far as the rest of the money, and that rest.
    """
    funded: set[str] = set()
    partial: str | None = None
    others = [job for job in situation.jobs if job.spec.name not in held]
    others.sort(
        key=lambda job: (
            -job.spec.weight,
            not job.instance_ids,
            expected[job.spec.name],
            job.spec.name,
        )
    )
    for job in others:
        name = job.spec.name
        if set(job.waits_for) & set(situation.rows) - funded - set(held):
            continue
        needed_usd = least_cost_to_end_usd(situation, name)
        doubt = 1.0 if job.instance_ids else 1 + DOUBT_SHARE
        if needed_usd * doubt <= money_usd:
            money_usd = max(0.0, money_usd - needed_usd)
            funded.add(name)
        elif partial is None and not job.waits_for:
            partial = name
    return funded, partial, money_usd


def least_cost_to_end_usd(situation: Situation, name: str) -> float:
    """Expected cost to the end, the machine's end included: where it is, or on its own anywhere."""
    held = situation.held.get(name)
    if held is not None:
        return cost_to_end_usd(situation, name, held)
    options = situation.options(situation.row(name))
    return min(cost_to_end_usd(situation, name, each) for each in options)


def _least_usd(situation: Situation, name: str) -> float:
    """Expected cost on its own, ends and slow boots left out."""
    row = situation.row(name)
    held = situation.held.get(name)
    if held is not None:
        return expected_way(situation, row, held).usd
    return min(
        usd(
            situation.columns[each].alone_usd_per_hour,
            expected_way(situation, row, each).seconds,
        )
        for each in situation.options(row)
    )


def cost_to_end_usd(situation: Situation, name: str, column: int) -> float:
    """Expected cost of a job until the end of its machine is confirmed, nobody sharing a new one.

    A new machine's boot and restore count at their high quantile.
    """
    job = situation.job(name)
    rules = situation.state.rules
    way = expected_way(situation, situation.row(name), column)
    end_s = rules.terminate_confirm_s + stop_s(job, rules) + rules.wake_lag_s
    if situation.held.get(name) == column:
        return way.usd + usd(situation.place_usd_per_hour(job), end_s)
    each = situation.columns[column]
    slow_s = (each.boot_s + restore_s(job)) * (rules.change_over_quantile - 1)
    traffic = usd(expected_usd_per_hour(situation.state, job, each), way.seconds)
    return usd(each.alone_usd_per_hour, way.seconds + slow_s + end_s) + traffic


def _with_predecessors(situation: Situation, held: Sequence[str]) -> list[str]:
    """Held promises in order of weight, each once and after what it comes after."""
    found: dict[str, None] = {}

    def add(name: str, above: frozenset[str]) -> None:
        if name in found or name in above:
            return
        for before in situation.job(name).waits_for:
            if before in situation.rows:
                add(before, above | {name})
        found[name] = None

    for name in held:
        add(name, frozenset())
    return list(found)


def _limits_allow(situation: Situation, job: JobView, cost_usd: float) -> bool:
    """Whether the job's own ``max_cost`` and ``max_duration`` cannot end it before its deadline."""
    deadline_at_s = situation.deadlines[job.spec.name]
    if job.spec.max_cost_usd is not None and job.spent_usd + cost_usd > job.spec.max_cost_usd:
        return False
    if job.spec.max_duration_s is None or deadline_at_s is None:
        return True
    begin_at_s = job.started_at_s
    if begin_at_s is None:
        begin_at_s = max(situation.state.now_s, job.release_at_s)
    return deadline_at_s <= begin_at_s + job.spec.max_duration_s


def _rests_on_estimates(situation: Situation, row: int, job: JobView) -> bool:
    """Whether no way on demand at a given or measured rate keeps the deadline."""

    def is_estimated(column: int) -> bool:
        return situation.columns[column].request.label in job.estimated

    if not any(is_estimated(each) for each in situation.options(row)):
        return False
    if is_safe(situation, job):
        return is_estimated(situation.held[job.spec.name])
    start_at_s = next_decision_at_s(situation.state)
    return not any(
        not is_estimated(each) and claim_in(situation, row, each, start_at_s).in_time
        for each in on_demand_columns(situation, row)
    )
