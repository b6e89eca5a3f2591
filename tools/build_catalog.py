"""Build the bundled catalogue of ``cloudgavel/pricing/data`` from a table of price facts.

Usage: ``python tools/build_catalog.py FACTS.csv [OUTPUT_DIRECTORY]``

The input has one row per zone and machine (columns: provider, region, zone, instance_type,
accelerator, accelerator_count, vcpus, memory_gib, on_demand_usd_per_hour, spot_usd_per_hour,
source). GCP facts come in parts: n1 hosts without an accelerator, accelerators without a host.
This script keeps what can be rented as a whole and sums n1 hosts with their accelerators; every
sum is made in decimal arithmetic and marked ``derived``. A sum the input already holds must equal
ours, else the script stops.
"""

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path

NAME = "offers-2026-11.csv"
OBSERVED_AT = "2026-11-01T00:00:00Z"
SOURCES = {
    "skypilot-aws": "skypilot-catalog v8 aws/vms.csv @00148f2",
    "skypilot-gcp": "skypilot-catalog v8 gcp/vms.csv @006059e",
    "list-price": "historic public list price",
}
COLUMNS = (
    "provider",
    "region",
    "zone",
    "instance_type",
    "accelerator",
    "accelerators_per_instance",
    "shareable",
    "vcpus",
    "memory_gib",
    "on_demand_usd_per_hour",
    "spot_usd_per_hour",
    "interruption_rate_per_hour",
    "flags",
    "source",
)
N1_HOSTS_BY_ACCELERATOR_COUNT = {
    ("T4", 1): ("n1-standard-4", "n1-standard-8"),
    ("T4", 2): ("n1-standard-16",),
    ("T4", 4): ("n1-standard-32",),
    ("P100", 1): ("n1-standard-8",),
    ("P100", 2): ("n1-standard-16",),
    ("P100", 4): ("n1-standard-32",),
    ("V100", 1): ("n1-standard-8",),
    ("V100", 2): ("n1-standard-16",),
    ("V100", 4): ("n1-standard-32",),
    ("V100", 8): ("n1-standard-32",),
    ("K80", 1): ("n1-standard-4", "n1-standard-8"),
    ("K80", 2): ("n1-standard-16",),
    ("K80", 4): ("n1-standard-32",),
}
K80_ZONES = ("us-central1-a", "us-central1-c")
K80_ON_DEMAND = Decimal("0.45")
K80_SPOT = Decimal("0.135")
P2_XLARGE_ON_DEMAND = Decimal("0.90")
ASSUMED_INTERRUPTIONS_PER_HOUR = {
    "K80": "0.05",
    "P100": "0.05",
    "V100": "0.05",
    "V100-32GB": "0.05",
    "T4": "0.05",
    "A10G": "0.05",
    "L4": "0.05",
    "L40S": "0.05",
    "A100": "0.10",
    "A100-80GB": "0.10",
    "H100": "0.15",
    "H200": "0.15",
    "Trainium": "0.10",
}
ASSUMED_TPU_INTERRUPTIONS_PER_HOUR = "0.10"

Row = dict[str, str]


def main(facts_path: Path, output_directory: Path) -> None:
    """Read the facts, write the catalogue and its description."""
    with facts_path.open(newline="", encoding="utf-8") as file:
        facts = list(csv.DictReader(file))
    rows = sorted(
        [*_whole_machines(facts), *_n1_with_accelerators(facts), *_historic(facts)],
        key=lambda row: (row["provider"], row["zone"], row["instance_type"]),
    )
    keys = [(row["provider"], row["zone"], row["instance_type"]) for row in rows]
    if len(set(keys)) != len(keys):
        raise SystemExit("two rows share provider, zone and instance type")
    with (output_directory / NAME).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    description = {
        "schema": "cloudgavel/offers",
        "schema_version": 1,
        "observed_at": OBSERVED_AT,
        "offers": NAME,
        "sources": SOURCES,
        "interruption_rate_source": "assumption",
    }
    (output_directory / "snapshot.json").write_text(
        json.dumps(description, indent=2) + "\n", encoding="utf-8"
    )
    sys.stdout.write(f"{len(rows)} rows written to {output_directory / NAME}\n")


def _whole_machines(facts: list[Row]) -> Iterator[Row]:
    """AWS machines, accelerator-optimised GCP machines (a2, a3, g2) and TPU slices."""
    for fact in facts:
        accelerator = fact["accelerator"]
        instance_type = fact["instance_type"]
        if not accelerator or not instance_type or instance_type.startswith("n1-"):
            continue
        is_slice = instance_type == "TPU-VM"
        if is_slice and fact["accelerator_count"] != "1":
            raise SystemExit(f"a TPU row that is not one slice: {fact}")
        flags = []
        if "SUSPECT" in fact["source"]:
            flags.append("suspect_on_demand")
        if "sum of host row" in fact["source"]:
            flags.append("derived")
        if "(local zone)" in fact["source"]:
            flags.append("local_zone")
        yield _row(
            fact,
            instance_type=accelerator if is_slice else instance_type,
            accelerator=accelerator,
            count=int(fact["accelerator_count"]),
            shareable=not is_slice,
            on_demand=_price(fact["on_demand_usd_per_hour"]),
            spot=_price(fact["spot_usd_per_hour"]),
            flags=flags,
        )


