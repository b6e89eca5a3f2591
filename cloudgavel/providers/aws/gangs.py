"""Machines of one gang close together: cluster placement groups, made when first needed.

Only for types with a network made for gangs: elsewhere a group gains little, and its machines are
harder to get.
"""

import re
import threading

from cloudgavel.providers.aws.clients import AwsClients
from cloudgavel.providers.aws.failures import code_of
from cloudgavel.providers.tags import RUN_TAG, label_value

_CLUSTERED = re.compile(r"(p3dn|p4d|p4de|p5|p5e|p5en|p6\S*|trn1|trn1n|trn2)\.")


def is_clustered(instance_type: str) -> bool:
    """Whether a gang of this type is placed in a group."""
    return _CLUSTERED.match(instance_type) is not None


class Gangs:
    """Makes the placement group of a gang once per zone; safe between threads.

    A cluster group holds one zone, so a gang that falls back to another zone gets another group.
    """

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._made: dict[tuple[str, str], str] = {}
        """Region and name -> run."""
        self._lock = threading.Lock()

    def group_for(self, run_id: str, gang: str, *, region: str, zone_name: str) -> str:
        """Return the group's name; it exists afterwards. boto3's errors pass."""
        name = group_name(run_id, gang, zone_name)
        with self._lock:
            if (region, name) not in self._made:
                self._make(region, name, run_id)
                self._made[region, name] = run_id
        return name

    def delete_all(self, run_id: str) -> None:
        """Delete what this process made for a run without machines; what fails stays for later.

        Groups cost nothing, but an account may have only so many.
        """
        with self._lock:
            for (region, name), owner in list(self._made.items()):
                if owner == run_id and _deleted(self._clients, region, name):
                    del self._made[region, name]

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


def _deleted(clients: AwsClients, region: str, name: str) -> bool:
    try:
        clients.client("ec2", region).delete_placement_group(GroupName=name)
    except Exception as error:
        return code_of(error) == "InvalidPlacementGroup.Unknown"
    return True
