"""The integer stage: jobs of one round on whole instances, at least cost.

A gang that shares an instance pays nothing more when the rest of it is rented anyway, and alone it
pays for all of it; shares cannot say that, so whole instances are counted:

    min   rent x horizon (kept and new) + starts + change-overs - value of optional jobs placed
    s.t.  what must progress is placed; gangs whole, on one instance (or whole instances when they
          are larger); slots, host CPUs and memory; quotas; instance limit; spend rate

Optional jobs are valued at their reservation price, what the cheapest instance that hosts them
alone would cost for the same progress (Eva, EuroSys 2025): alone on that instance a job breaks
even, and even means run. What starting costs is paid now or later, so it is no reason to wait.

Two formulations. Small: one binary per job and instance, exact. Large: jobs that share count
against whole numbers of instances per offer, and are packed afterwards, largest first: nothing is
lost when gang sizes divide each other (1, 2, 4, 8), and any excess instance is reported. Each job
then keeps the places that a linear relaxation finds promising (``cover_screen``).
"""

import math
from collections.abc import Mapping

from cloudgavel.policies.cover_model import CoverModel, Option, build_cover_model
from cloudgavel.policies.cover_request import (
    CoverAnswer,
    CoverCandidate,
    CoverJob,
    CoverOffer,
    CoverRequest,
    CoverStatus,
    Placement,
)
from cloudgavel.policies.solve import LinearAnswer, SolveStatus, solve_integer

EXACT_BINARIES_UP_TO = 300
NODES_TIMES_COLUMNS = 20_000
"""Node limit of large models: this over their columns."""


def reservation_usd_per_s(
    rent_usd_per_hour: Mapping[int, float], throughput_steps_per_s: Mapping[int, float]
) -> dict[int, float]:
    """Value per second of being on each pool, at the reservation price.

    Both mappings are by pool: the rent of the whole instances a lone job needs there, and its
    rate. The price of a step is the least rent over rate; a pool's value is its rate at that price.
    Pools without a positive rate are left out.
    """
    known = [pool for pool, rate in throughput_steps_per_s.items() if rate > 0]
    known = [pool for pool in known if pool in rent_usd_per_hour]
    if not known:
        return {}
    usd_per_step = min(
        rent_usd_per_hour[pool] / 3600.0 / throughput_steps_per_s[pool] for pool in known
    )
    return {pool: usd_per_step * throughput_steps_per_s[pool] for pool in known}


def cover(request: CoverRequest) -> CoverAnswer:
    """Place the jobs of ``request`` at least cost; pure, deterministic, never raises.

    Jobs that must progress and cannot all be placed give way by weight, each with its reason.
    """
    if not request.jobs:
        kept = tuple(sorted(live.instance_id for live in request.live if live.must_keep))
        return _answer_without_jobs(request, kept)
    exact = build_cover_model(request, exact=True, binaries_up_to=EXACT_BINARIES_UP_TO)
    model = exact or build_cover_model(request, exact=False)
    assert model is not None
    small = exact is not None
    answer = _solved(model)
    left_out = model.left_out(answer.values)
    if left_out and not small:
        # The screening may have dropped the only places with room; those jobs see all of them.
        wider = build_cover_model(request, exact=False, all_places_of=left_out)
        again = _solved(wider) if wider else answer
        if wider and again.values is not None:
            model, answer = wider, again
    if answer.values is None:
        return _greedy(request, f"the solver failed ({answer.message})")
    return _decoded(request, model, answer)


def _solved(model: CoverModel) -> LinearAnswer:
    """Solve the program: small ones to the end, large ones within a few nodes."""
    if model.is_exact:
        return solve_integer(model.program, relative_gap=1e-9, node_limit=5000)
    nodes = 1 + NODES_TIMES_COLUMNS // model.program.cost.size
    return solve_integer(model.program, relative_gap=1e-4, node_limit=nodes, quick=True)


def _answer_without_jobs(request: CoverRequest, kept: tuple[str, ...]) -> CoverAnswer:
    rent = {offer.offer_id: offer.usd_per_hour for offer in request.offers}
    return CoverAnswer(
        status=CoverStatus.EMPTY,
        placements=(),
        new_instances=(),
        kept=kept,
        released=tuple(sorted(live.instance_id for live in request.live if not live.must_keep)),
        waiting=(),
        objective_usd=sum(
            rent.get(live.offer_id, 0.0) * request.horizon_s / 3600.0
            for live in request.live
            if live.must_keep
        ),
    )


