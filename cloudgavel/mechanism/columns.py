"""Columns of the problem: what can be rented, zones of one type and price class as one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cloudgavel.jobs.accelerators import CATALOGUE
from cloudgavel.jobs.spec import AcceleratorRequest
from cloudgavel.mechanism.change_over import boot_s
from cloudgavel.mechanism.fleet import Instance
from cloudgavel.mechanism.state import ClusterState, JobView
from cloudgavel.policies.problem import Pool
from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.pricing.sightings import catalogue_rate_per_hour, learnt_rates_per_hour

PRICE_CLASS_SHARE = 0.10
"""Zones whose price is at most this share above the cheapest of their class are alike."""
SPOT_OUTAGE_H = 0.5
"""Mean length of a spot outage where nothing better is known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One way to run a job: a gang on instances of one type, capacity type and price class."""

    pool: Pool
    request: AcceleratorRequest
    sample: Offer
    """One of its offers: type, size and cloud of all of them."""
    offers: tuple[Offer, ...]
    """Zones that can be asked for now, cheapest first; empty = only what is held counts."""
    boot_s: float

    @property
    def spot(self) -> bool:
        """Whether the cloud may take it back."""
        return self.pool.capacity_type is CapacityType.SPOT

    @property
    def instance_count(self) -> int:
        """Instances one job takes when it shares with nobody."""
        return max(1, self.pool.gang_size // self.pool.accelerators_per_instance)

    @property
    def seats(self) -> int:
        """Jobs that fit on one instance (1 for gangs over several, and what is indivisible)."""
        if not self.pool.shareable:
            return 1
        return max(1, self.pool.accelerators_per_instance // self.pool.gang_size)

    @property
    def accelerators_used(self) -> int:
        """Accelerators of each of its instances that one job takes."""
        return min(self.pool.gang_size, self.pool.accelerators_per_instance)

    @property
    def alone_usd_per_hour(self) -> float:
        """Rent of a job that shares with nobody."""
        return self.instance_count * self.pool.price_usd_per_hour

    @property
    def price_limit_usd_per_hour(self) -> float:
        """Dearest acceptable price of one instance."""
        prices = [each.price_usd_per_hour for each in self.offers]
        return max((each for each in prices if each is not None), default=0.0)


def rentable_offers(state: ClusterState) -> tuple[Offer, ...]:
    """Offers worth asking for now.

    Without a price, blocked at this moment, or spot that is not cheaper than the same type on
    demand in the same region: left out.
    """
    blocked = {each.offer_id for each in state.blocked if each.until_s > state.now_s}
    on_demand: dict[tuple[str, str, str], float] = {}
    for offer in state.offers:
        price = offer.price_usd_per_hour
        if price is not None and offer.capacity_type is not CapacityType.SPOT:
            key = (offer.provider, offer.region, offer.instance_type)
            on_demand[key] = min(on_demand.get(key, price), price)
    kept = []
    for offer in state.offers:
        price = offer.price_usd_per_hour
        if price is None or price <= 0 or offer.offer_id in blocked:
            continue
        if offer.capacity_type is CapacityType.SPOT:
            other = on_demand.get((offer.provider, offer.region, offer.instance_type))
            if other is not None and price >= other:
                continue
        kept.append(offer)
    return tuple(sorted(kept, key=lambda each: (each.price_usd_per_hour, each.offer_id)))


def requests_of(jobs: Iterable[JobView]) -> dict[str, list[AcceleratorRequest]]:
    """Gangs with a known throughput that any job accepts, by accelerator."""
    wanted: dict[str, set[AcceleratorRequest]] = {}
    for job in jobs:
        for request in job.spec.accelerators:
            if request.label in job.throughput_steps_per_s:
                wanted.setdefault(request.accelerator, set()).add(request)
    return {name: sorted(requests) for name, requests in wanted.items()}


def fits(request: AcceleratorRequest, offer: Offer) -> bool:
    """Whether a gang can be placed on whole instances, or on a part of one, of this offer."""
    if request.accelerator != offer.accelerator:
        return False
    size = offer.accelerators_per_instance
    if request.count > size:
        return request.count % size == 0
    return offer.shareable or request.count == size


def build_columns(state: ClusterState, jobs: Sequence[JobView]) -> tuple[Column, ...]:
    """Collapse the offers into columns, in an order that depends on labels and prices only.

    One column per instance type, capacity type, price class, set of quotas and gang. What is held
    but can no longer be asked for gets a column of its own without offers.
    """
    wanted = requests_of(jobs)
    quota_names = _quota_names(state)
    classes: list[tuple[tuple[str, str, str, tuple[str, ...]], list[Offer]]] = []
    latest: dict[tuple[str, str, str, tuple[str, ...]], list[Offer]] = {}
    for offer in rentable_offers(state):
        if offer.accelerator not in wanted:
            continue
        key = (
            offer.provider,
            offer.instance_type,
            str(offer.capacity_type),
            quota_names.get(offer.offer_id, ()),
        )
        group = latest.get(key)
        price = offer.price_usd_per_hour or 0.0
        if group is None or price > (group[0].price_usd_per_hour or 0.0) * (1 + PRICE_CLASS_SHARE):
            group = []
            latest[key] = group
            classes.append((key, group))
        group.append(offer)
    rates = learnt_rates_per_hour(state.offers, state.spot_seen)
    columns = [
        _column(state, request, tuple(group), rates)
        for _, group in classes
        for request in wanted[group[0].accelerator]
        if fits(request, group[0])
    ]
    columns.extend(_held_columns(state, jobs, columns, rates))
    return tuple(columns)


def column_of_instance(
    columns: Sequence[Column], instance: Instance, request: AcceleratorRequest
) -> int | None:
    """Index of the column that a machine belongs to for this gang.

    Own zone first, then the class nearest in price; ``None`` when the type is no column at all.
    """
    best: tuple[int, float] | None = None
    answer = None
    for index, column in enumerate(columns):
        if column.request != request or not same_kind(column, instance.offer):
            continue
        own = any(each.offer_id == instance.offer.offer_id for each in column.offers)
        own = own or column.pool.offer_id == instance.offer.offer_id
        gap = abs(column.pool.price_usd_per_hour - instance.price_usd_per_hour)
        rank = (0 if own else 1, gap)
        if best is None or rank < best:
            best, answer = rank, index
    return answer


def same_kind(column: Column, offer: Offer) -> bool:
    """Same cloud, type and capacity type."""
    sample = column.sample
    return (
        sample.capacity_type is offer.capacity_type
        and sample.provider == offer.provider
        and sample.instance_type == offer.instance_type
        and sample.accelerator == offer.accelerator
        and sample.accelerators_per_instance == offer.accelerators_per_instance
    )


def rate_steps_per_s(job: JobView, column: Column) -> float | None:
    """Steps/s of a job in a column, or ``None`` where it cannot or may not run.

    Not asked for, throughput unknown, memory that does not fit, out of memory there before, and
    on-demand for a ``spot_only`` job all mean ``None``.
    """
    request = column.request
    if request not in job.spec.accelerators or request.accelerator in job.excluded:
        return None
    if job.spec.spot_only and not column.spot:
        return None
    rate = job.throughput_steps_per_s.get(request.label)
    if rate is None or not rate > 0:
        return None
    needed_gib = job.spec.memory_gib
    if needed_gib is not None:
        known = CATALOGUE.get(request.accelerator)
        if known is None or needed_gib > known.memory_gib:
            return None
    return rate


def _quota_names(state: ClusterState) -> dict[str, tuple[str, ...]]:
    names: dict[str, list[str]] = {}
    for quota in state.quotas:
        for offer_id, units in quota.units_per_instance.items():
            if units > 0:
                names.setdefault(offer_id, []).append(quota.name)
    return {offer_id: tuple(sorted(each)) for offer_id, each in names.items()}


def _rate_per_hour(offer: Offer, learnt: Mapping[str, float]) -> float:
    """Interruptions per machine-hour: as learnt, else the catalogue's."""
    known = learnt.get(offer.offer_id) if learnt else None
    return catalogue_rate_per_hour(offer) if known is None else known


