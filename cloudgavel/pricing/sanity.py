"""Which prices to believe: every rule met a real anomaly in a public catalogue.

``check_offers`` drops nothing silently: whatever is left out or doubted has a ``Finding``.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from cloudgavel.pricing.findings import Finding, Rule, Severity
from cloudgavel.pricing.offer import CapacityType, Offer

PLACEHOLDER_FACTOR = 100.0
"""A price this many times the fleet's median stands for "no price"."""
PLACEHOLDER_TPU_PRICES_USD_PER_HOUR = (700.0,)
"""Sentinels seen for TPU v6e in regions that do not sell it."""
LOW_SHARE_OF_MEDIAN = 0.20
NEAR_ON_DEMAND_SHARE = 0.95
FLOOR_SHARE = 0.10
FLOOR_TOLERANCE_SHARE = 1e-4
REGION_SPREAD_FACTOR = 2.5
"""On-demand prices of one machine differ less than this between regions, or one is wrong."""

_AWS_ZONE_ID_OF_A_REGION = re.compile(r"[a-z]+\d+-az\d+")
_AWS_ZONE_NAME_OF_A_REGION = re.compile(r"[a-z]+(-[a-z]+)+-\d[a-z]")
_TPU_SLICE = re.compile(r"(tpu-.+)-(\d+)")


def trust_none(offer: Offer) -> bool:
    """The default: no price is exempt from doubt."""
    return False


def check_offers(
    offers: Iterable[Offer],
    *,
    reference: Iterable[Offer] = (),
    trusted: Callable[[Offer], bool] = trust_none,
) -> tuple[tuple[Offer, ...], tuple[Finding, ...]]:
    """Split ``offers`` into those to believe and what was noticed: ``(accepted, findings)``.

    ``reference`` are offers already believed (an older catalogue): where they know a kind of
    accelerator, its median comes from them, so that a feed whose every price is wrong cannot vouch
    for itself; and a spot price without an on-demand price beside it is held against theirs.
    ``trusted`` exempts an offer from the rules that doubt a *plausible but odd* price
    (``SUSPECT_SOURCE``, ``FAR_BELOW_FLEET``, and the on-demand half of ``ON_DEMAND_BELOW_SPOT``);
    nothing exempts zero, a placeholder or a local zone. An unknown price (``None``) is kept. The
    order of the accepted offers is that of the input; findings are sorted by offer and rule.
    """
    findings: list[Finding] = []
    believed = tuple(reference)
    kept = _each_alone(offers, trusted, findings)
    kept = _without_duplicates(kept, findings)
    kept = _against_the_fleet(kept, believed, trusted, findings)
    kept = _spot_against_on_demand(kept, believed, trusted, findings)
    _flag_region_spread(kept, findings)
    findings.sort(key=lambda finding: (finding.offer_id, finding.rule))
    return tuple(kept), tuple(findings)


def is_local_zone(offer: Offer) -> bool:
    """True for AWS local and wavelength zones, by flag or by the form of the zone's id or name."""
    if "local_zone" in offer.flags:
        return True
    return offer.provider == "aws" and not (
        _AWS_ZONE_ID_OF_A_REGION.fullmatch(offer.zone)
        or _AWS_ZONE_NAME_OF_A_REGION.fullmatch(offer.zone)
    )


def comparable_units(offer: Offer) -> tuple[str, int]:
    """The kind of accelerator and how many units of it: what makes prices comparable.

    A TPU slice counts the number in its name (``tpu-v6e-16`` is 16 of ``tpu-v6e``; cores or chips,
    the same within a kind).
    """
    if match := _TPU_SLICE.fullmatch(offer.accelerator):
        return match[1], int(match[2]) * offer.accelerators_per_instance
    return offer.accelerator, offer.accelerators_per_instance


