"""The covering as an integer program (columns and rows; see ``covering`` for the meaning).

| symbol | meaning |
|---|---|
| x_o | an option of a job (where it goes) is taken |
| d_j | a job that must progress is left out, at a price above any place |
| z_l | live instance l is kept |
| e_l | live instance l goes whole to a gang that comes to it |
| u_r, v_r | new instances of offer r that are shared, or taken whole |
| z_rn | n-th new instance of offer r is rented (exact model; z_rn >= z_r,n+1) |
"""

import math
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sparse

from cloudgavel.policies.cover_request import (
    CoverCandidate,
    CoverJob,
    CoverOffer,
    CoverRequest,
    LiveInstance,
)
from cloudgavel.policies.cover_screen import promising_candidates
from cloudgavel.policies.problem import FloatArray
from cloudgavel.policies.solve import LinearProgram

LIVE_PLACES_IN_LARGE_MODELS = 3
TIE_BONUS_SHARE = 1e-3
"""Of an optional job's value: breaking even means run."""
LEFT_OUT_FACTOR = 20.0


@dataclass(frozen=True, kw_only=True)
class Option:
    """One way to place one job: a column."""

    column: int
    job: CoverJob
    candidate: CoverCandidate
    live: tuple[str, ...] = ()
    new_number: int | None = None
    exclusive: bool = False
    instance_count: int = 1
    stays: bool = False


@dataclass(frozen=True, kw_only=True)
class CoverModel:
    """The program with the meaning of its columns."""

    program: LinearProgram
    options: tuple[Option, ...]
    live_exclusive: dict[str, int]
    """Instance id -> column of e_l."""
    shared_columns: dict[str, int]
    """Offer id -> column of u_r (large model)."""
    unplaceable: dict[str, str]
    """Jobs without any option, and why."""
    is_exact: bool
    left_out_columns: dict[str, int]
    """Job that must progress -> column of d_j."""

    def left_out(self, values: FloatArray | None) -> frozenset[str]:
        """Jobs that must progress and have no place in an answer."""
        if values is None:
            return frozenset()
        return frozenset(job for job, at in self.left_out_columns.items() if values[at] > 0.5)

    def shared_count(self, values: FloatArray) -> dict[str, int]:
        """New shared instances by offer (large model)."""
        return {key: round(float(values[at])) for key, at in self.shared_columns.items()}


@dataclass
class _Rows:
    """Columns and rows as they are written."""

    cost: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)
    at: list[tuple[int, int, float]] = field(default_factory=list)

    def column(self, cost: float, upper: float = 1.0, lower: float = 0.0) -> int:
        self.cost.append(cost)
        self.upper.append(upper)
        self.lower.append(lower)
        return len(self.cost) - 1

    def row(self, entries: list[tuple[int, float]], low: float, high: float) -> None:
        number = len(self.row_lower)
        self.row_lower.append(low)
        self.row_upper.append(high)
        self.at.extend((number, column, value) for column, value in entries if value)

    def program(self) -> LinearProgram:
        rows, columns, values = zip(*self.at, strict=True) if self.at else ((), (), ())
        shape = (len(self.row_lower), len(self.cost))
        return LinearProgram(
            cost=np.array(self.cost, dtype=np.float64),
            matrix=sparse.coo_matrix((values, (rows, columns)), shape=shape).tocsc(),
            row_lower=np.array(self.row_lower, dtype=np.float64),
            row_upper=np.array(self.row_upper, dtype=np.float64),
            lower=np.array(self.lower, dtype=np.float64),
            upper=np.array(self.upper, dtype=np.float64),
            integer=np.ones(len(self.cost), dtype=bool),
        )


