"""Recorded spot availability laid under the catalogue's offers.

A file is named ``us-east-1a_v100_1.json`` (zone, accelerator, accelerators of an instance), as the
public traces of 2023 are, or the offers that it tells of are named before it:
``use1-az4:V100:1=FILE``. The letters of AWS zones are each account's own, the catalogue has the
zones' true ids: the traces of a region are laid under its zones in the order of both names.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cloudgavel.errors import UsageError
from cloudgavel.jobs.accelerators import canonical
from cloudgavel.jobs.spec import RehearsalSpec
from cloudgavel.pricing.market import (
    AvailabilityTrace,
    Market,
    TraceError,
    TraceMarket,
    parse_availability_trace,
)
from cloudgavel.pricing.offer import CapacityType, Offer

_PUBLIC_NAME = re.compile(r"(?P<zone>[a-z0-9-]+)_(?P<accelerator>[A-Za-z0-9-]+)_(?P<count>[0-9]+)")
_LETTERED_ZONE = re.compile(r"(?P<region>[a-z]+(?:-[a-z]+)+-[0-9]+)[a-z]")


@dataclass(frozen=True, kw_only=True)
class RecordedMarket:
    """Traces by the spot offers that follow them."""

    traces: Mapping[str, AvailabilityTrace] = field(repr=False)
    notes: tuple[str, ...]
    """Which file was laid under which zone."""
    digest: str
    """Of the files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """What a trace tells of."""

    zone: str
    accelerator: str
    count: int
    path: Path


def traced_market(
    recorded: RecordedMarket,
    *,
    seed: int,
    start_at_s: float,
    otherwise: Market,
    boot: RehearsalSpec,
) -> TraceMarket:
    """Return the recorded market with its start drawn by the seed; it goes round at its end.

    One start for all traces: what happened in several zones at a time does so again. Offers that
    nothing was recorded of follow ``otherwise``.
    """
    longest_s = max(trace.length_s for trace in recorded.traces.values())
    offset_s = float(int(np.random.default_rng(seed).uniform(0.0, longest_s)))
    return TraceMarket(
        traces=recorded.traces,
        origin_s=start_at_s - offset_s,
        otherwise=otherwise,
        boot_delay_s=boot.boot_s,
    )


def load_recorded(given: Sequence[str], offers: Sequence[Offer]) -> RecordedMarket:
    """Read ``--trace`` arguments and lay them under spot offers.

    Raises ``UsageError`` for a file that is not a trace, a name that says nothing, and a trace
    that no spot offer can follow.
    """
    spot = [offer for offer in offers if offer.capacity_type is CapacityType.SPOT]
    zone_of = _zones([_place(text) for text in given], spot)
    traces: dict[str, AvailabilityTrace] = {}
    notes: list[str] = []
    digest = hashlib.sha256()
    for place, zone in zone_of:
        text = _text(place.path)
        digest.update(text.encode())
        try:
            trace = parse_availability_trace(text)
        except TraceError as error:
            raise UsageError(f"--trace: {place.path}", facts=[("reason", str(error))]) from error
        own = [offer for offer in spot if _is_at(offer, place, zone)]
        for offer in own:
            if offer.offer_id in traces:
                raise UsageError(f"--trace: two traces tell of {offer.offer_id}")
            traces[offer.offer_id] = trace
            digest.update(offer.offer_id.encode())
        if zone != place.zone:
            notes.append(f"{place.path.name} is laid under zone {zone}")
    return RecordedMarket(traces=traces, notes=tuple(notes), digest=digest.hexdigest())


def _place(text: str) -> _Place:
    before, equals, after = text.rpartition("=")
    path = Path(after)
    zone = accelerator = ""
    count = 1
    if equals:
        parts = before.split(":")
        zone = parts[0]
        accelerator = parts[1] if len(parts) > 1 else ""
        if len(parts) > 2 and parts[2].isdecimal():
            count = int(parts[2])
        elif len(parts) > 2:
            accelerator = ""
    elif (found := _PUBLIC_NAME.fullmatch(path.stem)) is not None:
        zone, accelerator, count = found["zone"], found["accelerator"], int(found["count"])
    if not zone or not accelerator:
        raise UsageError(
            f"--trace: `{text}` does not say which offers it tells of",
            hints=[
                "name the file like us-east-1a_v100_1.json",
                f"or name zone, accelerator and count: --trace use1-az4:V100:1={path}",
            ],
        )
    return _Place(zone=zone, accelerator=canonical(accelerator), count=count, path=path)


def _zones(places: Sequence[_Place], spot: Sequence[Offer]) -> list[tuple[_Place, str]]:
    """Give every trace a zone of the catalogue; ``UsageError`` where there is none."""
    found = []
    used: set[tuple[str, str, int]] = set()
    for place in sorted(places, key=lambda each: (each.zone, each.accelerator, each.count)):
        there = sorted({offer.zone for offer in spot if _is_at(offer, place, offer.zone)})
        zone = place.zone if place.zone in there else None
        lettered = _LETTERED_ZONE.fullmatch(place.zone)
        if zone is None and lettered is not None:
            zone = next(
                (
                    each
                    for each in there
                    if _region_of(each, spot) == lettered["region"]
                    and (each, place.accelerator, place.count) not in used
                ),
                None,
            )
        if zone is None:
            raise UsageError(
                f"--trace: no spot offer is left that {place.path.name} could tell of",
                facts=[
                    ("zone", place.zone),
                    ("accelerators", f"{place.count} {place.accelerator}"),
                    ("zones with that", ", ".join(there) or "none that a job could rent in"),
                ],
            )
        used.add((zone, place.accelerator, place.count))
        found.append((place, zone))
    return found


def _region_of(zone: str, spot: Sequence[Offer]) -> str:
    return next(offer.region for offer in spot if offer.zone == zone)


def _is_at(offer: Offer, place: _Place, zone: str) -> bool:
    return (
        offer.zone == zone
        and offer.accelerator == place.accelerator
        and offer.accelerators_per_instance == place.count
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--trace: cannot read {path}", facts=[("reason", str(error))]) from error
