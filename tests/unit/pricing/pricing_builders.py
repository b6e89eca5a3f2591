"""Offers with defaults for all but what a test is about."""

from typing import Any

from cloudgavel.pricing.offer import CapacityType, Offer


def an_offer(**changes: Any) -> Offer:
    """A V100 machine in us-east-1, on demand at $3.06/h unless changed."""
    fields: dict[str, Any] = {
        "provider": "aws",
        "region": "us-east-1",
        "zone": "use1-az1",
        "instance_type": "p3.2xlarge",
        "accelerator": "V100",
        "accelerators_per_instance": 1,
        "shareable": True,
        "vcpus": 8.0,
        "memory_gib": 61.0,
        "capacity_type": CapacityType.ON_DEMAND,
        "price_usd_per_hour": 3.06,
        "interruption_rate_per_hour": 0.0,
        "observed_at_s": 1_793_491_200.0,
        "source": "test",
    }
    return Offer(**(fields | changes))


def a_spot_offer(**changes: Any) -> Offer:
    """The same machine as spot at $0.92/h, taken 0.05 times an hour."""
    defaults: dict[str, Any] = {
        "capacity_type": CapacityType.SPOT,
        "price_usd_per_hour": 0.92,
        "interruption_rate_per_hour": 0.05,
    }
    return an_offer(**(defaults | changes))


def a_slice(slice_name: str, **changes: Any) -> Offer:
    """A TPU slice in us-central1-a, on demand."""
    defaults: dict[str, Any] = {
        "provider": "gcp",
        "region": "us-central1",
        "zone": "us-central1-a",
        "instance_type": slice_name,
        "accelerator": slice_name,
        "shareable": False,
        "vcpus": None,
        "memory_gib": None,
    }
    return an_offer(**(defaults | changes))
