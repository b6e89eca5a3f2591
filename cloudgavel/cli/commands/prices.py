"""``cloudgavel prices``: the catalogue, with the age and the doubts of every price."""

import math
from typing import TYPE_CHECKING

import click

from cloudgavel.cli.streams import answer, answer_json, note, text_width
from cloudgavel.errors import UsageError

if TYPE_CHECKING:
    from cloudgavel.documents.prices import PricesDocument, PricesOffer
    from cloudgavel.pricing.catalog import Catalog
    from cloudgavel.pricing.offer import Offer

DEFAULT_LIMIT = 20


@click.command("prices", help="Offers and their prices, with their age. Nothing is rented.")
@click.option("--provider", "providers", multiple=True, help="Only this cloud; repeatable.")
@click.option("--region", "regions", multiple=True, help="Only this region; repeatable.")
@click.option(
    "--accelerator", "--gpu", "accelerators", multiple=True, help="Only this kind; repeatable."
)
@click.option("--min-count", type=click.IntRange(min=1), default=1, help="Accelerators at least.")
@click.option("--spot", is_flag=True, help="Only spot.")
@click.option("--on-demand", is_flag=True, help="Only on-demand.")
@click.option("--max-price", type=float, help="USD per hour of the whole machine at most.")
@click.option(
    "--sort",
    type=click.Choice(["price", "per-gpu"]),
    default="price",
    help="Cheapest hour (default) or cheapest accelerator-hour first.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=None,
    help=f"Rows at most; 0 = all. Text shows {DEFAULT_LIMIT}, JSON and CSV all.",
)
@click.option("--historic", is_flag=True, help="Also what is no longer rented (for simulation).")
@click.option(
    "--all", "show_all", is_flag=True, help="Also refused and historic rows, with the reason."
)
@click.option(
    "--refresh",
    is_flag=True,
    help="Ask the clouds first (all, or --provider); what they say is kept for every command.",
)
@click.option("--output", type=click.Choice(["text", "json", "csv"]), default="text")
@click.option("--json", "as_json", is_flag=True, help="Short for --output json.")
def prices(
    providers: tuple[str, ...],
    regions: tuple[str, ...],
    accelerators: tuple[str, ...],
    min_count: int,
    spot: bool,
    on_demand: bool,
    max_price: float | None,
    sort: str,
    limit: int | None,
    historic: bool,
    show_all: bool,
    refresh: bool,
    output: str,
    as_json: bool,
) -> None:
    """Search the catalogue, bundled or refreshed, and show what matches."""
    import os

    from cloudgavel.jobs.accelerators import canonical
    from cloudgavel.pricing.catalog import accelerator_price_order, matches, price_order
    from cloudgavel.pricing.offer import CapacityType
    from cloudgavel.runtime.price_cache import known_catalog
    from cloudgavel.runtime.real_clock import now_s
    from cloudgavel.views.prices import prices_csv, prices_text

    if spot and on_demand:
        raise UsageError("`--spot` and `--on-demand` exclude each other", hints=["give one"])
    if max_price is not None and not (math.isfinite(max_price) and max_price > 0):
        raise UsageError(f"`--max-price` must be more than 0 USD per hour, not {max_price}")
    if refresh:
        _refresh(providers, regions, now_s())
    catalog = known_catalog(os.environ, note=note)
    considered = (*catalog.offers, *catalog.refused) if show_all else catalog.offers
    with_historic = historic or show_all
    _check_known("provider", providers, {offer.provider for offer in considered})
    _check_known("region", regions, {offer.region for offer in considered})
    kinds = {canonical(name) for name in accelerators}
    wanted_capacity = None
    if spot or on_demand:
        wanted_capacity = {CapacityType.SPOT if spot else CapacityType.ON_DEMAND}
    considered = tuple(offer for offer in considered if with_historic or not offer.is_historic)
    matching = sorted(
        (
            offer
            for offer in considered
            if matches(
                offer,
                providers=providers or None,
                regions=regions or None,
                accelerators=kinds or None,
                min_accelerators=min_count,
                capacity_types=wanted_capacity,
                max_usd_per_hour=max_price,
                include_historic=True,
            )
        ),
        key=price_order if sort == "price" else accelerator_price_order,
    )
    output = "json" if as_json else output
    if limit is None:
        limit = DEFAULT_LIMIT if output == "text" else 0
    document = prices_document(
        catalog,
        considered=considered,
        matching=tuple(matching),
        sort=sort,
        limit=limit,
        now_s=now_s(),
    )
    if output == "json":
        answer_json(document.to_json())
    elif output == "csv":
        answer(prices_csv(document))
    else:
        answer(prices_text(document, width=text_width()))
    if not matching and not with_historic and kinds and output == "text":
        gone = {offer.accelerator for offer in catalog.offers if offer.is_historic}
        if names := sorted(kinds & gone):
            note(f"hint: {', '.join(names)} is no longer rented: `--historic` shows its prices")


