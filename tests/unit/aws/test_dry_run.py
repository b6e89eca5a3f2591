"""A run in virtual time whose every call goes through the AWS provider to a mocked account."""

import pytest

from cloudgavel.jobs.spec import AcceleratorRequest, CloudSpec, JobSpec, RunSpec
from cloudgavel.objects.s3 import S3Store
from cloudgavel.policies.registry import policy_named
from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.pricing.market import SeededMarket
from cloudgavel.pricing.offer import CapacityType
from cloudgavel.providers.aws.assembly import aws_provider
from cloudgavel.providers.aws.mocked.inside import mocked_aws
from cloudgavel.providers.aws.mocked.layer import MotoLayer
from cloudgavel.providers.base import EndReason
from cloudgavel.providers.failures import FailureKind, LaunchFailed
from cloudgavel.providers.mirrored import MirroredProvider, follow_ends
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.providers.simulated.world import SimulatedWorld
from cloudgavel.runtime.assemble import bind_policy
from cloudgavel.runtime.drivers import VirtualDriver
from cloudgavel.runtime.loop import Loop, Surroundings
from cloudgavel.runtime.settings import LoopSettings
from cloudgavel.store.events import RunCreated
from cloudgavel.store.log import MemoryLog
from tests.unit.aws.account import START_AT_S, a_limit, a_request

CLOUD = CloudSpec(provider="aws", regions=("us-east-1",))


class DryRun:
    def __init__(self, clients, layer, market, offers):
        s3 = clients.client("s3", "us-east-1")
        s3.create_bucket(Bucket="mine")
        self.cloud = SimulatedCloud(offers=offers, market=market, now_s=START_AT_S)
        self.world = SimulatedWorld(self.cloud)
        self.aws = aws_provider(
            CLOUD,
            catalog=bundled_catalog(),
            accelerators={"A10G"},
            store=S3Store("mine", "runs/x", client=s3),
            environment={"CLOUDGAVEL_AWS_INSTANCE_PROFILE": "cloudgavel-agent"},
            now_s=self.cloud.now_s,
            clients=clients,
            read_spot_prices=False,
        )
        self.layer = layer
        self.provider = MirroredProvider(self.cloud, {"aws": self.aws})
        follow_ends(self.cloud, self.provider, {"aws": layer.interrupt})


@pytest.fixture
def dry():
    offers = bundled_catalog().search(
        providers={"aws"}, regions=CLOUD.regions, accelerators={"A10G"}
    )
    market = SeededMarket(seed=3, interruptions_per_hour=0.5, boot_delay_s=120.0)
    made = []
    layer = MotoLayer(now_s=lambda: made[0].cloud.now_s() if made else START_AT_S, offers=offers)
    with mocked_aws(layer) as clients:
        made.append(DryRun(clients, layer, market, offers))
        yield made[0]


def test_a_run_makes_its_calls_and_leaves_nothing_running(dry):
    job = JobSpec(
        name="letters",
        commands={"any": "python letters.py"},
        steps_total=20_000,
        accelerators=(AcceleratorRequest(accelerator="A10G"),),
        throughput_steps_per_s={"A10G": 2.0},
        deadline_s=12 * 3600.0,
    )
    run = RunSpec(name="dry", jobs=(job,), budget_usd=50.0, clouds=(CLOUD,))
    log = MemoryLog()
    log.append([RunCreated(at_s=START_AT_S, run_id="dry", spec=run, budget_usd=50.0)])
    loop = Loop(
        Surroundings(
            log=log,
            provider=dry.provider,
            channel=dry.world.channel,
            decide=bind_policy(policy_named("min_cost")),
            settings=LoopSettings(poll_s=None, agent_silence_s=None),
            paced=True,
        )
    )
    VirtualDriver(loop, dry.world).run()
    assert loop.state.ended == "finished"
    assert dry.layer.calls["RunInstances"] == dry.cloud.launch_calls > 0
    assert dry.layer.calls["DescribeInstances"] == 0
    assert len(dry.cloud.instance_ids()) == dry.layer.calls["RunInstances"]
    assert dry.layer.live_ids() == []


def test_a_machine_that_the_world_lost_no_longer_counts_against_the_account(dry):
    dry.layer.limits = [
        a_limit(
            capacity_type=CapacityType.SPOT,
            title="All G and VT Spot Instance Requests",
            vcpus=4.0,
        )
    ]
    offer = next(
        each
        for each in dry.provider.offers()
        if each.capacity_type is CapacityType.SPOT and each.vcpus == 4.0
    )
    first = dry.provider.launch(a_request(offer, token="1"))
    with pytest.raises(LaunchFailed):
        dry.provider.launch(a_request(offer, token="2"))
    dry.cloud.end(first.instance_id, EndReason.INTERRUPTED, dry.cloud.now_s())
    assert dry.layer.live_ids() == []
    dry.provider.launch(a_request(offer, token="2"))


def test_what_the_cloud_refuses_the_world_does_not_rent(dry):
    offer = next(each for each in dry.provider.offers() if each.zone == "use1-az1")
    dry.layer.faults.stocked_out = lambda zone, kind, is_spot: True
    with pytest.raises(LaunchFailed) as caught:
        dry.provider.launch(a_request(offer))
    assert caught.value.kind is FailureKind.CAPACITY
    assert dry.cloud.launch_calls == 0


def test_what_the_world_refuses_the_cloud_does_not_keep(dry):
    offer = next(each for each in dry.provider.offers() if each.zone == "use1-az1")
    dry.cloud.faults.refused_zones.add("use1-az1")
    with pytest.raises(LaunchFailed):
        dry.provider.launch(a_request(offer))
    assert dry.layer.live_ids() == []


def test_the_quotas_of_the_account_bind_the_dry_run(dry):
    limit = a_limit(vcpus=0.0)
    dry.layer.limits = [limit]
    assert [quota.limit for quota in dry.provider.quotas()] == [0.0]
    offer = next(
        each for each in dry.provider.offers() if each.capacity_type is CapacityType.ON_DEMAND
    )
    with pytest.raises(LaunchFailed) as caught:
        dry.provider.launch(a_request(offer))
    assert caught.value.kind is FailureKind.QUOTA
    assert dry.layer.calls["RunInstances"] == 0
