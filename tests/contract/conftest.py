from collections.abc import Callable, Iterator

import pytest

from tests.contract import harness
from tests.contract.harness import VirtualHarness

PROVIDERS = {"simulated": harness.simulated, "local": harness.local}


@pytest.fixture(params=sorted(PROVIDERS))
def make_cloud(request, tmp_path) -> Iterator[Callable[..., VirtualHarness]]:
    """Build a provider under test; whatever it still runs is ended afterwards."""
    made: list[VirtualHarness] = []

    def make(*offers, **options) -> VirtualHarness:
        cloud = PROVIDERS[request.param](tmp_path, offers, **options)
        made.append(cloud)
        return cloud

    yield make
    for cloud in made:
        cloud.faults.failing_terminates = cloud.faults.failing_lists = 0
        for listed in cloud.provider.list_instances(harness.RUN_ID):
            cloud.provider.terminate(listed.instance_id)
        cloud.advance_s(10_000.0)