def build_cover_model(
    request: CoverRequest,
    *,
    exact: bool,
    binaries_up_to: int | None = None,
    all_places_of: frozenset[str] = frozenset(),
) -> CoverModel | None:
    """Write the program down; ``None`` if the exact one would have too many options.

    Large models keep every place of the jobs in ``all_places_of``, and of the others those that
    the screening finds promising.
    """
    offers = {offer.offer_id: offer for offer in request.offers}
    live_by_offer: dict[str, list[LiveInstance]] = {}
    for live in sorted(request.live, key=lambda one: one.instance_id):
        live_by_offer.setdefault(live.offer_id, []).append(live)
    jobs = sorted(request.jobs, key=lambda job: job.name)
    fitting = {job.name: _fitting(job, offers) for job in jobs}
    if not exact:
        promising = promising_candidates(request, jobs, fitting, offers)
        fitting = {
            name: found if name in all_places_of else promising[name]
            for name, found in fitting.items()
        }
    sharers: dict[str, int] = {}
    for job in jobs:
        shared = {c.offer_id for c in fitting[job.name] if not _exclusive(c, offers[c.offer_id])}
        for offer_id in shared:
            sharers[offer_id] = sharers.get(offer_id, 0) + 1
    if exact and binaries_up_to is not None:
        size = sum(
            1
            if _exclusive(c, offers[c.offer_id])
            else sharers[c.offer_id] + len(live_by_offer.get(c.offer_id, []))
            for job in jobs
            for c in fitting[job.name]
        )
        if size > binaries_up_to:
            return None

    rows = _Rows()
    hours = request.horizon_s / 3600.0
    options: list[Option] = []
    unplaceable: dict[str, str] = {}
    left_out_columns: dict[str, int] = {}

    # Instances.
    kept: dict[str, int] = {}
    live_exclusive: dict[str, int] = {}
    for offer_id, instances in sorted(live_by_offer.items()):
        rent = offers[offer_id].usd_per_hour * hours if offer_id in offers else 0.0
        for live in instances:
            kept[live.instance_id] = rows.column(rent, lower=1.0 if live.must_keep else 0.0)
    shared_new: dict[str, int] = {}
    whole_new: dict[str, int] = {}
    numbered: dict[tuple[str, int], int] = {}
    for offer_id, offer in sorted(offers.items()):
        price = offer.usd_per_hour * hours + offer.start_usd
        limit = math.inf if offer.new_limit is None else max(float(offer.new_limit), 0.0)
        most = float(min(limit, sharers.get(offer_id, 0)))
        if sharers.get(offer_id):
            if exact:
                for number in range(int(most)):
                    numbered[offer_id, number] = rows.column(price)
            else:
                shared_new[offer_id] = rows.column(price, upper=most)
        wanted = sum(
            max(
                (
                    _count(c, offer)
                    for c in fitting[job.name]
                    if c.offer_id == offer_id and _exclusive(c, offer)
                ),
                default=0,
            )
            for job in jobs
        )
        if wanted:
            whole_new[offer_id] = rows.column(price, upper=float(min(limit, wanted)))
            for live in live_by_offer.get(offer_id, []):
                if live.free_accelerators >= offer.accelerators:
                    live_exclusive[live.instance_id] = rows.column(0.0)

    # Options of jobs. Leaving one out that must progress costs more than any place.
    dearest = max(
        (
            (offers[c.offer_id].usd_per_hour * hours + offers[c.offer_id].start_usd)
            * _count(c, offers[c.offer_id])
            + c.change_over_usd
            + max(c.rent_beyond_usd, 0.0)
            for job in jobs
            for c in fitting[job.name]
        ),
        default=0.0,
    )
    for job in jobs:
        before = len(options)
        reward_free = job.must_progress
        credit = 0.0
        if not job.must_progress and not job.on_instances and fitting[job.name]:
            credit = min(
                c.change_over_usd + offers[c.offer_id].start_usd * _count(c, offers[c.offer_id])
                for c in fitting[job.name]
            )
        for candidate in fitting[job.name]:
            offer = offers[candidate.offer_id]
            stay_cost = candidate.rent_beyond_usd - credit
            if not reward_free:
                worth = candidate.value_usd_per_s * request.horizon_s
                stay_cost -= worth * (1 + TIE_BONUS_SHARE)
            come_cost = stay_cost + candidate.change_over_usd
            here = [
                live
                for live in live_by_offer.get(candidate.offer_id, [])
                if live.instance_id in job.on_instances
            ]
            if _exclusive(candidate, offer):
                wanted = _count(candidate, offer)
                whole = [one for one in here if one.free_accelerators >= offer.accelerators]
                if len(whole) == wanted == len(job.on_instances):
                    options.append(
                        Option(
                            column=rows.column(stay_cost),
                            job=job,
                            candidate=candidate,
                            live=tuple(one.instance_id for one in whole),
                            exclusive=True,
                            instance_count=wanted,
                            stays=True,
                        )
                    )
                options.append(
                    Option(
                        column=rows.column(come_cost),
                        job=job,
                        candidate=candidate,
                        exclusive=True,
                        instance_count=wanted,
                    )
                )
                continue
            others = [
                live
                for live in live_by_offer.get(candidate.offer_id, [])
                if live.free_accelerators >= candidate.gang_size and live not in here
            ]
            if not exact:
                others = others[:LIVE_PLACES_IN_LARGE_MODELS]
            for live in [one for one in here if one.free_accelerators >= candidate.gang_size]:
                options.append(
                    Option(
                        column=rows.column(stay_cost),
                        job=job,
                        candidate=candidate,
                        live=(live.instance_id,),
                        stays=True,
                    )
                )
            for live in others:
                options.append(
                    Option(
                        column=rows.column(come_cost),
                        job=job,
                        candidate=candidate,
                        live=(live.instance_id,),
                    )
                )
            if exact:
                for number in range(sharers[candidate.offer_id]):
                    if (candidate.offer_id, number) in numbered:
                        options.append(
                            Option(
                                column=rows.column(come_cost),
                                job=job,
                                candidate=candidate,
                                new_number=number,
                            )
                        )
            else:
                options.append(Option(column=rows.column(come_cost), job=job, candidate=candidate))
        own = options[before:]
        if not own:
            unplaceable[job.name] = "no offer of this round can host it"
            continue
        entries = [(option.column, 1.0) for option in own]
        if job.must_progress:
            price = LEFT_OUT_FACTOR * (dearest + 1.0) * max(job.weight, 1e-3)
            left_out_columns[job.name] = rows.column(price)
            entries.append((left_out_columns[job.name], 1.0))
            rows.row(entries, 1.0, 1.0)
        else:
            rows.row(entries, -math.inf, 1.0)

    _place_rows(
        rows, request, offers, options, kept, live_exclusive, shared_new, whole_new, numbered
    )
    return CoverModel(
        program=rows.program(),
        options=tuple(options),
        live_exclusive=live_exclusive,
        shared_columns=shared_new,
        unplaceable=unplaceable,
        is_exact=exact,
        left_out_columns=left_out_columns,
    )


