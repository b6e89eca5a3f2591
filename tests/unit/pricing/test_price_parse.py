import json
import math

import pytest

from cloudgavel.pricing.findings import Rule, Severity
from cloudgavel.pricing.offer import CapacityType
from cloudgavel.pricing.parse import SnapshotError, parse_description, parse_offers

HEADER = (
    "provider,region,zone,instance_type,accelerator,accelerators_per_instance,shareable,vcpus,"
    "memory_gib,on_demand_usd_per_hour,spot_usd_per_hour,interruption_rate_per_hour,flags,source"
)
DESCRIPTION = {
    "schema": "cloudgavel/offers",
    "schema_version": 1,
    "observed_at": "2026-11-01T00:00:00Z",
    "offers": "offers.csv",
    "sources": {"here": "a source"},
    "interruption_rate_source": "assumption",
}


def parse(row: str, **changes: object):  # type: ignore[no-untyped-def]
    description = parse_description(json.dumps(DESCRIPTION | changes))
    return parse_offers(f"{HEADER}\n{row}\n", description)


def test_a_row_makes_an_on_demand_and_a_spot_offer() -> None:
    snapshot = parse("aws,r,z,m,V100,4,1,8,61,3.06,0.9,0.05,,here")
    on_demand, spot = snapshot.offers
    assert (on_demand.price_usd_per_hour, spot.price_usd_per_hour) == (3.06, 0.9)
    assert (on_demand.interruption_rate_per_hour, spot.interruption_rate_per_hour) == (0.0, 0.05)
    assert on_demand.source == "a source"
    assert spot.source == "a source; interruption rate: assumption"
    assert spot.capacity_type is CapacityType.SPOT
    assert (spot.vcpus, spot.memory_gib, spot.accelerators_per_instance) == (8.0, 61.0, 4)
    assert spot.observed_at_s == snapshot.observed_at_s == 1_793_491_200.0
    assert snapshot.findings == ()


def test_empty_figures_are_unknown_or_not_offered_never_zero() -> None:
    snapshot = parse("gcp,r,z,tpu-v3-8,tpu-v3-8,1,0,,,8,,,,here")
    (offer,) = snapshot.offers
    assert (offer.vcpus, offer.memory_gib, offer.shareable) == (None, None, False)
    (finding,) = snapshot.findings
    assert finding.offer_id == "gcp/z/tpu-v3-8/spot"
    assert (finding.rule, finding.severity) == (Rule.NOT_OFFERED, Severity.ABSENT)


def test_an_unknown_interruption_rate_stays_unknown() -> None:
    snapshot = parse("aws,r,z,m,V100,1,1,8,61,3.06,0.9,,,here")
    spot = snapshot.offers[1]
    assert spot.interruption_rate_per_hour is None
    assert spot.source == "a source"


def test_a_suspect_on_demand_price_does_not_taint_the_spot_price() -> None:
    snapshot = parse("gcp,r,z,m,A100,1,1,8,61,2,0.9,0.1,derived suspect_on_demand,here")
    assert [o.flags for o in snapshot.offers] == [("derived", "suspect"), ("derived",)]


@pytest.mark.parametrize(
    "row",
    [
        "aws,r,z,m,V100,1,1,8,61,three,0.9,0.05,,here",
        "aws,r,z,m,V100,1,1,8,61,inf,0.9,0.05,,here",
        "aws,r,z,m,V100,one,1,8,61,3.06,0.9,0.05,,here",
        "aws,r,z,m,V100,1,yes,8,61,3.06,0.9,0.05,,here",
        "aws,r,z,m,V100,1,1,8,61,3.06,0.9,0.05,,elsewhere",
    ],
)
def test_a_bad_row_names_its_line(row: str) -> None:
    with pytest.raises(SnapshotError, match="line 2"):
        parse(row)


def test_nan_passes_here_and_is_left_to_the_sanity_rules() -> None:
    assert math.isnan(parse("aws,r,z,m,V100,1,1,8,61,nan,,0.05,,here").offers[0].price_usd_per_hour)


@pytest.mark.parametrize(
    "change",
    [{"schema": "other"}, {"schema_version": 2}, {"observed_at": "2026-11-01T00:00:00"}],
)
def test_another_schema_or_a_naive_instant_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(SnapshotError):
        parse_description(json.dumps(DESCRIPTION | change))