class _Tally:
    """What is placed so far: slots of live and new instances, and the limits that span them."""

    def __init__(self, request: CoverRequest) -> None:
        self.request = request
        self.offers: dict[str, CoverOffer] = {o.offer_id: o for o in request.offers}
        self.live = {live.instance_id: live for live in request.live}
        self.used = {live.instance_id: live.must_keep for live in request.live}
        self.exclusive: set[str] = set()
        self.load: dict[str, list[float]] = {key: [0.0, 0.0, 0.0] for key in self.live}
        self.new: dict[str, list[list[float]]] = {}
        self.new_exclusive: dict[str, set[int]] = {}
        self.placements: list[Placement] = []
        self.money = 0.0

    def instances(self) -> dict[str, int]:
        """Instances kept and new, by offer."""
        count: dict[str, int] = {}
        for key, live in self.live.items():
            if self.used[key]:
                count[live.offer_id] = count.get(live.offer_id, 0) + 1
        for offer_id, loads in self.new.items():
            count[offer_id] = count.get(offer_id, 0) + len(loads)
        return count

    def may_add(self, offer_id: str, added: int, *, fresh: int) -> bool:
        """Say whether ``added`` more instances fit all limits, ``fresh`` of them new."""
        offer = self.offers[offer_id]
        rented = len(self.new.get(offer_id, [])) + fresh
        if offer.new_limit is not None and rented > offer.new_limit:
            return False
        if not added:
            return True
        count = self.instances()
        count[offer_id] = count.get(offer_id, 0) + added
        limit = self.request.max_instances
        if limit is not None and sum(count.values()) > limit:
            return False
        rate = sum(
            self.offers[key].usd_per_hour * n for key, n in count.items() if key in self.offers
        )
        cap = self.request.max_usd_per_hour
        if cap is not None and rate > cap * (1 + 1e-9):
            return False
        for quota in self.request.quotas:
            units = dict(quota.coefficients)
            if not units.get(offer_id):
                continue
            if sum(units.get(key, 0.0) * n for key, n in count.items()) > quota.limit + 1e-9:
                return False
        return True

    def fits_live(self, candidate: CoverCandidate, key: str) -> bool:
        """Say whether a sharing gang fits beside what is on a live instance."""
        live = self.live[key]
        if live.offer_id != candidate.offer_id or key in self.exclusive:
            return False
        load = self.load[key]
        return (
            load[0] + candidate.gang_size <= live.free_accelerators
            and (live.free_vcpus is None or load[1] + candidate.vcpus <= live.free_vcpus + 1e-9)
            and (
                live.free_memory_gib is None
                or load[2] + candidate.memory_gib <= live.free_memory_gib + 1e-9
            )
        )

    def fits_new(self, candidate: CoverCandidate, number: int) -> bool:
        """Say whether a sharing gang fits on a new instance opened already."""
        offer = self.offers[candidate.offer_id]
        if number in self.new_exclusive.get(candidate.offer_id, set()):
            return False
        load = self.new[candidate.offer_id][number]
        memory_gib = math.inf if offer.memory_gib is None else offer.memory_gib
        return (
            load[0] + candidate.gang_size <= offer.accelerators
            and (offer.vcpus is None or load[1] + candidate.vcpus <= offer.vcpus + 1e-9)
            and load[2] + candidate.memory_gib <= memory_gib + 1e-9
        )

    def open_new(self, offer_id: str, *, exclusive: bool) -> int:
        """Rent one more instance; its number among the new ones of its offer."""
        loads = self.new.setdefault(offer_id, [])
        loads.append([0.0, 0.0, 0.0])
        if exclusive:
            self.new_exclusive.setdefault(offer_id, set()).add(len(loads) - 1)
        return len(loads) - 1

    def place(
        self,
        job: CoverJob,
        candidate: CoverCandidate,
        *,
        live: tuple[str, ...] = (),
        numbers: tuple[int, ...] = (),
        exclusive: bool,
        stays: bool,
    ) -> None:
        """Write one placement down."""
        for key in live:
            self.used[key] = True
            if exclusive:
                self.exclusive.add(key)
            for index, amount in enumerate(
                (candidate.gang_size, candidate.vcpus, candidate.memory_gib)
            ):
                self.load[key][index] += amount
        for number in numbers:
            for index, amount in enumerate(
                (candidate.gang_size, candidate.vcpus, candidate.memory_gib)
            ):
                self.new[candidate.offer_id][number][index] += amount
        self.money += candidate.rent_beyond_usd
        if not stays:
            self.money += candidate.change_over_usd
        if not job.must_progress:
            self.money -= candidate.value_usd_per_s * self.request.horizon_s
        self.placements.append(
            Placement(
                job=job.name,
                pool=candidate.pool,
                offer_id=candidate.offer_id,
                gang_size=candidate.gang_size,
                instance_ids=live,
                new_numbers=numbers,
                stays=stays,
            )
        )

    def answer(self, status: CoverStatus, reasons: Mapping[str, str], message: str) -> CoverAnswer:
        """Add up the rent and close the tally."""
        request = self.request
        rent = sum(
            self.offers[key].usd_per_hour * n * request.horizon_s / 3600.0
            for key, n in self.instances().items()
            if key in self.offers
        )
        starts = sum(self.offers[key].start_usd * len(loads) for key, loads in self.new.items())
        placed = {place.job: place for place in self.placements}
        return CoverAnswer(
            status=status,
            placements=tuple(placed[job.name] for job in request.jobs if job.name in placed),
            new_instances=tuple(sorted((key, len(loads)) for key, loads in self.new.items())),
            kept=tuple(sorted(key for key, used in self.used.items() if used)),
            released=tuple(sorted(key for key, used in self.used.items() if not used)),
            waiting=tuple(
                (job.name, reasons.get(job.name, "waiting is cheaper than any place"))
                for job in request.jobs
                if job.name not in placed
            ),
            objective_usd=rent + starts + self.money,
            message=message,
        )


