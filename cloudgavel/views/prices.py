"""Offers and prices as text and as CSV."""

import csv
import io

from cloudgavel.documents.prices import PricesDocument, PricesOffer
from cloudgavel.views.format import UNKNOWN, capacity, money, span
from cloudgavel.views.table import Column, table

COLUMNS = (
    Column(head="INSTANCE"),
    Column(head="WHERE", drop=2),
    Column(head="ACCELERATORS"),
    Column(head="KIND"),
    Column(head="PRICE/H", right=True),
    Column(head="PER ACC-H", right=True, drop=3),
    Column(head="INTERRUPTED", right=True, drop=5),
    Column(head="SEEN", right=True, drop=4),
)
CSV_FIELDS = (
    "offer_id",
    "provider",
    "region",
    "zone",
    "instance_type",
    "accelerator",
    "accelerators_per_instance",
    "shareable",
    "vcpus",
    "memory_gib",
    "capacity_type",
    "price_usd_per_hour",
    "usd_per_accelerator_hour",
    "interruption_rate_per_hour",
    "observed_at",
    "age_s",
    "source",
    "flags",
    "status",
    "reasons",
)


def prices_text(document: PricesDocument, *, width: int) -> str:
    """Draw the table, the doubts under it and the count, at most ``width`` wide in the table."""
    lines = []
    if document.offers:
        lines.extend(table(COLUMNS, [_cells(offer) for offer in document.offers], width=width))
        lines.append("")
    doubted = [offer for offer in document.offers if offer.reasons]
    for offer in doubted:
        lines.append(f"  {offer.status}  {offer.offer_id}: {'; '.join(offer.reasons)}")
    if doubted:
        lines.append("")
    lines.extend(_footer(document))
    return "\n".join(lines)


def prices_csv(document: PricesDocument) -> str:
    """One line per offer with the document's own names; unknown is empty, never 0."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_FIELDS)
    for offer in document.to_json()["offers"]:
        writer.writerow(_csv_cell(offer[name]) for name in CSV_FIELDS)
    return text.getvalue().rstrip("\n")


def _cells(offer: PricesOffer) -> tuple[str, ...]:
    return (
        f"{offer.provider} {offer.instance_type}",
        offer.zone,
        f"{offer.accelerators_per_instance} x {offer.accelerator}",
        capacity(offer.capacity_type)
        + ("" if offer.status == "accepted" else f" ({offer.status})"),
        _price(offer.price_usd_per_hour),
        "-" if offer.price_usd_per_hour is None else _price(offer.usd_per_accelerator_hour),
        _interruptions(offer),
        "never" if offer.age_s is None else f"{span(offer.age_s)} ago",
    )


def _price(usd_per_hour: float | None) -> str:
    """Four decimals below a dollar, where two would hide whole percents of a spot price."""
    if usd_per_hour is not None and 0.01 <= usd_per_hour < 1:
        return f"${usd_per_hour:.4f}"
    return money(usd_per_hour)


def _interruptions(offer: PricesOffer) -> str:
    if offer.capacity_type != "spot":
        return "-"
    rate = offer.interruption_rate_per_hour
    return UNKNOWN if rate is None else f"{100 * rate:.3g}%/h"


def _footer(document: PricesDocument) -> list[str]:
    shown, matching = len(document.offers), document.matching_count
    if document.sort == "price":
        order = "cheapest hour first (`--sort per-gpu` for cheapest accelerator-hour)"
    else:
        order = "cheapest accelerator-hour first (`--sort price` for cheapest hour)"
    lines = [
        f"{matching:,} of {document.catalogue_count:,} offers match"
        + (f", {order}" if matching else "")
    ]
    if shown < matching:
        lines.append(f"the first {shown:,} are shown; `--limit 0` shows all")
    age_s = document.oldest_age_s
    lines.append(
        "the age of some prices is unknown" if age_s is None else f"oldest price: {span(age_s)} ago"
    )
    lines.extend(document.notes)
    return lines


def _csv_cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "; ".join(str(item) for item in value)
    return value
