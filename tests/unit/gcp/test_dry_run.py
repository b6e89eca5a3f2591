"""A run in virtual time whose every call goes through the provider to a fake project."""

from collections import Counter

import pytest

from cloudgavel.jobs.spec import AcceleratorRequest, CloudSpec, JobSpec, RunSpec
from cloudgavel.objects.gcs import GcsStore
from cloudgavel.policies.registry import policy_named
from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.pricing.market import SeededMarket
from cloudgavel.providers.gcp.assembly import gcp_provider
from cloudgavel.providers.gcp.mocked.cloud import PROJECT, FakeGcp
from cloudgavel.providers.gcp.mocked.inside import mocked_gcp
from cloudgavel.providers.mirrored import MirroredProvider, follow_ends
from cloudgavel.providers.simulated.cloud import SimulatedCloud
from cloudgavel.providers.simulated.world import SimulatedWorld
from cloudgavel.runtime.assemble import bind_policy
from cloudgavel.runtime.drivers import VirtualDriver
from cloudgavel.runtime.loop import Loop, Surroundings
from cloudgavel.runtime.settings import LoopSettings
from cloudgavel.store.events import RunCreated
from cloudgavel.store.log import MemoryLog
from tests.unit.gcp.project import START_AT_S


@pytest.mark.parametrize(
    ("accelerator", "creation"),
    [("V100", "instances.insert"), ("tpu-v5litepod-8", "nodes.create")],
)
def test_a_run_makes_its_calls_and_leaves_nothing_running(accelerator, creation):
    catalog = bundled_catalog()
    offers = catalog.search(providers={"gcp"}, accelerators={accelerator})
    regions = tuple(sorted({offer.region for offer in offers}))
    world_cloud = SimulatedCloud(
        offers=offers,
        market=SeededMarket(seed=3, interruptions_per_hour=0.5, boot_delay_s=120.0),
        now_s=START_AT_S,
    )
    world = SimulatedWorld(world_cloud)
    fake = FakeGcp(now_s=world_cloud.now_s, offers=offers)
    fake.buckets.add("mine")
    heard: Counter[str] = Counter()
    spec = CloudSpec(provider="gcp", regions=regions, project=PROJECT)
    with mocked_gcp(fake, on_call=lambda call: heard.update([call.operation])) as clients:
        gcp = gcp_provider(
            spec,
            catalog=catalog,
            accelerators={accelerator},
            store=GcsStore("mine", "runs/x", endpoint=clients.endpoint),
            environment={"CLOUDGAVEL_GCP_SERVICE_ACCOUNT": "agent@x.iam.gserviceaccount.com"},
            now_s=world_cloud.now_s,
            clients=clients,
            read_prices=False,
            pause=lambda _: None,
        )
        provider = MirroredProvider(world_cloud, {"gcp": gcp})
        follow_ends(world_cloud, provider, {"gcp": fake.vanish})
        job = JobSpec(
            name="letters",
            commands={"any": "python letters.py"},
            steps_total=20_000,
            accelerators=(AcceleratorRequest(accelerator=accelerator),),
            throughput_steps_per_s={accelerator: 2.0},
            deadline_s=12 * 3600.0,
        )
        run = RunSpec(name="dry", jobs=(job,), budget_usd=200.0, clouds=(spec,))
        log = MemoryLog()
        log.append([RunCreated(at_s=START_AT_S, run_id="dry", spec=run, budget_usd=200.0)])
        loop = Loop(
            Surroundings(
                log=log,
                provider=provider,
                channel=world.channel,
                decide=bind_policy(policy_named("min_cost")),
                settings=LoopSettings(poll_s=None, agent_silence_s=None),
                paced=True,
            )
        )
        VirtualDriver(loop, world).run()
        assert loop.state.ended == "finished"
        assert fake.calls[creation] == world_cloud.launch_calls > 0
        assert fake.calls["instances.aggregatedList"] == 0
        assert heard["insert_unary"] + heard["create_node"] == fake.calls[creation]
        names = {each.name for each in (*fake.vms.values(), *fake.slices.values())}
        assert len(names) == fake.calls[creation]
        assert {fake.status(name) for name in names} == {None}