def _decoded(request: CoverRequest, model: CoverModel, solved: LinearAnswer) -> CoverAnswer:
    """Turn columns into placements; large models are packed here."""
    assert solved.values is not None
    values = solved.values
    tally = _Tally(request)
    chosen: list[Option] = [option for option in model.options if values[option.column] > 0.5]
    reasons: dict[str, str] = {}
    excess = 0

    for option in (o for o in chosen if o.live):
        tally.place(
            option.job,
            option.candidate,
            live=option.live,
            exclusive=option.exclusive,
            stays=option.stays,
        )
    # New instances that are shared: numbered by the exact model, packed for the other one.
    numbered = sorted(
        (o for o in chosen if o.new_number is not None),
        key=lambda o: (o.candidate.offer_id, o.new_number, o.job.name),
    )
    renumbered: dict[tuple[str, int], int] = {}
    for option in numbered:
        assert option.new_number is not None
        place = (option.candidate.offer_id, option.new_number)
        if place not in renumbered:
            renumbered[place] = tally.open_new(place[0], exclusive=False)
        tally.place(
            option.job,
            option.candidate,
            numbers=(renumbered[place],),
            exclusive=False,
            stays=False,
        )
    for option in (o for o in chosen if o.exclusive and not o.live):
        offer_id, wanted = option.candidate.offer_id, option.instance_count
        free = sorted(
            key
            for key, live in tally.live.items()
            if live.offer_id == offer_id
            and key not in tally.exclusive
            and not any(tally.load[key])
            and live.free_accelerators >= tally.offers[offer_id].accelerators
            and (values[model.live_exclusive[key]] > 0.5 if key in model.live_exclusive else False)
        )[:wanted]
        numbers = tuple(tally.open_new(offer_id, exclusive=True) for _ in range(wanted - len(free)))
        tally.place(
            option.job,
            option.candidate,
            live=tuple(free),
            numbers=numbers,
            exclusive=True,
            stays=False,
        )
    packed = sorted(
        (o for o in chosen if not o.live and not o.exclusive and o.new_number is None),
        key=lambda o: (o.candidate.offer_id, -o.candidate.gang_size, o.job.name),
    )
    planned = model.shared_count(values)
    for option in packed:
        offer_id = option.candidate.offer_id
        room = [
            number
            for number in range(len(tally.new.get(offer_id, [])))
            if tally.fits_new(option.candidate, number)
        ]
        if room:
            number = room[0]
        else:
            already = len(tally.new.get(offer_id, [])) - len(
                tally.new_exclusive.get(offer_id, set())
            )
            if already >= planned.get(offer_id, 0):
                if not tally.may_add(offer_id, 1, fresh=1):
                    reasons[option.job.name] = "its gang did not fit beside the others"
                    continue
                excess += 1
            number = tally.open_new(offer_id, exclusive=False)
        tally.place(option.job, option.candidate, numbers=(number,), exclusive=False, stays=False)
    # What a large model left out for want of the places it did not look at.
    placed = {place.job for place in tally.placements}
    added = 0
    for job in sorted(request.jobs, key=lambda one: (-one.weight, one.name)):
        if job.must_progress and job.name not in placed and not model.is_exact:
            added += _insert(tally, job)
    for job in request.jobs:
        if job.name in model.unplaceable:
            reasons[job.name] = model.unplaceable[job.name]
        elif job.must_progress:
            reasons.setdefault(job.name, "quotas, limits or capacity leave no place for it")
    status = CoverStatus.OPTIMAL
    message = "" if solved.status is SolveStatus.OPTIMAL else "stopped at the node limit"
    if solved.status is not SolveStatus.OPTIMAL:
        status = CoverStatus.FEASIBLE
    if excess or any("beside the others" in reason for reason in reasons.values()):
        status = CoverStatus.FEASIBLE
        message = f"{excess} instances more than counted, because gangs did not pack"
    if added:
        status = CoverStatus.FEASIBLE
        message = f"{added} jobs placed one by one after the others"
    return tally.answer(status, reasons, message)


