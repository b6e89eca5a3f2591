"""From a run as it was asked for to a loop with a world around it."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from cloudgavel.documents.plan import PlanPrices
from cloudgavel.errors import UsageError
from cloudgavel.jobs.spec import RunSpec
from cloudgavel.mechanism.state import ClusterState
from cloudgavel.policies.base import Policy
from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.pricing.catalog import Catalog
from cloudgavel.pricing.disks import DEFAULT_GIB, with_disk
from cloudgavel.pricing.market import ExpectedMarket, Outages, PriceWalk, SeededMarket
from cloudgavel.pricing.offer import Offer
from cloudgavel.runtime.loop import Decide
from cloudgavel.units import HOUR_S

if TYPE_CHECKING:
    from cloudgavel.policies.spot.tables import TableShelf


def rehearsal_offers(
    run: RunSpec, catalog: Catalog, *, gib_by_provider: Mapping[str, float] | None = None
) -> tuple[Offer, ...]:
    """Return the offers that a rehearsal of ``run`` may rent.

    Priced, of the clouds and regions asked for, and with an accelerator that some job accepts; of
    rented clouds only what can be rented. ``gib_by_provider``: boot disks of these sizes are
    counted in. ``UsageError`` when none is left, or none for a job whose accelerators there are,
    with what the catalogue has.
    """
    wanted = {request.accelerator for job in run.jobs for request in job.accelerators}
    clouds = run.clouds or run.rehearsal.clouds
    found: dict[str, Offer] = {}
    if not clouds:
        for offer in catalog.search(accelerators=wanted):
            found[offer.offer_id] = offer
    for cloud in clouds:
        regions = cloud.regions or None
        for offer in catalog.search(
            providers={cloud.provider}, regions=regions, accelerators=wanted
        ):
            found[offer.offer_id] = offer
    priced = [offer for offer in found.values() if offer.price_usd_per_hour is not None]
    if not priced:
        places = ", ".join(f"{c.provider} {' '.join(c.regions) or 'all regions'}" for c in clouds)
        raise UsageError(
            "no cloud that was asked for offers an accelerator that a job accepts",
            facts=[
                ("accelerators", ", ".join(sorted(wanted)) or "none"),
                ("clouds", places or "every cloud of the catalogue"),
            ],
            hints=["see what there is: cloudgavel prices"],
        )
    if run.clouds:
        priced = _rentable(run, priced)
    if gib_by_provider is not None:
        priced = [
            with_disk(offer, gib_by_provider.get(offer.provider, DEFAULT_GIB)) for offer in priced
        ]
    return tuple(sorted(priced, key=lambda offer: offer.offer_id))


def _rentable(run: RunSpec, offers: Sequence[Offer]) -> list[Offer]:
    """Leave out what its cloud never rents; refuse a job that accepts nothing else."""
    from cloudgavel.providers.gcp import validate

    why_not: dict[str, str] = {}
    for offer in offers:
        if offer.provider == "gcp" and (reason := validate.unrentable(offer)) is not None:
            why_not[offer.offer_id] = reason
    for job in run.jobs:
        accepted = {request.accelerator for request in job.accelerators}
        mine = [offer for offer in offers if offer.accelerator in accepted]
        if mine and all(offer.offer_id in why_not for offer in mine):
            reasons = sorted({why_not[offer.offer_id] for offer in mine})
            raise UsageError(
                f"job `{job.name}` accepts nothing that is rented",
                facts=[("why", reason) for reason in reasons],
                hints=["let it accept another accelerator: cloudgavel prices"],
            )
    return [offer for offer in offers if offer.offer_id not in why_not]


def disk_sizes(environment: Mapping[str, str]) -> Mapping[str, float]:
    """Return the size of boot disks in GiB by cloud, as its machines are rented."""
    sizes = {}
    for provider in ("aws", "gcp"):
        text = environment.get(f"CLOUDGAVEL_{provider.upper()}_DISK_GIB", "").strip()
        # A size that is none is refused where the cloud's settings are made.
        sizes[provider] = float(text) if text.isdecimal() else float(DEFAULT_GIB)
    return sizes


def rehearsal_market(run: RunSpec, start_at_s: float) -> SeededMarket:
    """Return the market whose story the run's seed tells, from the run's start on.

    Spot capacity runs out in a zone for half an hour about every eight hours, and spot prices
    wander by a few per cent an hour.
    """
    return SeededMarket(
        seed=run.rehearsal.seed,
        interruptions_per_hour=run.rehearsal.interruptions_per_hour,
        boot_delay_s=run.rehearsal.boot_s,
        outages=Outages(mean_gap_s=8 * HOUR_S, mean_outage_s=HOUR_S / 2),
        price_walk=PriceWalk(step_s=HOUR_S, volatility=0.08),
        origin_s=start_at_s,
    )


def expected_market(run: RunSpec) -> ExpectedMarket:
    """Return the market as it is on average, for plans."""
    return ExpectedMarket(
        interruptions_per_hour=run.rehearsal.interruptions_per_hour,
        boot_delay_s=run.rehearsal.boot_s,
    )


def bind_policy(policy: Policy) -> Decide:
    """Return ``mechanism.decide`` with its policy; the loop's only idea of what is good.

    The tables of the spot decision process are kept for as long as this process lives.
    """
    from cloudgavel.mechanism.decide import decide

    shelf = _shelf()

    def decision(state: ClusterState):  # type: ignore[no-untyped-def]
        return decide(state, policy, shelf)

    return decision


@cache
def _shelf() -> "TableShelf":
    from cloudgavel.policies.spot.tables import TableShelf

    return TableShelf()


def prices_as_of(offers: tuple[Offer, ...]) -> str:
    """Return the day of the oldest price (``2026-11-20``), or ``unknown``."""
    known = [offer.observed_at_s for offer in offers if offer.observed_at_s is not None]
    if not known or len(known) != len(offers):
        return "unknown"
    return datetime.fromtimestamp(min(known), tz=UTC).strftime("%Y-%m-%d")


def prices_by_cloud(offers: Sequence[Offer], *, now_s: float) -> tuple[PlanPrices, ...]:
    """Return, cloud by cloud, whether its prices were read or are the bundled snapshot's."""
    bundled_at_s = max(offer.observed_at_s or 0.0 for offer in bundled_catalog().offers)
    found = []
    for provider in sorted({offer.provider for offer in offers}):
        known = [each for each in offers if each.provider == provider]
        read_at_s = [
            offer.observed_at_s
            for offer in known
            if offer.observed_at_s is not None and offer.observed_at_s > bundled_at_s
        ]
        source = "snapshot"
        if read_at_s:
            source = "live" if len(read_at_s) == len(known) else "mixed"
        found.append(
            PlanPrices(
                provider=provider,
                source=source,
                as_of=prices_as_of(tuple(known)),
                age_s=max(0.0, now_s - min(read_at_s)) if read_at_s else None,
            )
        )
    return tuple(found)


PolicyOf = Callable[[str], Policy]
"""``policies.registry.policy_named``, or a test's own."""