def _place_rows(
    rows: _Rows,
    request: CoverRequest,
    offers: dict[str, CoverOffer],
    options: list[Option],
    kept: dict[str, int],
    live_exclusive: dict[str, int],
    shared_new: dict[str, int],
    whole_new: dict[str, int],
    numbered: dict[tuple[str, int], int],
) -> None:
    """Write slots, host CPUs, memory, whole instances and the limits that span them."""
    on_live: dict[str, list[Option]] = {}
    on_new: dict[tuple[str, int | None], list[Option]] = {}
    whole: dict[str, list[Option]] = {}
    for option in options:
        for key in option.live:
            on_live.setdefault(key, []).append(option)
        if not option.live and option.exclusive:
            whole.setdefault(option.candidate.offer_id, []).append(option)
        elif not option.live:
            on_new.setdefault((option.candidate.offer_id, option.new_number), []).append(option)

    for live in sorted(request.live, key=lambda one: one.instance_id):
        here = on_live.get(live.instance_id, [])
        keep, alone = kept[live.instance_id], live_exclusive.get(live.instance_id)
        taken = [(o.column, 1.0) for o in here if o.exclusive]
        if alone is not None:
            taken.append((alone, 1.0))
        if taken:
            rows.row([*taken, (keep, -1.0)], -math.inf, 0.0)
        shared = [o for o in here if not o.exclusive]
        if not shared:
            continue
        for room, need in (
            (float(live.free_accelerators), lambda o: float(o.candidate.gang_size)),
            (live.free_vcpus, lambda o: o.candidate.vcpus),
            (live.free_memory_gib, lambda o: o.candidate.memory_gib),
        ):
            if room is None:
                continue
            entries = [(o.column, need(o)) for o in shared]
            entries += [(column, room) for column, _ in taken]
            rows.row([*entries, (keep, -room)], -math.inf, 1e-9)
        for o in shared:  # tightens the relaxation: nobody on what is not kept
            rows.row([(o.column, 1.0), (keep, -1.0)], -math.inf, 0.0)

    for (offer_id, new_number), here in sorted(
        on_new.items(), key=lambda item: (item[0][0], -1 if item[0][1] is None else item[0][1])
    ):
        offer = offers[offer_id]
        rented = shared_new[offer_id] if new_number is None else numbered[offer_id, new_number]
        for room, need in (
            (float(offer.accelerators), lambda o: float(o.candidate.gang_size)),
            (offer.vcpus, lambda o: o.candidate.vcpus),
            (offer.memory_gib, lambda o: o.candidate.memory_gib),
        ):
            if room is None:
                continue
            rows.row([*((o.column, need(o)) for o in here), (rented, -room)], -math.inf, 1e-9)
        for o in here:
            rows.row([(o.column, 1.0), (rented, -1.0)], -math.inf, 0.0)
        if new_number is not None and (offer_id, new_number + 1) in numbered:
            rows.row([(rented, -1.0), (numbered[offer_id, new_number + 1], 1.0)], -math.inf, 0.0)

    for offer_id, wanting in sorted(whole.items()):
        entries = [(o.column, float(o.instance_count)) for o in wanting]
        entries += [
            (live_exclusive[live.instance_id], -1.0)
            for live in request.live
            if live.offer_id == offer_id and live.instance_id in live_exclusive
        ]
        rows.row([*entries, (whole_new[offer_id], -1.0)], 0.0, 0.0)

    new_columns: dict[str, list[int]] = {}
    for offer_id, column in (*shared_new.items(), *whole_new.items()):
        new_columns.setdefault(offer_id, []).append(column)
    for (offer_id, _), column in numbered.items():
        new_columns.setdefault(offer_id, []).append(column)
    for offer_id, columns in sorted(new_columns.items()):
        new_limit = offers[offer_id].new_limit
        if new_limit is not None and len(columns) > 1:
            rows.row([(column, 1.0) for column in columns], -math.inf, float(max(new_limit, 0)))

    def spans(units: dict[str, float], limit: float) -> None:
        entries = [(kept[live.instance_id], units.get(live.offer_id, 0.0)) for live in request.live]
        fixed = sum(units.get(live.offer_id, 0.0) for live in request.live if live.must_keep)
        for offer_id, columns in new_columns.items():
            entries += [(column, units.get(offer_id, 0.0)) for column in columns]
        rows.row(entries, -math.inf, max(limit, fixed) + 1e-9)

    for quota in request.quotas:
        if math.isfinite(quota.limit):
            spans(dict(quota.coefficients), quota.limit)
    known = {*offers, *(live.offer_id for live in request.live)}
    if request.max_instances is not None:
        spans(dict.fromkeys(known, 1.0), float(request.max_instances))
    if request.max_usd_per_hour is not None:
        spans({key: offer.usd_per_hour for key, offer in offers.items()}, request.max_usd_per_hour)


def _exclusive(candidate: CoverCandidate, offer: CoverOffer) -> bool:
    """Say whether the gang takes its instances whole."""
    return not offer.shareable or candidate.gang_size >= offer.accelerators


def _count(candidate: CoverCandidate, offer: CoverOffer) -> int:
    """Instances the gang takes or touches."""
    return max(1, math.ceil(candidate.gang_size / offer.accelerators - 1e-9))


def _fitting(job: CoverJob, offers: dict[str, CoverOffer]) -> list[CoverCandidate]:
    """Candidates whose offer is known and whose host is large enough, in a fixed order."""
    found = []
    for candidate in job.candidates:
        offer = offers.get(candidate.offer_id)
        if offer is None or candidate.gang_size <= 0 or offer.accelerators <= 0:
            continue
        if offer.vcpus is not None and candidate.vcpus > offer.vcpus + 1e-9:
            continue
        if offer.memory_gib is not None and candidate.memory_gib > offer.memory_gib + 1e-9:
            continue
        found.append(candidate)
    return sorted(found, key=lambda c: (c.offer_id, c.gang_size, c.pool))