def _greedy(request: CoverRequest, message: str) -> CoverAnswer:
    """Place jobs one by one: those that must first, heaviest first, each where it adds least."""
    tally = _Tally(request)
    reasons: dict[str, str] = {}
    order = sorted(request.jobs, key=lambda j: (not j.must_progress, -j.weight, j.name))
    for job in order:
        if not _insert(tally, job) and job.must_progress:
            reasons[job.name] = "quotas, limits or capacity leave no place for it"
    return tally.answer(CoverStatus.GREEDY, reasons, message)


def _insert(tally: _Tally, job: CoverJob) -> bool:
    """Place one job where it adds least to what is placed already; say whether it was placed."""
    request = tally.request
    hours = request.horizon_s / 3600.0
    best: tuple[float, int, CoverCandidate, tuple[str, ...], int, bool, bool] | None = None
    for rank, candidate in enumerate(job.candidates):
        offer = tally.offers.get(candidate.offer_id)
        if offer is None or candidate.gang_size <= 0 or offer.accelerators <= 0:
            continue
        for live, fresh, exclusive, stays in _places(tally, job, candidate, offer):
            opened = sum(1 for key in live if not tally.used[key]) + max(fresh, 0)
            cost = opened * offer.usd_per_hour * hours + max(fresh, 0) * offer.start_usd
            cost += candidate.rent_beyond_usd
            cost += 0.0 if stays else candidate.change_over_usd
            if not job.must_progress:
                cost -= candidate.value_usd_per_s * request.horizon_s
                if not job.on_instances:
                    cost -= candidate.change_over_usd + offer.start_usd * max(fresh, 0)
                if cost > 1e-9:
                    continue
            if not tally.may_add(candidate.offer_id, opened, fresh=max(fresh, 0)):
                continue
            entry = (cost, rank, candidate, live, fresh, exclusive, stays)
            if best is None or entry[:2] < best[:2]:
                best = entry
    if best is None:
        return False
    _, _, candidate, live, fresh, exclusive, stays = best
    if fresh < 0:
        numbers: tuple[int, ...] = (-fresh - 1,)
    else:
        numbers = tuple(
            tally.open_new(candidate.offer_id, exclusive=exclusive) for _ in range(fresh)
        )
    tally.place(job, candidate, live=live, numbers=numbers, exclusive=exclusive, stays=stays)
    return True


def _places(
    tally: _Tally, job: CoverJob, candidate: CoverCandidate, offer: CoverOffer
) -> list[tuple[tuple[str, ...], int, bool, bool]]:
    """List (live instances, new ones or -(number + 1) of an open one, exclusive, stays)."""
    wanted = math.ceil(candidate.gang_size / offer.accelerators - 1e-9)
    exclusive = not offer.shareable or candidate.gang_size >= offer.accelerators
    if (offer.vcpus is not None and candidate.vcpus > offer.vcpus + 1e-9) or (
        offer.memory_gib is not None and candidate.memory_gib > offer.memory_gib + 1e-9
    ):
        return []
    found: list[tuple[tuple[str, ...], int, bool, bool]] = []
    if not exclusive:
        for key in sorted(tally.live):
            if tally.fits_live(candidate, key):
                found.append(((key,), 0, False, key in job.on_instances))
        for number in range(len(tally.new.get(offer.offer_id, []))):
            if tally.fits_new(candidate, number):
                found.append(((), -number - 1, False, False))
        found.append(((), 1, False, False))
        return found
    empty = [
        key
        for key in sorted(tally.live)
        if tally.live[key].offer_id == offer.offer_id
        and key not in tally.exclusive
        and not any(tally.load[key])
        and tally.live[key].free_accelerators >= offer.accelerators
    ]
    own = tuple(key for key in empty if key in job.on_instances)
    if len(own) == wanted == len(job.on_instances):
        found.append((own, 0, True, True))
    live = tuple(empty[:wanted])
    found.append((live, wanted - len(live), True, False))
    return found
