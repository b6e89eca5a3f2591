"""Limits are matched to types by their names, the narrower before the wider."""

import pytest

from cloudgavel.pricing.offer import CapacityType
from cloudgavel.providers.aws.quotas import limit_for, limits_of, quotas_of
from tests.unit.aws.account import a_spot_offer, an_account, an_offer

ROWS = [
    ("Running On-Demand G and VT instances", "L-DB2E81BA", 64.0),
    ("Running On-Demand P instances", "L-417A185B", 192.0),
    ("Running On-Demand Trn instances", "L-2C3B7624", 8.0),
    ("Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", "L-1216C47A", 1152.0),
    ("Running On-Demand High Memory instances", "L-43DA4232", 448.0),
    ("All G and VT Spot Instance Requests", "L-3819A6DF", 32.0),
    ("All P4, P3 and P2 Spot Instance Requests", "L-7212CCBC", 96.0),
    ("All P5 Spot Instance Requests", "L-C4BD4855", 0.0),
    ("All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", "L-34B43A08", 5.0),
    ("Running Dedicated p4d Hosts", "L-86A789C3", 0.0),
    ("EC2-VPC Elastic IPs", "L-0263D0A3", 5.0),
]
LIMITS = limits_of(
    [{"QuotaName": name, "QuotaCode": code, "Value": value} for name, code, value in ROWS],
    region="us-east-1",
)


@pytest.mark.parametrize(
    ("instance_type", "capacity_type", "code"),
    [
        ("g5.xlarge", CapacityType.ON_DEMAND, "L-DB2E81BA"),
        ("g6e.48xlarge", CapacityType.SPOT, "L-3819A6DF"),
        ("p4d.24xlarge", CapacityType.ON_DEMAND, "L-417A185B"),
        ("p4d.24xlarge", CapacityType.SPOT, "L-7212CCBC"),
        ("p3.2xlarge", CapacityType.SPOT, "L-7212CCBC"),
        ("p5en.48xlarge", CapacityType.SPOT, "L-C4BD4855"),
        ("p5.4xlarge", CapacityType.ON_DEMAND, "L-417A185B"),
        ("trn1.32xlarge", CapacityType.ON_DEMAND, "L-2C3B7624"),
        ("m7i.large", CapacityType.ON_DEMAND, "L-1216C47A"),
        ("t3.micro", CapacityType.SPOT, "L-34B43A08"),
        ("p6-b200.48xlarge", CapacityType.SPOT, None),
        ("trn1.2xlarge", CapacityType.SPOT, None),
    ],
)
def test_each_type_has_its_limit(instance_type, capacity_type, code):
    limit = limit_for(
        LIMITS, region="us-east-1", instance_type=instance_type, capacity_type=capacity_type
    )
    assert (None if limit is None else limit.code) == code


def test_limits_of_hosts_and_addresses_are_left_out():
    assert len(LIMITS) == 9


def test_a_limit_spans_the_zones_and_types_of_its_region_alone():
    here = an_offer(vcpus=4.0)
    there = an_offer(zone="use1-az2", instance_type="g6.2xlarge", vcpus=8.0)
    elsewhere = an_offer(region="us-west-2", zone="usw2-az1")
    (quota,) = quotas_of(LIMITS, [here, there, elsewhere])
    assert quota.limit == 64.0
    assert quota.units_per_instance == {here.offer_id: 4.0, there.offer_id: 8.0}


def test_a_zero_limit_binds_a_type_of_unknown_size():
    offer = a_spot_offer(instance_type="p5.48xlarge", vcpus=None)
    (quota,) = quotas_of(LIMITS, [offer])
    assert quota.limit == 0.0
    assert quota.units_per_instance[offer.offer_id] > 0


def test_limits_are_read_page_by_page():
    many = [
        *LIMITS,
        *limits_of(
            [{"QuotaName": f"Running On-Demand Q{n} instances", "Value": 1.0} for n in range(150)],
            region="us-east-1",
        ),
    ]
    with an_account(limits=many[::-1]) as account:
        (od, spot) = account.provider.quotas()
        assert (od.limit, spot.limit) == (64.0, 32.0) or (spot.limit, od.limit) == (64.0, 32.0)
        assert account.layer.calls["ListServiceQuotas"] == 2