def _each_alone(
    offers: Iterable[Offer], trusted: Callable[[Offer], bool], findings: list[Finding]
) -> list[Offer]:
    kept = []
    for offer in offers:
        price = offer.price_usd_per_hour
        if price is not None and (not math.isfinite(price) or price <= 0):
            findings.append(_refused(offer, Rule.NOT_A_PRICE, f"{price} is not a price"))
        elif comparable_units(offer)[1] < 1:
            findings.append(_refused(offer, Rule.NOT_A_PRICE, "it has no accelerator to price"))
        elif is_local_zone(offer):
            findings.append(
                _refused(
                    offer,
                    Rule.LOCAL_ZONE,
                    f"{offer.zone} is a local zone: opt-in, with prices of its own",
                )
            )
        elif price is not None and "suspect" in offer.flags and not trusted(offer):
            findings.append(
                _refused(
                    offer,
                    Rule.SUSPECT_SOURCE,
                    f"the source doubts {_usd(price)}/h (below or near spot, or far below other "
                    "regions)",
                )
            )
        else:
            kept.append(offer)
    return kept


def _without_duplicates(offers: Sequence[Offer], findings: list[Finding]) -> list[Offer]:
    """Of several rows for one offer the latest stays; of equally old ones the dearest."""
    by_id: dict[str, list[Offer]] = defaultdict(list)
    for offer in offers:
        by_id[offer.offer_id].append(offer)
    best = {}
    for offer_id, rows in by_id.items():
        best[offer_id] = max(
            rows,
            key=lambda row: (
                -math.inf if row.observed_at_s is None else row.observed_at_s,
                -math.inf if row.price_usd_per_hour is None else row.price_usd_per_hour,
            ),
        )
        for row in rows:
            if row is not best[offer_id]:
                findings.append(
                    _refused(
                        row,
                        Rule.DUPLICATE,
                        f"listed {len(rows)} times; {_usd(best[offer_id].price_usd_per_hour)}/h is "
                        f"kept (the latest, then the dearest), {_usd(row.price_usd_per_hour)}/h "
                        "is not",
                    )
                )
    return list(best.values())


def _against_the_fleet(
    offers: Sequence[Offer],
    reference: Sequence[Offer],
    trusted: Callable[[Offer], bool],
    findings: list[Finding],
) -> list[Offer]:
    known = _unit_prices(reference)
    own = _unit_prices(offers)
    # The lower median: with two prices, 2.70 and 700, the honest one is the yardstick.
    low_median = {kind: _low_median(known.get(kind) or prices) for kind, prices in own.items()}
    plausible = []
    for offer in offers:
        unit_price = _unit_price(offer)
        if unit_price is None:
            plausible.append(offer)
            continue
        yardstick = low_median[_kind(offer)]
        is_sentinel = (
            offer.accelerator.startswith("tpu-")
            and offer.price_usd_per_hour in PLACEHOLDER_TPU_PRICES_USD_PER_HOUR
        )
        if is_sentinel or unit_price >= PLACEHOLDER_FACTOR * yardstick:
            findings.append(
                _refused(
                    offer,
                    Rule.PLACEHOLDER,
                    f"{_usd(offer.price_usd_per_hour)}/h is a placeholder: the fleet's median for "
                    f"{comparable_units(offer)[0]} is {_usd(yardstick)} per unit",
                )
            )
        else:
            plausible.append(offer)
    believed = _unit_prices(plausible)
    median = {kind: _median(known.get(kind) or prices) for kind, prices in believed.items()}
    kept = []
    for offer in plausible:
        unit_price = _unit_price(offer)
        if (
            unit_price is not None
            and unit_price < LOW_SHARE_OF_MEDIAN * median[_kind(offer)]
            and not trusted(offer)
        ):
            findings.append(
                _refused(
                    offer,
                    Rule.FAR_BELOW_FLEET,
                    f"{_usd(unit_price)} per accelerator-hour is under 20% of the fleet's median "
                    f"{_usd(median[_kind(offer)])}",
                )
            )
        else:
            kept.append(offer)
    return kept


