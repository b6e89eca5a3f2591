"""Machines of one gang close together: cluster placement groups, made when first needed."""

import threading
from typing import Any

from cloudgavel.providers.aws.clients import AwsClients
from cloudgavel.providers.aws.failures import code_of
from cloudgavel.providers.tags import RUN_TAG, label_value


class Gangs:
    """Makes the placement group of a gang once per zone; safe between threads.

    A cluster group holds one zone, so a gang that falls back to another zone gets another group.
    """

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._made: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def group_for(self, run_id: str, gang: str, *, region: str, zone_name: str) -> str:
        """Return the group's name; it exists afterwards. boto3's errors pass."""
        name = group_name(run_id, gang, zone_name)
        with self._lock:
            if (region, name) not in self._made:
                self._make(region, name, run_id)
                self._made.add((region, name))
        return name

    def _make(self, region: str, name: str, run_id: str) -> None:
        try:
            self._clients.client("ec2", region).create_placement_group(
                GroupName=name,
                Strategy="cluster",
                TagSpecifications=[
                    {
                        "ResourceType": "placement-group",
                        "Tags": [{"Key": RUN_TAG, "Value": label_value(run_id)}],
                    }
                ],
            )
        except Exception as error:
            if code_of(error) != "InvalidPlacementGroup.Duplicate":
                raise


def group_name(run_id: str, gang: str, zone_name: str) -> str:
    """Name of a gang's group in a zone; equal inputs give equal names."""
    return f"cloudgavel-{label_value(f'{run_id}-{gang}-{zone_name}')}"


def delete_groups(clients: AwsClients, region: str, run_id: str) -> list[str]:
    """Delete the run's placement groups in a region; return those still in use.

    Groups cost nothing, but an account may have only so many.
    """
    ec2: Any = clients.client("ec2", region)
    answer = ec2.describe_placement_groups(
        Filters=[{"Name": f"tag:{RUN_TAG}", "Values": [label_value(run_id)]}]
    )
    left = []
    for group in answer["PlacementGroups"]:
        name = str(group["GroupName"])
        try:
            ec2.delete_placement_group(GroupName=name)
        except Exception as error:
            if code_of(error) == "InvalidPlacementGroup.InUse":
                left.append(name)
            elif code_of(error) != "InvalidPlacementGroup.Unknown":
                raise
    return left