def _n1_with_accelerators(facts: list[Row]) -> Iterator[Row]:
    """Sums of an n1 host and an accelerator of the same zone, checked against those given."""
    hosts = _n1_hosts(facts)
    given = {
        (f["zone"], f["instance_type"], f["accelerator"], int(f["accelerator_count"])): f
        for f in facts
        if f["instance_type"].startswith("n1-") and f["accelerator"]
    }
    made = set()
    for fact in facts:
        if fact["provider"] != "gcp" or fact["instance_type"]:
            continue
        accelerator, count = fact["accelerator"], int(fact["accelerator_count"])
        for host_type in N1_HOSTS_BY_ACCELERATOR_COUNT.get((accelerator, count), ()):
            host = hosts.get((fact["zone"], host_type))
            if host is None:
                continue
            on_demand = _sum(host["on_demand_usd_per_hour"], fact["on_demand_usd_per_hour"])
            spot = _sum(host["spot_usd_per_hour"], fact["spot_usd_per_hour"])
            key = (fact["zone"], host_type, accelerator, count)
            made.add(key)
            if key in given:
                ours = (on_demand, spot)
                theirs = tuple(_price(given[key][c]) for c in COLUMNS[9:11])
                if ours != theirs:
                    raise SystemExit(f"sum differs from the given one for {key}: {ours} {theirs}")
            yield _row(
                host,
                instance_type=f"{host_type}+{count}x{accelerator}",
                accelerator=accelerator,
                count=count,
                shareable=True,
                on_demand=on_demand,
                spot=spot,
                flags=["derived"],
            )
    if missing := set(given) - made:
        raise SystemExit(f"combined rows that were not made anew: {sorted(missing)}")


def _historic(facts: list[Row]) -> Iterator[Row]:
    """K80 machines at their last list prices: for simulation only."""
    yield _row(
        {
            "provider": "aws",
            "region": "us-east-1",
            "zone": "use1-az1",
            "vcpus": "4",
            "memory_gib": "61",
        },
        instance_type="p2.xlarge",
        accelerator="K80",
        count=1,
        shareable=True,
        on_demand=P2_XLARGE_ON_DEMAND,
        spot=None,
        flags=["historic"],
        source="list-price",
    )
    hosts = _n1_hosts(facts)
    for (accelerator, count), host_types in N1_HOSTS_BY_ACCELERATOR_COUNT.items():
        if accelerator != "K80":
            continue
        for zone in K80_ZONES:
            for host_type in host_types:
                host = hosts[zone, host_type]
                yield _row(
                    host,
                    instance_type=f"{host_type}+{count}xK80",
                    accelerator="K80",
                    count=count,
                    shareable=True,
                    on_demand=_sum(host["on_demand_usd_per_hour"], str(K80_ON_DEMAND * count)),
                    spot=_sum(host["spot_usd_per_hour"], str(K80_SPOT * count)),
                    flags=["derived", "historic"],
                    source="list-price",
                )


def _n1_hosts(facts: list[Row]) -> dict[tuple[str, str], Row]:
    return {
        (f["zone"], f["instance_type"]): f
        for f in facts
        if f["instance_type"].startswith("n1-standard-") and not f["accelerator"]
    }


def _row(
    fact: Mapping[str, str],
    *,
    instance_type: str,
    accelerator: str,
    count: int,
    shareable: bool,
    on_demand: Decimal | None,
    spot: Decimal | None,
    flags: list[str],
    source: str | None = None,
) -> Row:
    rate = (
        ASSUMED_TPU_INTERRUPTIONS_PER_HOUR
        if accelerator.startswith("tpu-")
        else ASSUMED_INTERRUPTIONS_PER_HOUR[accelerator]
    )
    return {
        "provider": fact["provider"],
        "region": fact["region"],
        "zone": fact["zone"],
        "instance_type": instance_type,
        "accelerator": accelerator,
        "accelerators_per_instance": str(count),
        "shareable": "1" if shareable else "0",
        "vcpus": fact["vcpus"],
        "memory_gib": fact["memory_gib"],
        "on_demand_usd_per_hour": _text(on_demand),
        "spot_usd_per_hour": _text(spot),
        "interruption_rate_per_hour": rate,
        "flags": " ".join(flags),
        "source": source or f"skypilot-{fact['provider']}",
    }


def _price(text: str) -> Decimal | None:
    return Decimal(text) if text else None


def _sum(host_price: str, accelerator_price: str) -> Decimal | None:
    """A part without a price makes a whole without a price: it is not offered."""
    if not host_price or not accelerator_price:
        return None
    return Decimal(host_price) + Decimal(accelerator_price)


def _text(price: Decimal | None) -> str:
    return "" if price is None else f"{price.normalize():f}"


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    default_output = Path(__file__).parents[1] / "cloudgavel" / "pricing" / "data"
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else default_output)