def _availability_share(offers: Sequence[Offer], rates: Mapping[str, float]) -> float:
    """Share of time in which any of the zones has it, from rates and a usual outage length."""
    gone = 1.0
    for offer in offers:
        rate = _rate_per_hour(offer, rates)
        gone *= 1 - 1 / (1 + rate * SPOT_OUTAGE_H)
    return 1 - gone


def _column(
    state: ClusterState,
    request: AcceleratorRequest,
    offers: tuple[Offer, ...],
    rates: Mapping[str, float],
    *,
    price_usd_per_hour: float | None = None,
    held: bool = False,
) -> Column:
    first = offers[0]
    spot = first.capacity_type is CapacityType.SPOT
    price = first.price_usd_per_hour if price_usd_per_hour is None else price_usd_per_hour
    instances = max(1, request.count // first.accelerators_per_instance)
    rate = _rate_per_hour(first, rates) * instances
    pool = Pool(
        label=f"{first.offer_id}*{request.count}" + ("#held" if held else ""),
        offer_id=first.offer_id,
        accelerator=request.accelerator,
        capacity_type=first.capacity_type,
        gang_size=request.count,
        accelerators_per_instance=first.accelerators_per_instance,
        shareable=first.shareable,
        price_usd_per_hour=price or 0.0,
        interruption_rate_per_hour=rate if spot else 0.0,
        availability_share=_availability_share(offers, rates) if spot else 1.0,
    )
    return Column(
        pool=pool,
        request=request,
        sample=first,
        offers=() if held else offers,
        boot_s=boot_s(state, first),
    )


def _held_columns(
    state: ClusterState,
    jobs: Sequence[JobView],
    columns: Sequence[Column],
    rates: Mapping[str, float],
) -> list[Column]:
    """Columns of machines in use whose type can no longer be asked for."""
    by_id: Mapping[str, Instance] = {each.instance_id: each for each in state.instances}
    extra: list[Column] = []
    for job in jobs:
        if job.request is None or not job.instance_ids:
            continue
        instance = by_id.get(job.instance_ids[0])
        if instance is None or not instance.usable or not fits(job.request, instance.offer):
            continue
        if column_of_instance([*columns, *extra], instance, job.request) is None:
            extra.append(
                _column(
                    state,
                    job.request,
                    (instance.offer,),
                    rates,
                    price_usd_per_hour=instance.price_usd_per_hour,
                    held=True,
                )
            )
    return extra