def _refresh(providers: tuple[str, ...], regions: tuple[str, ...], now_s: float) -> None:
    from cloudgavel.cli.cloud_options import regions_by_cloud
    from cloudgavel.cli.price_refresh import READERS, refresh_prices

    _check_known("provider", providers, set(READERS))
    of_cloud = regions_by_cloud(regions, list(providers or READERS))
    refresh_prices(list(of_cloud), of_cloud, now_s=now_s)


def prices_document(
    catalog: "Catalog",
    *,
    considered: "tuple[Offer, ...]",
    matching: "tuple[Offer, ...]",
    sort: str,
    limit: int,
    now_s: float,
) -> "PricesDocument":
    """The document of offers already filtered and sorted; ``limit`` 0 keeps them all."""
    from cloudgavel.documents.encode import iso_utc
    from cloudgavel.documents.prices import PricesDocument
    from cloudgavel.pricing.findings import Severity
    from cloudgavel.pricing.offer import RATE_IS_ASSUMED

    refused = {id(offer) for offer in catalog.refused}
    reasons: dict[tuple[str, bool], list[str]] = {}
    for finding in catalog.findings:
        if finding.severity is not Severity.ABSENT:
            key = (finding.offer_id, finding.severity is Severity.REFUSED)
            reasons.setdefault(key, []).append(finding.reason)
    shown = matching[:limit] if limit else matching
    priced = [offer for offer in considered if offer.price_usd_per_hour is not None]
    instants = [offer.observed_at_s for offer in priced if offer.observed_at_s is not None]
    oldest_age_s = (
        max(0.0, now_s - min(instants)) if instants and len(instants) == len(priced) else None
    )
    notes = []
    if any(
        offer.capacity_type == "spot" and offer.source.endswith(RATE_IS_ASSUMED) for offer in shown
    ):
        notes.append("interruption rates are assumptions per kind, not measurements")
    if any(offer.is_historic for offer in shown):
        notes.append("historic offers are no longer rented: for simulation only")
    return PricesDocument(
        now=iso_utc(now_s),
        sort=sort,
        catalogue_count=len(considered),
        matching_count=len(matching),
        oldest_age_s=oldest_age_s,
        offers=tuple(
            _offer(
                offer,
                is_refused=id(offer) in refused,
                reasons=tuple(reasons.get((offer.offer_id, id(offer) in refused), ())),
                now_s=now_s,
            )
            for offer in shown
        ),
        notes=tuple(notes),
    )


def _offer(
    offer: "Offer", *, is_refused: bool, reasons: tuple[str, ...], now_s: float
) -> "PricesOffer":
    from cloudgavel.documents.encode import iso_utc
    from cloudgavel.documents.prices import PricesOffer

    seen_at_s = offer.observed_at_s
    per_accelerator = offer.usd_per_accelerator_hour
    return PricesOffer(
        offer_id=offer.offer_id,
        provider=offer.provider,
        region=offer.region,
        zone=offer.zone,
        instance_type=offer.instance_type,
        accelerator=offer.accelerator,
        accelerators_per_instance=offer.accelerators_per_instance,
        shareable=offer.shareable,
        vcpus=offer.vcpus,
        memory_gib=offer.memory_gib,
        capacity_type=offer.capacity_type.value,
        price_usd_per_hour=offer.price_usd_per_hour,
        usd_per_accelerator_hour=per_accelerator,
        interruption_rate_per_hour=offer.interruption_rate_per_hour,
        observed_at=None if seen_at_s is None else iso_utc(seen_at_s),
        age_s=None if seen_at_s is None else max(0.0, now_s - seen_at_s),
        source=offer.source,
        flags=offer.flags,
        status="refused" if is_refused else ("flagged" if reasons else "accepted"),
        reasons=reasons,
    )


def _check_known(what: str, given: tuple[str, ...], known: set[str]) -> None:
    import difflib

    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise UsageError(
                f"the catalogue has no {what} `{name}`",
                hints=[
                    f"did you mean `{near[0]}`?"
                    if near
                    else f"it has {', '.join(f'`{each}`' for each in sorted(known))}"
                ],
            )
