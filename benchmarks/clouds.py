"""Fifty launches at once and a listing of a thousand machines, through the real provider code.

Run: ``python -m benchmarks.clouds``. Each launch call is made to take two seconds, as on a cloud:
the wall time of fifty should be near that of one. Clouds are mocked, nothing is rented; of listings
the CPU seconds of the whole process are told, the mock's own work included.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from cloudgavel.clock import VirtualClock
from cloudgavel.jobs.spec import CloudSpec
from cloudgavel.objects.gcs import GcsStore
from cloudgavel.objects.s3 import S3Store
from cloudgavel.pricing.bundled import bundled_catalog
from cloudgavel.pricing.offer import CapacityType, Offer
from cloudgavel.providers.aws.assembly import aws_provider
from cloudgavel.providers.aws.clients import AwsClients
from cloudgavel.providers.aws.mocked.inside import mocked_aws
from cloudgavel.providers.aws.mocked.layer import MotoLayer
from cloudgavel.providers.base import LaunchRequest, Provider
from cloudgavel.providers.gcp.assembly import gcp_provider
from cloudgavel.providers.gcp.mocked.cloud import PROJECT, FakeGcp
from cloudgavel.providers.gcp.mocked.inside import mocked_gcp
from cloudgavel.runtime.cloud_world import POOL_SIZE

NOW_S = 1_790_000_000.0
CALL_S = 2.0
RUN_ID = "benchmark"
MACHINES = 1_000


def fifty_launches(provider: Provider, offer: Offer) -> str:
    def launch(number: int) -> float:
        begun_s = time.perf_counter()
        provider.launch(LaunchRequest(token=f"{RUN_ID}-{number}", run_id=RUN_ID, offer=offer))
        return time.perf_counter() - begun_s

    launch(0)
    begun_s = time.perf_counter()
    with ThreadPoolExecutor(POOL_SIZE) as pool:
        slowest_s = max(pool.map(launch, range(1, 51)))
    wall_s = time.perf_counter() - begun_s
    return f"50 launches: {wall_s:.2f} s wall, slowest call {slowest_s:.2f} s"


def listing(provider: Provider, calls: Callable[[], int]) -> str:
    begun_s, before = time.process_time(), calls()
    found = len(provider.list_instances(RUN_ID))
    cpu_s = time.process_time() - begun_s
    return f"{found:,} machines listed: {cpu_s:.2f} s CPU, {calls() - before} calls"


def spot_offer(provider: Provider, accelerator: str) -> Offer:
    return min(
        (
            offer
            for offer in provider.offers()
            if offer.accelerator == accelerator and offer.capacity_type is CapacityType.SPOT
        ),
        key=lambda offer: offer.price_usd_per_hour or 0.0,
    )


def on_aws() -> None:
    catalog = bundled_catalog()
    clock = VirtualClock(NOW_S)
    layer = MotoLayer(now_s=clock.now_s, offers=catalog.search(providers={"aws"}))
    slow = [False]

    def before(request: object) -> None:
        if slow[0] and getattr(request, "operation", "") == "RunInstances":
            time.sleep(CALL_S)

    layer.before = before
    with mocked_aws(layer) as clients:
        provider = _aws(clients, clock)
        slow[0] = True
        print("aws", fifty_launches(provider, spot_offer(provider, "A10G")))
        print("aws", listing(provider, lambda: layer.calls["DescribeInstances"]))


def _aws(clients: AwsClients, clock: VirtualClock) -> Provider:
    s3 = clients.client("s3", "us-east-1")
    s3.create_bucket(Bucket="benchmark")
    return aws_provider(
        CloudSpec(provider="aws", regions=("us-east-1",)),
        catalog=bundled_catalog(),
        accelerators={"A10G"},
        store=S3Store("benchmark", client=s3),
        environment={"CLOUDGAVEL_AWS_INSTANCE_PROFILE": "cloudgavel-agent"},
        now_s=clock.now_s,
        clients=clients,
        read_spot_prices=False,
    )


def on_google() -> None:
    catalog = bundled_catalog()
    clock = VirtualClock(NOW_S)
    fake = FakeGcp(now_s=clock.now_s, offers=catalog.search(providers={"gcp"}))
    fake.buckets.add("benchmark")
    with mocked_gcp(
        fake,
        on_call=lambda call: time.sleep(CALL_S if call.operation == "insert_unary" else 0.0),
    ) as clients:
        provider = gcp_provider(
            CloudSpec(provider="gcp", regions=("us-central1",), project=PROJECT),
            catalog=catalog,
            accelerators={"V100"},
            store=GcsStore("benchmark", endpoint=clients.endpoint),
            environment={"CLOUDGAVEL_GCP_SERVICE_ACCOUNT": "agent@x.iam.gserviceaccount.com"},
            now_s=clock.now_s,
            clients=clients,
            read_prices=False,
            pause=lambda seconds: None,
        )
        print("gcp", fifty_launches(provider, spot_offer(provider, "V100")))
        (_, first), *_ = fake.vms.items()
        for number in range(MACHINES - len(fake.vms)):
            name = f"cloudgavel-vm-{number}"
            copy = replace(first, name=name, body={**first.body, "name": name})
            fake.vms[first.zone, name] = copy
        print("gcp", listing(provider, lambda: fake.calls["instances.aggregatedList"]))


if __name__ == "__main__":
    on_aws()
    on_google()