def _spot_against_on_demand(
    offers: Sequence[Offer],
    reference: Sequence[Offer],
    trusted: Callable[[Offer], bool],
    findings: list[Finding],
) -> list[Offer]:
    on_demand_by_machine = {
        (offer.provider, offer.zone, offer.instance_type): offer
        for offer in (*reference, *offers)
        if offer.capacity_type is CapacityType.ON_DEMAND and offer.price_usd_per_hour is not None
    }
    offered_ids = {offer.offer_id for offer in offers}
    refused_ids = set()
    for spot in offers:
        on_demand = on_demand_by_machine.get((spot.provider, spot.zone, spot.instance_type))
        if spot.capacity_type is not CapacityType.SPOT or on_demand is None:
            continue
        spot_price, on_demand_price = spot.price_usd_per_hour, on_demand.price_usd_per_hour
        if spot_price is None or on_demand_price is None:
            continue
        if spot_price > on_demand_price:
            reason = f"on-demand {_usd(on_demand_price)}/h is below spot {_usd(spot_price)}/h"
            findings.append(_refused(spot, Rule.ON_DEMAND_BELOW_SPOT, reason))
            refused_ids.add(spot.offer_id)
            if on_demand.offer_id in offered_ids and not trusted(on_demand):
                findings.append(_refused(on_demand, Rule.ON_DEMAND_BELOW_SPOT, reason))
                refused_ids.add(on_demand.offer_id)
        elif spot_price == on_demand_price:
            findings.append(
                _refused(
                    spot,
                    Rule.SPOT_EQUALS_ON_DEMAND,
                    f"spot costs as much as on-demand ({_usd(spot_price)}/h): no reason to take "
                    "the risk",
                )
            )
            refused_ids.add(spot.offer_id)
        elif spot_price >= NEAR_ON_DEMAND_SHARE * on_demand_price:
            findings.append(
                _flagged(
                    spot,
                    Rule.SPOT_NEAR_ON_DEMAND,
                    f"spot {_usd(spot_price)}/h is nearly on-demand {_usd(on_demand_price)}/h",
                )
            )
        elif (
            abs(spot_price - FLOOR_SHARE * on_demand_price)
            <= FLOOR_TOLERANCE_SHARE * on_demand_price
        ):
            findings.append(
                _flagged(
                    spot,
                    Rule.FLOOR_PRICE,
                    f"spot is exactly 10% of on-demand ({_usd(on_demand_price)}/h): a floor "
                    "price, likely without capacity",
                )
            )
    return [offer for offer in offers if offer.offer_id not in refused_ids]


def _flag_region_spread(offers: Sequence[Offer], findings: list[Finding]) -> None:
    by_machine: dict[tuple[str, str], list[Offer]] = defaultdict(list)
    for offer in offers:
        if offer.capacity_type is CapacityType.ON_DEMAND and offer.price_usd_per_hour is not None:
            by_machine[offer.provider, offer.instance_type].append(offer)
    for rows in by_machine.values():
        dearest = max(rows, key=lambda row: row.price_usd_per_hour or 0.0)
        highest = dearest.price_usd_per_hour or 0.0
        for row in rows:
            if highest > REGION_SPREAD_FACTOR * (row.price_usd_per_hour or math.inf):
                findings.append(
                    _flagged(
                        row,
                        Rule.REGIONS_DISAGREE,
                        f"{_usd(row.price_usd_per_hour)}/h here against {_usd(highest)}/h in "
                        f"{dearest.region}",
                    )
                )


def _kind(offer: Offer) -> tuple[str, str]:
    return comparable_units(offer)[0], offer.capacity_type


def _unit_price(offer: Offer) -> float | None:
    if offer.price_usd_per_hour is None:
        return None
    return offer.price_usd_per_hour / comparable_units(offer)[1]


def _unit_prices(offers: Iterable[Offer]) -> dict[tuple[str, str], list[float]]:
    prices = defaultdict(list)
    for offer in offers:
        unit_price = _unit_price(offer)
        if unit_price is not None:
            prices[_kind(offer)].append(unit_price)
    return prices


def _low_median(prices: Sequence[float]) -> float:
    return sorted(prices)[(len(prices) - 1) // 2]


def _median(prices: Sequence[float]) -> float:
    ordered = sorted(prices)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _refused(offer: Offer, rule: Rule, reason: str) -> Finding:
    return Finding(offer_id=offer.offer_id, rule=rule, severity=Severity.REFUSED, reason=reason)


def _flagged(offer: Offer, rule: Rule, reason: str) -> Finding:
    return Finding(offer_id=offer.offer_id, rule=rule, severity=Severity.FLAGGED, reason=reason)


def _usd(price: float | None) -> str:
    return "unknown" if price is None else f"${price:.6g}"
